"""Kafka's log segments as materialized views: all is computed anew with each run, and nothing is a lake."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
SOURCE = spark.conf.get("kafka_log.source")


@dp.materialized_view(comment="Every record batch, sound or not, with its checksum verdict")
def kafka_batches() -> DataFrame:
    return spark.read.format("kafka_log").option("table", "batches").load(SOURCE)


@dp.materialized_view(comment="Every record of every sound batch")
def kafka_records() -> DataFrame:
    return spark.read.format("kafka_log").load(SOURCE)


@dp.materialized_view(comment="Batches, records and damage of each partition")
def kafka_partitions() -> DataFrame:
    damaged = F.col("status").isin("corrupt", "invalid", "unsupported")
    return (
        spark.read.table("kafka_batches")
        .groupBy("topic", "partition")
        .agg(
            F.count("*").alias("batches"),
            F.sum("record_count").alias("records"),
            F.count_if(damaged).alias("damaged"),
        )
    )
