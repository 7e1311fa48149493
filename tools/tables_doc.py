"""Writes ``docs/tables.md`` from the declarations in ``udfs.format.schema`` and ``pipelines.views.register``.

python -m tools.tables_doc > docs/tables.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from pipelines.views.register import VIEWS
from udfs.format.schema import RECORDS, TABLES, Column, Table

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
- `generation` says which decoding of a segment wrote a row. A row is valid only if its generation is that
  of the segment's row in `segments`; the views read no other rows. There are others while a run writes,
  and after a run that was killed, until the next job deletes them.
- The first eight columns of `records` are those of Spark's Kafka source with
  `includeHeaders`, same names and types: a query written for that source runs on them.
- `batches.status`: `ok`; `suspect`, decoded and kept although its header contradicts its
  content; `corrupt`, the checksum of the batch or of a message in it is wrong; `invalid`, the
  checksum is right, but the content is wrong; `unsupported`, Kafka does not have the codec for this
  magic. No record of the last three is kept; their bytes are in `quarantine`.
- A filter on a column with statistics, named below, skips data files.

## Tables
"""

VIEWS_HEAD = """\
## Views

Temporary in `pipelines.query`, in `make sql` and after `pipelines.register(spark, lake)`;
permanent beside the registered tables with `--catalog-schema`.
"""

CRC_REPORT_COLUMNS = (
    Column("topic", "string", "Topic"),
    Column("partition", "int", "Partition"),
    Column("magic", "tinyint", "Message format; null for damaged bytes without a row in batches"),
    Column("batches", "bigint", "Rows in batches"),
    Column("bytes", "bigint", "Their bytes on disk"),
    Column("crc_failures", "bigint", "Those whose own checksum is wrong"),
    Column("crc_failure_rate", "double", "crc_failures / batches; null without batches"),
    Column("damaged_bytes", "bigint", "Bytes in quarantine"),
)

VIEW_COLUMNS = {
    "committed_records": RECORDS.columns,
    "crc_report": CRC_REPORT_COLUMNS,
    "latest_by_key": RECORDS.columns,
}


def rows(columns: Iterable[Column]) -> Iterator[str]:
    """A Markdown table of columns."""
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


def document() -> str:
    """All of ``docs/tables.md``."""
    lines = [*HEAD.splitlines(), ""]
    for table in TABLES:
        lines += of_table(table)
    lines += [*VIEWS_HEAD.splitlines(), ""]
    for view in VIEWS:
        lines += [f"### `{view.name}`", "", f"{view.comment}.", ""]
        if VIEW_COLUMNS[view.name] is RECORDS.columns:
            lines += ["Columns: those of `records`.", ""]
        else:
            lines += [*rows(VIEW_COLUMNS[view.name]), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
