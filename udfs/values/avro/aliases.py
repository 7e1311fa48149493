"""Decodes Avro payloads into columns that have the names of a later version, which renamed fields.

The later version says it by an alias (Avro 1.12, "Aliases"). Values are decoded by their own version, and get
the other names then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.values.avro.columns import AvroColumns
from kafka_log_lake.udfs.values.avro.schema import AvroType
from kafka_log_lake.udfs.values.schemas.merged_types import fields_of, list_of, map_of


class RenamedColumns:
    """A decoder of the payloads of one schema into columns with the names of its latest version."""

    def __init__(self, type_: AvroType, latest: AvroType) -> None:
        self._columns = AvroColumns(type_)
        self.arrow_type = _renamed(type_, latest, self._columns.arrow_type)

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Decodes payloads as ``AvroColumns.decode`` does, with the fields of the result renamed."""
        values, failed = self._columns.decode(payloads, starts)
        return _with_names(values, self.arrow_type), failed

    def plain(self, value: object) -> Any:
        """Converts canonical JSON to the Python value that ``pa.array`` takes for ``arrow_type``."""
        return _relabelled(self._columns.plain(value), self._columns.arrow_type, self.arrow_type)


def _renamed(type_: AvroType, latest: AvroType, arrow: pa.DataType) -> pa.DataType:
    """Returns an Arrow type with the fields that the latest version renamed under their later names.

    arrow: the Arrow type of ``type_``; it is returned as it is where the latest version has another kind.
    """
    type_, latest = type_.nullable or type_, latest.nullable or latest
    if type_.kind != latest.kind:
        return arrow
    if type_.kind == "record" and pa.types.is_struct(arrow):
        names_before = {field.name for field in type_.fields}
        by_name = {field.name: field for field in latest.fields}
        by_alias = {
            alias: field
            for field in latest.fields
            if field.name not in names_before
            for alias in field.aliases
            if alias in names_before
        }
        names, types = [], []
        for field, arrow_field in zip(type_.fields, arrow, strict=True):
            later = by_name.get(field.name) or by_alias.get(field.name)
            names.append(field.name if later is None else later.name)
            types.append(
                arrow_field.type if later is None else _renamed(field.type, later.type, arrow_field.type)
            )
        return pa.struct(fields_of(names, types))
    if type_.items is not None and latest.items is not None:
        if pa.types.is_list(arrow):
            return pa.list_(_renamed(type_.items, latest.items, arrow.value_type))
        if pa.types.is_map(arrow):
            return pa.map_(arrow.key_type, _renamed(type_.items, latest.items, arrow.item_type))
    return arrow


def _with_names(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the same array as a type that differs in names only.

    (``view`` loses the length of arrays of nulls.)
    """
    if array.type.equals(target):
        return array
    if pa.types.is_struct(target):
        parts = [_with_names(array.field(at), field.type) for at, field in enumerate(target)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target):
        return list_of(array, _with_names(array.values, target.value_type))
    return map_of(array, array.keys, _with_names(array.items, target.item_type))


def _relabelled(value: Any, arrow: pa.DataType, target: pa.DataType) -> object:
    """Converts a Python value for one Arrow type to one for a type that differs in names only."""
    if value is None or arrow.equals(target):
        return value
    if pa.types.is_struct(arrow):
        pairs = zip(arrow, target, strict=True)
        return {new.name: _relabelled(value[old.name], old.type, new.type) for old, new in pairs}
    if pa.types.is_list(arrow):
        return [_relabelled(item, arrow.value_type, target.value_type) for item in value]
    return [(name, _relabelled(item, arrow.item_type, target.item_type)) for name, item in value]
