"""DuckDB and Spark give the same rows: every view, of real logs, of damage, and of what does not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import duckdb
import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import CostSettings, Settings
from kafka_log_lake.pipelines.format_report import command as format_report
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.sql.statements import duckdb_text
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, View
from tests.support import as_command
from tests.support.answers import all_rows, prepare_in_memory, same_in_both
from tests.support.corpus import ROOT as CORPUS
from tests.support.docs import INNER_VIEWS, README, ROLES, VIEWS_PAGE, blocks, bundled_sources
from tests.support.lake_rows import add_unpublished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Both = Callable[[str], bool]

MORE = (
    *("v2-internal", "internal-2.8", "v2-segments", "v2-compacted-txn", "lib-sequence-wrap"),
    *("lib-no-timestamp", "v0-single", "hostile/zstd-corrupt-head-0", "hostile/truncated-*"),
)


@pytest.fixture(scope="module")
def bundled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake of ``make samples``, more logs and damage, tables of both reports, and rows not counted."""
    folder = tmp_path_factory.mktemp("engines")
    lake = str(folder / "lake")
    sources = (*bundled_sources(), *(str(CORPUS / name) for name in MORE if list(CORPUS.glob(name))))
    as_command.decode(spark, Settings(source=sources, lake=lake))
    quality_report.run(Settings(lake=lake), output=str(folder / "report"))
    format_report.run(spark, CostSettings(lake=lake, codec_levels="snappy", sample_batches=1))
    add_unpublished(lake)
    return lake


@pytest.fixture(scope="module")
def database(bundled: str) -> duckdb.DuckDBPyConnection:
    return connect(bundled)


@pytest.fixture(scope="module")
def both(spark: SparkSession, bundled: str, database: duckdb.DuckDBPyConnection) -> Both:
    """Runs a statement in both engines and compares names, types and values."""
    prepare_in_memory(spark, bundled)

    return lambda statement: same_in_both(spark, database, statement)


@pytest.mark.parametrize("view", SESSION_VIEWS, ids=lambda view: view.name)
def test_every_view(both: Both, view: View) -> None:
    both(all_rows(view))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM hanging_transactions(timeout_ms => 9000000000000, at_ms => 1800000000000)",
        "SELECT * FROM hanging_transactions(60000, 1800000000000)",
        "SELECT * FROM retention_report(retention_ms => -1, retention_bytes => 4000, at_ms => 1800000000000)",
        "SELECT * FROM retention_report(86400000, 1000000000, 1700000000000)",
        "SELECT * FROM timestamp_anomalies(max_disorder_ms => 0)",
        "SELECT * FROM timestamp_anomalies(max_future_ms => -100000000000, max_disorder_ms => 10)",
        "SELECT * FROM compaction_report(at_ms => 0)",
    ],
)
def test_views_with_arguments(both: Both, statement: str) -> None:
    both(statement)


SHOWN = [
    pytest.param(statement, id=f"{page.stem}-{i}")
    for page in (README, VIEWS_PAGE, INNER_VIEWS, *ROLES)
    for i, statement in enumerate(blocks(page, "sql"))
]


@pytest.mark.parametrize("statement", SHOWN)
def test_statements_of_the_pages_run_in_both(
    spark: SparkSession, bundled: str, both: Both, database: duckdb.DuckDBPyConnection, statement: str
) -> None:
    """With as many rows: of a LIMIT without an order each engine gives those that it has first.

    SHOW TABLES lists more in Spark, which has no schema for the views that others are made of.
    """
    found = database.sql(duckdb_text(statement)).to_arrow_table()
    in_spark = spark.sql(statement).toArrow().num_rows
    assert in_spark > found.num_rows if statement.strip() == "SHOW TABLES" else in_spark == found.num_rows
