"""Reads JSON that carries Kafka Connect's schema (``JsonConverter`` with ``schemas.enable``).

The payload alone does not tell a time from a number, nor bytes from a text: the schema next to it does. A
date, a time and a timestamp become ``{"date": ms since 1970}``: Connect holds each as a ``java.util.Date``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from kafka_log_lake.udfs.values.avro.payload import decimal_text
from kafka_log_lake.udfs.values.schemas.payload import canonical_bytes

ENVELOPE = {"schema", "payload"}  # the members of Connect's envelope
_LOGICAL = "org.apache.kafka.connect.data."
_DEBEZIUM = (".Envelope", ".Key", ".Value")  # ends of its schemas' names
_MS_OF_DAY = 86_400_000
_MOST_SCALE = 1 << 10
_MOST_DEFAULTS = 1 << 20  # characters: a default of the schema stands for each null, be it ever so long


def payload_of(envelope: Mapping[str, Any]) -> Any:
    """Returns the payload of an envelope by its schema; as it is where the two do not fit.

    Debezium's events stay as they were sent: who captures tables from them reads their decimals and times.
    """
    try:
        if str((envelope["schema"] or {}).get("name") or "").endswith(_DEBEZIUM):
            return envelope["payload"]
        return _Payload().value(envelope["schema"], envelope["payload"])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return envelope["payload"]


class _Payload:
    """Reads one payload by its schema. Raises errors of many types where the two do not fit."""

    def __init__(self) -> None:
        self._left = _MOST_DEFAULTS

    def value(self, schema: Mapping[str, Any] | None, held: Any) -> Any:
        if schema is None:
            return held
        if held is None:
            held = self._default(schema)
            if held is None:
                return None
        name = str(schema.get("name") or "")
        if name.startswith(_LOGICAL):
            return _logical(name.removeprefix(_LOGICAL), schema, held)
        kind = schema["type"]
        if kind == "bytes":
            return canonical_bytes(_decoded(held))
        if kind == "array":
            return [self.value(schema["items"], item) for item in _exact(list, held)]
        if kind == "map":
            return self._map(schema, held)
        if kind == "struct":
            names = [_exact(str, field["field"]) for field in schema["fields"]]
            return {
                name: self.value(field, held.get(name))
                for name, field in zip(names, schema["fields"], strict=True)
            }
        return held

    def _default(self, schema: Mapping[str, object]) -> object:
        default = schema.get("default")
        if default is not None:
            self._left -= len(str(default))
            if self._left < 0:
                raise ValueError("defaults without end")
        return default

    def _map(self, schema: Mapping[str, Any], held: Any) -> Any:
        """Returns a map: an object where its keys are texts, else pairs, as ``JsonConverter`` writes both."""
        if isinstance(held, Mapping):
            return {key: self.value(schema["values"], item) for key, item in held.items()}
        pairs = [_exact(list, pair) for pair in held]
        return [[self.value(schema["keys"], key), self.value(schema["values"], item)] for key, item in pairs]


def _logical(name: str, schema: Mapping[str, Any], held: Any) -> Any:
    if name == "Decimal":
        if isinstance(held, int | float):
            return str(held)
        scale = int(schema["parameters"]["scale"])
        if abs(scale) > _MOST_SCALE:
            raise ValueError(f"a scale of {scale}")
        return decimal_text(int.from_bytes(_decoded(held), "big", signed=True), scale)
    if name in ("Date", "Time", "Timestamp"):
        return {"date": _exact(int, held) * (_MS_OF_DAY if name == "Date" else 1)}
    return held


def _exact(kind: type, held: Any) -> Any:
    if type(held) is not kind:
        raise TypeError(f"{type(held).__name__}, and not {kind.__name__}")
    return held


def _decoded(held: str) -> bytes:
    try:
        return base64.b64decode(held, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
