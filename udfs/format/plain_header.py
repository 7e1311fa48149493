"""Reads the header of a batch field by field in plain Python, right or wrong.

Names and rules: ``DefaultRecordBatch`` and ``LegacyRecord`` of kafka-clients.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.fields import Buffer, Field, Stored, Wrong, integer


class Declared(NamedTuple):
    """A field of a header: name, position in the batch, bytes. least: its lowest legal value; None: any."""

    name: str
    position: int
    size: int
    least: int | None = None
    signed: bool = True

    @property
    def end(self) -> int:
        return self.position + self.size


_MESSAGE = (
    Declared("offset", f.OFFSET_POS, 8),
    Declared("messageSize", f.LENGTH_POS, 4),
    Declared("crc", f.LEGACY_CRC_POS, 4, signed=False),
    Declared("magic", f.MAGIC_POS, 1),
    Declared("attributes", f.LEGACY_ATTRIBUTES_POS, 1, signed=False),
)
HEADERS = {
    f.MAGIC_V0: _MESSAGE,
    f.MAGIC_V1: (*_MESSAGE, Declared("timestamp", f.V1_TIMESTAMP_POS, 8, f.NO_TIMESTAMP)),
    f.MAGIC_V2: (
        Declared("baseOffset", f.OFFSET_POS, 8),
        Declared("batchLength", f.LENGTH_POS, 4),
        Declared("partitionLeaderEpoch", f.LEADER_EPOCH_POS, 4),
        Declared("magic", f.MAGIC_POS, 1),
        Declared("crc", f.V2_CRC_POS, 4, signed=False),
        Declared("attributes", f.V2_ATTRIBUTES_POS, 2, signed=False),
        Declared("lastOffsetDelta", f.LAST_OFFSET_DELTA_POS, 4, 0),
        Declared("baseTimestamp", f.BASE_TIMESTAMP_POS, 8, f.NO_TIMESTAMP),
        Declared("maxTimestamp", f.MAX_TIMESTAMP_POS, 8, f.NO_TIMESTAMP),
        Declared("producerId", f.PRODUCER_ID_POS, 8, f.NO_PRODUCER_ID),
        Declared("producerEpoch", f.PRODUCER_EPOCH_POS, 2, -1),
        Declared("baseSequence", f.BASE_SEQUENCE_POS, 4, f.NO_SEQUENCE),
        Declared("recordsCount", f.RECORDS_COUNT_POS, 4, 0),
    ),
}


_FRAME = struct.Struct(">qi4xb")  # offset, length, leader epoch or checksum, magic
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


def framed(data: Buffer | bytearray, at: int = 0) -> tuple[int, int, int]:
    """Returns (offset as stored, size, magic) by the first 17 bytes of the batch at ``data[at]``.

    size: bytes of the batch; -1 where magic or length can't be those of a batch.
    """
    offset, length, magic = _FRAME.unpack_from(data, at)
    size = length + f.LOG_OVERHEAD
    return offset, size if size >= f.MIN_SIZES.get(magic, 1 << 32) else -1, magic


def last_offset(data: Buffer | bytearray, at: int, offset: int, magic: int) -> int:
    """Returns the last offset of the batch at ``data[at]``, whose whole header is there."""
    if magic < f.MAGIC_V2:
        return offset
    return offset + int(_INT32.unpack_from(data, at + f.LAST_OFFSET_DELTA_POS)[0])


def newest_timestamp(data: Buffer | bytearray, at: int, magic: int) -> int:
    """Returns the highest timestamp of the batch at ``data[at]``, whose whole header is there; -1: none."""
    if magic == f.MAGIC_V0:
        return f.NO_TIMESTAMP
    place = f.MAX_TIMESTAMP_POS if magic == f.MAGIC_V2 else f.V1_TIMESTAMP_POS
    return int(_INT64.unpack_from(data, at + place)[0])


def magic_of(data: Buffer, begin: int = 0) -> int | None:
    """Returns the magic of the batch at ``begin``, known or not; None where the data end before it."""
    at = begin + f.MAGIC_POS
    return integer(data, at, 1) if at < len(data) else None


def field_at(magic: int, at: int) -> str:
    """Returns the name of the field of a header that the byte ``at`` of a batch is in, "records" after it."""
    declared = HEADERS.get(magic, HEADERS[f.MAGIC_V2])
    return next(
        (field.name for field in declared if at < field.end), "records" if magic == f.MAGIC_V2 else "the rest"
    )


def read_header(data: Buffer, room: int, crc: int | None, magic: int | None = None) -> Stored:
    """Reads the header at the begin of ``data``, as far as the data go.

    room: bytes of the segment from its begin on. crc: the checksum as computed, None where it is not known.
    magic: of the layout to read; None: the stored one, or 2 where that is not known.
    """
    if magic is None:
        magic = magic_of(data)
    magic = magic if magic in HEADERS else f.MAGIC_V2
    found = Stored(0, 0)
    for field in HEADERS[magic]:
        if field.end > len(data):
            break
        value = integer(data, field.position, field.size, field.signed)
        wrong = _wrong_in_header(field, magic, value, room, crc)
        found.fields.append(Field(field.name, field.position, field.size, value, wrong))
        found.end = field.end
    found.wrong = next((field.wrong for field in found.fields if field.wrong is not None), None)
    return found


def _wrong_in_header(one: Declared, magic: int, value: int, room: int, crc: int | None) -> Wrong | None:
    match one.name:
        case "batchLength" | "messageSize":
            return wrong_length(value, magic, room, one.name)
        case "magic" if value not in HEADERS:
            return Wrong(faults.UNKNOWN_MAGIC, one.position, 0, value)
        case "crc" if crc is not None and value != crc:
            return Wrong(faults.CRC_MISMATCH, one.position, crc, value)
        case "attributes":
            return wrong_attributes(magic, value)
        case "recordsCount" if value < 0:
            return Wrong(faults.COUNT_NEGATIVE, one.position, 0, value)
    if one.least is not None and value < one.least:
        return Wrong(faults.BELOW_LEAST, one.position, one.least, value, one.name)
    return None


def legal_values(name: str, magic: int) -> str:
    """Returns in words which values a field of a header may have."""
    layout = magic if magic in HEADERS else f.MAGIC_V2
    if name == "attributes":
        codec = faults.expected_of(faults.UNKNOWN_CODEC, f.LAST_CODECS[layout])
        return f"codec {codec}, {faults.expected_of(faults.UNUSED_BITS, 0)}"
    if name in ("batchLength", "messageSize"):
        return faults.expected_of(faults.LENGTH_TOO_SMALL, f.MIN_SIZES[layout] - f.LOG_OVERHEAD)
    least = next(field.least for field in HEADERS[layout] if field.name == name)
    return "any" if least is None else faults.expected_of(faults.BELOW_LEAST, least)


def wrong_length(length: int, magic: int, room: int, name: str = "") -> Wrong | None:
    """Returns what is wrong with the length field of a batch with ``room`` bytes up to the segment's end."""
    name = name or HEADERS[magic][1].name
    least, most = f.MIN_SIZES[magic] - f.LOG_OVERHEAD, room - f.LOG_OVERHEAD
    if length < least:
        return Wrong(faults.LENGTH_TOO_SMALL, f.LENGTH_POS, least, length, name)
    return Wrong(faults.LENGTH_TOO_LARGE, f.LENGTH_POS, most, length, name) if length > most else None


class NoBatch(NamedTuple):
    """Why no batch can be read at a position: the reason of ``quarantine``, and its detail in words.

    base_offset: as stored; None where the bytes are no header of a batch.
    """

    reason: str
    detail: str
    base_offset: int | None


def why_no_batch(head: Buffer, position: int, room: int, size: int) -> NoBatch:
    """Returns why no batch can be read at ``position`` of a segment.

    head: bytes from there on, HEADER_UP_TO_MAGIC or more of them unless the segment ends. room: bytes up to
    the segment's end. size: bytes from there to where the log continues.
    """
    is_there = len(head) >= f.HEADER_UP_TO_MAGIC
    head = bytes(head[: f.HEADER_UP_TO_MAGIC]).ljust(f.HEADER_UP_TO_MAGIC, b"\0")
    offset, length, magic = _FRAME.unpack_from(head)
    wrong = None
    if is_there and magic not in HEADERS and f.LOG_OVERHEAD + length == size:
        wrong = Wrong(faults.UNKNOWN_MAGIC, f.MAGIC_POS, 0, magic)
    elif is_there and magic in HEADERS:
        wrong = wrong_length(length, magic, room)
    if wrong is None:
        text = f"no batch begins here: length {length}, magic {magic}, at position {position}"
        return NoBatch("garbage", text, None)
    reason = faults.FAULTS[wrong.fault].reason
    return NoBatch(reason, wrong.describe(position), offset)


def wrong_attributes(magic: int, value: int) -> Wrong | None:
    """Returns what is wrong with a batch's attributes: a codec that its magic has not, or unused bits."""
    at = f.V2_ATTRIBUTES_POS if magic == f.MAGIC_V2 else f.LEGACY_ATTRIBUTES_POS
    if (codec := value & f.CODEC_MASK) > f.LAST_CODECS[magic]:
        return Wrong(faults.UNKNOWN_CODEC, at, f.LAST_CODECS[magic], codec)
    unused = value & f.UNUSED_MASKS[magic]
    return Wrong(faults.UNUSED_BITS, at, 0, unused) if unused else None
