"""Reads JSON that carries Kafka Connect's schema (``JsonConverter`` with ``schemas.enable``).

The payload alone does not tell a time from a number, nor bytes from a text: the schema next to it does. A
date, a time and a timestamp become ``{"date": ms since 1970}``: Connect holds each as a ``java.util.Date``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

from kafka_log_lake.udfs.values.schemas.payload import canonical_bytes

ENVELOPE = {"schema", "payload"}  # the members of Connect's envelope
_LOGICAL = "org.apache.kafka.connect.data."
_DEBEZIUM = (".Envelope", ".Key", ".Value")  # ends of its schemas' names
_MS_OF_DAY = 86_400_000
_DIGITS = Context(prec=10_000)


def payload_of(envelope: Mapping[str, Any]) -> Any:
    """Returns the payload of an envelope by its schema; as it is where the two do not fit.

    Debezium's events stay as they were sent: who captures tables from them reads their decimals and times.
    """
    try:
        if str((envelope["schema"] or {}).get("name") or "").endswith(_DEBEZIUM):
            return envelope["payload"]
        return _value(envelope["schema"], envelope["payload"])
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RecursionError):
        return envelope["payload"]


def _value(schema: Mapping[str, Any] | None, held: Any) -> Any:
    if schema is None:
        return held
    if held is None:
        held = schema.get("default")
        if held is None:
            return None
    name = str(schema.get("name") or "")
    if name.startswith(_LOGICAL):
        return _logical(name.removeprefix(_LOGICAL), schema, held)
    kind = schema["type"]
    if kind == "bytes":
        return canonical_bytes(_decoded(held))
    if kind == "array":
        return [_value(schema["items"], one) for one in held]
    if kind == "map":
        return _map(schema, held)
    if kind == "struct":
        return {one["field"]: _value(one, held.get(one["field"])) for one in schema["fields"]}
    return held


def _map(schema: Mapping[str, Any], held: Any) -> Any:
    """Returns a map: an object where its keys are texts, else pairs, as ``JsonConverter`` writes both."""
    if isinstance(held, Mapping):
        return {key: _value(schema["values"], one) for key, one in held.items()}
    return [[_value(schema["keys"], key), _value(schema["values"], one)] for key, one in held]


def _logical(name: str, schema: Mapping[str, Any], held: Any) -> Any:
    if name == "Decimal":
        if isinstance(held, int | float):
            return str(held)
        digits = int.from_bytes(_decoded(held), "big", signed=True)
        return f"{Decimal(digits).scaleb(-int(schema['parameters']['scale']), _DIGITS):f}"
    if name == "Date":
        return {"date": held * _MS_OF_DAY}
    return {"date": held} if name in ("Time", "Timestamp") else held


def _decoded(held: str) -> bytes:
    try:
        return base64.b64decode(held, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
