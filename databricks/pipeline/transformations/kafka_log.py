"""Kafka's log segments as streaming tables: each run appends what the logs have had since the one before.

``kafka_log.on_damage`` says what becomes of a batch that Kafka would refuse: warn keeps it in
``kafka_batches``, drop leaves it out, fail stops the run. Its records are in ``kafka_records`` in no case. On
Databricks the rule is an expectation, whose counts the event log has; where Spark has none it is part of the
query.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
SOURCE = spark.conf.get("kafka_log.source")
ON_DAMAGE = spark.conf.get("kafka_log.on_damage", "warn")
PARTITIONED_BY = ["topic", "partition", "magic"]
SOUND = "status IN ('ok', 'suspect')"
EXPECTATIONS = {"warn": "expect", "drop": "expect_or_drop", "fail": "expect_or_fail"}

Query = Callable[[], DataFrame]


def sound_batches_expected(query: Query) -> Query:
    """Applies the rule to a query of batches. Raises a ValueError for another value of on_damage."""
    if ON_DAMAGE not in EXPECTATIONS:
        raise ValueError(f"kafka_log.on_damage must be one of {', '.join(EXPECTATIONS)}, not {ON_DAMAGE!r}")
    expectation = getattr(dp, EXPECTATIONS[ON_DAMAGE], None)
    if expectation is not None:
        expected: Query = expectation("sound batch", SOUND)(query)
        return expected

    def checked() -> DataFrame:
        batches = query()
        if ON_DAMAGE == "drop":
            return batches.where(SOUND)
        if ON_DAMAGE == "fail":
            place = F.concat_ws(" ", F.lit("damaged:"), "segment", F.lit("at byte"), "position", "error")
            return batches.where(F.when(F.expr(SOUND), True).otherwise(F.raise_error(place)))
        return batches

    checked.__name__ = query.__name__
    return checked


def read(table: str) -> DataFrame:
    return spark.readStream.format("kafka_log").option("table", table).load(SOURCE)


@dp.table(comment="Every record batch, with its checksum verdict", partition_cols=PARTITIONED_BY)
@sound_batches_expected
def kafka_batches() -> DataFrame:
    return read("batches")


@dp.table(comment="Every record of every sound batch", partition_cols=PARTITIONED_BY)
def kafka_records() -> DataFrame:
    return read("records")


@dp.table(comment="Every damaged byte range, with its bytes and the reason")
def kafka_quarantine() -> DataFrame:
    return read("quarantine")


@dp.materialized_view(comment="Batches, records and damage of each partition")
def kafka_partitions() -> DataFrame:
    return (
        spark.read.table("kafka_batches")
        .groupBy("topic", "partition")
        .agg(
            F.count("*").alias("batches"),
            F.sum("record_count").alias("records"),
            F.count_if(~F.expr(SOUND)).alias("damaged"),
        )
    )
