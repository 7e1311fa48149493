"""A connection of DuckDB whose statements are written as those of ``query`` and ``sql``.

DuckDB's own connection can't be extended, so this one holds it, and passes on all that it does not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import duckdb

from kafka_log_lake.pipelines.sql.kept import KeptViews
from kafka_log_lake.pipelines.sql.statements import duckdb_text
from kafka_log_lake.pipelines.sql.types import table_name
from kafka_log_lake.pipelines.typed.tables import FOLDERS

_OF_TOPICS = f"SELECT schema_name, view_name FROM duckdb_views() WHERE schema_name IN {FOLDERS}"
# The methods whose first argument is a statement
_TAKE_SQL = frozenset(("sql", "query", "from_query", "execute", "executemany", "extract_statements"))


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

    connection: DuckDB's own, for libraries that take no other object. kept: the views that it computes once.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, kept: KeptViews) -> None:
        self.connection = connection
        self._kept = kept

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # libraries ask with isinstance()
        return duckdb.DuckDBPyConnection

    def __getattr__(self, name: str) -> Any:
        if name in ("connection", "_kept"):  # of an object that copy makes: it has nothing yet
            raise AttributeError(name)
        attribute = getattr(self.connection, name)
        if not callable(attribute):
            return attribute
        return partial(self._run if name in _TAKE_SQL else self._call, attribute)

    def cursor(self) -> LakeConnection:
        return LakeConnection(self.connection.cursor(), self._kept)

    duplicate = cursor

    def __enter__(self) -> LakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _call(self, method: Callable[..., Any], *others: object, **how: object) -> Any:
        """Calls a method of DuckDB. One that returns its connection returns this one."""
        result = method(*others, **how)
        return self if result is self.connection else result

    def _run(self, method: Callable[..., Any], query: object, *others: object, **how: object) -> Any:
        """Calls a method of DuckDB with a translated statement; an error of it gets the advice."""
        if not isinstance(query, str):
            return self._call(method, query, *others, **how)
        self._kept.before(query)
        try:
            return self._call(method, duckdb_text(query), *others, **how)
        except duckdb.Error as error:
            more = advice(self.connection, query)
            if not more:
                raise
            raise type(error)(f"{str(error).splitlines()[0]}{more}") from None


def as_lake(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Returns the connection as a LakeConnection, which has all that DuckDB's has."""
    return cast(duckdb.DuckDBPyConnection, LakeConnection(connection, KeptViews(connection)))
