"""Writes ``docs/tables.md`` from the declarations in ``udfs.format.schema`` and ``pipelines.views.register``.

python -m tools.tables_doc > docs/tables.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from pipelines.lake.create import STATISTICS
from pipelines.views.register import COMMITTED_RECORDS, CRC_REPORT, LATEST_BY_KEY, VIEWS
from udfs.format.schema import RECORDS, TABLES, Column, Table

HEAD = """\
# Tables and views

Made by `python -m tools.tables_doc > docs/tables.md` from `udfs/format/schema.py` and
`pipelines/views`: change those, not this file.

Each table is a Delta table at `<lake>/<name>`, reader version 1 and writer version 2: no
deletion vectors and no column mapping, so that every Delta reader can open it. The comments
below stand on the tables and columns themselves too.

- An *entry* is what a log consists of: a record batch (magic 2), or a plain message or a
  wrapper of compressed messages (magic 0 and 1).
- `segment` is the file's canonical URI: absolute, `file:///...` for local files, without
  percent-encoding. `log_dir` is its folder. `position` and `batch_position` are the byte where
  an entry starts in the segment: `segment` and `position` name an entry.
- The first eight columns of `records` are those of Spark's Kafka source with
  `includeHeaders`, same names and types: a query written for it runs on them.
- `batches.status`: `ok`; `suspect`, decoded and kept although the header contradicts the
  content; `corrupt`, a checksum is wrong, of the entry or of a message in it; `invalid`, the
  checksum is right and the content is not; `unsupported`, a codec that Kafka does not have
  there. Of the last three no record is kept, and the bytes are in `quarantine`.
- Statistics are kept for the columns named below: a filter on them skips data files.

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
    COMMITTED_RECORDS.name: RECORDS.columns,
    CRC_REPORT.name: CRC_REPORT_COLUMNS,
    LATEST_BY_KEY.name: RECORDS.columns,
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
    yield f"Partitioned by: {names(table.partitioned_by)}. Statistics: {names(STATISTICS[table.name])}."
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
