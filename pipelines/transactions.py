"""The table ``transactions``, computed from ``batches`` by Spark SQL after every run that changed them.

A transaction is the transactional data of one producer in one log up to its next marker: data and marker
match by producer id alone, since newer brokers raise the marker's epoch above the data's. Whole partitions
are computed again, so that going on, replacing and repeating a run all come to the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.lake import log_dir_sql, sql_string, sql_table, table_path
from udfs.columns import BATCHES, QUARANTINE, TRANSACTIONS

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

_LOOKED_AT = 512  # files of batches at most that are looked at without Spark

_COLUMNS = ", ".join(column.name for column in TRANSACTIONS.columns)


def refresh(
    spark: SparkSession,
    address: str,
    partitions: Sequence[tuple[str, int]],
    txn: tuple[str, int] | None = None,
) -> list[str]:
    """Brings the rows of these topic-partitions up to date; no commit where they are.

    txn: Delta's application id and version for the commit. Returns the log_dirs whose last stable offset is
    held by a transaction with an uncertain outcome.
    """
    if not partitions or _none_is_possible(address, partitions):
        return []
    where = _among(partitions)
    computed = compute(spark, address, where).cache()
    try:
        if _differs(computed, spark.sql(f"SELECT {_COLUMNS} FROM {_table(address)} WHERE {where}")):
            writer = computed.coalesce(1).write.format("delta").mode("overwrite")
            writer = writer.option("replaceWhere", where)
            if txn is not None:
                writer = writer.option("txnAppId", txn[0]).option("txnVersion", txn[1])
            writer.save(table_path(address, TRANSACTIONS.name))
        return _held_by_uncertain(computed)
    finally:
        computed.unpersist()


def _none_is_possible(address: str, partitions: Sequence[tuple[str, int]]) -> bool:
    """Whether a look at a few small files already tells that there is no transaction: most logs have none.

    Spark takes seconds to say the same; where there are many files it is asked all the same.
    """
    if _fragments(address, TRANSACTIONS.name, partitions):
        return False
    files = _fragments(address, BATCHES.name, partitions)
    if len(files) > _LOOKED_AT:
        return False
    flags = (file.to_table(columns=["is_transactional"]).column(0) for file in files)
    return not any(flag.to_numpy().any() for flag in flags)


def _fragments(address: str, table: str, partitions: Sequence[tuple[str, int]]) -> list[ds.Fragment]:
    """The data files of these topic-partitions in a table."""
    wanted = set(partitions)
    found = []
    for fragment in DeltaTable(table_path(address, table)).to_pyarrow_dataset().get_fragments():
        keys = ds.get_partition_keys(fragment.partition_expression)
        if (keys["topic"], keys["partition"]) in wanted:
            found.append(fragment)
    return found


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


def _among(partitions: Sequence[tuple[str, int]]) -> str:
    """A predicate on the partition columns; Delta prunes by it and replaces where it holds."""
    by_topic = itertools.groupby(sorted(set(partitions)), key=lambda pair: pair[0])
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
