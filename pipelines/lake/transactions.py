"""The table ``transactions``, computed from ``batches`` by Spark SQL after every run that changed them.

A transaction is the transactional data of one producer in one log up to its next marker: data and marker
match by producer id alone, since newer brokers raise the marker's epoch above the data's. Whole partitions
are computed again, so that going on, replacing and repeating a run all come to the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.lake.address import log_dir_sql, sql_string, sql_table, table_path
from udfs.format.schema import BATCHES, QUARANTINE, TRANSACTIONS

# ``closed``: markers of the same producer before this batch: it numbers the transactions of a producer.
_COMPUTED = """
WITH events AS (
  SELECT topic, partition, {log_dir} AS log_dir, producer_id, producer_epoch, base_offset, last_offset,
    record_count, coordinator_epoch, control_type, is_control, struct(segment, position) AS place
  FROM {batches}
  WHERE is_transactional AND status IN ('ok', 'suspect') AND ({where})
    AND (NOT is_control OR control_type IN ('ABORT', 'COMMIT'))
), numbered AS (
  SELECT *, coalesce(sum(int(is_control)) OVER (
    PARTITION BY topic, partition, log_dir, producer_id ORDER BY base_offset, place
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS closed
  FROM events
), found AS (
  SELECT topic, partition, log_dir, producer_id,
    coalesce(max_by(producer_epoch, base_offset) FILTER (WHERE NOT is_control), max(producer_epoch))
      AS producer_epoch,
    min(base_offset) FILTER (WHERE NOT is_control) AS first_offset,
    max(last_offset) FILTER (WHERE NOT is_control) AS last_offset,
    coalesce(sum(record_count) FILTER (WHERE NOT is_control), 0L) AS records,
    max(base_offset) FILTER (WHERE is_control) AS marker_offset,
    max(coordinator_epoch) FILTER (WHERE is_control) AS coordinator_epoch,
    CASE max(control_type)
      WHEN 'COMMIT' THEN 'committed' WHEN 'ABORT' THEN 'aborted' ELSE 'open' END AS outcome,
    min(place) AS start
  FROM numbered
  GROUP BY topic, partition, log_dir, producer_id, closed
), damage AS (
  SELECT topic, partition, {log_dir} AS log_dir, max(struct(segment, position)) AS last_place
  FROM {quarantine} WHERE {where} GROUP BY ALL
)
SELECT {columns}
FROM (
  SELECT f.*, f.outcome = 'open' AND coalesce(d.last_place > f.start, false) AS outcome_uncertain
  FROM found f LEFT JOIN damage d
    ON f.topic = d.topic AND f.partition = d.partition AND f.log_dir = d.log_dir
)"""

_COLUMNS = ", ".join(column.name for column in TRANSACTIONS.columns)


def refresh(
    spark: SparkSession,
    address: str,
    partitions: Sequence[tuple[str, int]],
    transactional: Sequence[tuple[str, int]],
) -> list[str]:
    """Brings the rows of the topic-partitions that a run changed up to date; no commit where they are.

    transactional: those where batches of transactions came in. Where none came in and no row is there yet,
    none is due: most logs have no transactions. Returns the log_dirs whose last stable offset is held by a
    transaction with an uncertain outcome.
    """
    due = {*transactional, *_with_rows(address).intersection(partitions)}
    if not due:
        return []
    where = _among(due)
    computed = compute(spark, address, where).cache()
    try:
        if _differs(computed, spark.sql(f"SELECT {_COLUMNS} FROM {_table(address)} WHERE {where}")):
            writer = computed.coalesce(1).write.format("delta").mode("overwrite")
            writer.option("replaceWhere", where).save(table_path(address, TRANSACTIONS.name))
        return _held_by_uncertain(computed)
    finally:
        computed.unpersist()


def _with_rows(address: str) -> set[tuple[str, int]]:
    """The topic-partitions that have rows in ``transactions``."""
    files = DeltaTable(table_path(address, TRANSACTIONS.name)).get_add_actions(flatten=True)
    keys = pa.table(files).select(["partition.topic", "partition.partition"]).to_pylist()
    return {(key["partition.topic"], key["partition.partition"]) for key in keys}


def compute(spark: SparkSession, address: str, where: str) -> DataFrame:
    """Rows of ``transactions`` for what satisfies ``where``, a predicate on topic and partition."""
    return spark.sql(
        _COMPUTED.format(
            batches=sql_table(address, BATCHES.name),
            quarantine=sql_table(address, QUARANTINE.name),
            log_dir=log_dir_sql("segment"),
            columns=_COLUMNS,
            where=where,
        )
    )


def _table(address: str) -> str:
    return sql_table(address, TRANSACTIONS.name)


def _among(partitions: Iterable[tuple[str, int]]) -> str:
    """A predicate on the partition columns; Delta prunes by it and replaces where it holds."""
    by_topic = itertools.groupby(sorted(partitions), key=lambda pair: pair[0])
    return " OR ".join(
        f"(topic = {sql_string(topic)} AND partition IN ({', '.join(str(number) for _, number in pairs)}))"
        for topic, pairs in by_topic
    )


def _differs(one: DataFrame, other: DataFrame) -> bool:
    """Whether two sets of rows differ, repeats counted: one shuffle, no row brought here."""
    both = one.selectExpr("*", "1 AS weight").unionByName(other.selectExpr("*", "-1 AS weight"))
    sums = both.groupBy(*one.columns).sum("weight")
    return not sums.where("`sum(weight)` <> 0").isEmpty()


def _held_by_uncertain(transactions: DataFrame) -> list[str]:
    held = (
        transactions.where("outcome = 'open'")
        .groupBy("log_dir")
        .agg({"first_offset": "min"})
        .withColumnRenamed("min(first_offset)", "first_offset")
        .join(transactions.where("outcome_uncertain"), ["log_dir", "first_offset"])
    )
    return sorted(row["log_dir"] for row in held.select("log_dir").distinct().collect())
