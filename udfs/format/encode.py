"""Encodes records in each message format, as Kafka's own library writes them, uncompressed.

This is what a codec compresses: the records of a V2 batch, or the messages in a wrapper of magic 0 or 1.
``udfs.format.sizes`` has the sizes alone, and the sources.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.varints import int64

_WITHOUT_ATTRIBUTES, _WITH_ATTRIBUTES = b"", b"\x00"


@dataclass(frozen=True)
class PlainRecord:
    """A record without the fields of its batch. timestamp: milliseconds, -1 none. headers: in order."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def varint(value: int) -> bytes:
    """Returns an int64 as a zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def message(magic: int, offset: int, record: PlainRecord) -> bytes:
    """Returns a message of magic 0 or 1 with this offset, create time, no codec."""
    body = bytes([magic, 0])
    if magic == f.MAGIC_V1:
        body += struct.pack(">q", record.timestamp)
    for field in (record.key, record.value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def messages(magic: int, records: Sequence[PlainRecord]) -> bytes:
    """Returns the messages in a wrapper of magic 0 or 1; with magic 1 offsets count from the first."""
    base = records[0].offset if magic == f.MAGIC_V1 else 0
    return b"".join(message(magic, int64(record.offset - base), record) for record in records)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch_records(records: Sequence[PlainRecord], has_attributes: bool = True) -> bytes:
    """Returns the records of a V2 batch; has_attributes: False for those of the proposed V3."""
    attributes = _WITH_ATTRIBUTES if has_attributes else _WITHOUT_ATTRIBUTES
    base_offset, base_timestamp = records[0].offset, records[0].timestamp
    out = bytearray()
    for record in records:
        body = b"".join(
            (
                attributes,
                varint(int64(record.timestamp - base_timestamp)),
                varint(int64(record.offset - base_offset)),
                _sized(record.key),
                _sized(record.value),
                varint(len(record.headers)),
                *(part for header in record.headers for part in map(_sized, header)),
            )
        )
        out += varint(len(body)) + body
    return bytes(out)
