"""Rows of a lake's tables from what a test cares about: all other columns are null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.lake.address import table_path
from udfs.format.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def insert(spark: SparkSession, lake: str, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends the rows, given by column name, to a table of the lake."""
    declared = next(t for t in TABLES if t.name == table)
    arrow = pa.Table.from_pylist([dict(row) for row in rows], schema=declared.arrow_schema())
    frame = spark.createDataFrame(arrow)
    frame.write.format("delta").mode("append").save(table_path(lake, table))
