"""Runs statements on a lake as ``kafka-log-lake query`` does, by DuckDB, or by Spark, or by both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from kafka_log_lake.pipelines.query import spark as with_spark
from kafka_log_lake.pipelines.sql import answers
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.pipelines.views.declared import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answer(lake: str, statement: str, output: str = "json") -> list[str]:
    """Returns the lines that ``query`` prints, by DuckDB. output: table, json or csv."""
    return list(answers.answer(open_database(lake, statement), statement, output))


def asked(lake: str | Path, statement: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement's result; opens only the tables and views that the statement names.

    ``connect`` makes all views, which takes five times as long.
    """
    return open_database(str(lake), statement).execute(statement).fetchall()


def prepare_in_memory(spark: SparkSession, lake: str) -> None:
    """Prepares a session for a lake that no test changes: Spark keeps the tables with most files in memory.

    A scan opens a file for each topic, partition and magic: half of what a question costs.
    """
    spark.catalog.clearCache()
    with_spark.prepare(spark, lake)
    for table in ("records", "batches", "quarantine", "transactions"):
        spark.catalog.cacheTable(table)


# Of a default that is the time of the query both engines get one time
_GIVEN = {
    "since": "TIMESTAMP '2030-01-01 00:00:00Z'",
    "at_ms": "1800000000000",
    "wanted_group": "'g'",
    "at_time": "TIMESTAMP '2030-01-01 00:00:00Z'",
    "wanted_topic": "'compacted-tx'",
    "wanted_partition": "0",
    "wanted_key": "CAST('t3' AS BINARY)",
}


def all_rows(view: View) -> str:
    """Returns the statement that gives all rows of a view, the same rows whenever it runs."""
    given = ", ".join(f"{one.name} => {_GIVEN[one.name]}" for one in view.parameters if one.name in _GIVEN)
    return f"SELECT * FROM {view.name}{f'({given})' if view.parameters else ''}"


def same_in_both(spark: SparkSession, database: duckdb.DuckDBPyConnection, statement: str) -> bool:
    """Runs a statement in both engines and compares names, types and values; whether there are rows."""
    found = database.sql(statement).to_arrow_table()
    expected = spark.sql(statement).toArrow()
    assert _columns(found) == _columns(expected), statement
    in_duckdb, in_spark = (Counter(map(repr, table.to_pylist())) for table in (found, expected))
    assert (in_duckdb - in_spark, in_spark - in_duckdb) == (Counter(), Counter()), statement
    return found.num_rows > 0


def _columns(table: pa.Table) -> list[tuple[str, Any]]:
    return [(field.name, _plain(field.type)) for field in table.schema]


def _plain(kind: pa.DataType) -> Any:
    """Returns a type without the nested names and nullability that engines choose differently."""
    if pa.types.is_list(kind):
        return ["list", _plain(kind.value_type)]
    if pa.types.is_map(kind):
        return ["map", _plain(kind.key_type), _plain(kind.item_type)]
    if pa.types.is_struct(kind):
        return {field.name: _plain(field.type) for field in kind}
    return kind
