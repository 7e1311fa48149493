"""How the tests ask a lake: as ``kafka-log-lake query`` answers, or Spark alone.

A command asks DuckDB where it can, else Spark. That both give the same rows of every view and every
documented query is what ``test_engines`` holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.engine import answer as without_java
from pipelines.engine import spark as with_spark
from pipelines.sql.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answer(spark: SparkSession, lake: str, statement: str, output: str = "json") -> list[str]:
    """The lines that print the result; output: table, json or csv."""
    try:
        return list(without_java.answer(lake, statement, output))
    except Unsupported:
        return list(with_spark.answer(spark, lake, statement, output))


def prepare_in_memory(spark: SparkSession, lake: str) -> None:
    """``prepare``, for a lake that no test changes: Spark keeps the tables of most files in memory.

    A scan opens a file for each topic, partition and magic: half of what a question costs.
    """
    spark.catalog.clearCache()
    with_spark.prepare(spark, lake)
    for table in ("records", "batches", "quarantine", "transactions"):
        spark.catalog.cacheTable(table)
