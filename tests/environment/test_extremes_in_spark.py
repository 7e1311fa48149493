"""Spark gives of a lake with mad logs the rows that DuckDB gives (`test_extremes.py` of decode)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection
from pyspark.sql import SparkSession

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.typed.schemas import registry_of_state
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, View
from kafka_log_lake.pipelines.views.functions import (
    register_functions,
    register_internal_topics,
    register_typed_functions,
)
from kafka_log_lake.udfs.format.report_tables import READ_BY_VIEWS
from kafka_log_lake.udfs.format.schema import TABLES
from tests.support.answers import all_rows, same_in_both
from tests.support.mad_logs import write_mad_logs, write_mad_settings
from tests.support.random_logs import random_logs, write_files


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("extremes").resolve()
    write_files(root, random_logs(5, 12))
    write_mad_logs(root / "logs")
    write_mad_settings(root / "logs")
    argv = ["--source", str(root / "logs"), "--lake", str(root / "mixed"), "--with-indexes"]
    assert decode_batches.main(argv) == 0
    return str(root / "mixed")


@pytest.fixture(scope="module")
def mixed(lake: str) -> Iterator[DuckDBPyConnection]:
    with connect(lake) as database:
        yield database


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, lake: str, mixed: DuckDBPyConnection) -> SparkSession:
    """The tables of the lake as views of the session, and its views."""
    for table in (*TABLES, *READ_BY_VIEWS):
        found = mixed.sql(f'SELECT * FROM "{table.name}"').to_arrow_table()
        spark.createDataFrame(found).coalesce(1).cache().createOrReplaceTempView(table.name)
    register_functions(spark)
    register_internal_topics(spark)
    register_typed_functions(spark, lambda: registry_of_state(lake))
    for view in SESSION_VIEWS:
        for statement in view.statements("TEMPORARY", view.select):
            spark.sql(statement)
    return spark


@pytest.mark.parametrize("view", SESSION_VIEWS, ids=lambda view: view.name)
def test_spark_gives_the_same_rows(in_spark: SparkSession, mixed: DuckDBPyConnection, view: View) -> None:
    same_in_both(in_spark, mixed, all_rows(view))
