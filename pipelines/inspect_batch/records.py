"""Reads the records of a payload, field by field, up to where they can't be read."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kafka_log_lake.pipelines.inspect_batch.fields import (
    PAYLOAD,
    Broken,
    InspectedField,
    Reader,
    timestamp_text,
)
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f

# Whether the fields of a record are shown: by its number from 0, and its offset
Shown = Callable[[int, int], bool]


@dataclass
class Records:
    """The fields of records that were read.

    fields: of the records that are shown. count: records that can be read. left_out: those of them that are
    not shown. broken: why reading ended early, or None.
    """

    fields: list[InspectedField] = field(default_factory=list)
    count: int = 0
    left_out: int = 0
    broken: Broken | None = None


@dataclass(frozen=True)
class Batch:
    """The fields of a batch's header that reading its records needs."""

    base_offset: int
    base_timestamp: int
    count: int
    is_control: bool


def read_records(payload: bytes, base: int, place: str, batch: Batch, shown: Shown) -> Records:
    """Reads the records of magic 2 in ``payload``. base: position of its begin, in what ``place`` names."""
    found = Records()
    at = 0
    for number in range(max(0, batch.count)):
        reader = Reader(payload, base, place, at)
        try:
            offset = _read_record(reader, number, batch)
        except Broken as why:
            found.broken = why
            found.fields += reader.fields
            return found
        at = reader.at
        found.count += 1
        if shown(number, offset):
            found.fields += reader.fields
        else:
            found.left_out += 1
    if at < len(payload):
        left = len(payload) - at
        problem = faults.text_of(faults.PAYLOAD_LEFT, batch.count, left)
        found.broken = Broken(base + at, left, problem)
    return found


def _read_record(reader: Reader, number: int, batch: Batch) -> int:
    """Reads a record; returns its offset. Raises Broken where it can't be read."""
    begin, data = reader.at, reader.data
    if begin >= len(data):
        problem = f"records: expected {batch.count} as counted, found {number}"
        raise reader.broken(begin, 0, problem)
    head = len(reader.fields)
    size = reader.varint("length", len(data), "of the record's body")
    start, end = reader.at, reader.at + size
    if size < 0 or end > len(data):
        room = len(data) - start
        raise reader.broken(begin, start - begin, f"record length: expected 0 to {room}, found {size}")
    reader.integer(
        "attributes", 1, "unused", 2, check=lambda n: "" if n == 0 else f"expected 0, found {n & 0xFF}"
    )
    delta = reader.varint("timestampDelta", end, bits=64)
    _explain(reader, timestamp_text(batch.base_timestamp + delta))
    offset = batch.base_offset + reader.varint("offsetDelta", end)
    _explain(reader, f"offset {offset}")
    key = _sized(reader, "key", end)
    _sized(reader, "value", end)
    if batch.is_control and key is not None and len(key) >= f.CONTROL_KEY_SIZE:
        code = int.from_bytes(key[2:4], "big", signed=True)
        kind = f.CONTROL_TYPES[code] if 0 <= code < len(f.CONTROL_TYPES) else "unknown"
        reader.add("control type", begin, 0, kind, f"type {code}", 2)
    _read_headers(reader, end)
    if reader.at != end:
        used = reader.at - start
        raise reader.broken(start, size, faults.text_of(faults.RECORD_SLACK, size, used))
    reader.add(f"record {number}", begin, end - begin, f"offset {offset}", "", 1)
    reader.fields.insert(head, reader.fields.pop())  # the title
    return offset


def _explain(reader: Reader, words: str) -> None:
    """Puts words before the meaning of the field that was read last."""
    last = reader.fields[-1]
    reader.fields[-1] = replace(last, meaning=f"{words}; {last.meaning}")


def _sized(reader: Reader, name: str, end: int, level: int = 2) -> bytes | None:
    """Reads a length and as many bytes; returns them, None for null."""
    begin = reader.at
    size = reader.varint(f"{name}Length", end, level=level)
    room = end - reader.at
    if size > room:
        problem = f"{name} length: expected at most {room}, found {size}"
        raise reader.broken(begin, reader.at - begin, problem)
    if size < 0:
        reader.add(name, reader.at, 0, "null", "", level)
        return None
    return reader.content(name, size, "", level)


def _read_headers(reader: Reader, end: int) -> None:
    begin = reader.at
    count = reader.varint("headersCount", end)
    most = (end - reader.at) // f.MIN_HEADER_SIZE
    if not 0 <= count <= most:
        problem = f"header count: expected 0 to {most}, found {count}"
        raise reader.broken(begin, reader.at - begin, problem)
    for i in range(count):
        begin = reader.at
        if _sized(reader, f"header {i} key", end, 3) is None:
            size = int(reader.fields[-2].value)  # the length, before the null
            problem = faults.text_of(faults.HEADER_KEY_NULL, 0, size)
            raise reader.broken(begin, reader.at - begin, problem)
        _sized(reader, f"header {i} value", end, 3)


# Messages of magic 0 and 1


def read_message_body(
    data: bytes, position: int, at: int, place: str, level: int
) -> tuple[Records, bytes | None]:
    """Reads key and value of the message in ``data`` from ``at`` on; returns also the value's bytes."""
    reader, found = Reader(data, position, place, at), Records(count=1)
    value: bytes | None = None
    try:
        _part(reader, "key", level)
        value = _part(reader, "value", level)
        if reader.at < len(data):
            left = len(data) - reader.at
            reader.add("surplus", reader.at, left, "", "bytes behind the value", level, "expected none")
    except Broken as why:
        found.broken, found.count = why, 0
    found.fields = reader.fields
    return found, value


def _part(reader: Reader, name: str, level: int) -> bytes | None:
    begin = reader.at
    size = reader.integer(f"{name}Length", 4, lambda n: "null" if n < 0 else "", level)
    room = len(reader.data) - reader.at
    if size > room:
        raise reader.broken(begin, 4, f"{name} length: expected at most {room}, found {size}")
    return None if size < 0 else reader.content(name, size, "", level)


def read_inner(payload: bytes, shown: Shown) -> Records:
    """Reads the messages in the expanded value of a wrapper."""
    found, at, number = Records(), 0, 0
    while at < len(payload):
        size, broken = _inner_size(payload, at)
        if broken is not None:
            found.broken = broken
            break
        body = payload[at : at + size]
        one = _read_inner(body, at, number)
        offset = int.from_bytes(body[:8], "big", signed=True)
        if one.broken is not None or shown(number, offset) or any(each.problem for each in one.fields):
            found.fields += one.fields
        else:
            found.left_out += 1
        if one.broken is not None:
            found.broken = one.broken
            break
        found.count += 1
        number += 1
        at += size
    return found


def _inner_size(payload: bytes, at: int) -> tuple[int, Broken | None]:
    room = len(payload) - at
    if room < f.HEADER_UP_TO_MAGIC:
        return 0, Broken(at, room, f"inner message: expected {f.V0_MIN_SIZE} bytes or more, found {room}")
    length = int.from_bytes(payload[at + 8 : at + 12], "big", signed=True)
    least = f.V0_MIN_SIZE if payload[at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_MIN_SIZE
    if length < least - f.LOG_OVERHEAD:
        low = least - f.LOG_OVERHEAD
        return 0, Broken(at + 8, 4, f"inner message length: expected {low} or more, found {length}")
    size = length + f.LOG_OVERHEAD
    if size > room:
        return 0, Broken(at + 8, 4, faults.text_of(faults.INNER_CUT, size, room))
    return size, None


def _read_inner(body: bytes, at: int, number: int) -> Records:
    reader, magic = Reader(body, at, PAYLOAD), body[f.MAGIC_POS]
    computed = zlib.crc32(body[f.MAGIC_POS :])
    offset = int.from_bytes(body[:8], "big", signed=True)
    reader.add(f"message {number}", 0, len(body), f"offset {offset} in the wrapper", "", 1)
    reader.integer("offset", 8, "relative to the wrapper's in format 1", 2)
    reader.integer("messageSize", 4, "bytes that follow this field", 2)
    reader.integer(
        "crc",
        4,
        "CRC-32 of all from magic on",
        2,
        signed=False,
        shown=lambda n: f"{n:#010x}",
        check=lambda n: "" if n == computed else f"expected {computed:#010x} as computed, found {n:#010x}",
    )
    reader.integer("magic", 1, "", 2)
    reader.integer("attributes", 1, "", 2, signed=False)
    if magic != f.MAGIC_V0:
        reader.integer("timestamp", 8, timestamp_text, 2)
    rest, _ = read_message_body(body, at, reader.at, PAYLOAD, 2)
    rest.fields = reader.fields + rest.fields
    return rest
