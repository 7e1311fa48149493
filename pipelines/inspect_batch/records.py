"""Shows the records of a payload field by field, up to where they can't be read."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_log_lake.pipelines.inspect_batch.fields import (
    FILE,
    PAYLOAD,
    InspectedField,
    body_fields,
    inspected,
    mark,
    timestamp_text,
)
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format import plain_reader as plain
from kafka_log_lake.udfs.format.fields import Field, Stored, integer
from kafka_log_lake.udfs.words import count_of

# Whether the fields of a record are shown: by its number from 0, and its offset
Shown = Callable[[int, int], bool]
_MOST_MARKED = 12  # bytes where no field can be read
_IN_FIELDS = (faults.INNER_CRC_MISMATCH, faults.INNER_COMPRESSED)  # of a message whose fields can be read


@dataclass
class RecordFields:
    """The fields of records that were read.

    fields: of the records that are shown, and of the one at fault, which is marked. count: records that can
    be read. left_out: those of them that are not shown. last: where the last message of a wrapper begins.
    """

    fields: list[InspectedField] = field(default_factory=list)
    count: int = 0
    left_out: int = 0
    last: int = 0


@dataclass(frozen=True)
class BatchHeader:
    """The fields of a batch's header that reading its records needs."""

    base_offset: int
    base_timestamp: int
    count: int
    is_control: bool


def read_records(payload: bytes, base: int, place: str, batch: BatchHeader, shown: Shown) -> RecordFields:
    """Reads the records of magic 2 in ``payload``. base: position of its begin, in what ``place`` names."""
    read = RecordFields()
    if batch.count < 0:
        return read
    for number, record in enumerate(plain.read_records(payload, 0, len(payload), batch.count)):
        wrong = record.wrong or (plain.wrong_control(record) if batch.is_control else None)
        if wrong is not None:
            read.fields += _record(record, number, base, place, batch)
            left = wrong.found if wrong.fault == faults.PAYLOAD_LEFT else len(payload) - wrong.at
            mark(read.fields, wrong, base, place, min(left, _MOST_MARKED))
            return read
        read.count += 1
        if shown(number, batch.base_offset + record.fields[plain.OFFSET_DELTA].value):
            read.fields += _record(record, number, base, place, batch)
        else:
            read.left_out += 1
    return read


def _record(record: Stored, number: int, base: int, place: str, batch: BatchHeader) -> list[InspectedField]:
    """Returns the fields of a record, after a title if it can be read."""
    fields: list[InspectedField] = []
    if record.wrong is None:
        offset, size = batch.base_offset + record.fields[plain.OFFSET_DELTA].value, record.end - record.begin
        title = f"record {number}"
        fields.append(InspectedField(title, base + record.begin, size, f"offset {offset}", "", 1, place))
    for i, field_ in enumerate(record.fields):
        header = (i - plain.HEADERS_FROM) // plain.FIELDS_OF_HEADER
        level = 3 if header >= 0 else 2
        meaning = f"header {header}" if header >= 0 else _meaning(field_, batch)
        if field_.name in faults.VARINTS:
            meaning = f"{meaning}; {_varint(field_)}" if meaning else _varint(field_)
        fields.append(inspected(field_, base, place, level, meaning))
        if field_.name == "value" and record.wrong is None and batch.is_control:
            fields += _control_type(record, base, place)
    return fields


def _meaning(field: Field, batch: BatchHeader) -> str:
    match field.name:
        case "length":
            return "of the record's body"
        case "attributes":
            return "unused"
        case "timestampDelta":
            return timestamp_text(batch.base_timestamp + field.value)
        case "offsetDelta":
            return f"offset {batch.base_offset + field.value}"
    return ""


def _varint(field: Field) -> str:
    kind = "varlong" if field.name == "timestampDelta" else "varint"
    zigzag = field.value << 1 if field.value >= 0 else ~(field.value << 1)
    return f"{kind} of {count_of(field.size, 'byte')}, zigzag of {zigzag}"


def _control_type(record: Stored, base: int, place: str) -> list[InspectedField]:
    key = record.fields[plain.KEY].value
    if key is None or len(key) < f.CONTROL_KEY_SIZE:
        return []
    code = integer(key, 2, 2)
    kind = f.CONTROL_TYPES[code] if 0 <= code < len(f.CONTROL_TYPES) else "unknown"
    return [InspectedField("control type", base + record.begin, 0, kind, f"type {code}", 2, place)]


# Messages of magic 0 and 1


def read_message_body(data: bytes, position: int, is_wrapper: bool) -> tuple[RecordFields, Stored]:
    """Reads key and value of the message ``data``, which begins at ``position``; returns also all of it."""
    message, read = plain.read_message(data, 0, len(data)), RecordFields(count=1)
    head = f.V0_KEY_LENGTH_POS if data[f.MAGIC_POS] == f.MAGIC_V0 else f.V1_KEY_LENGTH_POS
    read.fields = body_fields([field for field in message.fields if field.at >= head], position, FILE, 0)
    wrong = plain.wrong_wrapper(message) if is_wrapper else message.wrong
    if wrong is not None:
        read.count = 0
        mark(read.fields, wrong, position, FILE)
    return read, message


def read_inner(payload: bytes, shown: Shown) -> RecordFields:
    """Reads the messages in the expanded value of a wrapper."""
    read = RecordFields()
    for number, message in enumerate(plain.read_inner_messages(payload, 0, len(payload))):
        body = payload[message.begin : message.end]
        offset = int.from_bytes(body[:8], "big", signed=True)
        wrong = message.wrong
        is_odd = wrong is not None or any(field.wrong for field in message.fields)
        if message.fields and (is_odd or shown(number, offset)):
            title = f"offset {offset} in the wrapper"
            read.fields.append(
                InspectedField(f"message {number}", message.begin, len(body), title, "", 1, PAYLOAD)
            )
            read.fields += body_fields(message.fields, 0, PAYLOAD, 2, zlib.crc32(body[f.MAGIC_POS :]))
        else:
            read.left_out += bool(message.fields)
        if wrong is not None and wrong.fault not in _IN_FIELDS:
            mark(read.fields, wrong, 0, PAYLOAD, min(len(payload) - wrong.at, _MOST_MARKED))
            break
        read.count, read.last = read.count + 1, message.begin
    return read
