"""The compiled kernels alone: an entry is changed, framed and indexed in one compiled loop.

Compression is left out: the payload of an open seed is taken for what its codec made. Every buffer that is
read ends, or begins, at a guard page, and so do the rows that are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz import mutate
from udfs import format as f
from udfs.codecs import xxh32
from udfs.framing import scan_entries
from udfs.jit import kernel
from udfs.record_index import index_entries, most_records
from udfs.resync import plausible
from udfs.vectorized_varint import read_varint, read_varlong

# Of the shared numbers (int64): what the watchdog reads
INPUTS, SIZE, BEGIN, SOUND, WITH_RECORDS, RECORDS, BROKEN, PEAK, COMPARED = range(9)
NUMBERS = 16
# What BROKEN names
BROKEN_RULES = (
    "",
    "more rows than there can be",
    "a key outside the payload",
    "a value outside the payload",
    "headers outside the payload",
    "a row of another entry",
    "an entry that takes more bytes than there are",
    "a varint that ends outside",
)


@kernel
def _check_rows(rows: Any, n: int, most: int, low: int, end: int, entry: int) -> int:
    """The broken rule (BROKEN_RULES) of ``rows[0:n]``, whose data lie from ``low`` to ``end``; 0: none."""
    if n > most:
        return 1
    for i in range(n):
        row = rows[i]
        if row["key_at"] < low or row["key_at"] + max(0, np.int64(row["key_size"])) > end:
            return 2
        if row["value_at"] < low or row["value_at"] + max(0, np.int64(row["value_size"])) > end:
            return 3
        if row["headers"] and (row["headers_at"] < low or row["headers_at"] + 2 * row["headers"] > end):
            return 4
        if row["entry"] != entry:
            return 5
    return 0


@kernel
def _small_reads(buf: Any, n: int, state: Any) -> int:
    """The kernels that look at a place: varints, plausible headers, the checksum of lz4."""
    at, end = mutate.draw(state, n), n - mutate.draw(state, 3)
    _, varint_end = read_varint(buf, at, end)
    _, varlong_end = read_varlong(buf, at, end)
    xxh32(buf, at, n)
    for place in range(n - f.HEADER_UP_TO_MAGIC + 1):
        plausible(buf, place, n, n - place + mutate.draw(state, 2) * 1000, place % 2 == 0)
    return 7 if varint_end > end or varlong_end > end else 0


@kernel
def _index(buf: Any, expanded: Any, entries: Any, k: int, rows: Any, work: Any, numbers: Any) -> int:
    """Index entry ``k`` alone; -1 for a broken rule, noted. ``work``: cursor, totals and sums in one."""
    e = entries[k]
    low, end = 0, len(buf)
    if not e["fault"] and e["codec"] != f.CODEC_NONE:
        size = e["payload_size"]
        e["expanded"], e["data_at"], e["data_size"] = 1, len(expanded) - size, size
        expanded[len(expanded) - size :] = buf[e["payload_at"] : e["payload_at"] + size]
        low, end = len(expanded) - size, len(expanded)
    most = most_records(e)
    mine = rows[len(rows) - most :]
    work[:] = 0
    n = index_entries(buf, expanded, entries, k, k + 1, mine, work[0:8], work[8:16], work[16:24])
    broken = _check_rows(mine, n, most, low, end, k)
    if e["size"] > len(buf) - e["at"]:
        broken = 6
    if broken:
        numbers[BROKEN] = broken
        return -1
    return n


@kernel
def run(
    seeds: Any, starts: Any, window: Any, expanded: Any, entries: Any, rows: Any, state: Any, numbers: Any,
    work: Any, totals: Any, rounds: int,
) -> int:  # fmt: skip
    """``rounds`` inputs; stops at a broken rule. Returns the records of the last entry of the last input.

    ``window``, ``expanded``: uint8 between guard pages; ``rows``: RECORD, ends at one; ``numbers``: shared;
    ``work``: uint8[ROOM]; ``totals``: int64[24], at last those of the last entry, its sums in [8:16].
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
        found, used, _ = scan_entries(buf, n, 0, n, entries)
        if used > n:
            numbers[BROKEN] = 6
        made = 0
        for k in range(found):
            made = _index(buf, expanded, entries, k, rows, totals, numbers)
            numbers[SOUND] += 1
            numbers[WITH_RECORDS] += made > 0
            numbers[RECORDS] += max(made, 0)
        if numbers[BROKEN]:
            return -1
    return made
