"""Runs the checks with DuckDB over the columns that they need, and keeps the values in ``quality_metrics``.

No Spark and no Java: deltalake reads the small tables of a lake (never ``records``), DuckDB computes in this
process. Only published rows count: ``logs.sql``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import resources
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.engine.delta import read_rows
from kafka_log_lake.pipelines.quality_report.check import AGGREGATES, TOPIC, Check
from kafka_log_lake.pipelines.sql.database import macros
from kafka_log_lake.pipelines.sql.statements import creations, table_creations
from kafka_log_lake.pipelines.sql.types import duckdb_type, quoted
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, needed_names, null_column
from kafka_log_lake.udfs.batches.epochs import wrong_epochs
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS, QUALITY_METRICS, VALUE_ERRORS
from kafka_log_lake.udfs.format.schema import (
    BATCHES,
    OFFSET_FINDINGS,
    QUARANTINE,
    SEGMENTS,
    TRANSACTIONS,
    Table,
)

# The tables that are read, and their columns that no check needs
_NOT_READ = {
    SEGMENTS: ("fingerprint", "content_crc32c", "topic_id", "scope", "run_id"),
    BATCHES: (
        *("declared_count", "attributes", "max_timestamp", "coordinator_epoch", "key_bytes", "value_bytes"),
    ),
    QUARANTINE: ("content", "run_id"),
    TRANSACTIONS: (),
    OFFSET_FINDINGS: (),
    CHECKPOINTS: (),
    VALUE_ERRORS: ("format", "schema_id", "detail", "content"),
}
_VIEWS = "batch_times transaction_ages sound_batches offset_gaps lost_offsets sequence_steps"
_MEMORY = "1GB"
# Every partition has a row; a segment has one where it alone is above the threshold and its partition is too
_OVER_PARTITIONS = """
WITH found AS ({sql}), measured AS (
  SELECT s.topic, s.partition, s.segment, CAST({aggregate} AS DOUBLE) AS value,
    arg_max(f.detail, {most}) AS detail
  FROM found f JOIN log_segments s USING (file)
  GROUP BY GROUPING SETS ((s.topic, s.partition), (s.topic, s.partition, s.segment))
), partitions AS (
  SELECT p.topic, p.partition, CAST(NULL AS VARCHAR) AS segment, {without} AS value, m.detail
  FROM (SELECT DISTINCT topic, partition FROM log_segments) p
  LEFT JOIN measured m ON m.topic = p.topic AND m.partition = p.partition AND m.segment IS NULL
)
FROM partitions
UNION ALL
SELECT m.* FROM measured m SEMI JOIN (FROM partitions WHERE value > $threshold) p USING (topic, partition)
WHERE m.segment IS NOT NULL AND m.value > $threshold
"""
_OVER_TOPICS = """
SELECT t.topic, CAST(NULL AS INTEGER) AS partition, CAST(NULL AS VARCHAR) AS segment,
  CAST(f.amount AS DOUBLE) AS value, f.detail
FROM (SELECT DISTINCT topic FROM log_segments) t LEFT JOIN ({sql}) f USING (topic)
"""
_AS_METRICS = """
SELECT $run_id AS run_id, $created_at AS created_at, $name AS "check", topic, partition, segment, value,
  CAST($threshold AS DOUBLE) AS threshold, coalesce(value <= $threshold, true) AS passed,
  $severity AS severity, CASE WHEN value > $threshold THEN detail END AS detail
FROM ({values}) ORDER BY topic, partition, segment NULLS FIRST
"""


@contextmanager
def opened(
    tables: Mapping[str, DeltaTable], threads: int | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a database with what ``logs.sql`` makes of published tables. threads: None for all cores.

    DuckDB uses at most _MEMORY and spills to a temporary folder; besides, the columns of ``batches`` that
    are read take some 250 bytes a batch.
    """
    with (
        TemporaryDirectory(prefix="kafka-log-lake-") as scratch,
        duckdb.connect(
            config={
                "memory_limit": _MEMORY,
                "temp_directory": scratch,
                **({"threads": threads} if threads else {}),
            }
        ) as database,
    ):
        _load(database, tables)
        yield database


def _load(database: duckdb.DuckDBPyConnection, tables: Mapping[str, DeltaTable]) -> None:
    database.execute("SET TimeZone = 'UTC'")
    for table, not_read in _NOT_READ.items():
        columns = [column.name for column in table.columns if column.name not in not_read]
        # the views name every column of a table
        named = (
            quoted(c.name) if c.name in columns else null_column(c, quoted, duckdb_type)
            for c in table.columns
        )
        if table.name in tables:
            rows = read_rows(tables[table.name], table.arrow_schema(), columns)
        else:  # it is made with its first rows
            rows = table.arrow_schema().empty_table().select(columns)
        database.register(_rows_of(table), rows)
        for creation in table_creations(table, f"SELECT {', '.join(named)} FROM {_rows_of(table)}"):
            database.execute(creation)
    _create_views(database)
    database.execute(
        resources.files("kafka_log_lake.pipelines.quality_report").joinpath("logs.sql").read_text()
    )
    database.register("wrong_epochs", _wrong_epochs(database))
    for table in (SEGMENTS, BATCHES, QUARANTINE):
        database.unregister(_rows_of(table))  # frees them: the tables of logs.sql replace them


def _wrong_epochs(database: duckdb.DuckDBPyConnection) -> pa.Table:
    """Returns the batches of ``sound`` with a wrong leader epoch: file, position, and the epochs around."""
    statement = (
        "SELECT file, position, leader_epoch, dense_rank() OVER (ORDER BY log, stretch) AS part "
        "FROM sound WHERE magic = 2 ORDER BY part, file, position"
    )
    rows = database.sql(statement).to_arrow_table()
    epoch, part = (rows.column(name).to_numpy() for name in ("leader_epoch", "part"))
    at = np.flatnonzero(wrong_epochs(epoch, part))
    places = rows.select(["file", "position"]).take(pa.array(at))
    return pa.table([*places.columns, epoch[at - 1], epoch[at + 1]], ["file", "position", "before", "after"])


def _rows_of(table: Table) -> str:
    return f"{table.name}_rows"


def _create_views(database: duckdb.DuckDBPyConnection) -> None:
    """Creates the views that ``logs.sql`` reads, over the columns that are there."""
    for macro in macros():
        database.execute(macro)
    needed = needed_names(_VIEWS, [table.name for table in _NOT_READ])
    for creation in creations([view for view in SESSION_VIEWS if view.name in needed]):
        database.execute(creation)


def measure(
    database: duckdb.DuckDBPyConnection, checks: Collection[Check], run_id: str, created_at: datetime
) -> pa.Table:
    """Runs the checks and returns their rows of ``quality_metrics``."""
    schema = QUALITY_METRICS.arrow_schema()
    measured = [schema.empty_table()]
    for check in checks:
        sql = check.sql.rstrip()
        if check.aggregate == TOPIC:
            values = _OVER_TOPICS.format(sql=f"{sql}\n")
        else:
            is_share = check.aggregate == "share"
            values = _OVER_PARTITIONS.format(
                sql=f"{sql}\n",
                aggregate=AGGREGATES[check.aggregate],
                most="f.amount / f.whole" if is_share else "f.amount",
                without="m.value" if is_share else "coalesce(m.value, 0)",
            )
        query = _AS_METRICS.format(values=values)
        parameters = {
            "run_id": run_id,
            "created_at": created_at,
            "name": check.name,
            "threshold": check.threshold,
            "severity": check.severity,
        }
        measured.append(database.sql(query, params=parameters).to_arrow_table().cast(schema))
    return pa.concat_tables(measured)
