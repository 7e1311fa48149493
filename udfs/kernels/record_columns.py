"""Rows of positions -> Arrow columns: the second pass, into buffers of exactly the right size.

All columns of a group of batches lie in one allocation from Arrow's pool (``arena``), laid out by the totals
of the first pass. What is constant in a batch is written as runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from udfs.format import layout as f
from udfs.format.schema import HEADER_TYPE
from udfs.kernels import arena as a
from udfs.kernels import record_rows as r
from udfs.kernels.arena import SLACK, Arena, Texts, lay_out, part_of, texts_of
from udfs.kernels.jit import borrowed, copy_bytes, copy_sixteen, inlined, int64, kernel
from udfs.kernels.jvm_text import repair_utf8
from udfs.kernels.record_rows import named
from udfs.vectorized_varint import varint_at

# What filling the columns counts
COUNTS = np.dtype(
    [
        ("rows", "i8"),  # these two are given
        ("headers", "i8"),
        ("null_keys", "i8"),
        ("null_values", "i8"),
        ("null_headers", "i8"),
        ("null_timestamps", "i8"),
        ("null_header_values", "i8"),
        ("controls", "i8"),
        ("min_offset", "i8"),
        ("max_offset", "i8"),
        ("min_timestamp", "i8"),  # us, of those not null; above the maximum where all are
        ("max_timestamp", "i8"),
    ]
)
_MOST = (1 << 63) - 1


@inlined
def _copy(data: Any, at: int, buf: Any, start: int, size: int, most: int) -> None:
    """Copy ``size`` bytes; a short text as a whole word, where it does not begin past ``most``."""
    if size <= SLACK and start <= most:
        copy_sixteen(data, at, buf, start)
    else:
        copy_bytes(data, at, buf, start, size)


@kernel
def _gather_texts(buf: Any, starts: Any, sizes: Any, begin: int, end: int, out: Texts, at: int) -> int:
    """Gather the keys or values of some rows: offsets, validity bits, bytes from ``at`` on.

    ``starts``, ``sizes``: int64[n], two lines of the rows. Returns where the bytes end.
    """
    offsets, valid, data = out.offsets, out.valid, out.data
    bits = int64(valid[begin >> 3])  # gathered in a register: a byte written again and again stalls
    most = len(buf) - SLACK
    for i in range(begin, end):
        size = sizes[i]
        offsets[i] = at
        if size >= 0:
            bits |= 1 << (i & 7)
            _copy(data, at, buf, starts[i], size, most)
            at += size
        if i & 7 == 7:
            valid[i >> 3] = bits
            bits = 0
    if end & 7:
        valid[end >> 3] = bits
    return at


class _Lists(NamedTuple):
    """The lists of headers: offsets (int32[n + 1]), validity (uint8, bits)."""

    offsets: Any
    valid: Any


@kernel
def _gather_headers(
    buf: Any, rows: Any, begin: int, end: int, lists: _Lists, keys: Texts, values: Texts, ends: Any
) -> None:
    """Gather the headers of some rows into list<struct<key, value>>; the first pass checked them.

    ``ends``: int64[3], headers, bytes of keys and bytes of values so far; moved on.
    """
    offsets, valid = lists.offsets, lists.valid
    key_offsets, key_data = keys.offsets, keys.data
    value_offsets, value_valid, value_data = values.offsets, values.valid, values.data
    header, key_at, value_at = ends[0], ends[1], ends[2]
    end_of, most = len(buf), len(buf) - SLACK
    bits = int64(valid[begin >> 3])
    value_bits = int64(value_valid[header >> 3]) if header & 7 else 0
    for i in range(begin, end):
        offsets[i] = header
        count = rows[r.ROW_HEADERS, i]
        if count:
            bits |= 1 << (i & 7)
        if i & 7 == 7:
            valid[i >> 3] = bits
            bits = 0
        p = rows[r.ROW_HEADERS_AT, i]
        for _ in range(count):
            key_offsets[header] = key_at
            value_offsets[header] = value_at
            size, p = varint_at(buf, p, end_of)
            _copy(key_data, key_at, buf, p, size, most)
            key_at += size
            size, p = varint_at(buf, p + size, end_of)
            if size >= 0:
                value_bits |= 1 << (header & 7)
                _copy(value_data, value_at, buf, p, size, most)
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
        count += int64(_BITS[bits[i]])
    return n - count


@kernel
def _run_end(e: Any, begin: int, n: int) -> int:
    """Where the rows of a batch end that begin at ``begin``; of a batch in chunks only ``n`` are there."""
    return begin if e["fault"] else min(begin + int64(e["record_count"]), n)


@inlined
def _set_bits(bits: Any, begin: int, end: int) -> None:
    for i in range(begin, end):
        bits[i >> 3] |= np.uint8(1 << (i & 7))


@kernel
def _fill_runs(batches: Any, arena: Any, at: Any, counts: Any) -> None:
    """Columns that are constant in a batch, a run of rows at a time."""
    magic = part_of(arena, at, a.MAGIC).view(np.int8)
    kind = part_of(arena, at, a.TIMESTAMP_TYPE).view(np.int32)
    position = part_of(arena, at, a.POSITION).view(np.int64)
    producer = part_of(arena, at, a.PRODUCER_ID).view(np.int64)
    producer_epoch = part_of(arena, at, a.PRODUCER_EPOCH).view(np.int16)
    leader = part_of(arena, at, a.LEADER_EPOCH).view(np.int32)
    transactional = part_of(arena, at, a.TRANSACTIONAL)
    control = part_of(arena, at, a.CONTROL)
    transactional[:] = 0
    control[:] = 0
    controls = 0
    begin, n = 0, counts["rows"]
    for k in range(len(batches)):
        e = batches[k]
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
                _set_bits(transactional, begin, end)
            if e["attributes"] & f.CONTROL_MASK:
                _set_bits(control, begin, end)
                controls += end - begin
        begin = end
    counts["controls"] = controls


@kernel
def _fill_numbers(rows: Any, arena: Any, at: Any, counts: Any) -> None:
    """Offset, sequence and size of each record, and the bounds of the offsets."""
    offset = part_of(arena, at, a.OFFSET).view(np.int64)
    sequence = part_of(arena, at, a.SEQUENCE).view(np.int32)
    size = part_of(arena, at, a.SIZE).view(np.int32)
    lowest, highest = rows[r.ROW_OFFSET, 0], rows[r.ROW_OFFSET, 0]
    n = counts["rows"]
    for i in range(n):
        value = rows[r.ROW_OFFSET, i]
        offset[i] = value
        lowest = min(lowest, value)
        highest = max(highest, value)
    for i in range(n):
        sequence[i] = rows[r.ROW_SEQUENCE, i]
    for i in range(n):
        size[i] = rows[r.ROW_SIZE, i]
    counts["min_offset"], counts["max_offset"] = lowest, highest


@kernel
def _fill_timestamps(rows: Any, arena: Any, at: Any, counts: Any) -> None:
    """The timestamp of each record in ms, in us where SQL holds it, and the bounds of the latter."""
    milliseconds = part_of(arena, at, a.TIMESTAMP_MS).view(np.int64)
    microseconds = part_of(arena, at, a.TIMESTAMP).view(np.int64)
    valid = part_of(arena, at, a.TIMESTAMP_VALID)
    earliest, latest = _MOST, -_MOST
    nulls, bits = 0, 0
    n = counts["rows"]
    for i in range(n):
        timestamp = rows[r.ROW_TIMESTAMP, i]
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
    counts["null_timestamps"] = nulls
    counts["min_timestamp"], counts["max_timestamp"] = earliest, latest


@kernel
def _buffer_run(batches: Any, k: int, begin: int, n: int) -> tuple[int, int]:
    """Where a run of batches from ``k`` on ends whose data lie in the same buffer: (batch, row)."""
    expanded = batches[k]["expanded"]
    end = begin
    while k < len(batches):
        behind = _run_end(batches[k], end, n)
        if behind != end and batches[k]["expanded"] != expanded:
            break
        end = behind
        k += 1
    return k, end


@kernel
def _fill_texts(window: Any, scratch: Any, batches: Any, rows: Any, arena: Any, at: Any, counts: Any) -> None:
    """Keys, values and headers. Where the rows have no headers, their parts are left as they are."""
    n, headers = counts["rows"], counts["headers"]
    keys, values = texts_of(arena, at, a.KEYS), texts_of(arena, at, a.VALUES)
    lists = _Lists(part_of(arena, at, a.HEADER_LISTS).view(np.int32), part_of(arena, at, a.HEADER_VALID))
    header_keys = texts_of(arena, at, a.HEADER_KEYS)
    header_values = texts_of(arena, at, a.HEADER_VALUES)
    keys.valid[:] = 0
    values.valid[:] = 0
    lists.valid[:] = 0
    header_values.valid[:] = 0
    ends = np.zeros(3, dtype=np.int64)
    key_end, value_end, begin, k = 0, 0, 0, 0
    while begin < n:  # nearly always one run
        buf = scratch if batches[k]["expanded"] else window
        k, end = _buffer_run(batches, k, begin, n)
        work = (buf, rows[r.ROW_KEY_AT], rows[r.ROW_KEY_SIZE], begin, end)
        key_end = _gather_texts(*work, keys, key_end)
        work = (buf, rows[r.ROW_VALUE_AT], rows[r.ROW_VALUE_SIZE], begin, end)
        value_end = _gather_texts(*work, values, value_end)
        if headers:
            _gather_headers(buf, rows, begin, end, lists, header_keys, header_values, ends)
        begin = end
    keys.offsets[n] = key_end
    values.offsets[n] = value_end
    lists.offsets[n] = ends[0]
    header_keys.offsets[ends[0]] = ends[1]
    header_values.offsets[ends[0]] = ends[2]
    counts["null_keys"] = _unset(keys.valid, n)
    counts["null_values"] = _unset(values.valid, n)
    counts["null_headers"] = _unset(lists.valid, n)
    counts["null_header_values"] = _unset(header_values.valid, headers)


@kernel
def fill(window: Any, scratch: Any, batches: Any, rows: Any, arena: Any, at: Any, counts: Any) -> None:
    """Fill the arena (uint8, laid out by ``at``) from the first rows.

    ``counts``: COUNTS[1], rows and headers given, the others out.
    """
    window, scratch, arena = borrowed(window), borrowed(scratch), borrowed(arena)
    batches, rows, at = borrowed(batches), borrowed(rows), borrowed(at)
    count = counts[0]
    _fill_numbers(rows, arena, at, count)
    _fill_timestamps(rows, arena, at, count)
    _fill_runs(batches, arena, at, count)
    _fill_texts(window, scratch, batches, rows, arena, at, count)


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


def _header_lists(arena: Arena, n: int, counts: dict[str, int], ascii_keys: bool) -> pa.Array:
    headers = counts["headers"]
    if headers == 0:
        return pa.nulls(n, HEADER_TYPE)
    keys = arena.sized(pa.string() if ascii_keys else pa.binary(), headers, a.HEADER_KEYS, 0)
    if not ascii_keys:
        keys = repair_utf8(keys)
    values = arena.sized(pa.binary(), headers, a.HEADER_VALUES, counts["null_header_values"])
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
    nulls = counts["null_headers"]
    validity = arena.part(a.HEADER_VALID) if nulls else None
    buffers = [validity, arena.part(a.HEADER_LISTS)]
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
    window: np.ndarray, scratch: np.ndarray, batches: np.ndarray, rows: np.ndarray, n: int, totals: np.ndarray
) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The columns of ``records`` that the bytes alone tell (NAMES), for the first ``n`` rows, in their order.

    ``batches``: BATCH[m], those that the rows are of; ``window``, ``scratch``: uint8 buffers the rows point
    into; ``totals``: TOTALS[1], of these rows; n > 0.
    Returns the columns and what filling them counted: the fields of COUNTS.
    """
    at = np.empty(a.PARTS + 1, dtype=np.int64)
    lay_out(n, totals, at)
    buffer = pa.allocate_buffer(int(at[a.PARTS]))
    counted = np.zeros(1, dtype=COUNTS)
    counted["rows"], counted["headers"] = n, totals["headers"]
    fill(window, scratch, batches, rows, np.frombuffer(buffer, dtype=np.uint8), at, counted)
    arena, counts = Arena(buffer, at), named(counted)
    keys = arena.sized(pa.binary(), n, a.KEYS, counts["null_keys"])
    is_control = arena.plain(pa.bool_(), n, a.CONTROL)
    columns = [
        keys,
        arena.sized(pa.binary(), n, a.VALUES, counts["null_values"]),
        arena.plain(pa.int64(), n, a.OFFSET),
        arena.plain(_TIMESTAMP, n, a.TIMESTAMP, a.TIMESTAMP_VALID, counts["null_timestamps"]),
        arena.plain(pa.int32(), n, a.TIMESTAMP_TYPE),
        _header_lists(arena, n, counts, not totals["not_ascii"][0]),
        arena.plain(pa.int8(), n, a.MAGIC),
        arena.plain(pa.int64(), n, a.TIMESTAMP_MS),
        arena.plain(pa.int64(), n, a.POSITION),
        arena.plain(pa.int32(), n, a.SEQUENCE),
        arena.plain(pa.int64(), n, a.PRODUCER_ID),
        arena.plain(pa.int16(), n, a.PRODUCER_EPOCH),
        arena.plain(pa.int32(), n, a.LEADER_EPOCH),
        arena.plain(pa.bool_(), n, a.TRANSACTIONAL),
        is_control,
        _control_types(keys, is_control, counts["controls"]),
        arena.plain(pa.int32(), n, a.SIZE),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES)), counts
