"""Maps Protobuf messages to Arrow types, and messages in canonical JSON to what ``pa.array`` takes for them.

int32, sint32, sfixed32 are int32; uint32, fixed32 and the 64-bit signed ones int64; uint64 and fixed64
decimal128(20, 0), as no integer of Delta holds them all; an enum is its name, a number that it does not know
that number as text; a message is a struct, a map a map, a repeated field a list. What has presence and is not
set is null. A message that contains itself is the canonical JSON of the inner one, as string.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.values.protobuf.payload import BYTES, ENUM, MessageReader, ProtobufField
from kafka_log_lake.udfs.values.schemas.merged_types import fields_of, safe_names

UINT64 = pa.decimal128(20, 0)
_TYPES = {
    **dict.fromkeys((5, 15, 17), pa.int32()),
    **dict.fromkeys((3, 7, 13, 16, 18), pa.int64()),
    **dict.fromkeys((4, 6), UINT64),
    1: pa.float64(),
    2: pa.float32(),
    8: pa.bool_(),
    BYTES: pa.binary(),
}


def arrow_type(message: MessageReader, above: tuple[MessageReader, ...] = ()) -> pa.DataType:
    """Returns the Arrow struct of a message.

    above: the messages that enclose it; one of them again, a recursion, becomes a string of canonical JSON.
    """
    if message in above:
        return pa.string()
    inside = (*above, message)
    fields = message.fields.values()
    names = [field.name for field in fields]
    return pa.struct(fields_of(names, [_field_type(field, inside) for field in fields]))


def _field_type(field: ProtobufField, above: tuple[MessageReader, ...]) -> pa.DataType:
    if field.is_map:
        assert field.message is not None
        key, value = field.message.fields[1], field.message.fields[2]
        return pa.map_(_one_type(key, above), _one_type(value, above))
    item_type = _one_type(field, above)
    return pa.list_(item_type) if field.repeated else item_type


def _one_type(field: ProtobufField, above: tuple[MessageReader, ...]) -> pa.DataType:
    return _TYPES.get(field.kind, pa.string()) if field.message is None else arrow_type(field.message, above)


def plain_message(message: MessageReader, value: dict[str, Any], above: tuple[MessageReader, ...]) -> Any:
    """Converts a message in canonical JSON to the Python dict that ``pa.array`` takes for ``arrow_type``.

    A message in ``above``, a recursion, becomes JSON text.
    """
    if message in above:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    inside = (*above, message)
    fields = message.fields.values()
    names = safe_names([field.name for field in fields])
    return {n: _plain(f, value.get(f.name), inside) for n, f in zip(names, fields, strict=True)}


def _plain(field: ProtobufField, value: Any, above: tuple[MessageReader, ...]) -> Any:
    if value is None:
        return None
    if field.is_map:
        assert field.message is not None
        key, held = field.message.fields[1], field.message.fields[2]
        return [(_plain_key(key, name), _plain_one(held, item, above)) for name, item in value.items()]
    if field.repeated:
        return [_plain_one(field, item, above) for item in value]
    return _plain_one(field, value, above)


def _plain_key(field: ProtobufField, name: str) -> object:
    target = _TYPES.get(field.kind, pa.string())
    if target == pa.string():
        return name
    return name == "true" if target == pa.bool_() else Decimal(name) if target == UINT64 else int(name)


def _plain_one(field: ProtobufField, value: Any, above: tuple[MessageReader, ...]) -> object:
    if field.message is not None:
        return plain_message(field.message, value, above)
    if field.kind == BYTES:
        return base64.b64decode(value["bytes"])
    if field.kind == ENUM:
        return str(value)
    target = _TYPES.get(field.kind)
    if target == UINT64:
        return Decimal(value)
    return float(value) if target in (pa.float32(), pa.float64()) else value
