"""Which columns a user's schema asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.command.settings import nearest
from udfs.format.schema import BATCHES, QUARANTINE, RECORDS, Column

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# What says by which run a row came into a lake: nothing without one
_OF_A_LAKE = ("run_id",)
TABLE_COLUMNS = {
    table.name: tuple(column for column in table.columns if column.name not in _OF_A_LAKE)
    for table in (RECORDS, BATCHES, QUARANTINE)
}


def ddl(table: str) -> str:
    """All columns of a table that need no lake, as Spark writes a schema."""
    return ", ".join(f"`{column.name}` {column.sql_type}" for column in TABLE_COLUMNS[table])


def requested_columns(table: str, schema: StructType) -> tuple[tuple[str, ...], pa.Schema]:
    """Names of a table's columns, and the Arrow schema of the rows: both in the order of the user's schema.

    Raises a UserError for a column that the table has not, another type, or a NOT NULL.
    """
    columns = {column.name.lower(): column for column in TABLE_COLUMNS[table]}
    if not schema.fields:
        raise UserError("the schema names no column")
    requested: list[Column] = []
    for field in schema.fields:
        column = columns.get(field.name.lower())
        if column is None:
            names = [one.name for one in columns.values()]
            hint = nearest(field.name, names) or f"; it has {', '.join(names)}"
            raise UserError(f"{table} has no column {field.name}{hint}")
        if field.dataType.simpleString() != column.sql_type:
            raise UserError(
                f"column {field.name} is {column.sql_type}, the schema says {field.dataType.simpleString()}"
            )
        if not field.nullable or not _holds_nulls(field.dataType):
            raise UserError(f"column {field.name} must be nullable in the schema: leave out NOT NULL")
        if column in requested:
            raise UserError(f"the schema names column {field.name} twice")
        requested.append(column)
    types = [(field.name, column.arrow_type) for field, column in zip(schema.fields, requested, strict=True)]
    return tuple(column.name for column in requested), pa.schema(types)


def _holds_nulls(kind: DataType) -> bool:
    """Whether the elements of an array, and their fields, may be null."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return kind.containsNull and _holds_nulls(kind.elementType)
    if isinstance(kind, StructType):
        return all(field.nullable for field in kind.fields)
    return True
