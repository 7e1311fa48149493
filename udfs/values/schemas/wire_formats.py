"""Finds how a key or a value was framed, by its first bytes and the record's headers.

- confluent: ``00`` and a schema id, int32, big-endian (Confluent's serializers, Karapace, Redpanda)
- confluent-guid: ``01`` and the schema's GUID, 16 bytes; or both in a header ``__key_schema_id`` or
  ``__value_schema_id``, where the payload is bare (``00`` and an id is legal there too)
- azure: four zero bytes and 32 characters of a GUID (Azure Schema Registry's older clients)
- glue: ``03``, ``00`` or ``05`` (zlib), and a UUID, 16 bytes (AWS Glue)
- apicurio: ids in headers ``apicurio.value.globalId`` and the like; ``00`` and a global id, int64:
  ``payloads`` decides whether it is that or Confluent's
- avro-single-object: ``C3 01`` and a fingerprint, 8 bytes, little-endian
- avro-container: ``Obj`` and ``01``: a whole container file
- plain: none of these; ``empty`` for no bytes, ``null`` for no payload

A payload of numbers can begin like any of them, so that what follows decides: whether the id is known, and
whether a schema consumes every byte (``payloads``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from kafka_log_lake.udfs.values.avro.payload import long
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.words import count_of

CONFLUENT, GUID, AZURE, GLUE = "confluent", "confluent-guid", "azure", "glue"
APICURIO, SINGLE_OBJECT, CONTAINER = "apicurio", "avro-single-object", "avro-container"
PLAIN, EMPTY, NULL = "plain", "empty", "null"
_HEX = frozenset(b"0123456789abcdefABCDEF")
_APICURIO_HEADERS = ("globalId", "contentId")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Framing:
    """How a payload names its schema. start: the byte where what the schema describes begins.

    id: the schema id, where the framing has one. guid: the GUID or UUID. index: message indexes of Protobuf
    that a header holds; None where they come first in the payload.
    """

    kind: str
    start: int = 0
    id: int | None = None
    guid: str | None = None
    index: tuple[int, ...] | None = None


def framing_of(side: str, payload: bytes | None, headers: Headers = ()) -> Framing:
    """Returns the framing of a key or value. side: key or value. Raises a PayloadError (bad_header)."""
    if payload is None:
        return Framing(NULL)
    in_headers = _of_headers(side, headers)
    if in_headers is not None:
        return in_headers
    if not payload:
        return Framing(EMPTY)
    return _of_bytes(payload)


def _of_bytes(payload: bytes) -> Framing:
    first, size = payload[0], len(payload)
    if payload[:4] == b"\0\0\0\0" and size >= 36 and _HEX.issuperset(payload[4:36]):
        return Framing(AZURE, 36, guid=payload[4:36].decode().lower())
    if first == 0 and size >= 5:
        return Framing(CONFLUENT, 5, id=int.from_bytes(payload[1:5], "big", signed=True))
    if first == 1 and size >= 17:
        return Framing(GUID, 17, guid=str(UUID(bytes=payload[1:17])))
    if first == 3 and size >= 18 and payload[1] in (0, 5):
        return Framing(GLUE, 18, guid=str(UUID(bytes=payload[2:18])))
    if payload[:2] == b"\xc3\x01" and size >= 10:
        return Framing(SINGLE_OBJECT, 10, id=int.from_bytes(payload[2:10], "little"))
    if payload[:4] == b"Obj\x01":
        return Framing(CONTAINER)
    return Framing(PLAIN)


def _of_headers(side: str, headers: Headers) -> Framing | None:
    """Returns the framing that the last header naming a schema says; None without one."""
    name = f"__{side}_schema_id"
    for key, value in reversed(headers):
        if key == name:
            return _of_schema_header(value or b"")
        if key.startswith(f"apicurio.{side}.") and key.rpartition(".")[2] in _APICURIO_HEADERS:
            return Framing(APICURIO, 0, id=int.from_bytes(value, "big") if value else None)
    return None


def _of_schema_header(value: bytes) -> Framing:
    if value[:1] == b"\1" and len(value) >= 17:
        index = message_index(value, 17)[0] if len(value) > 17 else None
        return Framing(GUID, 0, guid=str(UUID(bytes=value[1:17])), index=index)
    if value[:1] == b"\0" and len(value) >= 5:
        index = message_index(value, 5)[0] if len(value) > 5 else None
        return Framing(CONFLUENT, 0, id=int.from_bytes(value[1:5], "big", signed=True), index=index)
    raise PayloadError("bad_header", f"a schema id of {count_of(len(value), 'byte')}: {value[:20].hex()}")


def message_index(payload: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Reads Protobuf's message indexes, zigzag varints after a count; returns them and the position after.

    A count of 0 is the first message. Raises a PayloadError (invalid_index, truncated).
    """
    count, at = _zigzag(payload, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(payload) - at:
        raise PayloadError(
            "invalid_index",
            f"{count} message indexes, and {count_of(len(payload) - at, 'byte')} left",
            at,
        )
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise PayloadError("invalid_index", f"a message index of {index}", at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    """Reads one number of the list, encoded as Avro's long is; returns it and the position after."""
    try:
        return long(payload, at)
    except PayloadError as error:
        if error.reason == "truncated":
            raise PayloadError("truncated", "message indexes that the payload ends in", at) from None
        raise PayloadError("invalid_index", "a message index of more than 64 bits", at) from None
