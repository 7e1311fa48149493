"""Rows of Spark as Arrow record batches of one schema: every column nullable, text that is UTF-8."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

# A surrogate in three bytes is one error to Java, three to Python
_SURROGATE, _REPLACEMENT = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?"), "\ufffd".encode()


def arrow_type(of: pa.DataType, text: pa.DataType | None = None) -> pa.DataType:
    """A type of Spark with the names and nulls that Parquet's nested types have by default.

    text: a type that takes the place of strings.
    """
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", arrow_type(of.value_type, text)))
    if pa.types.is_map(of):
        return pa.map_(arrow_type(of.key_type, text), arrow_type(of.item_type, text))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(one.name, arrow_type(one.type, text)) for one in of])
    return text if text is not None and pa.types.is_string(of) else of


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the names and types of a schema from ``arrow_type``."""
    columns = [_converted(column, of) for column, of in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(column: pa.Array, of: pa.DataType) -> pa.Array:
    if pa.types.is_null(of):
        return pa.nulls(len(column))
    try:
        converted = column.cast(of)
        converted.validate(full=True)
        return converted
    except pa.ArrowInvalid:
        # Spark keeps bytes that are cast to a string as they are
        values = column.cast(arrow_type(of, pa.binary())).to_pylist()
        return pa.array([_with_text(value, of) for value in values], of)


def _with_text(value: Any, of: pa.DataType) -> Any:
    """A value with bytes in place of strings, which become text."""
    if value is None:
        return None
    if pa.types.is_string(of):
        return _SURROGATE.sub(_REPLACEMENT, value).decode(errors="replace")
    if pa.types.is_list(of):
        return [_with_text(one, of.value_type) for one in value]
    if pa.types.is_map(of):
        return [(_with_text(key, of.key_type), _with_text(item, of.item_type)) for key, item in value]
    if pa.types.is_struct(of):
        return {one.name: _with_text(value[one.name], one.type) for one in of}
    return value
