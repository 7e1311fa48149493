"""Payload -> the positions of each record's parts (rows): the first of the two passes over records.

The rows say where key, value and headers lie; nothing is copied yet. A batch is taken whole or not at
all: a fault rolls its rows back. Every bound is checked against what is really there, so no count and no
length of a hostile batch reads or allocates past it.

Records of magic 2: Kafka's ``DefaultRecord``. Messages of magic 0 and 1, plain or inside a wrapper:
``LegacyRecord`` and ``AbstractLegacyRecordBatch``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs.format import faults
from udfs.format import layout as f
from udfs.kernels.checksums import crc32
from udfs.kernels.framing import increment_sequence, set_fault
from udfs.kernels.jit import borrowed, inlined, kernel, load_be16, load_be32, load_be64
from udfs.vectorized_varint import read_varint, read_varlong, varint_size

# The rows: a line a field, a place a record, so that each pass reads what it needs and nothing else.
# Positions are those in the entry's data buffer; sizes of keys and values are -1 for null.
(
    ROW_OFFSET,
    ROW_TIMESTAMP,
    ROW_SEQUENCE,
    ROW_SIZE,
    ROW_KEY_AT,
    ROW_KEY_SIZE,
    ROW_VALUE_AT,
    ROW_VALUE_SIZE,
    ROW_HEADERS_AT,
    ROW_HEADERS,
) = range(10)
ROW_FIELDS = 10
_APART = 72  # places more than asked for: lines that are a power of two apart share the cache's sets


def new_rows(capacity: int) -> np.ndarray:
    """int64[ROW_FIELDS, n] for ``capacity`` records or a few more."""
    return np.empty((ROW_FIELDS, capacity + _APART), dtype=np.int64)


# What a pass over a batch has come to (cursor), so that a batch of very many records goes in chunks
CURSOR_AT, CURSOR_RECORD, CURSOR_DELTA, CURSOR_BASE = range(4)
CURSOR_SIZE = 4
# Sums over the rows made (totals): what the second pass allocates
KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NOT_ASCII = range(6)
TOTALS_SIZE = 6

_NO_DELTA = -(1 << 62)


@kernel
def _where(e: Any, at: int) -> int:
    """A place in the entry's data, as faults tell it: byte in the segment, or in the expanded payload."""
    if e["expanded"]:
        return -1 - (at - e["data_at"])
    return e["position"] + at - e["at"]


@inlined
def _headers(buf: Any, at: int, stop: int, count: int, e: Any) -> tuple[int, int, int, int, int]:
    """Walk ``count`` headers from ``at``, at least one.

    Returns (position behind them, or -1 with a fault noted; bytes of keys; bytes of values; all bytes of keys
    or-ed; marks).
    """
    key_bytes = 0
    value_bytes = 0
    seen = 0
    marks = 0
    for _ in range(count):
        size, p = read_varint(buf, at, stop)
        if p < 0:
            set_fault(e, faults.BAD_VARINT, _where(e, at), f.MAX_VARINT_BYTES, 0)
            at = -1
            break
        if size < 0 or size > stop - p:
            code = faults.HEADER_KEY_NULL if size < 0 else faults.HEADER_BEYOND
            set_fault(e, code, _where(e, at), 0 if size < 0 else stop - p, size)
            at = -1
            break
        key_bytes += size
        at = p + size
        for i in range(p, at):
            seen |= np.int64(buf[i])
        size, p = read_varint(buf, at, stop)
        if p < 0:
            set_fault(e, faults.BAD_VARINT, _where(e, at), f.MAX_VARINT_BYTES, 0)
            at = -1
            break
        if size > stop - p:
            set_fault(e, faults.HEADER_BEYOND, _where(e, at), stop - p, size)
            at = -1
            break
        if size < -1:
            marks |= faults.LENGTH_BELOW_NULL
        size = max(size, 0)
        value_bytes += size
        at = p + size
    return at, key_bytes, value_bytes, seen, marks


@kernel
def _control(buf: Any, rows: Any, i: int, first: bool, e: Any) -> bool:
    """Check a control record and note the first one's type; False with a fault noted."""
    key_size, value_size = rows[ROW_KEY_SIZE, i], rows[ROW_VALUE_SIZE, i]
    if key_size < f.CONTROL_KEY_SIZE:
        set_fault(e, faults.CONTROL_KEY, _where(e, rows[ROW_KEY_AT, i]), f.CONTROL_KEY_SIZE, key_size)
        return False
    version = load_be16(buf, rows[ROW_KEY_AT, i])
    if version < 0:
        set_fault(e, faults.CONTROL_VERSION, _where(e, rows[ROW_KEY_AT, i]), 0, version)
        return False
    kind = load_be16(buf, rows[ROW_KEY_AT, i] + 2)
    if kind < 0 or kind >= f.CONTROL_UNKNOWN:
        kind = f.CONTROL_UNKNOWN
    epoch = -1
    if kind == f.CONTROL_ABORT or kind == f.CONTROL_COMMIT:
        if value_size < f.END_MARKER_VALUE_SIZE:
            at = _where(e, rows[ROW_VALUE_AT, i])
            set_fault(e, faults.CONTROL_VALUE, at, f.END_MARKER_VALUE_SIZE, value_size)
            return False
        version = load_be16(buf, rows[ROW_VALUE_AT, i])
        if version < 0:
            set_fault(e, faults.CONTROL_VALUE_VERSION, _where(e, rows[ROW_VALUE_AT, i]), 0, version)
            return False
        epoch = load_be32(buf, rows[ROW_VALUE_AT, i] + 2)
    if first:
        e["control_type"] = kind
        e["coordinator_epoch"] = epoch
    return True


@inlined
def _record(buf: Any, at: int, end: int, e: Any, rows: Any, i: int, totals: Any) -> tuple[int, int, int, int]:
    """Read the record at ``buf[at]`` into place ``i`` of the rows.

    Returns (position behind it, or -1 with a fault noted; timestamp delta; offset delta; marks).
    """
    marks = 0
    body, start = read_varint(buf, at, end)
    if start < 0:
        set_fault(e, faults.BAD_VARINT, _where(e, at), f.MAX_VARINT_BYTES, 0)
        return -1, 0, 0, 0
    if body < 0 or body > end - start:
        set_fault(e, faults.RECORD_BEYOND, _where(e, at), end - start, body)
        return -1, 0, 0, 0
    stop = start + body
    timestamp_delta, p = read_varlong(buf, start + 1, stop)
    delta, p = read_varint(buf, p, stop)
    key_size, key_at = read_varint(buf, p, stop)
    if key_at < 0:
        set_fault(e, faults.BAD_VARINT, _where(e, start), f.MAX_VARLONG_BYTES, 0)
        return -1, 0, 0, 0
    if buf[start] != 0:
        marks |= faults.UNUSED_ATTRIBUTES
    if key_size > stop - key_at:
        set_fault(e, faults.KEY_BEYOND, _where(e, p), stop - key_at, key_size)
        return -1, 0, 0, 0
    p = key_at + max(key_size, 0)
    value_size, value_at = read_varint(buf, p, stop)
    if value_at < 0:
        set_fault(e, faults.BAD_VARINT, _where(e, p), f.MAX_VARINT_BYTES, 0)
        return -1, 0, 0, 0
    if value_size > stop - value_at:
        set_fault(e, faults.VALUE_BEYOND, _where(e, p), stop - value_at, value_size)
        return -1, 0, 0, 0
    p = value_at + max(value_size, 0)
    headers, headers_at = read_varint(buf, p, stop)
    if headers_at < 0:
        set_fault(e, faults.BAD_VARINT, _where(e, p), f.MAX_VARINT_BYTES, 0)
        return -1, 0, 0, 0
    if headers < 0 or headers > (stop - headers_at) >> 1:  # MIN_HEADER_SIZE is 2
        set_fault(e, faults.HEADER_COUNT, _where(e, p), (stop - headers_at) >> 1, headers)
        return -1, 0, 0, 0
    p = headers_at
    if headers:
        p, key_bytes, value_bytes, seen, found = _headers(buf, p, stop, headers, e)
        if p < 0:
            return -1, 0, 0, 0
        marks |= found
        totals[HEADER_KEY_BYTES] += key_bytes
        totals[HEADER_VALUE_BYTES] += value_bytes
        totals[NOT_ASCII] |= seen & 0x80
    if p != stop:
        set_fault(e, faults.RECORD_SLACK, _where(e, start), body, p - start)
        return -1, 0, 0, 0
    if key_size < -1 or value_size < -1:
        marks |= faults.LENGTH_BELOW_NULL
    rows[ROW_KEY_AT, i] = key_at
    rows[ROW_VALUE_AT, i] = value_at
    rows[ROW_HEADERS_AT, i] = headers_at
    rows[ROW_KEY_SIZE, i] = max(key_size, -1)
    rows[ROW_VALUE_SIZE, i] = max(value_size, -1)
    rows[ROW_HEADERS, i] = headers
    rows[ROW_SIZE, i] = start - at + body if start - at == 1 else varint_size(body) + body
    return stop, timestamp_delta, delta, marks


@kernel
def _batch(
    buf: Any, e: Any, rows: Any, first: int, step: int, capacity: int, cursor: Any, totals: Any
) -> int:
    """Records of a magic 2 batch from the cursor on, ``capacity`` rows at most; rows made, or -1."""
    begin = cursor[CURSOR_RECORD]
    at = cursor[CURSOR_AT]
    previous = cursor[CURSOR_DELTA]
    count = np.int64(e["count"])
    end = e["data_at"] + e["data_size"]
    base_offset = e["base_offset"]
    base_timestamp = e["base_timestamp"]
    max_timestamp = e["max_timestamp"]
    base_sequence = np.int64(e["base_sequence"])
    last_delta = np.int64(e["last_offset_delta"])
    append_time = e["timestamp_type"] == f.LOG_APPEND_TIME
    control = (e["attributes"] & f.CONTROL_MASK) != 0
    marks = 0
    key_bytes = 0
    value_bytes = 0
    headers = 0
    made = 0
    while begin + made < count and made < capacity:
        if at >= end:
            set_fault(e, faults.COUNT_TOO_SMALL, _where(e, at), count, begin + made)
            return -1
        i = first + made * step
        at, timestamp_delta, delta, found = _record(buf, at, end, e, rows, i, totals)
        if at < 0:
            return -1
        marks |= found
        timestamp = base_timestamp + timestamp_delta
        if append_time:
            timestamp = max_timestamp
        elif timestamp > max_timestamp:
            marks |= faults.TIMESTAMP_ABOVE_MAX
        if delta <= previous:
            marks |= faults.OFFSETS_NOT_RISING
        if delta > last_delta:
            marks |= faults.OFFSET_PAST_LAST
        previous = delta
        rows[ROW_OFFSET, i] = base_offset + delta
        rows[ROW_TIMESTAMP, i] = timestamp
        sequence = increment_sequence(base_sequence, delta) if base_sequence >= 0 else f.NO_SEQUENCE
        rows[ROW_SEQUENCE, i] = sequence
        key_bytes += max(0, rows[ROW_KEY_SIZE, i])
        value_bytes += max(0, rows[ROW_VALUE_SIZE, i])
        headers += rows[ROW_HEADERS, i]
        if control and not _control(buf, rows, i, begin + made == 0, e):
            return -1
        made += 1
    if begin + made == count and at != end:
        set_fault(e, faults.PAYLOAD_LEFT, _where(e, at), count, end - at)
        return -1
    e["marks"] |= marks
    totals[KEY_BYTES] += key_bytes
    totals[VALUE_BYTES] += value_bytes
    totals[HEADERS] += headers
    cursor[CURSOR_AT] = at
    cursor[CURSOR_RECORD] = begin + made
    cursor[CURSOR_DELTA] = previous
    return made


@kernel
def _message(buf: Any, at: int, end: int, e: Any, rows: Any, i: int, totals: Any) -> bool:
    """Read the message at ``buf[at:end]`` (with offset and length) into place ``i``; False with a fault."""
    magic = np.int8(buf[at + f.MAGIC_POS])
    p = at + (f.V0_KEY_LENGTH_POS if magic == f.MAGIC_V0 else f.V1_KEY_LENGTH_POS)
    key_size = load_be32(buf, p)
    if key_size > end - p - 8:
        set_fault(e, faults.KEY_BEYOND, _where(e, p), end - p - 8, key_size)
        return False
    rows[ROW_KEY_AT, i] = p + 4
    rows[ROW_KEY_SIZE, i] = max(key_size, -1)
    p += 4 + max(key_size, 0)
    value_size = load_be32(buf, p)
    if value_size > end - p - 4:
        set_fault(e, faults.VALUE_BEYOND, _where(e, p), end - p - 4, value_size)
        return False
    rows[ROW_VALUE_AT, i] = p + 4
    rows[ROW_VALUE_SIZE, i] = max(value_size, -1)
    if key_size < -1 or value_size < -1:
        e["marks"] |= faults.LENGTH_BELOW_NULL
    if p + 4 + max(value_size, 0) < end:
        e["marks"] |= faults.MESSAGE_SLACK
    totals[KEY_BYTES] += max(key_size, 0)
    totals[VALUE_BYTES] += max(value_size, 0)
    rows[ROW_HEADERS, i] = 0
    rows[ROW_HEADERS_AT, i] = 0
    rows[ROW_SEQUENCE, i] = f.NO_SEQUENCE
    rows[ROW_SIZE, i] = end - at
    rows[ROW_OFFSET, i] = load_be64(buf, at)
    # the wrapper's log append time holds for what lies in it (magic 1 alone)
    if magic == f.MAGIC_V0:
        rows[ROW_TIMESTAMP, i] = f.NO_TIMESTAMP
    elif magic == f.MAGIC_V1 and e["timestamp_type"] == f.LOG_APPEND_TIME:
        rows[ROW_TIMESTAMP, i] = e["base_timestamp"]
    else:
        rows[ROW_TIMESTAMP, i] = load_be64(buf, at + f.V1_TIMESTAMP_POS)
    return True


@kernel
def _inner_end(buf: Any, at: int, end: int, e: Any) -> int:
    """End of the inner message at ``buf[at]``, or -1 with a fault noted."""
    if at + f.HEADER_UP_TO_MAGIC > end:
        set_fault(e, faults.INNER_CUT, _where(e, at), f.V0_MIN_SIZE, end - at)
        return -1
    size = load_be32(buf, at + f.LENGTH_POS) + f.LOG_OVERHEAD
    least = f.V0_MIN_SIZE if buf[at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_MIN_SIZE
    if size < least:
        set_fault(e, faults.INNER_SIZE, _where(e, at), least - f.LOG_OVERHEAD, size - f.LOG_OVERHEAD)
        return -1
    if size > end - at:
        set_fault(e, faults.INNER_CUT, _where(e, at), size, end - at)
        return -1
    return at + size


@kernel
def _wrapper_base(buf: Any, e: Any, cursor: Any) -> bool:
    """Walk the inner messages for the last offset, to which those of magic 1 are relative.

    absolute = outer - last inner + inner; an outer offset of 0 takes inner offsets as they are (some
    producers). Magic 0 holds absolute offsets. False with a fault noted.
    """
    at = e["data_at"]
    end = at + e["data_size"]
    last = 0
    count = 0
    while at < end:
        last = load_be64(buf, at) if at + 8 <= end else 0
        at = _inner_end(buf, at, end, e)
        if at < 0:
            return False
        count += 1
    if count == 0:
        set_fault(e, faults.WRAPPER_EMPTY, _where(e, e["data_at"]), 1, 0)
        return False
    cursor[CURSOR_BASE] = 0
    if e["magic"] == f.MAGIC_V1 and e["last_offset"] != 0:
        if e["last_offset"] < last:
            set_fault(e, faults.WRAPPER_OFFSET, e["position"], last, e["last_offset"])
            return False
        cursor[CURSOR_BASE] = e["last_offset"] - last
    return True


@kernel
def _wrapper(
    buf: Any, e: Any, rows: Any, first: int, step: int, capacity: int, cursor: Any, totals: Any
) -> int:
    """Inner messages of a wrapper from the cursor on; rows made, or -1 with a fault noted."""
    end = e["data_at"] + e["data_size"]
    at = cursor[CURSOR_AT]
    previous = cursor[CURSOR_DELTA]
    if cursor[CURSOR_RECORD] == 0 and not _wrapper_base(buf, e, cursor):
        return -1
    made = 0
    while at < end and made < capacity:
        stop = _inner_end(buf, at, end, e)
        stored = load_be32(buf, at + f.LEGACY_CRC_POS) & 0xFFFFFFFF
        computed = crc32(buf, at + f.MAGIC_POS, stop, 0)
        if stored != computed:
            set_fault(e, faults.INNER_CRC_MISMATCH, _where(e, at), stored, computed)
            return -1
        magic = buf[at + f.MAGIC_POS]
        attributes = np.int64(buf[at + f.LEGACY_ATTRIBUTES_POS])
        if attributes & f.CODEC_MASK:
            set_fault(e, faults.INNER_COMPRESSED, _where(e, at), 0, attributes & f.CODEC_MASK)
            return -1
        i = first + made * step
        if not _message(buf, at, stop, e, rows, i, totals):
            return -1
        rows[ROW_OFFSET, i] += cursor[CURSOR_BASE]
        if magic != e["magic"]:
            e["marks"] |= faults.INNER_MAGIC
        if attributes & (f.V0_UNUSED_MASK if magic == f.MAGIC_V0 else f.V1_UNUSED_MASK):
            e["marks"] |= faults.UNUSED_ATTRIBUTES
        if rows[ROW_OFFSET, i] <= previous and cursor[CURSOR_RECORD] + made > 0:
            e["marks"] |= faults.OFFSETS_NOT_RISING
        if e["magic"] == f.MAGIC_V0 and rows[ROW_OFFSET, i] > e["last_offset"]:
            e["marks"] |= faults.OFFSET_PAST_LAST
        previous = rows[ROW_OFFSET, i]
        if cursor[CURSOR_RECORD] + made == 0:
            e["base_offset"] = rows[ROW_OFFSET, i]
        made += 1
        at = stop
    cursor[CURSOR_AT] = at
    cursor[CURSOR_RECORD] += made
    cursor[CURSOR_DELTA] = previous
    return made


@kernel
def start_cursor(e: Any, cursor: Any) -> None:
    """Set the cursor (int64[CURSOR_SIZE]) to the entry's first record."""
    cursor[CURSOR_AT] = e["data_at"]
    cursor[CURSOR_RECORD] = 0
    cursor[CURSOR_DELTA] = _NO_DELTA
    cursor[CURSOR_BASE] = 0


@kernel
def index_entry(
    buf: Any, e: Any, rows: Any, first: int, step: int, capacity: int, cursor: Any, totals: Any
) -> int:
    """Rows of one entry's records, from the cursor on.

    ``buf``: uint8[n], the entry's data buffer; ``rows``: of ``new_rows``, filled from ``first`` on
    (``step`` 1), or all into one (``step`` 0, to check a batch without keeping its rows); ``totals``:
    int64[TOTALS_SIZE], added to.
    Returns the rows made; -1 with the fault noted in ``e``.
    """
    if e["magic"] == f.MAGIC_V2:
        if e["count"] < 0:
            set_fault(e, faults.COUNT_NEGATIVE, e["position"] + f.RECORDS_COUNT_POS, 0, e["count"])
            return -1
        most = e["data_size"] // f.MIN_RECORD_SIZE
        if e["count"] > most:
            set_fault(e, faults.COUNT_TOO_LARGE, e["position"] + f.RECORDS_COUNT_POS, most, e["count"])
            return -1
        return _batch(buf, e, rows, first, step, capacity, cursor, totals)
    if e["codec"] != f.CODEC_NONE:
        return _wrapper(buf, e, rows, first, step, capacity, cursor, totals)
    if cursor[CURSOR_RECORD]:
        return 0
    if not _message(buf, e["at"], e["at"] + e["size"], e, rows, first, totals):
        return -1
    cursor[CURSOR_RECORD] = 1
    return 1


@kernel
def index_entries(
    window: Any,
    scratch: Any,
    entries: Any,
    begin: int,
    end: int,
    rows: Any,
    cursor: Any,
    totals: Any,
    sums: Any,
) -> int:
    """Rows of the records of ``entries[begin:end]``, each entry whole or not at all; rows made.

    ``window``, ``scratch``: uint8, where the data of plain and of expanded entries lie. ``rows`` must hold
    what the entries can have (``most_records``). ``sums``: int64[TOTALS_SIZE] to work in.
    An entry that has a fault already is passed over.
    """
    made = 0
    window, scratch = borrowed(window), borrowed(scratch)
    entries, rows, cursor = borrowed(entries), borrowed(rows), borrowed(cursor)
    sums = borrowed(sums)
    for k in range(begin, end):
        e = entries[k]
        if e["fault"]:
            continue
        sums[:] = 0
        start_cursor(e, cursor)
        buf = scratch if e["expanded"] else window
        count = index_entry(buf, e, rows, made, 1, rows.shape[1] - made, cursor, sums)
        if count < 0:
            continue
        set_sums(e, count, sums)
        for i in range(TOTALS_SIZE):
            totals[i] = totals[i] | sums[i] if i == NOT_ASCII else totals[i] + sums[i]
        made += count
    return made


@kernel
def set_sums(e: Any, count: int, sums: Any) -> None:
    """Note in the entry what its records came to."""
    e["record_count"] = count
    e["key_bytes"] = sums[KEY_BYTES]
    e["value_bytes"] = sums[VALUE_BYTES]
    e["header_bytes"] = sums[HEADER_KEY_BYTES] + sums[HEADER_VALUE_BYTES]


@kernel
def most_records(e: Any) -> int:
    """How many records the entry can have at most, by the bytes that are there."""
    if e["magic"] == f.MAGIC_V2:
        return max(0, min(e["count"], e["data_size"] // f.MIN_RECORD_SIZE))
    if e["codec"] != f.CODEC_NONE:
        return e["data_size"] // f.V0_MIN_SIZE
    return 1


@kernel
def group_end(entries: Any, begin: int, most_rows: int) -> int:
    """End of a group of entries from ``begin`` on that needs no expanding and has ``most_rows`` at most.

    One entry is a group, whatever it has.
    """
    rows = 0
    for k in range(begin, len(entries)):
        if entries[k]["codec"] != f.CODEC_NONE and not entries[k]["fault"]:
            return k
        rows += most_records(entries[k])
        if rows > most_rows and k > begin:
            return k
    return len(entries)
