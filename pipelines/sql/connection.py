"""A connection of DuckDB whose statements are written as those of ``query`` and ``sql``.

DuckDB's own connection can't be extended, so this one holds it, and passes on all that it does not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import duckdb

from kafka_log_lake.pipelines.sql.statements import duckdb_text
from kafka_log_lake.pipelines.sql.types import table_name
from kafka_log_lake.pipelines.typed.tables import FOLDERS

_OF_TOPICS = f"SELECT schema_name, view_name FROM duckdb_views() WHERE schema_name IN {FOLDERS}"


def advice(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Returns what helps where a statement names a table with a dot or a dash without quotes; else "".

    DuckDB reads ``typed.h.avro`` as a table avro in a schema h.
    """
    for schema, name in connection.cursor().execute(_OF_TOPICS).fetchall():
        plain, right = f"{schema}.{name}", table_name(schema, name)
        if plain != right and re.search(rf'(?<!["\w]){re.escape(plain)}(?!["\w])', statement, re.IGNORECASE):
            return f"; quote it: {right}"
    return ""


class LakeConnection:
    """A connection to a lake: DuckDB's, with ``offset`` as a name, and grouped tables for SHOW TABLES.

    connection: DuckDB's own, for libraries that take no other object.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # libraries ask with isinstance()
        return duckdb.DuckDBPyConnection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def sql(self, query: Any, **how: Any) -> Any:
        return self._run(self.connection.sql, query, **how)

    def query(self, query: Any, **how: Any) -> Any:
        return self._run(self.connection.query, query, **how)

    def execute(self, query: Any, *parameters: Any, **how: Any) -> LakeConnection:
        self._run(self.connection.execute, query, *parameters, **how)
        return self

    def extract_statements(self, query: str) -> Any:
        return self._run(self.connection.extract_statements, query)

    def cursor(self) -> LakeConnection:
        return LakeConnection(self.connection.cursor())

    duplicate = cursor

    def __enter__(self) -> LakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _run(self, run: Callable[..., Any], query: Any, *others: Any, **how: Any) -> Any:
        """Calls a method of DuckDB with a translated statement; an error of it gets the advice."""
        if not isinstance(query, str):
            return run(query, *others, **how)
        try:
            return run(duckdb_text(query), *others, **how)
        except duckdb.Error as error:
            more = advice(self.connection, query)
            if not more:
                raise
            raise type(error)(f"{str(error).splitlines()[0]}{more}") from None


def as_lake(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Returns the connection as a LakeConnection, which has all that DuckDB's has."""
    return cast(duckdb.DuckDBPyConnection, LakeConnection(connection))
