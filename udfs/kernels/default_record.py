"""Records of magic 2, and what control records hold: Kafka's ``DefaultRecord`` and ``DefaultRecordBatch``.

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    | key length varint | key | value length varint | value | header count varint | headers
    header: key length varint | key | value length varint | value

A fault is noted in the cursor by its code and its place; ``format.explain`` reads the record again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from udfs.format import faults
from udfs.format import layout as f
from udfs.kernels import record_rows as r
from udfs.kernels.framing import increment_sequence
from udfs.kernels.jit import inlined, int64, kernel, load_be16, load_be32
from udfs.kernels.record_rows import stay, stop
from udfs.vectorized_varint import read_varint, read_varlong, varint_size


@inlined
def _headers(buf: Any, at: int, end: int, count: int, cursor: Any) -> tuple[int, int, int, int, int]:
    """Walk ``count`` headers from ``at``, at least one.

    Returns (position behind them, or -1; bytes of keys; bytes of values; all bytes of keys or-ed; marks).
    """
    key_bytes, value_bytes, seen, marks = 0, 0, 0, 0
    for _ in range(count):
        size, p = read_varint(buf, at, end)
        if p < 0:
            at = stop(cursor, faults.BAD_VARINT, at)
            break
        if size < 0 or size > end - p:
            at = stop(cursor, faults.HEADER_KEY_NULL if size < 0 else faults.HEADER_BEYOND, at)
            break
        key_bytes += size
        at = p + size
        for i in range(p, at):
            seen |= int64(buf[i])
        size, p = read_varint(buf, at, end)
        if p < 0:
            at = stop(cursor, faults.BAD_VARINT, at)
            break
        if size > end - p:
            at = stop(cursor, faults.HEADER_BEYOND, at)
            break
        if size < -1:
            marks |= faults.LENGTH_BELOW_NULL
        size = max(size, 0)
        value_bytes += size
        at = p + size
    return at, key_bytes, value_bytes, seen, marks


@inlined
def _record(
    buf: Any, at: int, end: int, rows: Any, i: int, cursor: Any, totals: Any
) -> tuple[int, int, int, int]:
    """Read the record at ``buf[at]`` into place ``i`` of the rows.

    Returns (position behind it, or -1; timestamp delta; offset delta; marks).
    """
    body, start = read_varint(buf, at, end)
    if start < 0:
        return stop(cursor, faults.BAD_VARINT, at), 0, 0, 0
    if body < 0 or body > end - start:
        return stop(cursor, faults.RECORD_BEYOND, at), 0, 0, 0
    behind = start + body
    timestamp_delta, p = read_varlong(buf, start + 1, behind)
    delta, p = read_varint(buf, p, behind)
    key_size, key_at = read_varint(buf, p, behind)
    if key_at < 0:
        return stop(cursor, faults.BAD_VARINT, start), 0, 0, 0
    if key_size > behind - key_at:
        return stop(cursor, faults.KEY_BEYOND, p), 0, 0, 0
    p = key_at + max(key_size, 0)
    value_size, value_at = read_varint(buf, p, behind)
    if value_at < 0:
        return stop(cursor, faults.BAD_VARINT, p), 0, 0, 0
    if value_size > behind - value_at:
        return stop(cursor, faults.VALUE_BEYOND, p), 0, 0, 0
    p = value_at + max(value_size, 0)
    headers, headers_at = read_varint(buf, p, behind)
    if headers_at < 0:
        return stop(cursor, faults.BAD_VARINT, p), 0, 0, 0
    if headers < 0 or headers > (behind - headers_at) >> 1:  # MIN_HEADER_SIZE is 2
        return stop(cursor, faults.HEADER_COUNT, p), 0, 0, 0
    p = headers_at
    marks = faults.UNUSED_ATTRIBUTES if buf[start] != 0 else 0
    if headers:
        p, key_bytes, value_bytes, seen, found = _headers(buf, p, behind, headers, cursor)
        if p < 0:
            return -1, 0, 0, 0
        marks |= found
        totals["header_key_bytes"] += key_bytes
        totals["header_value_bytes"] += value_bytes
        totals["not_ascii"] |= seen & 0x80
    if p != behind:
        return stop(cursor, faults.RECORD_SLACK, p), 0, 0, 0
    if key_size < -1 or value_size < -1:
        marks |= faults.LENGTH_BELOW_NULL
    rows[r.ROW_KEY_AT, i] = key_at
    rows[r.ROW_VALUE_AT, i] = value_at
    rows[r.ROW_HEADERS_AT, i] = headers_at
    rows[r.ROW_KEY_SIZE, i] = max(key_size, -1)
    rows[r.ROW_VALUE_SIZE, i] = max(value_size, -1)
    rows[r.ROW_HEADERS, i] = headers
    rows[r.ROW_SIZE, i] = start - at + body if start - at == 1 else varint_size(body) + body
    return behind, timestamp_delta, delta, marks


@kernel
def _control(buf: Any, rows: Any, i: int, first: bool, e: Any) -> int:
    """Check a control record, note the first one's type in ``e``; the fault's code, or NO_FAULT."""
    key_at, value_at = rows[r.ROW_KEY_AT, i], rows[r.ROW_VALUE_AT, i]
    if rows[r.ROW_KEY_SIZE, i] < f.CONTROL_KEY_SIZE:
        return faults.CONTROL_KEY
    if load_be16(buf, key_at) < 0:
        return faults.CONTROL_VERSION
    kind = load_be16(buf, key_at + 2)
    if kind < 0 or kind >= f.CONTROL_UNKNOWN:
        kind = f.CONTROL_UNKNOWN
    epoch = -1
    if kind == f.CONTROL_ABORT or kind == f.CONTROL_COMMIT:
        if rows[r.ROW_VALUE_SIZE, i] < f.END_MARKER_VALUE_SIZE:
            return faults.CONTROL_VALUE
        if load_be16(buf, value_at) < 0:
            return faults.CONTROL_VALUE_VERSION
        epoch = load_be32(buf, value_at + 2)
    if first:
        e["control_type"] = kind
        e["coordinator_epoch"] = epoch
    return faults.NO_FAULT


class _Base(NamedTuple):
    """What the header of a batch says of all its records."""

    offset: int
    timestamp: int
    max_timestamp: int
    sequence: int
    last_offset_delta: int
    log_append_time: bool


@inlined
def _base(e: Any) -> _Base:
    return _Base(
        e["base_offset"],
        e["base_timestamp"],
        e["max_timestamp"],
        int64(e["base_sequence"]),
        int64(e["last_offset_delta"]),
        e["timestamp_type"] == f.LOG_APPEND_TIME,
    )


@inlined
def _place(rows: Any, i: int, base: _Base, timestamp_delta: int, delta: int, previous: int) -> int:
    """Write offset, timestamp and sequence of place ``i``. Returns marks."""
    marks = 0
    timestamp = base.timestamp + timestamp_delta
    if base.log_append_time:
        timestamp = base.max_timestamp
    elif timestamp > base.max_timestamp:
        marks |= faults.TIMESTAMP_ABOVE_MAX
    if delta <= previous:
        marks |= faults.OFFSETS_NOT_RISING
    if delta > base.last_offset_delta:
        marks |= faults.OFFSET_PAST_LAST
    rows[r.ROW_OFFSET, i] = base.offset + delta
    rows[r.ROW_TIMESTAMP, i] = timestamp
    sequence = increment_sequence(base.sequence, delta) if base.sequence >= 0 else f.NO_SEQUENCE
    rows[r.ROW_SEQUENCE, i] = sequence
    return marks


@inlined
def _count_fault(e: Any) -> int:
    """What is wrong with the number of records that the header tells, before any is read; or NO_FAULT."""
    if e["count"] < 0:
        return faults.COUNT_NEGATIVE
    return faults.COUNT_TOO_LARGE if e["count"] > e["data_size"] // f.MIN_RECORD_SIZE else faults.NO_FAULT


@kernel
def index_records(buf: Any, e: Any, rows: Any, cursor: Any, totals: Any) -> int:
    """Rows of the records of a magic 2 batch from the cursor on: how many, or -1 for a fault."""
    made, record = 0, cursor["record"]
    at = start = cursor["at"]
    previous = cursor["previous"]
    row, step, capacity, room = cursor["row"], cursor["step"], cursor["capacity"], cursor["room"]
    count = int64(e["count"])
    end = e["data_at"] + e["data_size"]
    fault = _count_fault(e)
    if fault:
        return stop(cursor, fault, at)
    control = (e["attributes"] & f.CONTROL_MASK) != 0
    base = _base(e)
    key_bytes, value_bytes, headers, marks = 0, 0, 0, 0
    while record + made < count and made < capacity:
        if room and made:  # the next record must fit into what is left
            body, behind = read_varint(buf, at, end)
            if behind + body - start > room:
                break
        if at >= end:
            stop(cursor, faults.COUNT_TOO_SMALL, at)
            return stay(cursor, at, record + made)
        i = row + made * step
        behind, timestamp_delta, delta, found = _record(buf, at, end, rows, i, cursor, totals)
        if behind < 0:
            return stay(cursor, at, record + made)
        marks |= found | _place(rows, i, base, timestamp_delta, delta, previous)
        previous = delta
        key_bytes += max(0, rows[r.ROW_KEY_SIZE, i])
        value_bytes += max(0, rows[r.ROW_VALUE_SIZE, i])
        headers += rows[r.ROW_HEADERS, i]
        if control:
            fault = _control(buf, rows, i, record + made == 0, e)
            if fault:
                stop(cursor, fault, at)
                return stay(cursor, at, record + made)
        at = behind
        made += 1
    if record + made == count and at != end:
        stop(cursor, faults.PAYLOAD_LEFT, at)
        return stay(cursor, at, record + made)
    e["marks"] |= marks
    totals["key_bytes"] += key_bytes
    totals["value_bytes"] += value_bytes
    totals["headers"] += headers
    cursor["at"] = at
    cursor["record"] = record + made
    cursor["previous"] = previous
    return made
