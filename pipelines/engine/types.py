"""Types of Spark SQL as Arrow types, with their names in DuckDB.

Every expression of a translated statement has one of these types. Timestamps are microseconds UTC: DuckDB's
plain TIMESTAMP, as a session of ``query`` has no other time zone.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp

from pipelines.sql.errors import Unsupported

VOID, BOOLEAN, STRING, BINARY, DATE = pa.null(), pa.bool_(), pa.string(), pa.binary(), pa.date32()
TINYINT, SMALLINT, INT, BIGINT, DOUBLE = pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()
TIMESTAMP = pa.timestamp("us", "UTC")
INTEGERS = (TINYINT, SMALLINT, INT, BIGINT)  # from narrow to wide

_DUCKDB = {
    TINYINT: "TINYINT",
    SMALLINT: "SMALLINT",
    INT: "INTEGER",
    BIGINT: "BIGINT",
    DOUBLE: "DOUBLE",
    BOOLEAN: "BOOLEAN",
    STRING: "VARCHAR",
    BINARY: "BLOB",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    VOID: "INTEGER",  # the type that DuckDB gives a NULL itself
}
_PARSED = {
    exp.DataType.Type.TINYINT: TINYINT,
    exp.DataType.Type.SMALLINT: SMALLINT,
    exp.DataType.Type.INT: INT,
    exp.DataType.Type.BIGINT: BIGINT,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.BOOLEAN: BOOLEAN,
    exp.DataType.Type.TEXT: STRING,
    exp.DataType.Type.BINARY: BINARY,
    exp.DataType.Type.DATE: DATE,
    exp.DataType.Type.TIMESTAMP: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMP,
}


def is_number(of: pa.DataType) -> bool:
    """Whether values of a type are numbers, decimals too."""
    return pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of)


def duckdb_type(of: pa.DataType) -> str:
    """The type's name in DuckDB."""
    if pa.types.is_list(of):
        return f"{duckdb_type(of.value_type)}[]"
    if pa.types.is_map(of):
        return f"MAP({duckdb_type(of.key_type)}, {duckdb_type(of.item_type)})"
    if pa.types.is_struct(of):
        return "STRUCT(" + ", ".join(f'"{field.name}" {duckdb_type(field.type)}' for field in of) + ")"
    return _DUCKDB[of]


def parsed_type(of: exp.DataType) -> pa.DataType:
    """The type that a CAST names. Raises Unsupported for a type that no test compares."""
    found = _PARSED.get(of.this)
    if found is None or of.expressions:
        raise Unsupported(f"the type {of.sql('spark')}")
    return found


def declared_type(ddl: str) -> pa.DataType:
    """The type that a table, view or function declares, in Spark's DDL."""
    return _nested(exp.DataType.build(ddl, dialect="spark"))


def _nested(of: exp.DataType) -> pa.DataType:
    inner = of.expressions
    if of.this == exp.DataType.Type.ARRAY:
        return pa.list_(_nested(inner[0]))
    if of.this == exp.DataType.Type.MAP:
        return pa.map_(*map(_nested, inner))
    if of.this == exp.DataType.Type.STRUCT:
        return pa.struct([pa.field(one.name, _nested(one.args["kind"])) for one in inner])
    return parsed_type(of)


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """The type to which Spark widens several values. Raises Unsupported where it would convert more."""
    different = set(types) - {VOID}
    if not different:
        return VOID
    if len(different) == 1:
        return different.pop()
    if different <= {*INTEGERS, DOUBLE}:
        return DOUBLE if DOUBLE in different else max(different, key=INTEGERS.index)
    names = " and ".join(sorted(map(str, different)))
    raise Unsupported(f"values of types {names} in one place")
