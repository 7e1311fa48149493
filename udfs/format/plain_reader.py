"""Reads records and messages field by field, in plain Python: the one slow reader beside the kernels.

Kernels take a batch whole or not at all, and stop at a fault with a code and a place. This reads the same
bytes to the same fault, and says of each field its name in Kafka's words, its place, its value, and what is
wrong with it. No bytes make it raise, and none make it read or copy more than there is: a length or a count
is believed only where as many bytes are left. ``plain_header`` reads what stands before the records.

Rules and names: ``DefaultRecordBatch``, ``DefaultRecord`` and ``LegacyRecord`` of kafka-clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.fields import Buffer, Field, Stored, Wrong, integer
from kafka_log_lake.udfs.format.plain_header import HEADERS
from kafka_log_lake.udfs.format.varints import varint_at

_V0 = bytes([f.MAGIC_V0])
_MOST_PASSED = 1 << 16  # headers that are read to tell which part of one a kernel stopped at


class _Stop(Exception):
    """Ends reading inside of this module: ``wrong`` says why."""

    def __init__(self, fault: int, at: int, expected: int, found: int = 0, name: str = "") -> None:
        super().__init__(fault)
        self.wrong = Wrong(fault, at, expected, found, name)


class _Reader:
    """Reads a part of the data field by field; raises _Stop where it can't. at: of the next field."""

    def __init__(self, data: Buffer, at: int, end: int, fields: list[Field]) -> None:
        self.data, self.at, self.end, self.fields = data, at, end, fields

    def varint(self, name: str, bits: int = 32) -> int:
        begin = self.at
        found = varint_at(self.data, begin, self.end, bits)
        if found is None:
            most = f.MAX_VARINT_BYTES if bits == 32 else f.MAX_VARLONG_BYTES
            raise _Stop(faults.BAD_VARINT, min(begin, self.end), most, faults.VARINTS.index(name), name)
        value, self.at = found
        self.fields.append(Field(name, begin, self.at - begin, value))
        return value

    def int32(self, name: str) -> int:
        begin, value = self.at, integer(self.data, self.at, 4)
        self.at += 4
        self.fields.append(Field(name, begin, 4, value))
        return value

    def part(self, name: str, size: int, beyond: int, after: int = 0) -> bytes | None:
        """Reads as many bytes as the length field before says. beyond: the fault where they are not there.

        after: bytes that have to follow them.
        """
        most = self.end - self.at - after
        length = self.fields[-1]
        if size > most:
            raise _Stop(beyond, length.at, most, size, length.name)
        if size < 0:
            if size < f.NULL_LENGTH:
                self.fields[-1] = length._replace(
                    wrong=Wrong(faults.BELOW_NULL, length.at, f.NULL_LENGTH, size, length.name)
                )
            self.fields.append(Field(name, self.at, 0, None))
            return None
        raw = self.data[self.at : self.at + size]
        self.fields.append(Field(name, self.at, size, raw))
        self.at += size
        return raw  # type: ignore[return-value]


def read_record(data: Buffer, begin: int, end: int, stopped_at: int = -1) -> Stored:
    """Reads the record of magic 2 at ``data[begin]``; it ends at or before ``end``.

    stopped_at: where a kernel stopped in it, -1 unknown: of very many headers before that place not all are
    read.
    """
    found = Stored(begin, begin)
    reader = _Reader(data, begin, end, found.fields)
    try:
        size = reader.varint("length")
        start = reader.at
        if not 0 <= size <= end - start:
            raise _Stop(faults.RECORD_BEYOND, begin, end - start, size, "length")
        reader.end = start + size
        if size:
            unused = data[start]
            wrong = Wrong(faults.UNUSED_BITS, start, 0, unused) if unused else None
            found.fields.append(Field("attributes", start, 1, unused, wrong))
        reader.at = start + 1
        reader.varint("timestampDelta", 64)
        reader.varint("offsetDelta")
        reader.part("key", reader.varint("keyLength"), faults.KEY_BEYOND)
        reader.part("value", reader.varint("valueLength"), faults.VALUE_BEYOND)
        _read_headers(reader, stopped_at)
        if reader.at != reader.end:
            raise _Stop(faults.RECORD_SLACK, start, size, reader.at - start)
    except _Stop as stop:
        found.wrong = stop.wrong
    found.end = reader.at
    return found


def _read_headers(reader: _Reader, stopped_at: int) -> None:
    count = reader.varint("headersCount")
    most = (reader.end - reader.at) // f.MIN_HEADER_SIZE
    if not 0 <= count <= most:
        raise _Stop(faults.HEADER_COUNT, reader.fields[-1].at, most, count, "headersCount")
    for number in range(count):
        if number == _MOST_PASSED and stopped_at > reader.at:
            reader.at = stopped_at
            return
        size = reader.varint("headerKeyLength")
        if size < 0:
            raise _Stop(faults.HEADER_KEY_NULL, reader.fields[-1].at, 0, size, "headerKeyLength")
        reader.part("headerKey", size, faults.HEADER_BEYOND)
        reader.part("headerValue", reader.varint("headerValueLength"), faults.HEADER_VALUE_BEYOND)


def headers_of(record: Stored) -> list[tuple[bytes, bytes | None]]:
    """Returns the headers of a record that was read, with repeats."""
    fields = record.fields[HEADERS_FROM:]
    keys, values = fields[1::FIELDS_OF_HEADER], fields[3::FIELDS_OF_HEADER]
    return [(key.value, value.value) for key, value in zip(keys, values, strict=True)]


# Places of fields of a record that was read
LENGTH, ATTRIBUTES, TIMESTAMP_DELTA, OFFSET_DELTA, KEY, VALUE, HEADERS_FROM = 0, 1, 2, 3, 5, 7, 9
FIELDS_OF_HEADER = 4  # two lengths, key, value


def read_records(data: Buffer, begin: int, end: int, count: int) -> Iterator[Stored]:
    """Yields the counted records of magic 2 in ``data[begin:end]``, up to and with the first that is wrong.

    Where records are missing or bytes are left behind them, the last one that is given has no fields.
    """
    at = begin
    for number in range(count):
        if at >= end:
            yield Stored(at, at, [], Wrong(faults.COUNT_TOO_SMALL, at, count, number))
            return
        found = read_record(data, at, end)
        yield found
        if found.wrong is not None:
            return
        at = found.end
    if at < end:
        yield Stored(at, at, [], Wrong(faults.PAYLOAD_LEFT, at, count, end - at))


def wrong_count(count: int, payload_size: int) -> Wrong | None:
    """Returns what is wrong with the number of records of a batch, by the bytes of its expanded payload."""
    most = payload_size // f.MIN_RECORD_SIZE
    if count < 0:
        return Wrong(faults.COUNT_NEGATIVE, f.RECORDS_COUNT_POS, 0, count)
    return Wrong(faults.COUNT_TOO_LARGE, f.RECORDS_COUNT_POS, most, count) if count > most else None


def wrong_control(record: Stored) -> Wrong | None:
    """Returns what is wrong with a sound record as a control record: a type, or an end marker."""
    key, value = record.fields[KEY], record.fields[VALUE]
    if key.size < f.CONTROL_KEY_SIZE:
        return _short(faults.CONTROL_KEY, key, f.CONTROL_KEY_SIZE)
    if (version := integer(key.value, 0, 2)) < 0:
        return Wrong(faults.CONTROL_VERSION, key.at, 0, version, key.name)
    if integer(key.value, 2, 2) not in (f.CONTROL_ABORT, f.CONTROL_COMMIT):
        return None
    if value.size < f.END_MARKER_VALUE_SIZE:
        return _short(faults.CONTROL_VALUE, value, f.END_MARKER_VALUE_SIZE)
    version = integer(value.value, 0, 2)
    return Wrong(faults.CONTROL_VALUE_VERSION, value.at, 0, version, value.name) if version < 0 else None


def _short(fault: int, one: Field, least: int) -> Wrong:
    return Wrong(fault, one.at, least, f.NULL_LENGTH if one.value is None else one.size, one.name)


# Messages of magic 0 and 1


def read_message(data: Buffer, begin: int, end: int) -> Stored:
    """Reads the message ``data[begin:end]``, with offset and size; its value is not expanded.

    A message of another magic than 0 is read as one of magic 1. If ``data`` cut it, missing bytes are 0.
    """
    found = Stored(begin, begin)
    is_v0 = data[begin + f.MAGIC_POS : begin + f.HEADER_UP_TO_MAGIC] == _V0
    for field in HEADERS[f.MAGIC_V0 if is_v0 else f.MAGIC_V1]:
        if begin + field.end <= end:
            value = integer(data, begin + field.position, field.size, field.signed)
            found.fields.append(Field(field.name, begin + field.position, field.size, value))
    at = begin + (f.V0_KEY_LENGTH_POS if is_v0 else f.V1_KEY_LENGTH_POS)
    reader = _Reader(data, at, end, found.fields)
    try:
        if at + 4 > end:
            raise _Stop(faults.INNER_CUT, begin, at + 8 - begin, end - begin)
        reader.part("key", reader.int32("keyLength"), faults.KEY_BEYOND, after=4)
        reader.part("value", reader.int32("valueLength"), faults.VALUE_BEYOND)
        if reader.at < end:
            left = Wrong(faults.SURPLUS, reader.at, 0, end - reader.at)
            found.fields.append(Field("surplus", reader.at, end - reader.at, data[reader.at : end], left))
            reader.at = end
    except _Stop as stop:
        found.wrong = stop.wrong
    found.end = reader.at
    return found


def wrong_wrapper(message: Stored) -> Wrong | None:
    """Returns what is wrong with a message as a wrapper: its value is null, or the message itself."""
    if message.wrong is None and (length := message.field("valueLength")).value < 0:
        return Wrong(faults.WRAPPER_NULL_VALUE, length.at, 0, length.value, length.name)
    return message.wrong


def inner_end(data: Buffer, at: int, end: int) -> int | Wrong:
    """Returns where the inner message at ``data[at]`` ends; or what is wrong with its size."""
    room = end - at
    if room < f.HEADER_UP_TO_MAGIC:
        return Wrong(faults.INNER_CUT, at, f.V0_MIN_SIZE, room)
    length = integer(data, at + f.LENGTH_POS, 4)
    least = f.V0_MIN_SIZE if data[at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_MIN_SIZE
    if length + f.LOG_OVERHEAD < least:
        return Wrong(faults.INNER_SIZE, at, least - f.LOG_OVERHEAD, length)
    size = length + f.LOG_OVERHEAD
    return at + size if size <= room else Wrong(faults.INNER_CUT, at, size, room)


def read_inner(data: Buffer, begin: int, end: int) -> Stored:
    """Reads the message ``data[begin:end]`` inside of a wrapper: it must be sound, and not compressed."""
    found = read_message(data, begin, end)
    stored = integer(data, begin + f.LEGACY_CRC_POS, 4, signed=False)
    computed = zlib.crc32(data[begin + f.MAGIC_POS : end])
    codec = data[begin + f.LEGACY_ATTRIBUTES_POS] & f.CODEC_MASK
    if stored != computed:
        found.wrong = Wrong(faults.INNER_CRC_MISMATCH, begin, computed, stored)
        _mark(found.fields, "crc", found.wrong)
    elif codec:
        found.wrong = Wrong(faults.INNER_COMPRESSED, begin, 0, codec)
        _mark(found.fields, "attributes", found.wrong)
    return found


def _mark(fields: list[Field], name: str, wrong: Wrong) -> None:
    at = next(i for i, field in enumerate(fields) if field.name == name)
    fields[at] = fields[at]._replace(wrong=wrong)


def read_inner_messages(data: Buffer, begin: int, end: int) -> Iterator[Stored]:
    """Yields the messages in the expanded value of a wrapper, up to the first whose size is wrong.

    A message with another fault is given with it, and those after it are given too.
    """
    at = begin
    while at < end:
        message_end = inner_end(data, at, end)
        if isinstance(message_end, Wrong):
            yield Stored(at, at, [], message_end)
            return
        yield read_inner(data, at, message_end)
        at = message_end
    if begin == end:
        yield Stored(begin, begin, [], Wrong(faults.WRAPPER_EMPTY, begin, 1, 0))


def wrong_wrapper_offset(data: Buffer, last: int, wrapper: Stored) -> Wrong | None:
    """Returns what is wrong with the offset of a wrapper, given where its last message begins."""
    offset, magic = wrapper.field("offset"), wrapper.field("magic").value
    if magic != f.MAGIC_V1 or offset.value == 0 or len(data) < last + f.LOG_OVERHEAD:
        return None
    newest = integer(data, last, 8)
    if offset.value >= newest:
        return None
    return Wrong(faults.WRAPPER_OFFSET, offset.at, newest, offset.value, offset.name)
