"""Rows of positions -> Arrow columns: the second pass, into buffers of exactly the right size.

All columns of a group of entries lie in one allocation from Arrow's pool (the arena), whose layout
``_lay_out`` reckons from the totals of the first pass. What is constant in an entry is written as runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from udfs.arrow.jvm_text import repair_utf8
from udfs.format import layout as f
from udfs.format.schema import HEADER_TYPE
from udfs.kernels.jit import borrowed, copy_bytes, copy_sixteen, kernel
from udfs.kernels.record_index import (
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    HEADERS,
    KEY_BYTES,
    NOT_ASCII,
    ROW_HEADERS,
    ROW_HEADERS_AT,
    ROW_KEY_AT,
    ROW_KEY_SIZE,
    ROW_OFFSET,
    ROW_SEQUENCE,
    ROW_SIZE,
    ROW_TIMESTAMP,
    ROW_VALUE_AT,
    ROW_VALUE_SIZE,
    VALUE_BYTES,
)
from udfs.vectorized_varint import varint_at

# Parts of the arena
(
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_VALID,
    TIMESTAMP_TYPE,
    MAGIC,
    TIMESTAMP_MS,
    POSITION,
    SEQUENCE,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    LEADER_EPOCH,
    TRANSACTIONAL,
    CONTROL,
    SIZE,
    KEY_OFFSETS,
    KEY_VALID,
    KEY_DATA,
    VALUE_OFFSETS,
    VALUE_VALID,
    VALUE_DATA,
    HEADER_OFFSETS,
    HEADER_VALID,
    HKEY_OFFSETS,
    HKEY_DATA,
    HVALUE_OFFSETS,
    HVALUE_VALID,
    HVALUE_DATA,
) = range(27)
PARTS = 27
_MOST = (1 << 63) - 1
_SLACK = 16  # short copies write whole words

# Counts that the kernel gives back
NULL_KEYS, NULL_VALUES, NULL_HEADERS, NULL_TIMESTAMPS, NULL_HVALUES, CONTROLS = range(6)
MIN_OFFSET, MAX_OFFSET, MIN_TIMESTAMP, MAX_TIMESTAMP = range(6, 10)  # timestamps in us, of those not null
COUNTS_SIZE = 10


@kernel
def _lay_out(n: int, totals: Any, at: Any) -> None:
    """``at`` (int64[PARTS + 1]): where each part begins in the arena (aligned to 64 bytes), and its size."""
    bits, headers = (n + 7) // 8, totals[HEADERS]
    for wide in (OFFSET, TIMESTAMP, TIMESTAMP_MS, POSITION, PRODUCER_ID):
        at[wide + 1] = 8 * n
    for narrow in (TIMESTAMP_TYPE, SEQUENCE, LEADER_EPOCH, SIZE):
        at[narrow + 1] = 4 * n
    for flags in (TIMESTAMP_VALID, TRANSACTIONAL, CONTROL, KEY_VALID, VALUE_VALID, HEADER_VALID):
        at[flags + 1] = bits
    for offsets in (KEY_OFFSETS, VALUE_OFFSETS, HEADER_OFFSETS):
        at[offsets + 1] = 4 * (n + 1)
    at[MAGIC + 1] = n
    at[PRODUCER_EPOCH + 1] = 2 * n
    at[KEY_DATA + 1] = totals[KEY_BYTES] + _SLACK
    at[VALUE_DATA + 1] = totals[VALUE_BYTES] + _SLACK
    at[HKEY_OFFSETS + 1] = 4 * (headers + 1)
    at[HVALUE_OFFSETS + 1] = 4 * (headers + 1)
    at[HKEY_DATA + 1] = totals[HEADER_KEY_BYTES] + _SLACK
    at[HVALUE_VALID + 1] = (headers + 7) // 8
    at[HVALUE_DATA + 1] = totals[HEADER_VALUE_BYTES] + _SLACK
    at[0] = 0
    for part in range(PARTS):
        at[part + 1] = at[part] + (at[part + 1] + 63) // 64 * 64


@kernel
def _gather_bytes(
    buf: Any, starts: Any, sizes: Any, begin: int, end: int, offsets: Any, valid: Any, data: Any, at: int
) -> int:
    """Gather the keys or values of some rows: offsets, validity bits, bytes from ``at`` on.

    ``starts``, ``sizes``: int64[n], two lines of the rows. Returns where the bytes end.
    """
    bits = np.int64(valid[begin >> 3])  # gathered in a register: a byte written again and again stalls
    most = len(buf) - _SLACK
    for i in range(begin, end):
        size = sizes[i]
        offsets[i] = at
        if size >= 0:
            bits |= 1 << (i & 7)
            start = starts[i]
            if size <= _SLACK and start <= most:
                copy_sixteen(data, at, buf, start)
            else:
                copy_bytes(data, at, buf, start, size)
            at += size
        if i & 7 == 7:
            valid[i >> 3] = bits
            bits = 0
    if end & 7:
        valid[end >> 3] = bits
    return at


@kernel
def _gather_headers(
    buf: Any,
    rows: Any,
    begin: int,
    end: int,
    offsets: Any,
    valid: Any,
    key_offsets: Any,
    key_data: Any,
    value_offsets: Any,
    value_valid: Any,
    value_data: Any,
    ends: Any,
) -> None:
    """Gather the headers of some rows into list<struct<key, value>>; the first pass checked them.

    ``ends``: int64[3], headers, bytes of keys and bytes of values so far; moved on.
    """
    header, key_at, value_at = ends[0], ends[1], ends[2]
    most = len(buf)
    bits = np.int64(valid[begin >> 3])
    value_bits = np.int64(value_valid[header >> 3]) if header & 7 else 0
    for i in range(begin, end):
        offsets[i] = header
        count = rows[ROW_HEADERS, i]
        if count:
            bits |= 1 << (i & 7)
        if i & 7 == 7:
            valid[i >> 3] = bits
            bits = 0
        p = rows[ROW_HEADERS_AT, i]
        for _ in range(count):
            key_offsets[header] = key_at
            value_offsets[header] = value_at
            size, p = varint_at(buf, p, most)
            if size <= _SLACK and p + _SLACK <= most:
                copy_sixteen(key_data, key_at, buf, p)
            else:
                copy_bytes(key_data, key_at, buf, p, size)
            key_at += size
            size, p = varint_at(buf, p + size, most)
            if size >= 0:
                value_bits |= 1 << (header & 7)
                if size <= _SLACK and p + _SLACK <= most:
                    copy_sixteen(value_data, value_at, buf, p)
                else:
                    copy_bytes(value_data, value_at, buf, p, size)
                value_at += size
                p += size
            if header & 7 == 7:
                value_valid[header >> 3] = value_bits
                value_bits = 0
            header += 1
    if end & 7:
        valid[end >> 3] = bits
    if header & 7:
        value_valid[header >> 3] = value_bits
    ends[0], ends[1], ends[2] = header, key_at, value_at


_BITS = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


@kernel
def _unset(bits: Any, n: int) -> int:
    """How many of the first ``n`` bits are 0; bits behind them are 0, too."""
    count = 0
    for i in range((n + 7) >> 3):
        count += np.int64(_BITS[bits[i]])
    return n - count


@kernel
def _run_end(e: Any, begin: int, n: int) -> int:
    """Where the rows of an entry end that begin at ``begin``; of a batch in chunks only ``n`` are there."""
    return begin if e["fault"] else min(begin + np.int64(e["record_count"]), n)


@kernel
def _fill_runs(entries: Any, n: int, arena: Any, at: Any) -> int:
    """Columns that are constant in an entry, a run of rows at a time. Returns the control records."""
    magic = arena[at[MAGIC] : at[MAGIC] + n].view(np.int8)
    kind = arena[at[TIMESTAMP_TYPE] : at[TIMESTAMP_TYPE] + 4 * n].view(np.int32)
    position = arena[at[POSITION] : at[POSITION] + 8 * n].view(np.int64)
    producer = arena[at[PRODUCER_ID] : at[PRODUCER_ID] + 8 * n].view(np.int64)
    producer_epoch = arena[at[PRODUCER_EPOCH] : at[PRODUCER_EPOCH] + 2 * n].view(np.int16)
    leader = arena[at[LEADER_EPOCH] : at[LEADER_EPOCH] + 4 * n].view(np.int32)
    transactional = arena[at[TRANSACTIONAL] : at[CONTROL]]
    control = arena[at[CONTROL] : at[SIZE]]
    transactional[:] = 0
    control[:] = 0
    controls = 0
    begin = 0
    for k in range(len(entries)):
        e = entries[k]
        end = _run_end(e, begin, n)
        if end == begin:
            continue
        magic[begin:end] = e["magic"]
        kind[begin:end] = e["timestamp_type"]
        position[begin:end] = e["position"]
        producer[begin:end] = e["producer_id"]
        producer_epoch[begin:end] = e["producer_epoch"]
        leader[begin:end] = e["leader_epoch"]
        if e["magic"] == f.MAGIC_V2:
            if e["attributes"] & f.TRANSACTIONAL_MASK:
                for i in range(begin, end):
                    transactional[i >> 3] |= np.uint8(1 << (i & 7))
            if e["attributes"] & f.CONTROL_MASK:
                for i in range(begin, end):
                    control[i >> 3] |= np.uint8(1 << (i & 7))
                controls += end - begin
        begin = end
    return controls


@kernel
def _fill_numbers(rows: Any, n: int, arena: Any, at: Any, counts: Any) -> None:
    """Columns that differ from record to record, with their bounds."""
    offset = arena[at[OFFSET] : at[OFFSET] + 8 * n].view(np.int64)
    milliseconds = arena[at[TIMESTAMP_MS] : at[TIMESTAMP_MS] + 8 * n].view(np.int64)
    microseconds = arena[at[TIMESTAMP] : at[TIMESTAMP] + 8 * n].view(np.int64)
    sequence = arena[at[SEQUENCE] : at[SEQUENCE] + 4 * n].view(np.int32)
    size = arena[at[SIZE] : at[SIZE] + 4 * n].view(np.int32)
    valid = arena[at[TIMESTAMP_VALID] : at[TIMESTAMP_TYPE]]
    nulls = 0
    bits = 0
    lowest, highest = rows[ROW_OFFSET, 0], rows[ROW_OFFSET, 0]
    earliest, latest = _MOST, -_MOST
    for i in range(n):
        value = rows[ROW_OFFSET, i]
        offset[i] = value
        lowest = min(lowest, value)
        highest = max(highest, value)
    for i in range(n):
        sequence[i] = rows[ROW_SEQUENCE, i]
    for i in range(n):
        size[i] = rows[ROW_SIZE, i]
    for i in range(n):
        timestamp = rows[ROW_TIMESTAMP, i]
        milliseconds[i] = timestamp
        if timestamp == f.NO_TIMESTAMP or timestamp < f.MIN_TIMESTAMP_MS or timestamp > f.MAX_TIMESTAMP_MS:
            microseconds[i] = 0
            nulls += 1
        else:
            microseconds[i] = timestamp * 1000
            earliest = min(earliest, timestamp * 1000)
            latest = max(latest, timestamp * 1000)
            bits |= 1 << (i & 7)
        if i & 7 == 7:
            valid[i >> 3] = bits
            bits = 0
    if n & 7:
        valid[n >> 3] = bits
    counts[NULL_TIMESTAMPS] = nulls
    counts[MIN_OFFSET] = lowest
    counts[MAX_OFFSET] = highest
    counts[MIN_TIMESTAMP] = earliest
    counts[MAX_TIMESTAMP] = latest


@kernel
def fill(
    window: Any, scratch: Any, entries: Any, rows: Any, n: int, headers: int, arena: Any, at: Any, counts: Any
) -> None:
    """Fill the arena (uint8, laid out by ``at``) from the first ``n`` rows.

    ``headers``: how many the rows have; their part of the arena is left as it is where they have none.
    ``counts``: int64[COUNTS_SIZE] out.
    """
    window, scratch, arena = borrowed(window), borrowed(scratch), borrowed(arena)
    entries, rows, at = borrowed(entries), borrowed(rows), borrowed(at)
    _fill_numbers(rows, n, arena, at, counts)
    counts[CONTROLS] = _fill_runs(entries, n, arena, at)
    key_offsets = arena[at[KEY_OFFSETS] : at[KEY_VALID]].view(np.int32)
    key_valid = arena[at[KEY_VALID] : at[KEY_DATA]]
    key_data = arena[at[KEY_DATA] : at[VALUE_OFFSETS]]
    value_offsets = arena[at[VALUE_OFFSETS] : at[VALUE_VALID]].view(np.int32)
    value_valid = arena[at[VALUE_VALID] : at[VALUE_DATA]]
    value_data = arena[at[VALUE_DATA] : at[HEADER_OFFSETS]]
    list_offsets = arena[at[HEADER_OFFSETS] : at[HEADER_VALID]].view(np.int32)
    list_valid = arena[at[HEADER_VALID] : at[HKEY_OFFSETS]]
    hkey_offsets = arena[at[HKEY_OFFSETS] : at[HKEY_DATA]].view(np.int32)
    hkey_data = arena[at[HKEY_DATA] : at[HVALUE_OFFSETS]]
    hvalue_offsets = arena[at[HVALUE_OFFSETS] : at[HVALUE_VALID]].view(np.int32)
    hvalue_valid = arena[at[HVALUE_VALID] : at[HVALUE_DATA]]
    hvalue_data = arena[at[HVALUE_DATA] : at[PARTS]]
    key_valid[:] = 0
    value_valid[:] = 0
    list_valid[:] = 0
    hvalue_valid[:] = 0
    ends = np.zeros(3, dtype=np.int64)
    key_end = 0
    value_end = 0
    begin = 0
    k = 0
    while begin < n:  # a run of rows whose data lie in the same buffer: nearly always all
        expanded = entries[k]["expanded"]
        end = begin
        while k < len(entries) and (
            entries[k]["expanded"] == expanded or _run_end(entries[k], end, n) == end
        ):
            end = _run_end(entries[k], end, n)
            k += 1
        buf = scratch if expanded else window
        work = (buf, rows[ROW_KEY_AT], rows[ROW_KEY_SIZE], begin, end)
        key_end = _gather_bytes(*work, key_offsets, key_valid, key_data, key_end)
        work = (buf, rows[ROW_VALUE_AT], rows[ROW_VALUE_SIZE], begin, end)
        value_end = _gather_bytes(*work, value_offsets, value_valid, value_data, value_end)
        if headers:
            _gather_headers(
                buf,
                rows,
                begin,
                end,
                list_offsets,
                list_valid,
                hkey_offsets,
                hkey_data,
                hvalue_offsets,
                hvalue_valid,
                hvalue_data,
                ends,
            )
        begin = end
    key_offsets[n] = key_end
    value_offsets[n] = value_end
    list_offsets[n] = ends[0]
    hkey_offsets[ends[0]] = ends[1]
    hvalue_offsets[ends[0]] = ends[2]
    counts[NULL_KEYS] = _unset(key_valid, n)
    counts[NULL_VALUES] = _unset(value_valid, n)
    counts[NULL_HEADERS] = _unset(list_valid, n)
    counts[NULL_HVALUES] = _unset(hvalue_valid, ends[0])


class _Arena:
    """The filled allocation, cut into Arrow arrays without a copy."""

    def __init__(self, buffer: pa.Buffer, at: np.ndarray) -> None:
        self._buffer = buffer
        self._at = at.tolist()

    def part(self, which: int) -> pa.Buffer:
        return self._buffer.slice(self._at[which], self._at[which + 1] - self._at[which])

    def plain(self, kind: pa.DataType, n: int, which: int, valid: int = -1, nulls: int = 0) -> pa.Array:
        validity = self.part(valid) if nulls else None
        return pa.Array.from_buffers(kind, n, [validity, self.part(which)], nulls)

    def sized(self, kind: pa.DataType, n: int, which: int, nulls: int) -> pa.Array:
        """Offsets, validity and data follow each other in the arena."""
        validity = self.part(which + 1) if nulls else None
        return pa.Array.from_buffers(kind, n, [validity, self.part(which), self.part(which + 2)], nulls)


_TIMESTAMP = pa.timestamp("us", "UTC")
_CONTROL_NAMES = pa.array([*f.CONTROL_TYPES, "UNKNOWN"])
NAMES = (
    "key",
    "value",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "magic",
    "timestamp_ms",
    "batch_position",
    "sequence",
    "producer_id",
    "producer_epoch",
    "leader_epoch",
    "is_transactional",
    "is_control",
    "control_type",
    "size_bytes",
)


def _header_lists(arena: _Arena, n: int, headers: int, counts: np.ndarray, ascii_keys: bool) -> pa.Array:
    if headers == 0:
        return pa.nulls(n, HEADER_TYPE)
    key_buffers = [None, arena.part(HKEY_OFFSETS), arena.part(HKEY_DATA)]
    if ascii_keys:
        keys = pa.Array.from_buffers(pa.string(), headers, key_buffers, 0)
    else:
        keys = repair_utf8(pa.Array.from_buffers(pa.binary(), headers, key_buffers, 0))
    values = arena.sized(pa.binary(), headers, HVALUE_OFFSETS, int(counts[NULL_HVALUES]))
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
    nulls = int(counts[NULL_HEADERS])
    validity = arena.part(HEADER_VALID) if nulls else None
    buffers = [validity, arena.part(HEADER_OFFSETS)]
    return pa.Array.from_buffers(HEADER_TYPE, n, buffers, nulls, children=[pairs])


def _control_types(keys: pa.Array, is_control: pa.Array, controls: int) -> pa.Array:
    """Control types from the keys of control records: int16 version, int16 type."""
    if not controls:
        return pa.nulls(len(keys), pa.string())
    codes = [
        min(int.from_bytes(key[2:4], "big"), f.CONTROL_UNKNOWN) if control else None
        for key, control in zip(keys.to_pylist(), is_control.to_pylist(), strict=True)
    ]
    return _CONTROL_NAMES.take(pa.array(codes, pa.int32()))


def build_columns(
    window: np.ndarray, scratch: np.ndarray, entries: np.ndarray, rows: np.ndarray, n: int, totals: np.ndarray
) -> tuple[pa.RecordBatch, np.ndarray]:
    """The columns of ``records`` that the bytes alone tell (NAMES), for the first ``n`` rows, in their order.

    ``entries``: ENTRY[m], those that the rows are of; ``window``, ``scratch``: uint8 buffers the rows point
    into; ``totals``: of ``record_index``; n > 0.
    Returns the columns and the counts of the fill: int64[COUNTS_SIZE].
    """
    at = np.empty(PARTS + 1, dtype=np.int64)
    _lay_out(n, totals, at)
    buffer = pa.allocate_buffer(int(at[PARTS]))
    counts = np.zeros(COUNTS_SIZE, dtype=np.int64)
    headers = int(totals[HEADERS])
    fill(window, scratch, entries, rows, n, headers, np.frombuffer(buffer, dtype=np.uint8), at, counts)
    arena = _Arena(buffer, at)
    null = counts.tolist()
    keys = arena.sized(pa.binary(), n, KEY_OFFSETS, null[NULL_KEYS])
    is_control = arena.plain(pa.bool_(), n, CONTROL)
    columns = [
        keys,
        arena.sized(pa.binary(), n, VALUE_OFFSETS, null[NULL_VALUES]),
        arena.plain(pa.int64(), n, OFFSET),
        arena.plain(_TIMESTAMP, n, TIMESTAMP, TIMESTAMP_VALID, null[NULL_TIMESTAMPS]),
        arena.plain(pa.int32(), n, TIMESTAMP_TYPE),
        _header_lists(arena, n, headers, counts, not totals[NOT_ASCII]),
        arena.plain(pa.int8(), n, MAGIC),
        arena.plain(pa.int64(), n, TIMESTAMP_MS),
        arena.plain(pa.int64(), n, POSITION),
        arena.plain(pa.int32(), n, SEQUENCE),
        arena.plain(pa.int64(), n, PRODUCER_ID),
        arena.plain(pa.int16(), n, PRODUCER_EPOCH),
        arena.plain(pa.int32(), n, LEADER_EPOCH),
        arena.plain(pa.bool_(), n, TRANSACTIONAL),
        is_control,
        _control_types(keys, is_control, null[CONTROLS]),
        arena.plain(pa.int32(), n, SIZE),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES)), counts
