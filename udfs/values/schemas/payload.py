"""What decoders of payloads share: results, errors with their classes, values in canonical JSON.

The canonical form keeps what JSON alone would lose: bytes are ``{"bytes": Base64}``, a float that is no
number is a text, an instant names its unit. Members keep the order of the schema.
"""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_log_lake.udfs.words import count_of

if TYPE_CHECKING:
    from kafka_log_lake.udfs.values.schemas.registry import Schema

# The deepest nesting of records, arrays and maps that is decoded; a deeper value is valid, and an error here
MAX_DEPTH = 256

# A schema of more fields, each counted at every place where it may be, is no table
MOST_FIELDS = 10_000

ERROR_CLASSES = (
    "unknown_id",  # no schema has the id
    "unknown_guid",
    "deleted_id",  # the schema was deleted for good, or its subject cleared
    "ambiguous_id",  # several schemas have the id, and more than one consumes every byte
    "no_registry",  # written with a registry whose schemas are not at hand: Glue, Apicurio
    "unreadable_schema",  # the schema's own text can't be parsed, or a reference is missing
    "bad_header",  # a schema id in a record header that can't be read
    "truncated",
    "trailing_bytes",
    "union_index",
    "enum_index",
    "negative_length",
    "huge_count",  # more items than the bytes that are left can hold
    "int_overflow",
    "varint_too_long",
    "bad_boolean",
    "invalid_utf8",
    "too_deep",  # nested deeper than MAX_DEPTH
    "invalid_index",  # a list of message indexes that names no message
    "bad_wire_type",
    "bad_tag",
    "invalid_json",
    "unexpected_value",  # a version or a flag that the kind of the topic does not have
    "encrypted",  # a rule of the schema encrypts it; the bytes stay as stored
)


class PayloadError(ValueError):
    """A payload that can't be decoded.

    reason: one of ERROR_CLASSES; position: the byte, None if it has none.
    """

    def __init__(self, reason: str, detail: str, position: int | None = None) -> None:
        super().__init__(f"{detail} at byte {position}" if position is not None else detail)
        self.reason, self.position = reason, position


def canonical_bytes(value: bytes) -> dict[str, str]:
    """Returns bytes as they stand in canonical JSON: ``{"bytes": BASE64}``."""
    return {"bytes": base64.b64encode(value).decode()}


@dataclass(frozen=True)
class DecodedPayload:
    """The result of decoding a payload: its format, value and schema, or the reason of its error.

    format: avro, avro-container (a list of its values), protobuf, jsonschema, json, json-connect, text,
    bytes, empty, null, or the framing of what is not at hand. content: canonical JSON; bytes of a payload
    that stays as it is, with an error too. reason: one of ``payload.ERROR_CLASSES``, None without an error.
    """

    format: str
    content: Any
    schema: Schema | None = None
    reason: str | None = None
    detail: str | None = None

    @property
    def schema_id(self) -> int | None:
        """Returns the id of the schema; None without one, and for a schema from a file that names none."""
        return None if self.schema is None or self.schema.id < 0 else self.schema.id

    @property
    def value(self) -> Any:
        """Returns the value in canonical JSON; made at each call, as Base64 of a large payload takes time."""
        return canonical_bytes(self.content) if isinstance(self.content, bytes) else self.content


def failed(format_: str, payload: bytes, error: PayloadError, schema: Schema | None = None) -> DecodedPayload:
    """Returns the result for a payload that can't be decoded."""
    return DecodedPayload(format_, payload, schema, error.reason, str(error))


def canonical_float(value: float) -> float | str:
    """Returns a finite number as it is, else the text NaN, Infinity or -Infinity."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unpack(layout: struct.Struct, data: bytes, at: int) -> tuple[Any, ...]:
    """Returns the values of a struct at a position. Raises a PayloadError where the bytes end before."""
    if at + layout.size > len(data):
        raise PayloadError("truncated", f"{count_of(layout.size, 'byte')} wanted, {len(data) - at} left", at)
    return layout.unpack_from(data, at)


def text_of(data: bytes, start: int, end: int) -> str:
    """Returns UTF-8 bytes as text. Raises a PayloadError for bytes that are not UTF-8."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError as error:
        raise PayloadError("invalid_utf8", f"not UTF-8: {error.reason}", start + error.start) from None
