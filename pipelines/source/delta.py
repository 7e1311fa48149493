"""Reads rows of Delta tables in this process, with deltalake's own SQL engine: no Spark, no Java.

pyarrow's dataset does not work here: after deltalake has rewritten a file, the bounds of its string columns
have a type that pyarrow cannot compare with strings.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from udfs.source.store import deltalake_options


def open_table(path: str) -> DeltaTable:
    """A table at its latest version, by its local path or URI."""
    return DeltaTable(path, storage_options=deltalake_options(path))


def read_rows(
    table: str | DeltaTable, schema: pa.Schema, columns: Iterable[str], where: str = ""
) -> pa.Table:
    """Columns of a Delta table, in the types of ``schema``.

    table: its path, or one that is open, at its version. where: a condition on rows in deltalake's SQL; ""
    for all rows.
    """
    names = list(columns)
    selected = ", ".join(f'"{name}"' for name in names)
    condition = f" WHERE {where}" if where else ""
    query = QueryBuilder().register("rows", open_table(table) if isinstance(table, str) else table)
    rows = pa.table(query.execute(f'SELECT {selected} FROM "rows"{condition}'))
    return rows.cast(pa.schema([schema.field(name) for name in names]))


def sql_literal(text: str) -> str:
    """A string literal of deltalake's SQL, in which only the quote is special."""
    return "'" + text.replace("'", "''") + "'"


def sql_in(column: str, texts: Iterable[str]) -> str:
    """The SQL condition that a column equals one of these strings."""
    return f'"{column}" IN ({", ".join(map(sql_literal, sorted(set(texts))))})'
