"""A statement over a lake as ``kafka-log-lake query`` answers it: DuckDB where it can, else the tests' Spark.

That both give the same rows of every view and every documented query is what ``test_engines`` holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.engine import answer as without_java
from pipelines.engine import spark as with_spark
from pipelines.engine.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answer(spark: SparkSession, lake: str, statement: str, output: str = "json") -> list[str]:
    """The lines that print the result; output: table, json or csv."""
    try:
        return list(without_java.answer(lake, statement, output))
    except Unsupported:
        return list(with_spark.answer(spark, lake, statement, output))
