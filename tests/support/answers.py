"""How the tests ask a lake: as ``kafka-log-lake query`` answers, or Spark alone.

A command asks DuckDB where it can, else Spark. That both give the same rows of every view and every
documented query is what ``test_engines`` holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

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


def same_in_both(spark: SparkSession, database: duckdb.DuckDBPyConnection, statement: str) -> bool:
    """Runs a statement in both engines and compares names, types and values; whether there are rows."""
    found = database.sql(statement).to_arrow_table()
    expected = spark.sql(statement).toArrow()
    assert _columns(found) == _columns(expected), statement
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), statement
    return found.num_rows > 0


def _columns(table: pa.Table) -> list[tuple[str, Any]]:
    return [(field.name, _plain(field.type)) for field in table.schema]


def _plain(kind: pa.DataType) -> Any:
    """A type without the names and nulls of what is nested in it."""
    if pa.types.is_list(kind):
        return ["list", _plain(kind.value_type)]
    if pa.types.is_map(kind):
        return ["map", _plain(kind.key_type), _plain(kind.item_type)]
    if pa.types.is_struct(kind):
        return {field.name: _plain(field.type) for field in kind}
    return kind
