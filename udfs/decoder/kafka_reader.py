"""Reads one batch as Kafka's tool does: ignores its checksum, and returns the records before a fault.

The kernels take a batch whole or not at all. This is for the few that they refuse, and for control records.
The plain reader reads the bytes; here is what Kafka makes of them: which records it still gives, and when.
Rules: ``DefaultRecordBatch`` and ``AbstractLegacyRecordBatch`` of kafka-clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format import plain_reader as plain
from kafka_log_lake.udfs.format.fields import Stored, Wrong, integer
from kafka_log_lake.udfs.format.plain_header import wrong_attributes
from kafka_log_lake.udfs.format.varints import int64
from kafka_log_lake.udfs.kernels.codecs import Scratch, expand
from kafka_log_lake.udfs.kernels.framing import increment_sequence

_LEAST_MESSAGE = f.V0_KEY_LENGTH_POS - f.LOG_OVERHEAD + 8  # what Kafka lets a length be at least: 14


class Refused(ValueError):
    """The error for bytes that Kafka's library refuses to read; its tool ends there."""

    @classmethod
    def of(cls, wrong: Wrong, begin: int) -> Refused:
        """Returns the error for a fault, in the words of the table ``quarantine``.

        begin: position of the data in the segment; -1 for an expanded payload.
        """
        return cls(wrong.describe(begin))


@dataclass
class Record:
    """A record of magic 2. timestamp: milliseconds. begin: as for ``Refused.of``."""

    offset: int
    timestamp: int
    sequence: int
    stored: Stored
    begin: int

    @property
    def key(self) -> bytes | None:
        return self.stored.fields[plain.KEY].value

    @property
    def value(self) -> bytes | None:
        return self.stored.fields[plain.VALUE].value

    @property
    def key_size(self) -> int:
        """Returns the bytes of the key, -1 for null."""
        return -1 if self.key is None else len(self.key)

    @property
    def value_size(self) -> int:
        """Returns the bytes of the value, -1 for null."""
        return -1 if self.value is None else len(self.value)

    @property
    def headers(self) -> list[tuple[bytes, bytes | None]]:
        return plain.headers_of(self.stored)

    def check_control(self) -> None:
        """Raises Refused where the record is no control record."""
        wrong = plain.wrong_control(self.stored)
        if wrong is not None:
            raise Refused.of(wrong, self.begin)


@dataclass
class Message:
    """A message of magic 0 or 1, data[at:end]. Kafka reads it part by part: any property may raise Refused.

    begin: position of the data in the segment, -1 for an expanded payload.
    """

    offset: int
    timestamp: int
    data: bytes
    at: int
    end: int
    begin: int

    @cached_property
    def stored(self) -> Stored:
        return plain.read_message(self.data, self.at, self.end)

    def _value(self, name: str) -> Any:
        for field in self.stored.fields:
            if field.name == name:
                return field.value
        assert self.stored.wrong is not None
        raise Refused.of(self.stored.wrong, self.begin)

    @property
    def magic(self) -> int:
        return integer(self.data, self.at + f.MAGIC_POS, 1)

    @property
    def key_size(self) -> int:
        return int(self._value("keyLength"))

    @property
    def value_size(self) -> int:
        return int(self._value("valueLength"))

    @property
    def key(self) -> bytes | None:
        return self._value("key")

    @property
    def value(self) -> bytes | None:
        return self._value("value")

    @property
    def codec(self) -> int:
        return self.data[self.at + f.LEGACY_ATTRIBUTES_POS] & f.CODEC_MASK

    @property
    def crc(self) -> int:
        return integer(self.data, self.at + f.LEGACY_CRC_POS, 4, signed=False)

    @property
    def is_valid(self) -> bool:
        return self.crc == zlib.crc32(self.data[self.at + f.MAGIC_POS : self.end])


def records_of(e: Any, content: bytes, limit: int) -> Iterator[Record] | Iterator[Message]:
    """Yields the records of a batch as far as Kafka's library reads them; raises Refused where it fails.

    e: its row of BATCH. content: its bytes. limit: the most bytes that it may expand to.
    """
    if e["magic"] >= f.MAGIC_V2:
        return _default_records(e, content, limit)
    return _messages(e, content, limit)


def _expanded(e: Any, payload: bytes, at: int, limit: int) -> bytes:
    """Returns the expanded payload. at: position of the payload in the segment."""
    codec = int(e["codec"])
    if codec == f.CODEC_NONE:
        return payload
    magic = min(int(e["magic"]), f.MAGIC_V2)
    wrong = wrong_attributes(max(magic, f.MAGIC_V0), codec)
    if wrong is not None:
        raise Refused.of(wrong, int(e["position"]))
    scratch = Scratch()
    made = expand(codec, magic, np.frombuffer(payload, dtype=np.uint8), scratch, limit)
    if made < 0:
        raise Refused.of(Wrong(-made, at, limit, codec), 0)
    return scratch.data[:made].tobytes()


def _default_records(e: Any, content: bytes, limit: int) -> Iterator[Record]:
    count, position = int(e["count"]), int(e["position"])
    if len(content) < f.V2_HEADER_SIZE:
        raise Refused(f"a batch of {len(content)} bytes, and its header has {f.V2_HEADER_SIZE}")
    if count == 0:
        return
    begin = position + f.V2_HEADER_SIZE
    payload = _expanded(e, content[f.V2_HEADER_SIZE :], begin, limit)
    if count < 0:
        raise Refused.of(Wrong(faults.COUNT_NEGATIVE, f.RECORDS_COUNT_POS, 0, count), position)
    if e["codec"] == f.CODEC_NONE:
        yield from _in_payload(e, payload, count, begin)
    else:
        yield from list(_in_payload(e, payload, count, -1))  # read as a whole before the first is given


def _in_payload(e: Any, payload: bytes, count: int, begin: int) -> Iterator[Record]:
    """Yields the records; the last of them only if the payload ends with it."""
    last: Stored | None = None
    for stored in plain.read_records(payload, 0, len(payload), count):
        wrong = stored.wrong
        if last is not None and (wrong is None or wrong.fault != faults.PAYLOAD_LEFT):
            yield _record(e, last, begin)
        if wrong is not None:
            counted = plain.wrong_count(count, len(payload))
            raise Refused.of(counted, int(e["position"])) if counted else Refused.of(wrong, begin)
        last = stored
    if last is not None:
        yield _record(e, last, begin)


def _record(e: Any, stored: Stored, begin: int) -> Record:
    delta, offset_delta = stored.fields[plain.TIMESTAMP_DELTA].value, stored.fields[plain.OFFSET_DELTA].value
    is_append = e["timestamp_type"] == f.LOG_APPEND_TIME
    timestamp = int(e["max_timestamp"]) if is_append else int64(int(e["base_timestamp"]) + delta)
    base, sequence = int(e["base_sequence"]), f.NO_SEQUENCE
    if base >= 0:
        sequence = int(increment_sequence(base, offset_delta))
    return Record(int64(int(e["base_offset"]) + offset_delta), timestamp, sequence, stored, begin)


def _messages(e: Any, content: bytes, limit: int) -> Iterator[Message]:
    outer, position, magic = int(e["last_offset"]), int(e["position"]), int(e["magic"])
    outer_message = Message(outer, int(e["max_timestamp"]), content, 0, len(content), position)
    if e["codec"] == f.CODEC_NONE:
        yield outer_message
        return
    if magic not in (f.MAGIC_V0, f.MAGIC_V1):
        raise Refused(f"a wrapper of magic {magic}")
    wrong = plain.wrong_wrapper(outer_message.stored)
    if wrong is not None:
        raise Refused.of(wrong, position)
    value = outer_message.stored.field("value")
    inner = _inner(e, _expanded(e, value.value, position + value.at, limit))
    if not inner:
        raise Refused.of(Wrong(faults.WRAPPER_EMPTY, 0, 1), -1)
    wrong = plain.wrong_wrapper_offset(inner[-1].data, inner[-1].at, outer_message.stored)
    if wrong is not None:
        raise Refused.of(wrong, position)
    base = outer - inner[-1].offset if magic == f.MAGIC_V1 and outer != 0 else 0
    for message in inner:
        message.offset = int64(message.offset + base)
        if message.codec != f.CODEC_NONE:
            raise Refused.of(Wrong(faults.INNER_COMPRESSED, message.at, 0, message.codec), -1)
        yield message


def _inner(e: Any, data: bytes) -> list[Message]:
    """Returns the messages in a wrapper's value; a cut one at the end is left out, as Kafka does."""
    messages = []
    at = 0
    while at + f.LOG_OVERHEAD <= len(data):
        size = integer(data, at + f.LENGTH_POS, 4)
        if size < _LEAST_MESSAGE:
            message_end = plain.inner_end(data, at, len(data))
            raise Refused.of(
                message_end
                if isinstance(message_end, Wrong)
                else Wrong(faults.INNER_SIZE, at, _LEAST_MESSAGE, size),
                -1,
            )
        end = at + f.LOG_OVERHEAD + size
        if end > len(data):
            break
        magic = integer(data, at + f.MAGIC_POS, 1)
        timestamp = f.NO_TIMESTAMP
        if magic == f.MAGIC_V1 and e["timestamp_type"] == f.LOG_APPEND_TIME:
            timestamp = int(e["base_timestamp"])
        elif magic != f.MAGIC_V0:
            timestamp = integer(data, at + f.V1_TIMESTAMP_POS, 8)
        messages.append(Message(integer(data, at, 8), timestamp, data, at, end, -1))
        at = end
    return messages
