"""Rows of either engine as Arrow record batches of one schema: the types of Spark, every column nullable."""

from __future__ import annotations

import pyarrow as pa

from pipelines.engine.json_rows import as_utf_8


def arrow_type(of: pa.DataType) -> pa.DataType:
    """A type of Spark with the names and nulls that Parquet's nested types have by default."""
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", arrow_type(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(arrow_type(of.key_type), arrow_type(of.item_type))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(one.name, arrow_type(one.type)) for one in of])
    return of


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of an engine with the names and types of a schema from ``arrow_type``."""
    columns = [_converted(column, of) for column, of in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(column: pa.Array, of: pa.DataType) -> pa.Array:
    if pa.types.is_null(of):
        return pa.nulls(len(column))
    if pa.types.is_string(of) and not _is_utf_8(column):
        # Both engines keep bytes that are cast to a string as they are
        values = column.cast(pa.binary()).to_pylist()
        return pa.array([None if one is None else as_utf_8(one) for one in values], of)
    return column.cast(of)


def _is_utf_8(column: pa.Array) -> bool:
    try:
        column.cast(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
