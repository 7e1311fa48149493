"""The compiled kernels alone: a batch is changed, framed and decoded into columns in one compiled loop.

Compression is left out: the payload of an open seed is taken for what its codec made. Every buffer that is
read ends, or begins, at a guard page, and so do the columns that are written.
"""

from __future__ import annotations

from typing import Any

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels.codecs import xxh32
from kafka_log_lake.udfs.kernels.framing import batch_size, scan_batches
from kafka_log_lake.udfs.kernels.jit import copy_bytes, kernel
from kafka_log_lake.udfs.kernels.record_batches import decode_batches, make_room, most_records
from kafka_log_lake.udfs.vectorized_varint import read_varint, read_varlong
from tests.fuzz import mutate

# Of the shared numbers (int64): what the watchdog reads
INPUTS, SIZE, BEGIN, SOUND, WITH_RECORDS, RECORDS, BROKEN, PEAK, COMPARED = range(9)
LAST = 9  # the batch that was decoded last
NUMBERS = 16
# What BROKEN names
BROKEN_RULES = (
    "",
    "more rows than there can be",
    "more bytes in the columns than in the payload",
    "a batch that was not taken, though there was room for it",
    "a batch at fault that has rows",
    "a batch that takes more bytes than there are",
    "a varint that ends outside",
)


@kernel
def _broken(e: Any, taken: int, filled: Any, most: int) -> int:
    """The rule (BROKEN_RULES) that is broken by what decoding the batch ``e`` gave; 0: none."""
    if taken != 1:
        return 3
    if filled["rows"] > most:
        return 1
    found = filled["key_bytes"] + filled["value_bytes"]
    found += filled["header_key_bytes"] + filled["header_value_bytes"]
    if found + f.MIN_HEADER_SIZE * filled["headers"] > e["data_size"]:
        return 2
    return 4 if e["fault"] and filled["rows"] else 0


@kernel
def _small_reads(buf: Any, n: int, state: Any) -> int:
    """The kernels that look at a place: varints, lengths and magics, the checksum of lz4."""
    at, end = mutate.draw(state, n), n - mutate.draw(state, 3)
    _, varint_end = read_varint(buf, at, end)
    _, varlong_end = read_varlong(buf, at, end)
    xxh32(buf, at, n)
    for place in range(n):
        batch_size(buf, place, n)
    return 6 if varint_end > end or varlong_end > end else 0


@kernel
def _decode(
    buf: Any, expanded: Any, batches: Any, k: int, memory: Any, lines: Any, sizes: Any,
    cursor: Any, both: Any, room: Any, at: Any,
) -> int:  # fmt: skip
    """Decode batch ``k`` alone into columns that end where ``memory`` (uint8) ends; the broken rule.

    The others: as ``decode_batches`` and ``lay_out`` take them, but for a third row of ``both``, of zeros.
    """
    e = batches[k]
    if not e["fault"] and e["codec"] != f.CODEC_NONE:
        size = e["payload_size"]
        e["expanded"], e["data_at"], e["data_size"] = 1, len(expanded) - size, size
        copy_bytes(expanded, len(expanded) - size, buf, e["payload_at"], size)
    both[0] = both[2]
    make_room(e["data_size"], both[:1], room)
    a.lay_out(sizes, room, at)
    arena = memory[len(memory) - at[a.PARTS] :]
    most = most_records(e)
    taken = decode_batches(buf, expanded, batches[k : k + 1], arena, at, lines, cursor, both, room)
    return 5 if e["size"] > len(buf) - e["at"] else _broken(e, taken, both[0], most)


@kernel
def run(
    seeds: Any, starts: Any, window: Any, expanded: Any, batches: Any, memory: Any, lines: Any, sizes: Any,
    cursor: Any, both: Any, room: Any, at: Any, state: Any, numbers: Any, work: Any, rounds: int,
) -> int:  # fmt: skip
    """``rounds`` inputs; stops at a broken rule. Returns the records of the last batch of the last input.

    ``window``, ``expanded``: uint8 between guard pages; ``memory``: uint8 for columns, ends at one; ``lines``
    to ``at``: of ``_decode``; ``numbers``: shared; ``work``: uint8[ROOM].
    """
    made = 0
    for _ in range(rounds):
        n = mutate.pick(seeds, starts, work, state)
        n = mutate.change(work, n, state)
        mutate.mend_mostly(work, n, state)
        begin = 0 if mutate.draw(state, 4) == 0 else len(window) - n
        buf = window[begin : begin + n]
        copy_bytes(buf, 0, work, 0, n)
        numbers[SIZE], numbers[BEGIN] = n, begin
        numbers[INPUTS] += 1
        if mutate.draw(state, 16) == 0:
            numbers[BROKEN] = _small_reads(buf, n, state)
        found, used, _, _ = scan_batches(buf, n, 0, n, 0, batches)
        if used > n:
            numbers[BROKEN] = 5
        made = 0
        for k in range(found):
            broken = _decode(buf, expanded, batches, k, memory, lines, sizes, cursor, both, room, at)
            if broken:
                numbers[BROKEN] = broken
            made = both[0]["rows"]
            numbers[LAST] = k
            numbers[SOUND] += 1
            numbers[WITH_RECORDS] += made > 0
            numbers[RECORDS] += made
        if numbers[BROKEN]:
            return -1
    return made
