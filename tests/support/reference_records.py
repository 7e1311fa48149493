"""Reads what lies inside one batch in plain Python: a V2 payload's records, a V0/V1 message set.

It reads a field at a time, as Kafka's ``DefaultRecord``, ``LegacyRecord`` and
``AbstractLegacyRecordBatch`` read them. Numbers are Python's own and made to wrap where Java's do.
"""

from __future__ import annotations

import codecs
import itertools
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any


class InvalidError(Exception):
    """Content that Kafka's library would refuse, or of which records would be lost or made up."""


class CorruptInnerError(Exception):
    """An inner message with a wrong checksum."""


def wrap32(value: int) -> int:
    """Returns value wrapped as a Java int."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def wrap64(value: int) -> int:
    """Returns value wrapped as a Java long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def sequence_after(base: int, increment: int) -> int:
    """Computes ``DefaultRecordBatch.incrementSequence``: after 2^31 - 1 comes 0, in Java's int arithmetic."""
    biggest = (1 << 31) - 1
    if base > wrap32(biggest - increment):
        return wrap32(increment - wrap32(biggest - base) - 1)
    return wrap32(base + increment)


def _jvm_replacement(error: UnicodeError) -> tuple[str, int]:
    """Returns one U+FFFD per malformed sequence: an encoded surrogate is one for the JVM, not three."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    size = error.end - error.start
    if data[at] == 0xED and len(data) > at + 1 and 0xA0 <= data[at + 1] <= 0xBF:
        size = 3 if len(data) > at + 2 and 0x80 <= data[at + 2] <= 0xBF else 2
    return "\ufffd", at + size


codecs.register_error("as-the-jvm", _jvm_replacement)


@dataclass
class Cursor:
    """A reader of bytes whose position never passes their end."""

    data: bytes
    position: int = 0

    def remaining(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if size > self.remaining():
            raise InvalidError(f"{size} bytes asked, {self.remaining()} left at {self.position}")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, code: str) -> int:
        """Reads a big-endian integer of struct format ``code``."""
        return int(struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0])

    def _zigzag(self, most_bytes: int, bits: int) -> int:
        raw = 0
        for index in range(most_bytes):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw %= 1 << bits  # what does not fit is dropped
                return (raw >> 1) ^ -(raw & 1)
        raise InvalidError(f"varint of more than {most_bytes} bytes at {self.position}")

    def varint(self) -> int:
        return self._zigzag(5, 32)

    def varlong(self) -> int:
        return self._zigzag(10, 64)


def varint_size(value: int) -> int:
    """Returns the number of bytes of the shortest zigzag varint of an int32."""
    raw = (value << 1) ^ (value >> 31)
    return max(1, (raw.bit_length() + 6) // 7)


@dataclass
class Content:
    """The content of a batch: its records, and where it breaks the format although Kafka reads it."""

    records: list[dict[str, Any]] = field(default_factory=list)
    suspicions: list[str] = field(default_factory=list)
    uncompressed_bytes: int = 0

    def suspect(self, why: str) -> None:
        self.suspicions.append(why)


def _nullable(cursor: Cursor, size: int, content: Content) -> bytes | None:
    if size < -1:
        content.suspect(f"length {size} read as null")
    return None if size < 0 else cursor.take(size)


def read_v2_record(cursor: Cursor, batch: dict[str, Any], content: Content) -> dict[str, Any]:
    """Reads one record of a V2 payload. batch: the header fields of ``reference_decoder.read_v2_header``."""
    size = cursor.varint()
    body = Cursor(cursor.take(size) if size >= 0 else b"")
    if body.number("B"):
        content.suspect("unused record attributes set")
    timestamp = wrap64(batch["base_timestamp_ms"] + body.varlong())
    offset_delta = body.varint()
    key = _nullable(body, body.varint(), content)
    value = _nullable(body, body.varint(), content)
    header_count = body.varint()
    if not 0 <= header_count <= body.remaining():
        raise InvalidError(f"{header_count} headers, {body.remaining()} bytes left")
    headers = []
    for _ in range(header_count):
        key_size = body.varint()
        if key_size < 0:
            raise InvalidError(f"header key of length {key_size}")
        header_key = body.take(key_size)
        headers.append((header_key, _nullable(body, body.varint(), content)))
    if body.remaining():
        raise InvalidError(f"{body.remaining()} bytes left in the record")
    if batch["timestampType"] == 1:
        timestamp = batch["max_timestamp_ms"]
    elif timestamp > batch["max_timestamp_ms"]:
        content.suspect(f"timestamp {timestamp} above max {batch['max_timestamp_ms']}")
    base_sequence = batch["base_sequence"]
    return {
        "offset": wrap64(batch["base_offset"] + offset_delta),
        "offset_delta": offset_delta,
        "timestamp_ms": timestamp,
        "key": key,
        "value": value,
        "headers": [(k.decode("utf-8", "as-the-jvm"), v) for k, v in headers] or None,
        "header_bytes": sum(len(k) + len(v or b"") for k, v in headers),
        "sequence": sequence_after(base_sequence, offset_delta) if base_sequence >= 0 else -1,
        "size_bytes": varint_size(size) + size,
    }


def read_v2_payload(payload: bytes, batch: dict[str, Any]) -> Content:
    """Reads the counted records of an expanded V2 payload, after which no bytes may be left."""
    content = Content(uncompressed_bytes=len(payload))
    count = batch["declared_count"]
    if count < 0:
        raise InvalidError(f"record count {count}")
    cursor = Cursor(payload)
    last_delta: int | None = None
    for _ in range(count):
        record = read_v2_record(cursor, batch, content)
        delta = record["offset_delta"]
        if delta > batch["last_offset_delta"]:
            content.suspect(f"offset delta {delta} above lastOffsetDelta {batch['last_offset_delta']}")
        if last_delta is not None and delta <= last_delta:
            content.suspect(f"offset delta {delta} after {last_delta}")
        last_delta = delta
        content.records.append(record)
    if cursor.remaining():
        raise InvalidError(f"{cursor.remaining()} bytes left after {count} records")
    if batch["last_offset_delta"] < 0:
        content.suspect(f"lastOffsetDelta {batch['last_offset_delta']}")
    return content


CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)


def control_type(record: dict[str, Any]) -> tuple[str, int | None]:
    """Returns (type, coordinator epoch or None) of a control record. Raises an InvalidError."""
    key, value = record["key"], record["value"]
    if key is None or len(key) < 4:
        raise InvalidError("control record key is null or under 4 bytes")
    version, kind = struct.unpack(">hh", key[:4])
    if version < 0:
        raise InvalidError(f"control record key of version {version}")
    name = CONTROL_TYPES[kind] if 0 <= kind < len(CONTROL_TYPES) else "UNKNOWN"
    if name not in ("ABORT", "COMMIT"):
        return name, None
    if value is None or len(value) < 6:
        raise InvalidError("end marker value is null or under 6 bytes")
    version, epoch = struct.unpack(">hi", value[:6])
    if version < 0:
        raise InvalidError(f"end marker value of version {version}")
    return name, epoch


def read_message(message: bytes, content: Content) -> dict[str, Any]:
    """Reads a V0 or V1 message without the 12 bytes of offset and length; its value is not expanded."""
    cursor = Cursor(message)
    cursor.number("I")  # the checksum, which the caller has looked at
    magic, attributes = cursor.number("b"), cursor.number("b")
    timestamp = cursor.number("q") if magic != 0 else -1
    key = _nullable(cursor, cursor.number("i"), content)
    value = _nullable(cursor, cursor.number("i"), content)
    if cursor.remaining():
        content.suspect(f"{cursor.remaining()} bytes after the value")
    if attributes & (0xF8 if magic == 0 else 0xF0):
        content.suspect(f"unused attribute bits set: {attributes & 0xFF:#04x}")
    return {
        "magic": magic,
        "codec": attributes & 7,
        "timestamp_ms": timestamp,
        "key": key,
        "value": value,
        "size_bytes": 12 + len(message),
    }


def read_message_set(data: bytes, wrapper: dict[str, Any]) -> Content:
    """Reads the inner messages of a wrapper, and makes their offsets absolute.

    wrapper: magic, offset, timestamp_ms, timestampType of the batch.
    """
    content = Content(uncompressed_bytes=len(data))
    cursor = Cursor(data)
    while cursor.remaining():
        offset, size = cursor.number("q"), cursor.number("i")
        if size < 14:
            raise InvalidError(f"inner message of length {size}")
        inner_bytes = cursor.take(size)
        if int.from_bytes(inner_bytes[:4], "big") != zlib.crc32(inner_bytes[4:]):
            raise CorruptInnerError(f"inner message at offset {offset}")
        message = read_message(inner_bytes, content)
        if message["codec"]:
            raise InvalidError("compressed message inside a wrapper")
        if message["magic"] != wrapper["magic"]:
            content.suspect(f"inner message of magic {message['magic']}")
        content.records.append({**message, "offset": offset, "sequence": -1, "headers": None})
    if not content.records:
        raise InvalidError("wrapper without messages")
    inner = [record["offset"] for record in content.records]
    _make_absolute(content, inner, wrapper)
    for record in content.records:
        if wrapper["timestampType"] == 1 and record["magic"] == 1:
            record["timestamp_ms"] = wrapper["timestamp_ms"]
    return content


def _make_absolute(content: Content, inner: list[int], wrapper: dict[str, Any]) -> None:
    outer, last = wrapper["offset"], inner[-1]
    if wrapper["magic"] == 1 and outer != 0:
        if outer < last:
            raise InvalidError(f"outer offset {outer} below the last inner one {last}")
        for record in content.records:
            record["offset"] = wrap64(outer - last + record["offset"])
    elif wrapper["magic"] == 0 and outer < last:
        content.suspect(f"outer offset {outer} below the last inner one {last}")
    offsets = [record["offset"] for record in content.records]
    if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
        content.suspect("offsets do not rise within the wrapper")
