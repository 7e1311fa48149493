"""Writes the lines that Kafka's ``DumpLogSegments`` prints of batches and records, many a call.

Lines are written one after the other into one buffer. The most bytes that a line needs are computed before it
is written, so that no line is cut: where there is no room for it the kernel ends, and is called again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.jit import copy_bytes, copy_sixteen, inlined, int64, kernel, load_be32

# What is printed, by bits
RECORDS, METADATA, CONTENTS, HEADER_VALUES = 1, 2, 4, 8
# Bytes that the names and numbers of a batch, and of a record without its headers, take at most
BATCH_ROOM, RECORD_ROOM = 640, 320
SLACK = 32  # short texts are copied as whole words

_TEXTS = bytearray()


def _text(words: str) -> tuple[int, int]:
    """Adds a text to _LITERALS; returns where it begins, and its size."""
    begin = len(_TEXTS)
    _TEXTS.extend(words.encode())
    return begin, len(words)


_BASE_OFFSET, _LAST_OFFSET, _COUNT = _text("baseOffset: "), _text(" lastOffset: "), _text(" count: ")
_BASE_SEQUENCE, _LAST_SEQUENCE = _text(" baseSequence: "), _text(" lastSequence: ")
_PRODUCER_ID, _PRODUCER_EPOCH = _text(" producerId: "), _text(" producerEpoch: ")
_LEADER_EPOCH, _TRANSACTIONAL = _text(" partitionLeaderEpoch: "), _text(" isTransactional: ")
_CONTROL, _NO_HORIZON = _text(" isControl: "), _text(" deleteHorizonMs: OptionalLong.empty")
_HORIZON, _POSITION = _text(" deleteHorizonMs: OptionalLong["), _text(" position: ")
_OFFSET, _SIZE, _MAGIC = _text("offset: "), _text(" size: "), _text(" magic: ")
_CODEC, _CRC, _IS_VALID = _text(" compresscodec: "), _text(" crc: "), _text(" isvalid: ")
_TRUE, _FALSE = _text("true"), _text("false")
_NO_TIME, _CREATE_TIME = _text(" NoTimestampType: "), _text(" CreateTime: ")
_APPEND_TIME = _text(" LogAppendTime: ")
_NONE, _GZIP, _SNAPPY = _text("none"), _text("gzip"), _text("snappy")
_LZ4, _ZSTD, _UNKNOWN = _text("lz4"), _text("zstd"), _text("unknown")
_RECORD, _RECORD_OFFSET = _text("| "), _text("| offset: ")
_KEY_SIZE, _VALUE_SIZE = _text(" keySize: "), _text(" valueSize: ")
_SEQUENCE, _HEADER_KEYS = _text(" sequence: "), _text(" headerKeys: [")
_HEADER_VALUES, _NULL = _text(" headerValues: ["), _text("null")
_MESSAGE_VALID, _MESSAGE_CRC = _text(" isValid: "), _text(" crc: ")
_KEY, _PAYLOAD = _text("key: "), _text(" payload: ")
_LITERALS = np.frombuffer(bytes(_TEXTS) + bytes(SLACK), dtype=np.uint8)

_NEWLINE, _BLANK, _COMMA, _BRACKET, _BRACE, _MINUS, _ZERO = 10, 32, 44, 93, 125, 45, 48
_DIGIT_PAIRS = np.frombuffer("".join(f"{i:02d}" for i in range(100)).encode(), dtype=np.uint8)
_LEAST = np.frombuffer(b"-9223372036854775808", dtype=np.uint8)


class TextColumn(NamedTuple):
    """A column of n texts, as bytes to print.

    starts: int32[n + 1], where each begins in data (uint8). sizes: int32[n], the sizes to print, in bytes;
    -1 for null, which has no text.
    """

    starts: np.ndarray
    sizes: np.ndarray
    data: np.ndarray


class RecordColumns(NamedTuple):
    """Columns of n records. offsets, timestamps (ms): int64[n]; sequences: int32[n]; keys, values: Texts.

    headers: int32[n + 1], the headers of each record in header_keys and header_values. crcs: int64[n], the
    stored checksums of messages of magic 0 and 1; valid: bool[n], whether they are right.
    """

    offsets: np.ndarray
    timestamps: np.ndarray
    sequences: np.ndarray
    keys: TextColumn
    values: TextColumn
    headers: np.ndarray
    header_keys: TextColumn
    header_values: TextColumn
    crcs: np.ndarray
    valid: np.ndarray


@inlined
def _put(out: np.ndarray, at: int, text: Any) -> int:
    begin, size = text
    for k in range(0, size, 16):
        copy_sixteen(out, at + k, _LITERALS, begin + k)
    return at + size


@kernel
def _put_number(out: np.ndarray, at: int, number: int) -> int:
    """Writes an int64 in decimal digits; returns the position after it."""
    if number < 0:
        if number == -number:  # the least one has no opposite
            copy_bytes(out, at, _LEAST, 0, 20)
            return at + 20
        out[at] = _MINUS
        at += 1
        number = -number
    left = np.uint64(number)
    size, bound = 1, np.uint64(10)
    while size < 19 and left >= bound:
        size += 1
        bound *= np.uint64(10)
    p = at + size
    while left >= np.uint64(100):
        pair = int64(left % np.uint64(100)) * 2
        left //= np.uint64(100)
        p -= 2
        out[p] = _DIGIT_PAIRS[pair]
        out[p + 1] = _DIGIT_PAIRS[pair + 1]
    pair = int64(left) * 2
    out[p - 1] = _DIGIT_PAIRS[pair + 1]
    if p - 2 >= at:
        out[p - 2] = _DIGIT_PAIRS[pair]
    return at + size


@inlined
def _put_named(out: np.ndarray, at: int, name: Any, number: int) -> int:
    return _put_number(out, _put(out, at, name), int64(number))


@inlined
def _put_flag(out: np.ndarray, at: int, is_true: bool) -> int:
    return _put(out, at, _TRUE) if is_true else _put(out, at, _FALSE)


@inlined
def _put_bytes(out: np.ndarray, at: int, texts: TextColumn, i: int) -> int:
    begin = int64(texts.starts[i])
    size = int64(texts.starts[i + 1]) - begin
    copy_bytes(out, at, texts.data, begin, size)
    return at + size


@inlined
def _put_time(out: np.ndarray, at: int, kind: int, timestamp: int) -> int:
    if kind == f.CREATE_TIME:
        at = _put(out, at, _CREATE_TIME)
    elif kind == f.LOG_APPEND_TIME:
        at = _put(out, at, _APPEND_TIME)
    else:
        at = _put(out, at, _NO_TIME)
    return _put_number(out, at, timestamp)


@inlined
def _put_codec(out: np.ndarray, at: int, codec: int) -> int:
    if codec == f.CODEC_NONE:
        return _put(out, at, _NONE)
    if codec == f.CODEC_GZIP:
        return _put(out, at, _GZIP)
    if codec == f.CODEC_SNAPPY:
        return _put(out, at, _SNAPPY)
    if codec == f.CODEC_LZ4:
        return _put(out, at, _LZ4)
    return _put(out, at, _ZSTD) if codec == f.CODEC_ZSTD else _put(out, at, _UNKNOWN)


@kernel
def _put_batch(out: np.ndarray, at: int, e: np.void) -> int:
    """Writes the line of a batch (a row of BATCH); returns the position after it."""
    if e["magic"] >= f.MAGIC_V2:
        at = _put_named(out, at, _BASE_OFFSET, e["base_offset"])
        at = _put_named(out, at, _LAST_OFFSET, e["last_offset"])
        at = _put_named(out, at, _COUNT, e["count"])
        at = _put_named(out, at, _BASE_SEQUENCE, e["base_sequence"])
        at = _put_named(out, at, _LAST_SEQUENCE, e["last_sequence"])
        at = _put_named(out, at, _PRODUCER_ID, e["producer_id"])
        at = _put_named(out, at, _PRODUCER_EPOCH, e["producer_epoch"])
        at = _put_named(out, at, _LEADER_EPOCH, e["leader_epoch"])
        at = _put_flag(out, _put(out, at, _TRANSACTIONAL), e["attributes"] & f.TRANSACTIONAL_MASK != 0)
        at = _put_flag(out, _put(out, at, _CONTROL), e["attributes"] & f.CONTROL_MASK != 0)
        if e["attributes"] & f.DELETE_HORIZON_MASK:
            at = _put_named(out, at, _HORIZON, e["base_timestamp"])
            out[at] = _BRACKET
            at += 1
        else:
            at = _put(out, at, _NO_HORIZON)
    else:
        at = _put_named(out, at, _OFFSET, e["last_offset"])
    at = _put_named(out, at, _POSITION, e["position"])
    at = _put_time(out, at, e["timestamp_type"], e["max_timestamp"])
    at = _put_named(out, at, _SIZE, e["size"])
    at = _put_named(out, at, _MAGIC, e["magic"])
    at = _put_codec(out, _put(out, at, _CODEC), e["codec"])
    at = _put_named(out, at, _CRC, e["crc_stored"])
    at = _put_flag(out, _put(out, at, _IS_VALID), e["crc_stored"] == e["crc_computed"])
    out[at] = _NEWLINE
    return at + 1


@kernel
def _put_headers(out: np.ndarray, at: int, rows: RecordColumns, i: int, prints: int) -> int:
    """Writes the headers of a record, ended by a bracket; returns the position after them."""
    begin, end = int64(rows.headers[i]), int64(rows.headers[i + 1])
    for k in range(begin, end):
        if k > begin:
            out[at] = _COMMA
            at += 1
        at = _put_bytes(out, at, rows.header_keys, k)
    out[at] = _BRACKET
    at += 1
    if prints & HEADER_VALUES and end > begin:
        at = _put(out, at, _HEADER_VALUES)
        for k in range(begin, end):
            if k > begin:
                out[at] = _COMMA
                at += 1
            if rows.header_values.sizes[k] < 0:
                at = _put(out, at, _NULL)
            else:
                at = _put_bytes(out, at, rows.header_values, k)
        out[at] = _BRACKET
        at += 1
    return at


@kernel
def _put_record(out: np.ndarray, at: int, e: np.void, rows: RecordColumns, i: int, prints: int) -> int:
    """Writes the line of record ``i`` of ``rows``, of the batch ``e``; returns the position after it."""
    if prints & METADATA:
        at = _put_named(out, at, _RECORD_OFFSET, rows.offsets[i])
        at = _put_time(out, at, e["timestamp_type"], rows.timestamps[i])
        at = _put_named(out, at, _KEY_SIZE, rows.keys.sizes[i])
        at = _put_named(out, at, _VALUE_SIZE, rows.values.sizes[i])
        if e["magic"] >= f.MAGIC_V2:
            at = _put_named(out, at, _SEQUENCE, rows.sequences[i])
            at = _put_headers(out, _put(out, at, _HEADER_KEYS), rows, i, prints)
        else:
            at = _put_flag(out, _put(out, at, _MESSAGE_VALID), rows.valid[i])
            at = _put_named(out, at, _MESSAGE_CRC, rows.crcs[i])
            out[at] = _BRACE
            at += 1
    if prints & CONTENTS:
        if rows.keys.sizes[i] >= 0:
            if prints & METADATA:
                out[at] = _BLANK
                at += 1
            else:
                at = _put(out, at, _RECORD)
            at = _put_bytes(out, _put(out, at, _KEY), rows.keys, i)
        if rows.values.sizes[i] >= 0:
            at = _put_bytes(out, _put(out, at, _PAYLOAD), rows.values, i)
    out[at] = _NEWLINE
    return at + 1


@inlined
def _text_size(texts: TextColumn, begin: int, end: int) -> int:
    return int64(texts.starts[end]) - int64(texts.starts[begin])


@inlined
def _record_room(rows: RecordColumns, i: int, prints: int) -> int:
    """Returns the most bytes that the line of record ``i`` takes."""
    room = RECORD_ROOM
    if prints & CONTENTS:
        room += _text_size(rows.keys, i, i + 1) + _text_size(rows.values, i, i + 1)
    if prints & METADATA and len(rows.headers):
        begin, end = int64(rows.headers[i]), int64(rows.headers[i + 1])
        room += 8 * (end - begin) + _text_size(rows.header_keys, begin, end)
        if prints & HEADER_VALUES:
            room += _text_size(rows.header_values, begin, end)
    return room


@kernel
def put_lines(
    out: np.ndarray,
    batches: np.ndarray,
    counts: np.ndarray,
    rows: RecordColumns,
    state: np.ndarray,
    prints: int,
) -> int:
    """Writes lines of ``batches`` (BATCH[n]) and their records into ``out`` (uint8); returns their bytes.

    ``counts``: int64[n], rows of each batch. ``state``: int64[3], moved on: the batch, its records that are
    written or -1 where its own line is not, the row. Where the last batch is not done there was no room;
    where nothing was written the next line needs more than ``out`` has. ``prints``: bits of what is printed.
    """
    at, k, done, row = int64(0), state[0], state[1], state[2]  # a plain 0 is a type of its own to Numba
    end = len(out) - SLACK
    has_room = True
    while has_room and k < len(batches):
        if done < 0:
            has_room = at + BATCH_ROOM <= end
            if not has_room:
                break
            at = _put_batch(out, at, batches[k])
            done = 0
        if prints & RECORDS:
            while done < counts[k]:
                if at + _record_room(rows, row, prints) > end:
                    has_room = False
                    break
                at = _put_record(out, at, batches[k], rows, row, prints)
                done += 1
                row += 1
        else:
            row += counts[k]
        if has_room:
            k += 1
            done = -1
    state[0], state[1], state[2] = k, done, row
    return at


@kernel
def message_crcs(
    window: np.ndarray, scratch: np.ndarray, batches: np.ndarray, crcs: np.ndarray, valid: np.ndarray
) -> None:
    """Writes the stored checksum of each message of magic 0 and 1, and whether it is right.

    ``window``, ``scratch``: uint8, where the data of plain and of expanded batches lie. ``crcs``: int64[m],
    ``valid``: bool[m], written; a row of another magic stays as it is. Batches are sound but for the
    checksum of a message that is in no wrapper.
    """
    row = 0
    for k in range(len(batches)):
        e = batches[k]
        if e["magic"] >= f.MAGIC_V2 or e["codec"] == f.CODEC_NONE:
            if e["magic"] < f.MAGIC_V2 and e["record_count"]:
                crcs[row] = e["crc_stored"]
                valid[row] = e["crc_stored"] == e["crc_computed"]
            row += e["record_count"]
            continue
        data = scratch if e["expanded"] else window
        at = e["data_at"]
        for _ in range(e["record_count"]):
            crcs[row] = load_be32(data, at + f.LEGACY_CRC_POS) & 0xFFFFFFFF
            valid[row] = True
            at += f.LOG_OVERHEAD + load_be32(data, at + f.LENGTH_POS)
            row += 1
