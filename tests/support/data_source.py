"""Reads by the data source ``kafka_log``, and the line that it fails with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: Path | str, schema: str | None = None, **options: Any) -> DataFrame:
    """Returns what ``kafka_log`` reads of a path. schema: DDL; None: the data source's own."""
    reader = spark.read.format("kafka_log").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def message(call: Callable[[], object]) -> str:
    """Returns the line that says what is wrong, without the traceback that Spark shows above it."""
    with pytest.raises(Exception) as raised:
        call()
    lines = str(raised.value).splitlines()
    (line,) = [line for line in lines if line.startswith("kafka_log_lake.")]
    return line.partition(": ")[2]
