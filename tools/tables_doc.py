"""Writes the columns of tables and of views, for the site, from their declarations.

A column that several tables of a page have with the same type and meaning is described once, on top of it;
the others name it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from kafka_log_lake.pipelines.views.declared import PUBLIC, SESSION_VIEWS, View
from kafka_log_lake.udfs.format.cluster_tables import CLUSTER_TABLES
from kafka_log_lake.udfs.format.index_tables import INDEX_TABLES
from kafka_log_lake.udfs.format.recovery_tables import RECOVERY_TABLES
from kafka_log_lake.udfs.format.report_tables import (
    CHECKPOINTS,
    FORMAT_SAVINGS,
    QUALITY_METRICS,
    RUNS,
    SCHEMAS,
    VALUE_ERRORS,
)
from kafka_log_lake.udfs.format.schema import RECORDS, TABLES, Column, Table

VIEWS_HEAD = """\
# Columns of views

Examples: [views](views.md), [internal topics](internal_topics.md), [applications](applications.md).
`DESCRIBE <view>` says the same, with types. Views that others are made of: [their columns](inner_columns.md).

A view with parameters is a table function too: `SELECT * FROM retention_report(retention_ms => 86400000)`.

## Columns with one meaning

They mean the same in every view that names them alone.

"""

INNER_HEAD = """\
# Columns of inner views

Other views are made of these, or decode an internal topic ([examples](internal_topics.md)).
`SHOW TABLES FROM internal` lists all; of those that are not here, the top of the file has the columns.

Columns without a meaning have [that which they have in views](view_columns.md#columns-with-one-meaning).

"""

PAGES = Path(__file__).resolve().parent.parent / "docs"
# The parts of docs/tables.md, by their headings
PARTS: dict[str, tuple[Table, ...]] = {
    "tables": TABLES,
    "other tables": (FORMAT_SAVINGS, QUALITY_METRICS, RUNS, CHECKPOINTS, SCHEMAS, VALUE_ERRORS),
    "index tables": INDEX_TABLES,
    "tables of recover": RECOVERY_TABLES,
    "tables of the cluster": CLUSTER_TABLES,
}
_BY_NAME = sorted(SESSION_VIEWS, key=lambda one: one.name)
_OF_TASKS = {name for of_task in PUBLIC.values() for name in of_task}
_MANY = 3  # tables and views that have a column: from then on it is described once
_OF_ITS_PLACE = re.compile(r"^(?:Its|Their)\b|\bthere\b")  # comments that another one explains


def _shared(of_each: Iterable[Sequence[Column]]) -> tuple[Column, ...]:
    """Returns the columns that many tables have, in the order in which they come.

    Of columns of one name with several meanings that which most of them have.
    """
    counts = Counter(column for columns in of_each for column in columns)
    common = {column.name: column for column, n in reversed(counts.most_common()) if n >= _MANY}
    general = {name: column for name, column in common.items() if not _OF_ITS_PLACE.search(column.comment)}
    return tuple(column for column in counts if general.get(column.name) == column)


SHARED = _shared(table.columns for of_part in PARTS.values() for table in of_part)
OF_VIEWS = _shared(view.columns for view in SESSION_VIEWS)


def rows(columns: Iterable[Column], shared: Sequence[Column], has_types: bool = True) -> Iterator[str]:
    """Yields the lines of a Markdown list of columns. shared: those that the top of the page describes."""
    for is_shared, group in groupby(columns, shared.__contains__):
        if is_shared:
            yield f"- {names([column.name for column in group])}"
        else:
            yield from (_row(column, has_types) for column in group)


def _row(column: Column, has_type: bool = True) -> str:
    kind = f" `{column.sql_type}`" if has_type else ""
    return f"- `{column.name}`{kind}: {escape(column.comment, quote=False)}"


def names(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def of_table(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`"
    yield ""
    yield f"{escape(table.comment, quote=False)}."
    yield ""
    parts = {"Partitioned by": table.partitioned_by, "Statistics": table.bounded}
    if said := [f"{what}: {names(columns)}." for what, columns in parts.items() if columns]:
        yield " ".join(said)
        yield ""
    yield from rows(table.columns, SHARED)
    yield ""


def of_view(view: View) -> Iterator[str]:
    yield f"### `{view.name}`"
    yield ""
    if view.parameters:
        yield from parameters(view)
        yield ""
    if view.columns == RECORDS.columns:
        yield "Columns: those of `records`."
    else:
        yield from rows(view.columns, OF_VIEWS, has_types=False)
    yield ""


def parameters(view: View) -> Iterator[str]:
    """Yields the lines of a Markdown list of the parameters of a view."""
    yield "Parameters:"
    yield ""
    for one in view.parameters:
        yield f"- `{one.name}` {one.sql_type}, {one.default}: {escape(one.comment, quote=False)}"
    yield ""
    yield "Columns:"


def shared_columns() -> str:
    """Returns the columns that many tables have."""
    head = ["## Columns with one meaning", "", "They mean the same in every table that names them alone.", ""]
    return "\n".join([*head, *map(_row, SHARED)])


def tables(part: str) -> str:
    """Returns the columns of the tables of one of PARTS."""
    return "\n".join(line for table in PARTS[part] for line in of_table(table)).rstrip("\n")


def views() -> str:
    """Returns the page ``view_columns.md`` of the site."""
    lines = [
        *VIEWS_HEAD.splitlines(),
        *(_row(column, has_type=False) for column in OF_VIEWS),
        "",
        "## Columns",
        "",
    ]
    for view in _BY_NAME:
        if view.name in _OF_TASKS:
            lines += of_view(view)
    return "\n".join(lines).rstrip("\n") + "\n"


def inner_views() -> str:
    """Returns the page ``inner_columns.md`` of the site."""
    lines = INNER_HEAD.splitlines()
    asked = set[str]().union(*map(_named_on, PAGES.glob("*.md")))
    for view in _BY_NAME:
        if view.name in asked - _OF_TASKS:
            lines += of_view(view)
    return "\n".join(lines).rstrip("\n") + "\n"


def _named_on(page: Path) -> set[str]:
    """Returns the names in code on a page for users."""
    return set(re.findall(r"`(\w+)`", page.read_text()))
