"""Spark gives the rows of Kafka's rules that DuckDB gives: over random logs, as the unit tests do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, needed_names
from tests.support.answers import prepare_in_memory, same_in_both
from tests.support.log_model import NOW
from tests.support.made_database import database_of, with_transactions
from tests.support.made_tables import tables
from tests.support.random_logs import random_logs
from tests.support.rule_model_time import HOUR
from tests.support.rules_held import SQL
from tests.support.timed_lake import FAR, timed_logs, transactions_of, write_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rules_of_offsets(spark: SparkSession) -> None:
    logs = random_logs(14, 25)
    database = database_of(logs, *SQL)
    for name, rows in with_transactions(tables(logs)).items():
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    needed = needed_names(" ".join(SQL), with_transactions(tables(logs)))
    for view in SESSION_VIEWS:
        for statement in view.statements("TEMPORARY", view.select) if view.name in needed else ():
            spark.sql(statement)
    for statement in SQL.values():
        rows = sorted(map(repr, (tuple(row) for row in spark.sql(statement).collect())))
        assert rows == sorted(map(repr, database.sql(statement).fetchall())), statement


@pytest.fixture(scope="module")
def random_lake(lake_template: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    logs = timed_logs(150)
    return write_lake(lake_template, tmp_path_factory.mktemp("random"), logs, transactions_of(logs))


@pytest.fixture(scope="module")
def in_memory(spark: SparkSession, random_lake: str) -> SparkSession:
    prepare_in_memory(spark, random_lake)
    return spark


@pytest.mark.parametrize(
    "relation",
    [
        "log_clocks",
        "batch_times",
        "segment_times",
        f"hanging_transactions(timeout_ms => 60000, at_ms => {NOW})",
        f"retention_report(retention_ms => {HOUR}, retention_bytes => 600, at_ms => {NOW + 30 * HOUR})",
        f"retention_report(retention_ms => {FAR}, retention_bytes => {FAR}, at_ms => {-FAR})",
        f"timestamp_anomalies(max_future_ms => {-FAR}, max_disorder_ms => 0)",
        f"compaction_report(at_ms => {-FAR}, min_compaction_lag_ms => {FAR})",
    ],
)
def test_rules_of_time(in_memory: SparkSession, random_lake: str, relation: str) -> None:
    assert same_in_both(in_memory, connect(random_lake), f"SELECT * FROM {relation}")
