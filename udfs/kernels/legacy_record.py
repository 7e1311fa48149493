"""Decodes messages of magic 0 and 1, plain or in a wrapper: ``LegacyRecord``, ``AbstractLegacyRecordBatch``.

    offset int64 | length int32 | crc uint32 | magic int8 | attributes int8 | timestamp int64 (magic 1 alone)
    | key length int32 | key | value length int32 | value

A wrapper's value, expanded, holds such messages. A fault is noted in the cursor by its code and its place;
``format.explain`` reads the message again.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.arena import TextColumns
from kafka_log_lake.udfs.kernels.checksums import crc32
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel, load_be32, load_be64
from kafka_log_lake.udfs.kernels.record_cursor import Parts, has_room, put_row, stop


@inlined
def _message(buf: np.ndarray, at: int, end: int, cursor: np.ndarray) -> tuple[int, Parts]:
    """Reads the message at ``buf[at:end]`` (with offset and length).

    Returns (marks or -1 for a fault, its parts).
    """
    p = at + (f.V0_KEY_LENGTH_POS if buf[at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_KEY_LENGTH_POS)
    key_at, key_size = p + 4, load_be32(buf, p)
    value_at, value_size, marks = 0, 0, 0
    if key_size > end - p - 8:
        marks = stop(cursor, faults.KEY_BEYOND, p)
    else:
        p += 4 + max(key_size, 0)
        value_at, value_size = p + 4, load_be32(buf, p)
        if value_size > end - p - 4:
            marks = stop(cursor, faults.VALUE_BEYOND, p)
        else:
            if key_size < -1 or value_size < -1:
                marks |= faults.LENGTH_BELOW_NULL
            if value_at + max(value_size, 0) < end:
                marks |= faults.MESSAGE_SLACK
    return marks, Parts(key_at, max(key_size, -1), value_at, max(value_size, -1), 0, 0)


@inlined
def _timestamp(buf: np.ndarray, at: int, e: np.void) -> int:
    """Returns the timestamp (ms, -1 none) of the message at ``buf[at]``.

    e: the batch that the message is or lies in.
    """
    magic = np.int8(buf[at + f.MAGIC_POS])
    if magic == f.MAGIC_V0:
        return f.NO_TIMESTAMP
    # the wrapper's log append time holds for what lies in it (magic 1 alone)
    if magic == f.MAGIC_V1 and e["timestamp_type"] == f.LOG_APPEND_TIME:
        return int64(e["base_timestamp"])
    return load_be64(buf, at + f.V1_TIMESTAMP_POS)


@inlined
def decode_message(
    buf: np.ndarray,
    e: np.void,
    arena: np.ndarray,
    columns: TextColumns,
    lines: np.ndarray,
    cursor: np.ndarray,
    filled: np.ndarray,
    room: np.ndarray,
) -> None:
    """Appends a message that is no wrapper, if there is room; the cursor ends after it, or stays."""
    at = e["at"]
    end = at + e["size"]
    marks, parts = _message(buf, at, end, cursor)
    if marks >= 0 and has_room(filled, room, parts):
        put_row(
            arena, columns, lines, filled, buf, parts, load_be64(buf, at), _timestamp(buf, at, e), end - at
        )
        e["marks"] |= marks
        cursor["at"], cursor["record"] = end, 1


@kernel
def _inner_end(buf: np.ndarray, at: int, end: int) -> int:
    """Returns where the inner message at ``buf[at]`` ends, or minus a fault's code."""
    if at + f.HEADER_UP_TO_MAGIC > end:
        return -faults.INNER_CUT
    size = load_be32(buf, at + f.LENGTH_POS) + f.LOG_OVERHEAD
    if size < (f.V0_MIN_SIZE if buf[at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_MIN_SIZE):
        return -faults.INNER_SIZE
    return at + size if size <= end - at else -faults.INNER_CUT


@kernel
def _wrapper_base(buf: np.ndarray, e: np.void, cursor: np.ndarray) -> None:
    """Finds the last inner offset of a wrapper, to which those of magic 1 are relative.

    Sets the cursor's base: absolute = outer - last inner + inner; an outer offset of 0 takes inner offsets as
    they are (some producers). Magic 0 holds absolute offsets. A fault is noted in the cursor.
    """
    at = last_at = e["data_at"]
    end = at + e["data_size"]
    if at == end:
        stop(cursor, faults.WRAPPER_EMPTY, at)
        return
    while at < end:
        last_at = at
        at = _inner_end(buf, at, end)
        if at < 0:
            cursor["at"] = last_at
            stop(cursor, -at, last_at)
            return
    if e["magic"] == f.MAGIC_V1 and e["last_offset"] != 0:
        last = load_be64(buf, last_at)
        if e["last_offset"] < last:
            cursor["at"] = last_at
            stop(cursor, faults.WRAPPER_OFFSET, last_at)
        cursor["base"] = e["last_offset"] - last


@inlined
def _inner(buf: np.ndarray, at: int, end: int, e: np.void, cursor: np.ndarray) -> tuple[int, Parts]:
    """Reads a message inside the wrapper ``e``; it must be sound and not compressed itself.

    Returns as ``_message`` does.
    """
    magic = buf[at + f.MAGIC_POS]
    attributes = int64(buf[at + f.LEGACY_ATTRIBUTES_POS])
    stored = load_be32(buf, at + f.LEGACY_CRC_POS) & 0xFFFFFFFF
    marks, parts = 0, Parts(0, 0, 0, 0, 0, 0)
    if stored != crc32(buf, at + f.MAGIC_POS, end, 0):
        marks = stop(cursor, faults.INNER_CRC_MISMATCH, at)
    elif attributes & f.CODEC_MASK:
        marks = stop(cursor, faults.INNER_COMPRESSED, at)
    else:
        marks, parts = _message(buf, at, end, cursor)
    if marks >= 0:
        if magic != e["magic"]:
            marks |= faults.INNER_MAGIC
        if attributes & (f.V0_UNUSED_MASK if magic == f.MAGIC_V0 else f.V1_UNUSED_MASK):
            marks |= faults.UNUSED_ATTRIBUTES
    return marks, parts


@kernel
def decode_wrapper(
    buf: np.ndarray,
    e: np.void,
    arena: np.ndarray,
    columns: TextColumns,
    lines: np.ndarray,
    cursor: np.ndarray,
    filled: np.ndarray,
    room: np.ndarray,
) -> None:
    """Appends the inner messages of a wrapper from the cursor on, as many as there is room for.

    The cursor ends after the last one that was appended, or at the one at fault.
    """
    if cursor["record"] == 0:
        _wrapper_base(buf, e, cursor)
        if cursor["fault"]:
            return
    at, record, previous, base = cursor["at"], cursor["record"], cursor["previous"], cursor["base"]
    end = e["data_at"] + e["data_size"]
    while at < end:
        message_end = _inner_end(buf, at, end)
        marks, parts = _inner(buf, at, message_end, e, cursor)
        if marks < 0 or not has_room(filled, room, parts):
            break
        offset = load_be64(buf, at) + base
        put_row(arena, columns, lines, filled, buf, parts, offset, _timestamp(buf, at, e), message_end - at)
        if record == 0:
            e["base_offset"] = offset
        elif offset <= previous:
            marks |= faults.OFFSETS_NOT_RISING
        if e["magic"] == f.MAGIC_V0 and offset > e["last_offset"]:
            marks |= faults.OFFSET_PAST_LAST
        e["marks"] |= marks
        previous = offset
        record += 1
        at = message_end
    cursor["at"], cursor["record"], cursor["previous"] = at, record, previous
