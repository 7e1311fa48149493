"""What a catalog asks of a view that stays, names that it must not give, and where each view is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import kafka_log_lake
from kafka_log_lake import connect
from kafka_log_lake.pipelines.sql.statements import LAKE, definition, view_text
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, VIEWS, View
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import TABLES


@pytest.mark.parametrize("view", [one for one in VIEWS if not one.parameters], ids=lambda view: view.name)
def test_each_column_has_a_name_of_its_own_as_spark_wants_it(view: View, lake: str) -> None:
    """DuckDB names a column without an alias as the expression is written; Spark refuses it in a catalog."""
    with connect(lake) as database:
        names = [row[0] for row in database.execute(f"DESCRIBE {view_text(view.select, {})}").fetchall()]
    assert [name for name in names if not name.isidentifier()] == []


_NAMES = {table.name for table in (*TABLES, *REPORT_TABLES)} | {view.name for view in SESSION_VIEWS}


def _tables_in(parsed: Any) -> Iterator[tuple[str, str]]:
    """Yields schema and name of each table in a statement, as DuckDB's own parser has it."""
    if isinstance(parsed, dict):
        if parsed.get("type") == "BASE_TABLE":
            yield parsed["schema_name"], parsed["table_name"]
        parsed = [*parsed.values()]
    if isinstance(parsed, list):
        for part in parsed:
            yield from _tables_in(part)


def _is_read_as_meant(view: View) -> bool:
    """Returns whether each table and view in it is the lake's, and one that ``View.reads`` finds."""
    (text,) = duckdb.execute("SELECT json_serialize_sql(?)", [definition(view)]).fetchall()[0]
    parsed = json.loads(text)
    assert not parsed["error"], (view.name, parsed)
    found = {(schema, name) for schema, name in _tables_in(parsed) if name in _NAMES}
    return found == {(LAKE, name) for name in view.reads(_NAMES)}


def test_each_table_of_a_view_follows_from_or_join() -> None:
    """Else the view would read the user's own of that name, and would be opened without the lake's."""
    assert [view.name for view in SESSION_VIEWS if not _is_read_as_meant(view)] == []
    after_a_comma = replace(
        VIEWS[0], select="SELECT b.* FROM segments s, batches b WHERE b.segment = s.segment"
    )
    assert not _is_read_as_meant(after_a_comma)


def test_no_query_of_a_with_has_the_name_of_a_table_or_view() -> None:
    """The view would count as one that needs that table, and would have no rows in a lake without it."""
    named = {
        view.name: _NAMES.intersection(re.findall(r"(?:\bWITH|\),) +(\w+) AS \(", view.select))
        for view in SESSION_VIEWS
    }
    assert {name: found for name, found in named.items() if found} == {}


def test_each_view_has_a_file_with_its_comment_on_top() -> None:
    folder = Path(kafka_log_lake.__file__).parent / "pipelines"
    files = [*(folder / "views").glob("*.sql"), *(folder / "rules").glob("*.sql")]
    assert sorted(path.stem for path in files) == sorted(view.name for view in VIEWS)
    assert all(view.comment and view.select.startswith(("SELECT", "WITH")) for view in VIEWS)
