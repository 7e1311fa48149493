"""Reads records of Kafka's internal topics: says which message a record is, and decodes its key and value.

- Coordinators (``__consumer_offsets``, ``__transaction_state``, ``__share_group_state``): a key is an int16
  record type and the key message; a value is an int16 version and the value message; a null value is a
  tombstone. Bytes after a message do not make it unreadable: Kafka's CoordinatorRecordSerde.
- Metadata (``__cluster_metadata``, ``__remote_log_metadata``): no key; a value is three unsigned varints,
  frame version 1, API key and version, and the message up to the last byte: Kafka's AbstractApiMessageSerde.

What cannot be read becomes a reason in words, never an error.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

from kafka_log_lake.udfs.values.internal.definitions import MessageDefinition, messages
from kafka_log_lake.udfs.values.internal.encode import FRAME_VERSION
from kafka_log_lake.udfs.values.internal.readers import (
    Reader,
    UnreadableMessage,
    message_reader,
    newer_reader,
    unsigned_varint,
)
from kafka_log_lake.udfs.values.internal.releases import NEWEST

_COORDINATORS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_METADATA = ("__cluster_metadata", "__remote_log_metadata")
TOPICS = (*_COORDINATORS, *_METADATA)

_int16 = struct.Struct(">h").unpack_from
# Messages of Kafka's default consumers inside GroupMetadataValue: ConsumerProtocol of kafka-clients
_CONSUMER = "consumer"

Fields = dict[str, Any]


class InternalRecord(NamedTuple):
    """A record of an internal topic.

    name: the message's, without Key and Value; null where the type is not known. type: the record type or API
    key as stored; null where it cannot be read. version: of the value as stored; null for tombstones. key,
    value: as Kafka's JSON has them; null where there is none or it cannot be read. problem: why it cannot, or
    what else is wrong; null where nothing is. is_read: whether key and value could be read, as far as there
    are any; bytes may follow them.
    """

    name: str | None = None
    type: int | None = None
    version: int | None = None
    key: Fields | None = None
    value: Fields | None = None
    problem: str | None = None
    is_read: bool = False

    @property
    def stops_coordinator(self) -> str | None:
        """Returns why a coordinator that loads its log stops at the record; None if it goes on.

        It passes over types that it does not know: Kafka's ``CoordinatorLoaderImpl``.
        """
        is_unknown = self.name is None and self.type is not None
        return None if self.is_read or is_unknown else self.problem


# Reads a key and a value
RecordReader = Callable[[bytes | None, bytes | None], InternalRecord]


class _Versions:
    """The readers of one message.

    reads_newer: whether a version above those of the definition is read as far as Kafka's tools do.
    """

    def __init__(self, message: MessageDefinition, reads_newer: bool = False) -> None:
        self.name = message.name
        self._newer = partial(newer_reader, message) if reads_newer else None
        versions = range(message.versions.low, message.versions.high + 1)
        self._readers = {version: message_reader(message, version) for version in versions}

    def reader(self, version: int) -> Reader:
        reader = self._readers.get(version)
        if reader is None and self._newer is not None and version > max(self._readers):
            return self._newer(version)
        if reader is None:
            raise UnreadableMessage(f"version {version} of {self.name} is not known")
        return reader


def _by_key(
    definitions: Iterable[MessageDefinition], kind: str, reads_newer: bool = False
) -> dict[int, _Versions]:
    return {m.api_key: _Versions(m, reads_newer) for m in definitions if m.kind == kind}


def _short(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise UnreadableMessage(f"the bytes end at {len(data)}", what)
    number: int = _int16(data)[0]
    return number


def _surplus(data: bytes, end: int, part: str) -> str | None:
    return None if end == len(data) else f"{part}: the message ends at {end}, the bytes at {len(data)}"


def _coordinator(topic: str, release: str) -> RecordReader:
    definitions = messages(topic.strip("_"), release)
    keys = _by_key(definitions, "coordinator-key")
    values = _by_key(definitions, "coordinator-value")

    def read(key: bytes | None, value: bytes | None) -> InternalRecord:
        if key is None:
            return InternalRecord(problem="key: null")
        name = kind = version = key_fields = None
        part = "key"
        try:
            kind = _short(key, "record type")
            if kind not in keys:
                return InternalRecord(type=kind, problem=f"key: record type {kind} is not known")
            name = keys[kind].name.removesuffix("Key")
            key_fields, end = keys[kind].reader(0)(key, 2)
            problem = _surplus(key, end, part)
            if value is None:
                return InternalRecord(name, kind, None, key_fields, None, problem, True)
            part = "value"
            version = _short(value, "version")
            fields, end = values[kind].reader(version)(value, 2)
            problem = problem or _surplus(value, end, part)
            return InternalRecord(name, kind, version, key_fields, fields, problem, True)
        except UnreadableMessage as error:
            return InternalRecord(name, kind, version, key_fields, None, f"{part}: {error}")

    return read


def _header(value: bytes) -> tuple[int, int, int]:
    """Reads the head of a metadata record: its API key, its version and the position of the message.

    Raises UnreadableMessage for a head that is cut or has another frame version.
    """
    numbers = []
    at = 0
    for what in ("frame version", "API key", "version"):
        try:
            number, at = unsigned_varint(value, at)
        except IndexError:
            raise UnreadableMessage(f"the bytes end at {len(value)}", what) from None
        except UnreadableMessage as error:
            raise error.inside(what) from None
        if number > 0x7FFF:
            raise UnreadableMessage(f"{number}, which is too large", what)
        numbers.append(number)
        if numbers[0] != FRAME_VERSION:
            raise UnreadableMessage(f"frame version {number} is not known")
    return numbers[1], numbers[2], at


def _metadata(topic: str, release: str, reads_newer: bool) -> RecordReader:
    records = _by_key(messages(topic.strip("_"), release), "metadata", reads_newer)

    def read(key: bytes | None, value: bytes | None) -> InternalRecord:
        if value is None:
            return InternalRecord(problem="value: null")
        name = kind = version = None
        try:
            kind, version, at = _header(value)
            if kind not in records:
                return InternalRecord(None, kind, version, problem=f"value: API key {kind} is not known")
            name = records[kind].name
            fields, end = records[kind].reader(version)(value, at)
            if end < len(value):
                return InternalRecord(name, kind, version, problem=_surplus(value, end, "value"))
            return InternalRecord(name, kind, version, None, fields, None, True)
        except UnreadableMessage as error:
            return InternalRecord(name, kind, version, problem=f"value: {error}")

    return read


@cache
def record_reader(topic: str, release: str = NEWEST, reads_newer: bool = False) -> RecordReader:
    """Returns the function that reads records of an internal topic as a release does.

    reads_newer: whether metadata records of versions that the release does not have are read as its tools do,
    without the fields that it does not know. Raises a KeyError for a topic not in TOPICS.
    """
    if topic in _COORDINATORS:
        return _coordinator(topic, release)
    if topic in _METADATA:
        return _metadata(topic, release, reads_newer)
    raise KeyError(topic)


@cache
def _control(name: str) -> Reader:
    return next(message_reader(m, 0) for m in messages("control_records") if m.name == name)


def control_fields(name: str, value: bytes) -> Fields:
    """Returns the fields of a control record of KRaft, whose message has version 0 alone.

    name: of the message, such as VotersRecord. Raises UnreadableMessage.
    """
    fields: Fields = _control(name)(value, 0)[0]
    return fields


@cache
def _consumer_protocol(name: str) -> _Versions:
    return next(_Versions(m) for m in messages("consumer_protocol") if m.name == name)


def _embedded(text: str, name: str) -> object:
    """Decodes a message of the consumer protocol from Base64.

    Returns the text itself where it is something else.
    """
    raw = base64.b64decode(text)
    try:
        # A newer version is read as the newest known one: ConsumerProtocol.checkSubscriptionVersion
        version = min(_short(raw, "version"), 3)
        return _consumer_protocol(name).reader(version)(raw, 2)[0]
    except UnreadableMessage:
        return text


def with_consumer_protocol(value: Fields) -> Fields:
    """Returns the fields of a GroupMetadataValue with its members' subscriptions and assignments decoded.

    Other embedded protocols (Kafka Connect's) stay Base64, and so does what is not the consumer protocol.
    """
    if value["protocolType"] != _CONSUMER:
        return value
    members = [
        member
        | {
            "subscription": _embedded(member["subscription"], "ConsumerProtocolSubscription"),
            "assignment": _embedded(member["assignment"], "ConsumerProtocolAssignment"),
        }
        for member in value["members"]
    ]
    return value | {"members": members}
