"""Casts of Spark SQL in ANSI mode, in DuckDB."""

from __future__ import annotations

import datetime
import re

import pyarrow as pa

from pipelines.engine import types as t
from pipelines.engine.scope import Value
from pipelines.sql.errors import Unsupported

_WHOLE = r"^[ \t\n\r]*[+-]?[0-9]+[ \t\n\r]*$"


def cast(value: Value, to: pa.DataType) -> Value:
    """``CAST(value AS to)``. Raises Unsupported for a pair that is not known to give Spark's value."""
    if value.type == to:
        return value
    if value.type == t.VOID:
        return Value(f"CAST(NULL AS {t.duckdb_type(to)})", to)
    sql = _sql(value, to)
    if sql is None:
        raise Unsupported(f"a cast from {value.type} to {to}")
    raw = value.sql if (value.type, to) == (t.BINARY, t.STRING) else None
    return Value(sql, to, raw=raw)


def _sql(value: Value, to: pa.DataType) -> str | None:
    of, sql, plain = value.type, value.sql, f"CAST({value.sql} AS {t.duckdb_type(to)})"
    if of in t.INTEGERS:
        return plain if to in (*t.INTEGERS, t.DOUBLE, t.STRING) else None
    if (of, to) == (t.BINARY, t.STRING):
        return f"decode({sql})"
    if (of, to) == (t.STRING, t.BINARY):
        return value.raw or f"encode({sql})"
    if of == t.STRING and to in t.INTEGERS:
        whole = f"regexp_matches({sql}, '{_WHOLE}')"
        failed = "error('not a whole number')"
        number = f"CAST(trim({sql}, ' \t\n\r') AS {t.duckdb_type(to)})"
        return f"CASE WHEN NOT {whole} THEN {failed} ELSE {number} END"
    if of == t.DOUBLE and to in t.INTEGERS:
        return f"CAST(trunc({sql}) AS {t.duckdb_type(to)})"
    if of == t.BOOLEAN and to in (*t.INTEGERS, t.STRING):
        return plain
    if of == t.TIMESTAMP and to == t.BIGINT:
        return f"floor_div(epoch_us({sql}), 1000000)"
    if (of, to) in (
        (t.TIMESTAMP, t.STRING),
        (t.TIMESTAMP, t.DATE),
        (t.DATE, t.STRING),
        (t.DATE, t.TIMESTAMP),
    ):
        return plain
    return None


def timestamp_literal(value: Value) -> Value:
    """A literal such as '2024-05-01 10:00:00' as the timestamp that Spark makes of it."""
    text = value.literal
    pattern = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?"
    if not isinstance(text, str) or re.fullmatch(pattern, text, re.ASCII) is None:
        raise Unsupported("a timestamp in this form")
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Unsupported("a timestamp that does not exist") from None
    return Value(f"CAST('{moment.isoformat(' ')}' AS TIMESTAMP)", t.TIMESTAMP, is_literal=True)
