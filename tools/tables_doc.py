"""Writes ``docs/tables.md`` from the declarations in ``udfs.format.schema`` and ``pipelines.views.declared``.

python -m tools.tables_doc > docs/tables.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from kafka_log_lake.pipelines.views.declared import VIEWS, View
from kafka_log_lake.udfs.format.cluster_tables import CLUSTER_TABLES
from kafka_log_lake.udfs.format.index_tables import INDEX_TABLES
from kafka_log_lake.udfs.format.recovery_tables import RECOVERY_TABLES
from kafka_log_lake.udfs.format.schema import RECORDS, TABLES, Column, Table

HEAD = """\
# Tables and views

`python -m tools.tables_doc > docs/tables.md` makes this page from `udfs/format/schema.py` and
`pipelines/views`: change those, not this page.

Each table is a Delta table at `<lake>/<name>`, reader version 1 and writer version 2: no
deletion vectors and no column mapping, so that every Delta reader can open it. The tables and
columns have the comments below as their own comments.

- A log consists of *record batches*: batches of magic 2, or messages of magic 0 or 1, plain or
  wrappers of compressed messages.
- `segment` is the file's canonical URI: absolute, `file:///...` for local files, without
  percent-encoding. `partition_dir` is its folder. `position` and `batch_position` are the byte at
  which a batch starts in its segment: `segment` and `position` identify a batch.
- Every version of every table is right when it is read plainly: no row is doubled, superseded or
  unfinished. Data files lie in Hive folders (`topic=a/partition=0/magic=2`), named as Spark names them.
  [operations.md](operations.md#what-a-reader-sees): which versions of several tables belong together.
- The first eight columns of `records` are those of Spark's Kafka source with
  `includeHeaders`, same names and types: a query written for that source runs on them.
- `batches.status`: `ok`; `suspect`, decoded and kept although its header contradicts its
  content; `corrupt`, the checksum of the batch or of a message in it is wrong; `invalid`, the
  checksum is right, but the content is wrong; `unsupported`, Kafka does not have the codec for this
  magic. No record of the last three is kept; their bytes are in `quarantine`.
- A filter on a column with statistics, named below, skips data files; inside a large file it skips pages.
  A filter `key = ...` skips parts of large files by their Bloom filters.

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

VIEWS_HEAD = """\
## Views

Temporary in `pipelines.query`, in `make sql` and after `kafka_log_lake.register(spark, lake)`;
permanent next to the registered tables with `--catalog-schema`. Each is one file in `pipelines/views`.
[views.md](views.md) has an example of each, with its result.

In `pipelines.query`, with `connect` and after `register` all views give one consistent answer: that of the
tables of one published state. What a run is committing, or left behind when it was killed, is in none of
them. Permanent views read the newest version of each table.

The views over internal topics, in a session alone, are in [internal_topics.md](internal_topics.md).
The tables of the reports are in [quality.md](quality.md) and [formats_and_cost.md](formats_and_cost.md).

A view with parameters is a table function of the same name too:
`SELECT * FROM retention_report(retention_ms => 86400000)`.
"""


def rows(columns: Iterable[Column]) -> Iterator[str]:
    """Yields the lines of a Markdown table of columns."""
    yield "| column | type | |"
    yield "|---|---|---|"
    for column in columns:
        yield f"| `{column.name}` | `{column.sql_type}` | {column.comment} |"


def names(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns) or "none"


def of_table(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`"
    yield ""
    yield f"{table.comment}."
    yield ""
    yield f"Partitioned by: {names(table.partitioned_by)}. Statistics: {names(table.bounded)}."
    yield ""
    yield from rows(table.columns)
    yield ""


def of_view(view: View) -> Iterator[str]:
    yield f"### `{view.name}`"
    yield ""
    yield f"{view.comment}."
    yield ""
    if view.parameters:
        yield from parameters(view)
        yield ""
    if view.columns == RECORDS.columns:
        yield "Columns: those of `records`."
    else:
        yield from rows(view.columns)
    yield ""


def parameters(view: View) -> Iterator[str]:
    """Yields the lines of a Markdown table of the parameters of a view."""
    yield "| parameter | type | default | |"
    yield "|---|---|---|---|"
    for one in view.parameters:
        yield f"| `{one.name}` | `{one.sql_type}` | {one.default} | {one.comment} |"


def document() -> str:
    """Returns the whole text of ``docs/tables.md``."""
    lines = [*HEAD.splitlines(), ""]
    for table in TABLES:
        lines += of_table(table)
    lines += [*INDEX_HEAD.splitlines(), ""]
    for table in INDEX_TABLES:
        lines += of_table(table)
    lines += [*RECOVERY_HEAD.splitlines(), ""]
    for table in RECOVERY_TABLES:
        lines += of_table(table)
    lines += [*CLUSTER_HEAD.splitlines(), ""]
    for table in CLUSTER_TABLES:
        lines += of_table(table)
    lines += [*VIEWS_HEAD.splitlines(), ""]
    for view in VIEWS:
        lines += of_view(view)
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
