"""Reads one batch as Kafka's tool does: ignores its checksum, and returns the records before a fault.

The kernels take a batch whole or not at all. This is for the few that they refuse, and for control records.
Rules: ``DefaultRecordBatch``, ``DefaultRecord``, ``AbstractLegacyRecordBatch`` and ``LegacyRecord`` of
kafka-clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.varints import int64
from kafka_log_lake.udfs.kernels.codecs import Scratch, expand
from kafka_log_lake.udfs.kernels.framing import increment_sequence
from kafka_log_lake.udfs.vectorized_varint import read_varint, read_varlong
from kafka_log_lake.udfs.words import counted_noun

_LEAST_MESSAGE = f.V0_KEY_LENGTH_POS - f.LOG_OVERHEAD + 8  # what Kafka lets a length be at least: 14


class Refused(ValueError):
    """The error for bytes that Kafka's library refuses to read; its tool ends there."""


@dataclass
class Record:
    """A record of magic 2. timestamp: milliseconds. key_size, value_size: bytes, -1 for null."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]

    @property
    def key_size(self) -> int:
        return -1 if self.key is None else len(self.key)

    @property
    def value_size(self) -> int:
        return -1 if self.value is None else len(self.value)


@dataclass
class Message:
    """A message of magic 0 or 1. Its parts are read one by one, and any property may raise Refused."""

    offset: int
    timestamp: int
    magic: int
    data: bytes  # from the checksum on

    @property
    def _key_at(self) -> int:
        place = f.V0_KEY_LENGTH_POS if self.magic == f.MAGIC_V0 else f.V1_KEY_LENGTH_POS
        return place - f.LOG_OVERHEAD

    @property
    def key_size(self) -> int:
        return _int32(self.data, self._key_at)

    @property
    def _value_at(self) -> int:
        return self._key_at + 4 + max(0, self.key_size)

    @property
    def value_size(self) -> int:
        return _int32(self.data, self._value_at)

    @property
    def key(self) -> bytes | None:
        return _part(self.data, self._key_at, self.key_size)

    @property
    def value(self) -> bytes | None:
        return _part(self.data, self._value_at, self.value_size)

    @property
    def codec(self) -> int:
        return self.data[f.LEGACY_ATTRIBUTES_POS - f.LOG_OVERHEAD] & f.CODEC_MASK

    @property
    def crc(self) -> int:
        return int.from_bytes(self.data[:4], "big")

    @property
    def is_valid(self) -> bool:
        return self.crc == zlib.crc32(self.data[4:])


def _int32(data: bytes, at: int) -> int:
    if not 0 <= at <= len(data) - 4:
        raise Refused(f"a length is expected at byte {at} of a message of {len(data)} bytes")
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def _part(data: bytes, at: int, size: int) -> bytes | None:
    if size < 0:
        return None
    if size > len(data) - at - 4:
        raise Refused(f"a part of {size} bytes, and {len(data) - at - 4} are left of the message")
    return data[at + 4 : at + 4 + size]


def records_of(e: Any, content: bytes, limit: int) -> Iterator[Record] | Iterator[Message]:
    """Yields the records of a batch as far as Kafka's library reads them; raises Refused where it fails.

    e: its row of BATCH. content: its bytes. limit: the most bytes that it may expand to.
    """
    if e["magic"] >= f.MAGIC_V2:
        return _default_records(e, content, limit)
    return _messages(e, content, limit)


def _expanded(e: Any, payload: bytes, limit: int) -> bytes:
    codec = int(e["codec"])
    if codec == f.CODEC_NONE:
        return payload
    if codec == f.CODEC_ZSTD and e["magic"] < f.MAGIC_V2:
        raise Refused(f"codec zstd, which magic {e['magic']} cannot have")
    scratch = Scratch()
    magic = min(int(e["magic"]), f.MAGIC_V2)
    made = expand(codec, magic, np.frombuffer(payload, dtype=np.uint8), scratch, limit)
    if made == -faults.DECOMPRESSED_TOO_LARGE:
        raise Refused(f"a payload of more than {limit} bytes: see --max-batch-uncompressed")
    if made < 0:
        raise Refused(faults.FAULTS[-made].text.format(limit, codec))
    return scratch.data[:made].tobytes()


def _default_records(e: Any, content: bytes, limit: int) -> Iterator[Record]:
    count = int(e["count"])
    if len(content) < f.V2_HEADER_SIZE:
        raise Refused(f"a batch of {len(content)} bytes, and its header has {f.V2_HEADER_SIZE}")
    if count == 0:
        return
    payload = _expanded(e, content[f.V2_HEADER_SIZE :], limit)
    if count < 0:
        raise Refused(f"record count: expected 0 or more, found {count}")
    records = _in_payload(e, payload, count)
    if e["codec"] == f.CODEC_NONE:
        yield from records
    else:
        yield from list(records)  # read as a whole before the first is given


def _in_payload(e: Any, payload: bytes, count: int) -> Iterator[Record]:
    data, at = np.frombuffer(payload, dtype=np.uint8), 0
    for number in range(1, count + 1):
        record, at = _record(e, data, at, number)
        if number == count and at < len(data):
            left, records = counted_noun(len(data) - at, "byte"), counted_noun(count, "record")
            raise Refused(f"{left} left behind the last of {records}")
        yield record


def _record(e: Any, data: np.ndarray, at: int, number: int) -> tuple[Record, int]:
    """Returns the record at ``data[at]`` (uint8), and the position where it ends."""
    what = f"record {number} of the batch"
    size, start = read_varint(data, at, len(data))
    end = start + size
    if start < 0 or size < 0 or end > len(data):
        raise Refused(f"{what}: a length of {size}, and {len(data) - max(at, start)} bytes are left")
    delta, p = read_varlong(data, start + 1, end)
    offset_delta, p = read_varint(data, p, end)
    key, p = _bytes(data, p, end, what)
    value, p = _bytes(data, p, end, what)
    count, p = read_varint(data, p, end)
    if p < 0 or not 0 <= count <= (end - p) // f.MIN_HEADER_SIZE:
        left = counted_noun(max(0, end - p), "byte")
        raise Refused(f"{what}: {counted_noun(count, 'header')}, and {left} left for them")
    headers = []
    for _ in range(count):
        name, p = _bytes(data, p, end, what)
        if name is None:
            raise Refused(f"{what}: a header without a key")
        content, p = _bytes(data, p, end, what)
        headers.append((name, content))
    if p != end:
        raise Refused(f"{what}: expected a body of {size} bytes, found {p - start} used")
    is_append = e["timestamp_type"] == f.LOG_APPEND_TIME
    timestamp = int(e["max_timestamp"]) if is_append else int64(int(e["base_timestamp"]) + delta)
    base, sequence = int(e["base_sequence"]), f.NO_SEQUENCE
    if base >= 0:
        sequence = int(increment_sequence(base, offset_delta))
    offset = int64(int(e["base_offset"]) + offset_delta)
    return Record(offset, timestamp, sequence, key, value, headers), end


def _bytes(data: np.ndarray, at: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, p = read_varint(data, at, end)
    if p < 0 or size > end - p:
        raise Refused(f"{what}: a part of {size} bytes, and {max(0, end - max(p, at))} are left")
    return (None, p) if size < 0 else (data[p : p + size].tobytes(), p + size)


def _messages(e: Any, content: bytes, limit: int) -> Iterator[Message]:
    outer = int(e["last_offset"])
    own = Message(outer, int(e["max_timestamp"]), int(e["magic"]), content[f.LOG_OVERHEAD :])
    if e["codec"] == f.CODEC_NONE:
        yield own
        return
    if e["magic"] not in (f.MAGIC_V0, f.MAGIC_V1):
        raise Refused(f"a wrapper of magic {e['magic']}")
    if e["codec"] == f.CODEC_ZSTD:
        raise Refused(f"codec zstd, which magic {e['magic']} cannot have")
    value = own.value
    if value is None:
        raise Refused("a wrapper without a value")
    inner = _inner(e, _expanded(e, value, limit))
    if not inner:
        raise Refused("a wrapper without inner messages")
    base = 0
    if e["magic"] == f.MAGIC_V1 and outer != 0:
        last = inner[-1].offset
        if outer < last:
            raise Refused(f"a wrapper offset of {outer}, and its last inner message has {last}")
        base = outer - last
    for message in inner:
        message.offset = int64(message.offset + base)
        if message.codec != f.CODEC_NONE:
            raise Refused("an inner message that is compressed itself")
        yield message


def _inner(e: Any, data: bytes) -> list[Message]:
    """Returns the messages in a wrapper's value; a cut one at the end is left out, as Kafka does."""
    found = []
    at = 0
    while at + f.LOG_OVERHEAD <= len(data):
        size = _int32(data, at + f.LENGTH_POS)
        if size < _LEAST_MESSAGE:
            raise Refused(f"an inner message of {size} bytes, and the smallest has {_LEAST_MESSAGE}")
        end = at + f.LOG_OVERHEAD + size
        if end > len(data):
            break
        body = data[at + f.LOG_OVERHEAD : end]
        magic = int.from_bytes(body[4:5], "big", signed=True)
        timestamp = f.NO_TIMESTAMP
        if magic == f.MAGIC_V1 and e["timestamp_type"] == f.LOG_APPEND_TIME:
            timestamp = int(e["base_timestamp"])
        elif magic != f.MAGIC_V0:
            begin = f.V1_TIMESTAMP_POS - f.LOG_OVERHEAD
            timestamp = int.from_bytes(body[begin : begin + 8], "big", signed=True)
        offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        found.append(Message(offset, timestamp, magic, body))
        at = end
    return found
