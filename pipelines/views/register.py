"""The views of a lake, each declared once as SQL over the tables' names.

Temporary in a session (``register``) and in the SQL shell, permanent in a catalog (``lake.create``):
only the names of what they read differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipelines.lake.address import log_dir_sql, open_lake, sql_name, sql_table
from udfs.format.schema import RECORDS, TABLES


@dataclass(frozen=True)
class View:
    """A view; ``template`` names tables and earlier views in braces."""

    name: str
    comment: str
    template: str

    def sql(self, names: Mapping[str, str]) -> str:
        """The SELECT, over tables and views by these names (already quoted where they have to be)."""
        return self.template.format_map(names)


_COLUMNS = ", ".join(f"r.{sql_name(column.name)}" for column in RECORDS.columns)

_LOG_DIR = log_dir_sql("r.segment")

COMMITTED_RECORDS = View(
    "committed_records",
    "What a READ_COMMITTED consumer gets: no control record, nothing of an aborted transaction, "
    "nothing at or past the first open transaction of its log",
    f"""
SELECT {_COLUMNS}
FROM {{records}} r
LEFT ANTI JOIN (
  SELECT topic, partition, log_dir, producer_id, first_offset, marker_offset
  FROM {{transactions}} WHERE outcome = 'aborted' AND first_offset IS NOT NULL
) a ON r.topic = a.topic AND r.partition = a.partition AND {_LOG_DIR} = a.log_dir
  AND r.producer_id = a.producer_id AND r.is_transactional
  AND r.offset BETWEEN a.first_offset AND a.marker_offset
LEFT ANTI JOIN (
  SELECT topic, partition, log_dir, min(first_offset) AS last_stable_offset
  FROM {{transactions}} WHERE outcome = 'open' GROUP BY topic, partition, log_dir
) o ON r.topic = o.topic AND r.partition = o.partition AND {_LOG_DIR} = o.log_dir
  AND r.offset >= o.last_stable_offset
WHERE NOT r.is_control""",
)

CRC_REPORT = View(
    "crc_report",
    "Checksum failures and damaged bytes a partition and magic; damage without a batch has magic null",
    """
SELECT topic, partition, magic, sum(batches) AS batches, sum(bytes) AS bytes,
  sum(failures) AS crc_failures, try_divide(sum(failures), sum(batches)) AS crc_failure_rate,
  sum(damaged) AS damaged_bytes
FROM (
  SELECT topic, partition, magic, 1L AS batches, CAST(size_bytes AS BIGINT) AS bytes,
    if(crc_ok, 0L, 1L) AS failures, 0L AS damaged
  FROM {batches}
  UNION ALL
  SELECT q.topic, q.partition, b.magic, 0L, 0L, 0L, q.size_bytes
  FROM {quarantine} q LEFT JOIN {batches} b
    ON q.topic = b.topic AND q.partition = b.partition AND q.segment = b.segment AND q.position = b.position
)
GROUP BY topic, partition, magic""",
)

LATEST_BY_KEY = View(
    "latest_by_key",
    "What compaction would keep: the last committed record of every key, tombstones out",
    f"""
SELECT {_COLUMNS}
FROM (
  SELECT *, row_number() OVER (PARTITION BY topic, partition, key ORDER BY offset DESC, segment) AS age
  FROM {{committed_records}} WHERE key IS NOT NULL
) r
WHERE r.age = 1 AND r.value IS NOT NULL""",
)

VIEWS = (COMMITTED_RECORDS, CRC_REPORT, LATEST_BY_KEY)


def temporary_views(address: str) -> Iterator[str]:
    """Statements that give the tables and views of a lake their plain names in a session."""
    names = {}
    for table in TABLES:
        names[table.name] = table.name
        source = sql_table(address, table.name)
        yield f"CREATE OR REPLACE TEMPORARY VIEW {table.name} AS SELECT * FROM {source}"
    for view in VIEWS:
        yield f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {view.sql(names)}"
        names[view.name] = view.name


def register(spark: SparkSession, lake: str) -> None:
    """Makes the tables and views of a lake known to a session by their names."""
    for statement in temporary_views(open_lake(spark, lake)):
        spark.sql(statement)
