"""Reads the keys or the values of a topic by its format: as canonical JSON, and as a column."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.values.apps import mirror, streams
from kafka_log_lake.udfs.values.apps.serdes import Read, arrow_type, serde
from kafka_log_lake.udfs.values.apps.topic_format import (
    PLAIN_KINDS,
    REGISTERED,
    WHOLE_KINDS,
    TopicFormat,
)
from kafka_log_lake.udfs.values.json.structs import text

_KEY, _VALUE = "key", "value"
# What stands in the place of a format's label for topics of JSON and texts
_CONNECT = {
    "connect-config": {_KEY: "text", _VALUE: "json"},
    "connect-status": {_KEY: "text", _VALUE: "json"},
    "connect-offset": {_KEY: "json", _VALUE: "json"},
    "connect-json": {_KEY: "json", _VALUE: "json"},
}
ERROR_HEADERS = ("__streams.errors.", "__connect.errors.")  # of dead letters


def label_of(format_: TopicFormat, side: str) -> str:
    """Returns what says of a side how it is read: the format's label, json, text, or "" for a look.

    What the registry reads has its own heads, and is looked at as in any other topic.
    """
    if format_.kind in _CONNECT:
        return _CONNECT[format_.kind][side]
    serde_name = format_.key if side == _KEY else format_.value
    if (
        format_.kind in PLAIN_KINDS
        and format_.kind != "text"
        and (not serde_name or serde_name in REGISTERED)
    ):
        return ""
    return format_.label


@dataclass(frozen=True)
class SideReader:
    """Reads one side of a topic.

    name: what a payload is, for people and for the column. read: bytes -> canonical JSON; raises a
    PayloadError. type: of its column. is_declared: as of its format.
    """

    name: str
    read: Read
    type: pa.DataType
    is_declared: bool

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Returns values that were read as a column."""
        return pa.array([for_column(value, self.type) for value in values], self.type)


def side_reader(format_: TopicFormat, side: str, registered: Read) -> SideReader:
    """Returns the reader of a side. registered: reads what is framed by the schema registry."""
    kind, size = format_.kind, format_.window_size_ms
    names = {_KEY: format_.key, _VALUE: format_.value}
    if kind == "text":
        names = {_KEY: "string", _VALUE: "string"}
    if kind in WHOLE_KINDS:
        return SideReader(
            kind,
            lambda data: mirror.read_side(kind, side, data),
            pa.struct(list(mirror.SIDES[kind, side][1])),
            format_.is_declared,
        )
    key, value = (serde(names[side_name], size, registered) for side_name in (_KEY, _VALUE))
    of_key, of_value = (arrow_type(names[side_name]) for side_name in (_KEY, _VALUE))
    layouts = _layouts(key, value, of_key, of_value, size)
    if (kind, side) in layouts:
        return SideReader(kind, *layouts[kind, side], format_.is_declared)
    name = names[side] or "bytes"
    read, type_ = (key, of_key) if side == _KEY else (value, of_value)
    return SideReader("text" if name in ("string", "uuid") else name, read, type_, format_.is_declared)


def _layouts(
    key: Read, value: Read, of_key: pa.DataType, of_value: pa.DataType, size: int | None
) -> dict[tuple[str, str], tuple[Read, pa.DataType]]:
    """Returns the layouts of Streams around keys and values: (kind, side) -> reader and Arrow type.

    key, value: readers of the keys and values within. size: of windows, in ms.
    """
    layouts: dict[tuple[str, str], tuple[Read, pa.DataType]] = {
        ("window-changelog", _KEY): (
            lambda data: streams.window_store_key(data, key, size),
            streams.window_type(of_key, has_sequence=True),
        ),
        ("time-windowed", _KEY): (
            lambda data: streams.time_key(data, key, size),
            streams.window_type(of_key),
        ),
        ("changed", _VALUE): (lambda data: streams.changed(data, value), streams.changed_type(of_value)),
        ("suppress-changelog", _VALUE): (
            lambda data: streams.suppressed(data, value),
            streams.suppressed_type(of_value),
        ),
        ("fk-response", _VALUE): (
            lambda data: streams.response(data, value),
            streams.response_type(of_value),
        ),
        ("fk-store-changelog", _KEY): (
            lambda data: streams.subscription_key(data, key, value),
            streams.subscription_key_type(of_key, of_value),
        ),
        ("outer-join-changelog", _KEY): (
            lambda data: streams.outer_join_key(data, key),
            streams.outer_join_key_type(of_key),
        ),
        ("outer-join-changelog", _VALUE): (
            lambda data: streams.outer_join_values(data, value),
            streams.outer_join_values_type(of_value),
        ),
    }
    for session_kind in ("session-changelog", "session-windowed"):
        layouts[session_kind, _KEY] = (
            lambda data: streams.session_key(data, key),
            streams.window_type(of_key),
        )
    for key_kind in ("fk-registration", "fk-store-changelog"):
        layouts[key_kind, _VALUE] = (
            lambda data: streams.registration(data, value),
            streams.registration_type(of_value),
        )
    return layouts


def error_headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str | None]:
    """Returns the headers of a dead letter that say why it is one, as text."""
    return {
        name: None if held is None else held.decode("utf-8", "replace")
        for name, held in headers
        if name.startswith(ERROR_HEADERS)
    }


def for_column(value: Any, type_: pa.DataType) -> Any:
    """Returns canonical JSON as ``pa.array`` takes it for a type."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: for_column(value.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_):
        if value and isinstance(value[0], list):  # headers
            return [{_KEY: name, _VALUE: held and base64.b64decode(held)} for name, held in value]
        return [for_column(item, type_.value_type) for item in value]
    if pa.types.is_binary(type_):
        return base64.b64decode(value["bytes"])
    if pa.types.is_string(type_) and not isinstance(value, str):
        return text(value)
    return float(value) if pa.types.is_floating(type_) else value
