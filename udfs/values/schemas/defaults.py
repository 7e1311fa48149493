"""Adds defaults of a schema's latest version for the fields that the version of a payload does not have.

Avro: the default that the reader's field declares (Avro 1.12, "Schema Resolution"). Protobuf: what a reader
gets of a field that is not on the wire: 0, an empty text, list or map; of one with presence nothing. Fields
are the same by name, without regard to case, as columns are. Branches of a union of several types stay as
they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro.arrow_types import arrow_type, plain_value
from kafka_log_lake.udfs.values.avro.schema import AvroField, AvroType
from kafka_log_lake.udfs.values.protobuf.arrow_types import arrow_type as message_type
from kafka_log_lake.udfs.values.protobuf.arrow_types import plain_message
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas.merged_types import fields_of, list_of, map_of, safe_names
from kafka_log_lake.udfs.values.schemas.payload import canonical_bytes


class ColumnReader(Protocol):
    """A compiled reader of a column of payloads of one schema."""

    arrow_type: pa.DataType

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]: ...

    def plain(self, value: object) -> Any:
        """Returns a canonical value as ``pa.array`` takes it for ``arrow_type``."""


@dataclass
class Filling:
    """The fields, with their defaults, that are added to values of an Arrow type.

    parts: of a struct by the index of a field, of a list or map 0. added: new fields and their values.
    """

    source: pa.DataType
    parts: dict[int, Filling] = field(default_factory=dict)
    added: list[tuple[pa.Field, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.parts or self.added)

    @property
    def target(self) -> pa.DataType:
        if pa.types.is_struct(self.source):
            fields = [
                field.with_type(self.parts[at].target) if at in self.parts else field
                for at, field in enumerate(self.source)
            ]
            return pa.struct([*fields, *(field for field, _ in self.added)])
        if pa.types.is_list(self.source):
            return pa.list_(self.parts[0].target)
        return pa.map_(self.source.key_type, self.parts[0].target)

    def array(self, values: pa.Array) -> pa.Array:
        if pa.types.is_list(self.source):
            return list_of(values, self.parts[0].array(values.values))
        if pa.types.is_map(self.source):
            return map_of(values, values.keys, self.parts[0].array(values.items))
        n, target = len(values), self.target
        arrays = [
            self.parts[at].array(values.field(at)) if at in self.parts else values.field(at)
            for at in range(self.source.num_fields)
        ]
        first = pa.array(np.zeros(n, np.int64))  # repeat refuses a record without fields
        arrays += [pa.array([value], field.type).take(first) for field, value in self.added]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask)

    def plain(self, value: Any) -> Any:
        """Returns a value that ``pa.array`` takes with the added fields."""
        if value is None:
            return None
        if pa.types.is_list(self.source):
            return [self.parts[0].plain(item) for item in value]
        if pa.types.is_map(self.source):
            return [(name, self.parts[0].plain(item)) for name, item in value]
        values = {
            field.name: self.parts[at].plain(value[field.name]) if at in self.parts else value[field.name]
            for at, field in enumerate(self.source)
        }
        return {**values, **{field.name: default for field, default in self.added}}


class FilledColumns:
    """A reader of columns that adds the fields and defaults of a later version."""

    def __init__(self, columns: ColumnReader, filling: Filling) -> None:
        self._columns, self._filling = columns, filling
        self.arrow_type = filling.target

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Decodes as ``AvroColumns.decode``, and adds the fields of the later version."""
        values, failed = self._columns.decode(payloads, starts)
        return self._filling.array(values), failed

    def plain(self, value: object) -> Any:
        """Returns a canonical value as ``pa.array`` takes it for ``arrow_type``."""
        return self._filling.plain(self._columns.plain(value))


def of_avro(type_: AvroType, latest: AvroType, source: pa.DataType) -> Filling:
    """Returns the fields that the latest version adds.

    source: the Arrow type of the older version's values.
    """
    filling = Filling(source)
    type_, latest = type_.nullable or type_, latest.nullable or latest
    if type_.kind != latest.kind:
        return filling
    if type_.kind == "record" and pa.types.is_struct(source) and source.num_fields == len(type_.fields):
        by_name = {field.name.casefold(): field for field in latest.fields}
        later_fields = [_later(field, latest) or by_name.get(field.name.casefold()) for field in type_.fields]
        for at, (field, later) in enumerate(zip(type_.fields, later_fields, strict=True)):
            if later is not None and (part := of_avro(field.type, later.type, source[at].type)):
                filling.parts[at] = part
        new = (field for field in latest.fields if field not in later_fields and field.has_default)
        _add(filling, ((field.name, *_default(field)) for field in new))
    elif type_.items is not None and latest.items is not None and not pa.types.is_string(source):
        inner = source.value_type if pa.types.is_list(source) else source.item_type
        if part := of_avro(type_.items, latest.items, inner):
            filling.parts[0] = part
    return filling


def _later(avro_field: AvroField, latest: AvroType) -> AvroField | None:
    """Returns the field of the latest version that has this field's name, else its alias, or None."""
    named = next((later for later in latest.fields if later.name == avro_field.name), None)
    return named or next((later for later in latest.fields if avro_field.name in later.aliases), None)


def _add(filling: Filling, new: Iterator[tuple[str, pa.DataType, object]]) -> None:
    listed = [default for default in new if default[2] is not None]
    source_fields = list(filling.source)
    names = [*(field.name for field in source_fields), *(name for name, *_ in listed)]
    fields = fields_of(names, [*(field.type for field in source_fields), *(type_ for _, type_, _ in listed)])
    filling.added = [
        (field, value) for field, (*_, value) in zip(fields[len(source_fields) :], listed, strict=True)
    ]


def _default(avro_field: AvroField) -> tuple[pa.DataType, object]:
    """Returns Arrow type and value of a field's default; None where it is null, or no value of the type."""
    target = arrow_type(avro_field.type)
    try:
        value = plain_value(avro_field.type, _canonical_default(avro_field.type, avro_field.default))
        pa.array([value], target)  # its ArrowInvalid is a ValueError
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return target, None
    return target, value


def _canonical_default(type_: AvroType, value: object) -> Any:
    """Returns a default's JSON as canonical JSON.

    Raises a ValueError for a value that the type can't have.
    """
    if type_.kind == "union":
        return _of_branch(type_, value)
    if type_.kind == "record":
        held = _of(dict, value)
        return {
            field.name: _canonical_default(field.type, held.get(field.name, field.default))
            for field in type_.fields
        }
    if type_.items is not None:
        items = type_.items
        if type_.kind == "array":
            return [_canonical_default(items, item) for item in _of(list, value)]
        return {name: _canonical_default(items, item) for name, item in _of(dict, value).items()}
    return _LEAVES.get(type_.kind, _text)(type_, value)


def _of_branch(type_: AvroType, value: object) -> Any:
    held = [branch for branch in type_.branches if branch.kind != "null"]
    if value is None and len(held) < len(type_.branches):
        return None
    for branch in held:
        try:
            default = _canonical_default(branch, value)
        except (ValueError, TypeError, KeyError):
            continue
        return default if len(held) == 1 else {branch.branch_name: default}
    raise ValueError("no branch has the default")


def _of(kinds: type[Any] | tuple[type[Any], ...], value: object) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise ValueError(f"{value!r} is of another type")
    return value


def _whole(type_: AvroType, value: object) -> object:
    number = _of(int, value)
    return {type_.logical: number} if type_.logical else number


def _real(_: AvroType, value: object) -> object:
    return value if value in ("NaN", "Infinity", "-Infinity") else _of((int, float), value)


def _bytes(type_: AvroType, value: object) -> Any:
    """Returns a default of bytes, written as a text of code points 0 to 255, in canonical JSON."""
    held = _of(str, value).encode("iso-8859-1")
    if type_.kind == "fixed":
        return avro.reader_of(type_)(held, 0, 0)[0]
    if type_.logical == "decimal":
        return avro.decimal_text(int.from_bytes(held, "big", signed=True), type_.scale)
    return canonical_bytes(held)


def _text(type_: AvroType, value: object) -> Any:
    if type_.kind == "null":
        return None
    if type_.kind == "enum" and value not in type_.symbols:
        raise ValueError(f"{value!r} is no symbol")
    return _of(bool if type_.kind == "boolean" else str, value)


_LEAVES: dict[str, Callable[[AvroType, Any], Any]] = {
    **dict.fromkeys(("int", "long"), _whole),
    **dict.fromkeys(("float", "double"), _real),
    **dict.fromkeys(("bytes", "fixed"), _bytes),
}


def of_protobuf(
    message: MessageReader, latest: MessageReader, source: pa.DataType, above: tuple[MessageReader, ...] = ()
) -> Filling:
    """Returns the fields that the latest version of a message adds. source: the Arrow type of its values."""
    filling = Filling(source)
    if message in above or not pa.types.is_struct(source):
        return filling
    by_name = {field_.name.casefold(): field_ for field_ in latest.fields.values()}
    own_names = {field_.name.casefold() for field_ in message.fields.values()}
    for at, field_ in enumerate(message.fields.values()):
        later = by_name.get(field_.name.casefold())
        if field_.message is None or later is None or later.message is None or field_.is_map:
            continue
        inner = source[at].type.value_type if field_.repeated else source[at].type
        if part := of_protobuf(field_.message, later.message, inner, (*above, message)):
            filling.parts[at] = Filling(source[at].type, {0: part}) if field_.repeated else part
    values = plain_message(latest, latest.to_json({}), ())
    names = safe_names([field_.name for field_ in latest.fields.values()])
    types = message_type(latest)
    new = [
        (name, types.field(name).type, values[name])
        for name, field_ in zip(names, latest.fields.values(), strict=True)
        if field_.name.casefold() not in own_names
    ]
    _add(filling, iter(new))
    return filling
