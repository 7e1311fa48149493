"""Decodes records of magic 2, and checks control records: ``DefaultRecord``, ``DefaultRecordBatch``.

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    | key length varint | key | value length varint | value | header count varint | headers
    header: key length varint | key | value length varint | value

A fault is noted in the cursor by its code and its place; ``format.explain`` reads the record again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel, load_be16, load_be32, load_u64
from kafka_log_lake.udfs.kernels.record_cursor import Parts, has_room, put_row, stop
from kafka_log_lake.udfs.vectorized_varint import read_varint, read_varlong, varint_size

_NO_ROOM = -2
_HIGH_BITS = np.uint64(0x8080808080808080)


class _RecordFields(NamedTuple):
    """The fields of a record without its headers: where it ends, or -1 for a fault; its deltas and marks."""

    end: int
    size: int  # of the body and its length varint at its shortest
    timestamp_delta: int
    offset_delta: int
    marks: int


_NO_PARTS = Parts(0, 0, 0, 0, 0, 0)


@inlined
def _at_fault(cursor: np.ndarray, code: int, at: int) -> tuple[_RecordFields, Parts]:
    return _RecordFields(stop(cursor, code, at), 0, 0, 0, 0), _NO_PARTS


@inlined
def _record(buf: np.ndarray, at: int, end: int, cursor: np.ndarray) -> tuple[_RecordFields, Parts]:
    """Reads the record at ``buf[at]`` up to its headers."""
    body, start = read_varint(buf, at, end)
    if start < 0:
        return _at_fault(cursor, faults.BAD_VARINT, at)
    if body < 0 or body > end - start:
        return _at_fault(cursor, faults.RECORD_BEYOND, at)
    record_end = start + body
    timestamp_delta, p = read_varlong(buf, start + 1, record_end)
    offset_delta, p = read_varint(buf, p, record_end)
    key_size, key_at = read_varint(buf, p, record_end)
    if key_at < 0:
        return _at_fault(cursor, faults.BAD_VARINT, start)
    if key_size > record_end - key_at:
        return _at_fault(cursor, faults.KEY_BEYOND, p)
    p = key_at + max(key_size, 0)
    value_size, value_at = read_varint(buf, p, record_end)
    if value_at < 0:
        return _at_fault(cursor, faults.BAD_VARINT, p)
    if value_size > record_end - value_at:
        return _at_fault(cursor, faults.VALUE_BEYOND, p)
    p = value_at + max(value_size, 0)
    headers, headers_at = read_varint(buf, p, record_end)
    if headers_at < 0:
        return _at_fault(cursor, faults.BAD_VARINT, p)
    if headers < 0 or headers > (record_end - headers_at) >> 1:  # MIN_HEADER_SIZE is 2
        return _at_fault(cursor, faults.HEADER_COUNT, p)
    marks = faults.UNUSED_ATTRIBUTES if buf[start] != 0 else 0
    if key_size < -1 or value_size < -1:
        marks |= faults.LENGTH_BELOW_NULL
    size = start - at + body if start - at == 1 else varint_size(body) + body
    parts = Parts(key_at, max(key_size, -1), value_at, max(value_size, -1), headers_at, headers)
    return _RecordFields(record_end, size, timestamp_delta, offset_delta, marks), parts


@inlined
def _is_ascii(buf: np.ndarray, at: int, size: int) -> bool:
    """Tells whether no byte of ``buf[at:at+size]`` is above 127."""
    if 0 < size <= 8 and at + 8 <= len(buf):
        return (load_u64(buf, at) << np.uint64(64 - 8 * size)) & _HIGH_BITS == 0
    seen = 0
    for i in range(at, at + size):
        seen |= int64(buf[i])
    return seen < 128


@inlined
def _headers(
    buf: np.ndarray,
    parts: Parts,
    end: int,
    arena: np.ndarray,
    columns: a.TextColumns,
    cursor: np.ndarray,
    filled: np.ndarray,
    room: np.ndarray,
) -> tuple[int, int]:
    """Appends the headers of a record that ends at ``end``; there is room for their number.

    Returns (position after them, -1 for a fault, _NO_ROOM where their bytes do not fit; marks).
    """
    at, marks, nulls, others = parts.headers_at, 0, 0, 0
    header, key_end, value_end = filled["headers"], filled["header_key_bytes"], filled["header_value_bytes"]
    for _ in range(parts.headers):
        size, p = read_varint(buf, at, end)
        if p < 0:
            at = stop(cursor, faults.BAD_VARINT, at)
            break
        if size < 0 or size > end - p:
            at = stop(cursor, faults.HEADER_KEY_NULL if size < 0 else faults.HEADER_BEYOND, at)
            break
        if key_end + size > room["header_key_bytes"]:
            at = _NO_ROOM
            break
        a.put_text(arena, columns.header_keys, header, key_end, buf, p, size)
        key_end += size
        at = p + size
        if columns.header_keys.offsets >= 0:
            others += not _is_ascii(buf, p, size)
        size, p = read_varint(buf, at, end)
        if p < 0:
            at = stop(cursor, faults.BAD_VARINT, at)
            break
        if size > end - p:
            at = stop(cursor, faults.HEADER_BEYOND, at)
            break
        if size < 0:
            nulls += 1
            marks |= faults.LENGTH_BELOW_NULL if size < -1 else 0
        if value_end + size > room["header_value_bytes"]:
            at = _NO_ROOM
            break
        a.put_text(arena, columns.header_values, header, value_end, buf, p, size)
        size = max(size, 0)
        value_end += size
        at = p + size
        header += 1
    if at == end:
        filled["headers"], filled["header_key_bytes"], filled["header_value_bytes"] = (
            header,
            key_end,
            value_end,
        )
        filled["null_header_values"] += nulls
        filled["not_ascii"] += others
    return at, marks


@kernel
def _control(buf: np.ndarray, parts: Parts, first: bool, e: np.void) -> int:
    """Checks a control record, and notes the first one's type in ``e``.

    Returns the fault's code, or NO_FAULT.
    """
    if parts.key_size < f.CONTROL_KEY_SIZE:
        return faults.CONTROL_KEY
    if load_be16(buf, parts.key_at) < 0:
        return faults.CONTROL_VERSION
    kind = load_be16(buf, parts.key_at + 2)
    if kind < 0 or kind >= f.CONTROL_UNKNOWN:
        kind = f.CONTROL_UNKNOWN
    epoch = -1
    if kind == f.CONTROL_ABORT or kind == f.CONTROL_COMMIT:
        if parts.value_size < f.END_MARKER_VALUE_SIZE:
            return faults.CONTROL_VALUE
        if load_be16(buf, parts.value_at) < 0:
            return faults.CONTROL_VALUE_VERSION
        epoch = load_be32(buf, parts.value_at + 2)
    if first:
        e["control_type"] = kind
        e["coordinator_epoch"] = epoch
    return faults.NO_FAULT


class _Base(NamedTuple):
    """The fields of a batch's header that all its records need. Timestamps: milliseconds."""

    offset: int
    timestamp: int
    max_timestamp: int
    last_offset_delta: int
    log_append_time: bool


@inlined
def _base(e: np.void) -> _Base:
    return _Base(
        e["base_offset"],
        e["base_timestamp"],
        e["max_timestamp"],
        int64(e["last_offset_delta"]),
        e["timestamp_type"] == f.LOG_APPEND_TIME,
    )


@inlined
def _timestamp(base: _Base, delta: int) -> int:
    return base.max_timestamp if base.log_append_time else base.timestamp + delta


@inlined
def _suspect(base: _Base, record: _RecordFields, previous: int) -> int:
    """Returns the marks of a record, with those for deltas that contradict the header."""
    marks = record.marks
    if not base.log_append_time and base.timestamp + record.timestamp_delta > base.max_timestamp:
        marks |= faults.TIMESTAMP_ABOVE_MAX
    if record.offset_delta <= previous:
        marks |= faults.OFFSETS_NOT_RISING
    if record.offset_delta > base.last_offset_delta:
        marks |= faults.OFFSET_PAST_LAST
    return marks


@inlined
def _count_fault(e: np.void) -> int:
    """Returns what is wrong with the header's number of records, before any is read; or NO_FAULT."""
    if e["count"] < 0:
        return faults.COUNT_NEGATIVE
    return faults.COUNT_TOO_LARGE if e["count"] > e["data_size"] // f.MIN_RECORD_SIZE else faults.NO_FAULT


@kernel
def decode_records(
    buf: np.ndarray,
    e: np.void,
    arena: np.ndarray,
    columns: a.TextColumns,
    lines: np.ndarray,
    cursor: np.ndarray,
    filled: np.ndarray,
    room: np.ndarray,
) -> None:
    """Appends the records of a magic 2 batch from the cursor on, as many as there is room for.

    The cursor ends after the last one that was appended, or at the one at fault.
    """
    at, record, previous = cursor["at"], cursor["record"], cursor["previous"]
    end, count = e["data_at"] + e["data_size"], int64(e["count"])
    fault = _count_fault(e)
    if fault:
        stop(cursor, fault, at)
        return
    control = (e["attributes"] & f.CONTROL_MASK) != 0
    base, marks = _base(e), 0
    while record < count:
        if at >= end:
            stop(cursor, faults.COUNT_TOO_SMALL, at)
            break
        one, parts = _record(buf, at, end, cursor)
        if one.end < 0 or not has_room(filled, room, parts):
            break
        p, found = parts.headers_at, 0
        if parts.headers:
            p, found = _headers(buf, parts, one.end, arena, columns, cursor, filled, room)
            if p < 0:
                break
        if p != one.end:
            stop(cursor, faults.RECORD_SLACK, p)
            break
        if control:
            fault = _control(buf, parts, record == 0, e)
            if fault:
                stop(cursor, fault, at)
                break
        timestamp = _timestamp(base, one.timestamp_delta)
        put_row(
            arena, columns, lines, filled, buf, parts, base.offset + one.offset_delta, timestamp, one.size
        )
        marks |= found | _suspect(base, one, previous)
        previous = one.offset_delta
        at = one.end
        record += 1
    if record == count and at != end:
        stop(cursor, faults.PAYLOAD_LEFT, at)
    if not cursor["fault"]:
        e["marks"] |= marks
    cursor["at"], cursor["record"], cursor["previous"] = at, record, previous
