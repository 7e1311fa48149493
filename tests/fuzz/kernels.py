"""The compiled kernels alone: an entry is changed, framed and indexed in one compiled loop.

Compression is left out: the payload of an open seed is taken for what its codec made. Every buffer that is
read ends, or begins, at a guard page, and so do the rows that are written.
"""

from __future__ import annotations

from typing import Any

from tests.fuzz import mutate
from udfs.format import layout as f
from udfs.kernels.codecs import xxh32
from udfs.kernels.framing import batch_size, scan_batches
from udfs.kernels.jit import kernel
from udfs.kernels.record_index import index_batches, most_records
from udfs.kernels.record_rows import (
    CURSOR,
    ROW_FIELDS,
    ROW_HEADERS,
    ROW_HEADERS_AT,
    ROW_KEY_AT,
    ROW_KEY_SIZE,
    ROW_VALUE_AT,
    ROW_VALUE_SIZE,
    TOTALS,
)
from udfs.vectorized_varint import read_varint, read_varlong

# Of the shared numbers (int64): what the watchdog reads
INPUTS, SIZE, BEGIN, SOUND, WITH_RECORDS, RECORDS, BROKEN, PEAK, COMPARED = range(9)
NUMBERS = 16
LAST = 23  # of the totals (int64[24]): the entry that was indexed last
# What BROKEN names
BROKEN_RULES = (
    "",
    "more rows than there can be",
    "a key outside the payload",
    "a value outside the payload",
    "headers outside the payload",
    "an entry that takes more bytes than there are",
    "a varint that ends outside",
)


@kernel
def _check_rows(rows: Any, n: int, most: int, low: int, end: int) -> int:
    """The broken rule (BROKEN_RULES) of ``n`` rows, whose data lie from ``low`` to ``end``; 0: none."""
    if n > most:
        return 1
    for i in range(n):
        key_at, value_at, headers_at = rows[ROW_KEY_AT, i], rows[ROW_VALUE_AT, i], rows[ROW_HEADERS_AT, i]
        if key_at < low or key_at + max(0, rows[ROW_KEY_SIZE, i]) > end:
            return 2
        if value_at < low or value_at + max(0, rows[ROW_VALUE_SIZE, i]) > end:
            return 3
        count = rows[ROW_HEADERS, i]
        if count and (headers_at < low or headers_at + 2 * count > end):
            return 4
    return 0


@kernel
def rows_at_end(memory: Any, most: int) -> Any:
    """Rows for ``most`` records that end where ``memory`` (int64) ends."""
    return memory[len(memory) - ROW_FIELDS * most :].reshape((ROW_FIELDS, most))


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
def _index(buf: Any, expanded: Any, entries: Any, k: int, memory: Any, work: Any, numbers: Any) -> int:
    """Index entry ``k`` alone; -1 for a broken rule, noted.

    ``work``: cursor, totals and sums in one, and ``k`` at LAST.
    """
    e = entries[k]
    low, end = 0, len(buf)
    if not e["fault"] and e["codec"] != f.CODEC_NONE:
        size = e["payload_size"]
        e["expanded"], e["data_at"], e["data_size"] = 1, len(expanded) - size, size
        expanded[len(expanded) - size :] = buf[e["payload_at"] : e["payload_at"] + size]
        low, end = len(expanded) - size, len(expanded)
    most = most_records(e)
    mine = rows_at_end(memory, most)
    work[:] = 0
    cursor, totals, sums = work[0:10].view(CURSOR), work[10:16].view(TOTALS), work[16:22].view(TOTALS)
    n = index_batches(buf, expanded, entries[k : k + 1], mine, cursor, totals, sums)
    work[LAST] = k
    broken = _check_rows(mine, n, most, low, end)
    if e["size"] > len(buf) - e["at"]:
        broken = 5
    if broken:
        numbers[BROKEN] = broken
        return -1
    return n


@kernel
def run(
    seeds: Any, starts: Any, window: Any, expanded: Any, entries: Any, memory: Any, state: Any, numbers: Any,
    work: Any, totals: Any, rounds: int,
) -> int:  # fmt: skip
    """``rounds`` inputs; stops at a broken rule. Returns the records of the last entry of the last input.

    ``window``, ``expanded``: uint8 between guard pages; ``memory``: int64 for rows, ends at one; ``numbers``:
    shared; ``work``: uint8[ROOM]; ``totals``: int64[24], at last those of the last entry, sums in [10:16].
    """
    made = 0
    for _ in range(rounds):
        n = mutate.pick(seeds, starts, work, state)
        n = mutate.change(work, n, state)
        mutate.mend_mostly(work, n, state)
        begin = 0 if mutate.draw(state, 4) == 0 else len(window) - n
        buf = window[begin : begin + n]
        buf[:] = work[:n]
        numbers[SIZE], numbers[BEGIN] = n, begin
        numbers[INPUTS] += 1
        if mutate.draw(state, 16) == 0:
            numbers[BROKEN] = _small_reads(buf, n, state)
        found, used, _, _ = scan_batches(buf, n, 0, n, 0, entries)
        if used > n:
            numbers[BROKEN] = 5
        made = 0
        for k in range(found):
            made = _index(buf, expanded, entries, k, memory, totals, numbers)
            numbers[SOUND] += 1
            numbers[WITH_RECORDS] += made > 0
            numbers[RECORDS] += max(made, 0)
        if numbers[BROKEN]:
            return -1
    return made
