"""Messages of magic 0 and 1, plain or inside a wrapper: ``LegacyRecord``, ``AbstractLegacyRecordBatch``.

    offset int64 | length int32 | crc uint32 | magic int8 | attributes int8 | timestamp int64 (magic 1 alone)
    | key length int32 | key | value length int32 | value

A wrapper's value, expanded, holds such messages. A fault is noted in the cursor by its code and its place;
``format.explain`` reads the message again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs.format import faults
from udfs.format import layout as f
from udfs.kernels import record_rows as r
from udfs.kernels.checksums import crc32
from udfs.kernels.jit import int64, kernel, load_be32, load_be64
from udfs.kernels.record_rows import stay, stop


@kernel
def _message(buf: Any, at: int, end: int, e: Any, rows: Any, i: int, cursor: Any, totals: Any) -> int:
    """Read the message at ``buf[at:end]`` (with offset and length) into place ``i``.

    ``e``: the batch it is, or lies in. Returns marks, or -1 for a fault.
    """
    magic = np.int8(buf[at + f.MAGIC_POS])
    p = at + (f.V0_KEY_LENGTH_POS if magic == f.MAGIC_V0 else f.V1_KEY_LENGTH_POS)
    key_size = load_be32(buf, p)
    if key_size > end - p - 8:
        return stop(cursor, faults.KEY_BEYOND, p)
    rows[r.ROW_KEY_AT, i] = p + 4
    rows[r.ROW_KEY_SIZE, i] = max(key_size, -1)
    p += 4 + max(key_size, 0)
    value_size = load_be32(buf, p)
    if value_size > end - p - 4:
        return stop(cursor, faults.VALUE_BEYOND, p)
    rows[r.ROW_VALUE_AT, i] = p + 4
    rows[r.ROW_VALUE_SIZE, i] = max(value_size, -1)
    marks = faults.LENGTH_BELOW_NULL if key_size < -1 or value_size < -1 else 0
    if p + 4 + max(value_size, 0) < end:
        marks |= faults.MESSAGE_SLACK
    totals["key_bytes"] += max(key_size, 0)
    totals["value_bytes"] += max(value_size, 0)
    rows[r.ROW_HEADERS, i] = 0
    rows[r.ROW_HEADERS_AT, i] = 0
    rows[r.ROW_SEQUENCE, i] = f.NO_SEQUENCE
    rows[r.ROW_SIZE, i] = end - at
    rows[r.ROW_OFFSET, i] = load_be64(buf, at)
    # the wrapper's log append time holds for what lies in it (magic 1 alone)
    if magic == f.MAGIC_V0:
        rows[r.ROW_TIMESTAMP, i] = f.NO_TIMESTAMP
    elif magic == f.MAGIC_V1 and e["timestamp_type"] == f.LOG_APPEND_TIME:
        rows[r.ROW_TIMESTAMP, i] = e["base_timestamp"]
    else:
        rows[r.ROW_TIMESTAMP, i] = load_be64(buf, at + f.V1_TIMESTAMP_POS)
    return marks


@kernel
def index_message(buf: Any, e: Any, rows: Any, cursor: Any, totals: Any) -> int:
    """The row of a message that is no wrapper: 1, or 0 where the cursor is past it; -1 for a fault."""
    if cursor["record"]:
        return 0
    at = e["at"]
    marks = _message(buf, at, at + e["size"], e, rows, cursor["row"], cursor, totals)
    if marks < 0:
        return -1
    e["marks"] |= marks
    cursor["record"] = 1
    return 1


@kernel
def _inner_end(buf: Any, at: int, end: int) -> int:
    """End of the inner message at ``buf[at]``, or minus a fault's code."""
    if at + f.HEADER_UP_TO_MAGIC > end:
        return -faults.INNER_CUT
    size = load_be32(buf, at + f.LENGTH_POS) + f.LOG_OVERHEAD
    if size < (f.V0_MIN_SIZE if buf[at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_MIN_SIZE):
        return -faults.INNER_SIZE
    return at + size if size <= end - at else -faults.INNER_CUT


@kernel
def _wrapper_base(buf: Any, e: Any, cursor: Any) -> int:
    """Walk the inner messages for the last offset, to which those of magic 1 are relative.

    absolute = outer - last inner + inner; an outer offset of 0 takes inner offsets as they are (some
    producers). Magic 0 holds absolute offsets. Sets the cursor's base. Returns 0, or -1 for a fault.
    """
    at = last_at = e["data_at"]
    end = at + e["data_size"]
    if at == end:
        return stop(cursor, faults.WRAPPER_EMPTY, at)
    while at < end:
        last_at = at
        at = _inner_end(buf, at, end)
        if at < 0:
            stop(cursor, -at, last_at)
            return stay(cursor, last_at, 0)
    if e["magic"] == f.MAGIC_V1 and e["last_offset"] != 0:
        last = load_be64(buf, last_at)
        if e["last_offset"] < last:
            stop(cursor, faults.WRAPPER_OFFSET, last_at)
            return stay(cursor, last_at, 0)
        cursor["base"] = e["last_offset"] - last
    return 0


@kernel
def _inner(buf: Any, at: int, end: int, e: Any, rows: Any, i: int, cursor: Any, totals: Any) -> int:
    """As ``_message``, for one inside the wrapper ``e``, which must be sound and not compressed itself."""
    magic = buf[at + f.MAGIC_POS]
    attributes = int64(buf[at + f.LEGACY_ATTRIBUTES_POS])
    stored = load_be32(buf, at + f.LEGACY_CRC_POS) & 0xFFFFFFFF
    if stored != crc32(buf, at + f.MAGIC_POS, end, 0):
        return stop(cursor, faults.INNER_CRC_MISMATCH, at)
    if attributes & f.CODEC_MASK:
        return stop(cursor, faults.INNER_COMPRESSED, at)
    marks = _message(buf, at, end, e, rows, i, cursor, totals)
    if marks < 0:
        return -1
    if magic != e["magic"]:
        marks |= faults.INNER_MAGIC
    if attributes & (f.V0_UNUSED_MASK if magic == f.MAGIC_V0 else f.V1_UNUSED_MASK):
        marks |= faults.UNUSED_ATTRIBUTES
    return marks


@kernel
def index_wrapper(buf: Any, e: Any, rows: Any, cursor: Any, totals: Any) -> int:
    """Rows of the inner messages of a wrapper from the cursor on: how many, or -1 for a fault."""
    made, record = 0, cursor["record"]
    if record == 0 and _wrapper_base(buf, e, cursor) < 0:
        return -1
    at = start = cursor["at"]
    end = e["data_at"] + e["data_size"]
    previous, base = cursor["previous"], cursor["base"]
    row, step, capacity, room = cursor["row"], cursor["step"], cursor["capacity"], cursor["room"]
    while at < end and made < capacity:
        behind = _inner_end(buf, at, end)
        if room and made and behind - start > room:
            break
        i = row + made * step
        marks = _inner(buf, at, behind, e, rows, i, cursor, totals)
        if marks < 0:
            return stay(cursor, at, record + made)
        offset = rows[r.ROW_OFFSET, i] + base
        rows[r.ROW_OFFSET, i] = offset
        if record + made == 0:
            e["base_offset"] = offset
        elif offset <= previous:
            marks |= faults.OFFSETS_NOT_RISING
        if e["magic"] == f.MAGIC_V0 and offset > e["last_offset"]:
            marks |= faults.OFFSET_PAST_LAST
        e["marks"] |= marks
        previous = offset
        made += 1
        at = behind
    cursor["at"] = at
    cursor["record"] = record + made
    cursor["previous"] = previous
    return made
