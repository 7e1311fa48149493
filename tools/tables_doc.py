"""Writes the page of tables from their declarations: python -m tools.tables_doc

The site has pages of the columns of views too, which ``tools.site`` makes. A column that several tables of a
page have with the same type and meaning is described once, on top of it; the others name it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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

HEAD = """\
<!-- Made by python -m tools.tables_doc from udfs/format/schema.py -->

# Tables

`DESCRIBE records` in `query` or `sql` says the same of a table, and of a view.

Each table is a Delta table at `<lake>/<name>`, reader version 1 and writer version 2, so that every Delta
reader can open it. Tables and columns have the comments below as their own comments. Data files lie in Hive
folders.

- A log consists of *record batches*: batches of magic 2, or messages of magic 0 or 1, plain or wrappers of
  compressed messages.
- `segment` is the file's canonical URI: absolute, `file:///...` for local files, without percent-encoding.
  `segment` and `position` identify a batch.
- The first eight columns of `records` are those of Spark's Kafka source with `includeHeaders`, same names
  and types: a query written for that source runs on them.
- `batches.status`: `ok`; `suspect`, decoded and kept although its header contradicts its content;
  `corrupt`, a checksum is wrong; `invalid`, the checksum is right, but the content is wrong; `unsupported`,
  Kafka does not have the codec for this magic. Of the last three no record is kept; their bytes are in
  `quarantine`.
- A filter on a column with statistics, named below, skips data files. A filter `key = ...` skips parts of
  large files by their Bloom filters.
- [What a reader sees](operations.md#what-a-reader-sees): which versions of several tables belong together.

## Columns with one meaning

These have the same meaning in every table that names them without one.

"""

TABLES_HEAD = """\
## Tables
"""

INDEX_HEAD = """\
## Index tables

Of `decode --with-indexes`; each is there once it has rows. Rows of a partition folder are replaced as a whole
where its files have changed. The view `index_report` compares them with the batches.
"""

RECOVERY_HEAD = """\
## Tables of recover

Of `recover` and of `decode` with named sources ([recovery.md](recovery.md)); each run writes them as a whole.
"""

CLUSTER_HEAD = """\
## Tables of the cluster

Of `recover --metadata --lake` ([recovery.md](recovery.md#controllers)): the state of the cluster by the
metadata log of its controllers. Each run writes them as a whole.
"""

OTHERS_HEAD = """\
## Other tables

Each is there once it has rows: of the [format report](formats_and_cost.md), the [quality report](quality.md),
runs, [checkpoint files](operations.md#checkpoint-files) and [typed values](typed_values.md).
"""

VIEWS_HEAD = """\
# Columns of views

Examples: [views](views.md), [internal topics](internal_topics.md), [applications](applications.md).
`DESCRIBE <view>` says the same, with types. Views that others are made of: [their columns](inner_columns.md).

A view with parameters is a table function too: `SELECT * FROM retention_report(retention_ms => 86400000)`.

## Columns with one meaning

These have the same meaning in every view that names them without one.

"""

INNER_HEAD = """\
# Columns of inner views

Other views are made of these, or decode an internal topic ([examples](internal_topics.md)).
`SHOW TABLES FROM internal` lists all; of those that are not here, the top of the file has the columns.

Columns without a meaning have [that which they have in views](view_columns.md#columns-with-one-meaning).

"""

PAGES = Path(__file__).resolve().parent.parent / "docs"
_PARTS = (
    (TABLES_HEAD, TABLES),
    (OTHERS_HEAD, (FORMAT_SAVINGS, QUALITY_METRICS, RUNS, CHECKPOINTS, SCHEMAS, VALUE_ERRORS)),
    (INDEX_HEAD, INDEX_TABLES),
    (RECOVERY_HEAD, RECOVERY_TABLES),
    (CLUSTER_HEAD, CLUSTER_TABLES),
)
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


SHARED = _shared(table.columns for _, tables_of_part in _PARTS for table in tables_of_part)
OF_VIEWS = _shared(view.columns for view in SESSION_VIEWS)


def rows(columns: Iterable[Column], shared: Sequence[Column], has_types: bool = True) -> Iterator[str]:
    """Yields the lines of a Markdown list of columns. shared: those that the top of the page describes."""
    for is_shared, group in groupby(columns, shared.__contains__):
        if is_shared:
            yield f"- {names([column.name for column in group])}"
        else:
            yield from (_row(column, has_types) for column in group)


def _row(column: Column, has_type: bool = True) -> str:
    kind = f" {column.sql_type}" if has_type else ""
    return f"- `{column.name}`{kind}: {column.comment}"


def names(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def of_table(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`"
    yield ""
    yield f"{table.comment}."
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
        yield f"- `{one.name}` {one.sql_type}, {one.default}: {one.comment}"
    yield ""
    yield "Columns:"


def tables() -> str:
    """Returns the whole text of ``docs/tables.md``."""
    lines = [*HEAD.splitlines(), *map(_row, SHARED), ""]
    for head, of_part in _PARTS:
        lines += [*head.splitlines(), ""]
        for table in of_part:
            lines += of_table(table)
    return "\n".join(lines).rstrip("\n") + "\n"


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
    """Returns the names in code on a page for users; none of the page that is made here."""
    return set() if page.name == "tables.md" else set(re.findall(r"`(\w+)`", page.read_text()))


def main() -> None:
    (PAGES / "tables.md").write_text(tables())


if __name__ == "__main__":
    main()
