"""Decodes columns of payloads as canonical JSON texts, column by column.

The texts are those of the exact readers (``avro``, ``protobuf``). Instants, decimals and what else loses
something as an Arrow type are decoded as their numbers and bytes here, and named by their schema.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro.columns import AvroColumns
from kafka_log_lake.udfs.values.avro.schema import AvroField, AvroType
from kafka_log_lake.udfs.values.json.structs import text
from kafka_log_lake.udfs.values.protobuf.columns import ProtobufColumns
from kafka_log_lake.udfs.values.protobuf.payload import BYTES, ENUM, MessageReader, ProtobufField
from kafka_log_lake.udfs.values.schemas.defaults import ColumnReader
from kafka_log_lake.udfs.values.schemas.payload import PayloadError, canonical_float
from kafka_log_lake.udfs.values.schemas.payload_arrays import offsets_of

_ESCAPED = r'["\\\x00-\x1f]'
_MOST_BYTES = 1 << 24  # of payloads whose texts are made at a time
_KEPT = ("uuid", "duration")  # logical types whose columns keep all


class JsonTextDecoder:
    """A decoder of the payloads of one schema into JSON texts."""

    arrow_type = pa.string()

    def __init__(self, columns: ColumnReader, texts: Callable[[pa.Array], pa.Array]) -> None:
        """Takes the decoder of values and the function that turns their array, without nulls, into texts."""
        self._columns, self._texts = columns, texts

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Decodes payloads as ``AvroColumns.decode`` does, into strings of canonical JSON."""
        sizes = pc.fill_null(pc.binary_length(payloads), 0).to_numpy(zero_copy_only=False)
        part = np.cumsum(sizes, dtype=np.int64) // _MOST_BYTES
        ends = [*(np.flatnonzero(np.diff(part)) + 1).tolist(), len(payloads)]
        decoded, begin = [], 0
        for end in ends:
            decoded.append(self._decode(payloads.slice(begin, end - begin), starts[begin:end]))
            begin = end
        return pa.concat_arrays([texts for texts, _ in decoded]), np.concatenate(
            [failed for _, failed in decoded]
        )

    def _decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        values, failed = self._columns.decode(payloads, starts)
        is_held = pa.array(~failed & payloads.is_valid().to_numpy(zero_copy_only=False))
        try:
            texts = self._texts(values.filter(is_held))
        except _RepeatedKeys:
            return pa.nulls(len(payloads), pa.string()), np.ones(len(payloads), np.bool_)
        places = np.cumsum(is_held.to_numpy(zero_copy_only=False)) - 1
        return texts.take(pa.array(places, mask=pc.invert(is_held).to_numpy(zero_copy_only=False))), failed

    def plain(self, value: object) -> str:
        """Returns the text of a value of canonical JSON."""
        return text(value)


class _RepeatedKeys(Exception):
    """Says that a map has a key twice: only the exact reader knows which value counts."""


def of_avro(type_: AvroType) -> JsonTextDecoder:
    """Returns the decoder of a schema's payloads.

    A PayloadError for a type whose payloads are read one by one.
    """
    if type_.is_recursive() or type_.kind == "bytes":
        raise PayloadError("unreadable_schema", "a recursive type has no columns")
    return JsonTextDecoder(AvroColumns(_bare(type_)), lambda values: _avro(type_, values))


def of_message(message: MessageReader) -> JsonTextDecoder:
    """Returns a decoder of payloads of a message of Protobuf."""
    return JsonTextDecoder(ProtobufColumns(message), lambda values: _message(message, values, ()))


def _bare(type_: AvroType) -> AvroType:
    """Returns the same type without the logical types whose columns do not keep all.

    It must not be recursive.
    """
    return replace(
        type_,
        logical=type_.logical if type_.logical in _KEPT else "",
        items=None if type_.items is None else _bare(type_.items),
        branches=[_bare(branch) for branch in type_.branches],
        fields=[AvroField(field.name, _bare(field.type)) for field in type_.fields],
    )


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "", null_handling="skip")


def _made(values: Iterable[str]) -> pa.Array:
    return pa.array(values, pa.string())


def _strings(values: pa.Array) -> pa.Array:
    """Returns texts as JSON strings, with quotes and escapes."""
    quoted = _joined('"', values, '"')
    escaped = pc.fill_null(pc.match_substring_regex(values, _ESCAPED), False)
    if not pc.any(escaped).as_py():
        return quoted
    return pc.replace_with_mask(quoted, escaped, _made(map(text, values.filter(escaped).to_pylist())))


def _reals(values: pa.Array) -> pa.Array:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    texts = list(map(repr, numbers.tolist()))
    for at in np.flatnonzero(~np.isfinite(numbers)).tolist():
        texts[at] = f'"{canonical_float(float(numbers[at]))}"'
    return _made(texts)


def _bytes(values: pa.Array) -> pa.Array:
    encoded = (base64.b64encode(value or b"").decode() for value in values.to_pylist())
    return _joined('{"bytes":"', _made(encoded), '"}')


def _whole(values: pa.Array) -> pa.Array:
    return pc.fill_null(values, False if pa.types.is_boolean(values.type) else 0).cast(pa.string())


def _lists(values: pa.ListArray, items: pa.Array, begin: str, end: str) -> pa.Array:
    """Joins the items of each list by commas, between brackets.

    items: texts of ``values.values``, from its offset on.
    """
    offsets = offsets_of(values)
    lists = pa.ListArray.from_arrays(pa.array(offsets), items)
    return _joined(begin, pc.binary_join(lists, ","), end)


def _maps(values: pa.MapArray, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Returns each map as text of a JSON object; raises _RepeatedKeys for a key that stands twice in one.

    keys, items: texts of ``values.keys`` and ``values.items``.
    """
    offsets = offsets_of(values)
    held = keys.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))
    codes = held.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    of = np.repeat(np.arange(len(values), dtype=np.int64), np.diff(offsets))
    if len(np.unique(of * (len(held) + 1) + codes)) < len(held):
        raise _RepeatedKeys
    return _lists(values, _joined(keys, ":", items), "{", "}")


def _or_null(values: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), texts, "null") if values.null_count else texts


def _avro(type_: AvroType, values: pa.Array) -> pa.Array:
    """Returns the texts of the values of ``_bare(type_)``.

    A null gets any text, unless the type has null itself.
    """
    if type_.nullable is not None:
        return _or_null(values, _avro(type_.nullable, values))
    if type_.kind == "union":
        return _union(type_, values)
    if type_.kind == "record":
        parts: list[Any] = []
        for at, field in enumerate(type_.fields):
            parts += [
                ("," if at else "{") + json.dumps(field.name) + ":",
                _avro(field.type, values.field(at)),
            ]
        return _joined(*parts, "}") if parts else pa.repeat("{}", len(values))
    if type_.kind == "array":
        assert type_.items is not None
        return _lists(values, _avro(type_.items, values.values), "[", "]")
    if type_.kind == "map":
        assert type_.items is not None
        return _maps(values, _strings(values.keys), _avro(type_.items, values.items))
    return _avro_leaf(type_, values)


def _union(type_: AvroType, values: pa.Array) -> pa.Array:
    held = [branch for branch in type_.branches if branch.kind != "null"]
    chosen = pa.repeat("null", len(values))
    for at, branch in enumerate(held):
        inner = values.field(at)
        texts = _avro(branch, inner)
        if len(held) > 1:
            texts = _joined("{" + json.dumps(branch.branch_name) + ":", texts, "}")
        chosen = pc.if_else(inner.is_valid(), texts, chosen)
    return chosen


def _avro_leaf(type_: AvroType, values: pa.Array) -> pa.Array:
    if type_.kind == "null":
        return pa.repeat("null", len(values))
    if type_.logical == "decimal":
        numbers = (int.from_bytes(value or b"", "big", signed=True) for value in values.to_pylist())
        return _made(f'"{avro.decimal_text(number, type_.scale)}"' for number in numbers)
    if type_.logical == "duration":
        parts = [_whole(values.field(at)) for at in range(3)]
        return _joined('{"duration":[', parts[0], ",", parts[1], ",", parts[2], "]}")
    if type_.kind in ("float", "double"):
        return _reals(values)
    if type_.kind in ("boolean", "int", "long"):
        texts = _whole(values)
        return _joined("{" + json.dumps(type_.logical) + ":", texts, "}") if type_.logical else texts
    return _bytes(values) if pa.types.is_binary(values.type) else _strings(values)


def _message(message: MessageReader, values: pa.Array, above: tuple[MessageReader, ...]) -> pa.Array:
    """Returns the texts of messages, without the fields that have presence and are not set.

    A null message gets any text.
    """
    if message in above:  # text of JSON already
        return values
    parts = []
    for at, field in enumerate(message.fields.values()):
        inner = values.field(at)
        texts = _joined("," + json.dumps(field.name) + ":", _field(field, inner, (*above, message)))
        parts.append(pc.if_else(inner.is_valid(), texts, "") if inner.null_count else texts)
    if not parts:
        return pa.repeat("{}", len(values))
    return _joined("{", pc.utf8_slice_codeunits(_joined(*parts), 1), "}")


def _field(field: ProtobufField, values: pa.Array, above: tuple[MessageReader, ...]) -> pa.Array:
    if field.is_map:
        assert field.message is not None
        value = field.message.fields[2]
        keys = values.keys if pa.types.is_string(values.keys.type) else values.keys.cast(pa.string())
        return _maps(values, _strings(keys), _one(value, values.items, above))
    if field.repeated:
        return _lists(values, _one(field, values.values, above), "[", "]")
    return _one(field, values, above)


def _one(field: ProtobufField, values: pa.Array, above: tuple[MessageReader, ...]) -> pa.Array:
    if field.message is not None:
        return _message(field.message, values, above)
    if field.kind == BYTES:
        return _bytes(values)
    if field.kind == ENUM:  # a number that has no name is a text of digits in the column
        texts = _strings(values)
        is_number = pc.fill_null(pc.match_substring_regex(values, "^-?[0-9]"), False)
        return pc.if_else(is_number, values, texts)
    if pa.types.is_floating(values.type):
        return _reals(values)
    return _strings(values) if pa.types.is_string(values.type) else _whole(values)
