"""Lists the tables and views of a lake for users, by task: what SHOW TABLES gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from kafka_log_lake.pipelines.sql.statements import LISTED
from kafka_log_lake.pipelines.sql.types import table_name
from kafka_log_lake.pipelines.typed.tables import TypedTable
from kafka_log_lake.pipelines.views.declared import PUBLIC, SESSION_VIEWS
from kafka_log_lake.udfs.format.schema import Table

_OF_FOLDERS = {
    "typed": "Keys and values by their schemas",
    "latest": "The last value of each key",
    "cdc": "The current rows of a captured table",
    "history": "All versions of the rows of a captured table",
}


def list_tables(
    database: duckdb.DuckDBPyConnection, tables: Iterable[Table], typed: Iterable[TypedTable]
) -> None:
    """Creates LISTED. tables: those of the lake. typed: its tables of topics."""
    rows = pa.table(
        dict(zip(("group", "name", "about"), zip(*_rows(tables, typed), strict=True), strict=True))
    )
    database.register("rows", rows)
    database.execute(f"CREATE TABLE {LISTED} AS FROM rows")
    database.unregister("rows")


def _rows(tables: Iterable[Table], typed: Iterable[TypedTable]) -> Iterator[tuple[str, str, str]]:
    views = {view.name: view for view in SESSION_VIEWS}
    for group, names in PUBLIC.items():
        for name in names:
            needs = "" if views[name].has_defaults else "(...)"
            yield group, f"{name}{needs}", _first_words(views[name].comment)
    for typed_table in typed:
        yield (
            typed_table.folder,
            table_name(typed_table.folder, typed_table.name),
            f"{_OF_FOLDERS[typed_table.folder]}: {typed_table.topic}",
        )
    for table in tables:
        yield "tables", table.name, _first_words(table.comment)
    yield "internal", "internal.*", "Views that the others are made of: SHOW TABLES FROM internal"


def _first_words(comment: str) -> str:
    """Returns the beginning of a comment, up to the end of its first sentence, or to what explains it."""
    ends = (place for sign in (". ", ": ", "; ", " (") if (place := comment.find(sign)) > 0)
    return comment[: min(ends, default=len(comment))]
