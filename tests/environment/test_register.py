"""``register``: a lake's views in a session of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.logs import batches, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_register_shows_an_earlier_state(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for count in (1, 2):
        put(tmp_path / "logs" / "a-0", 0, *batches(0, count))
        runs.append(as_command.decode(None, Settings(lake=lake, source=(str(tmp_path / "logs"),))).run_id)
    for run, expected in ((runs[0], 3), (None, 6), (runs[1], 6)):
        kafka_log_lake.register(spark, lake, at=run)
        row = spark.sql("SELECT (SELECT count(*) FROM records), (SELECT max(offset) FROM committed_records)")
        assert row.first() == (expected, expected - 1)
        records = spark.sql("SELECT records FROM compaction_report(at_ms => 0)").first()
        assert records == (expected,)
    spark.sql("DROP TEMPORARY FUNCTION compaction_report")
    sql, there = type(spark).sql, []

    def noting(session: SparkSession, query: str) -> object:
        if "FUNCTION compaction_report" in query:
            there.extend(sql(session, "SELECT max(offset) AS last FROM committed_records").collect())
        return sql(session, query)

    with monkeypatch.context() as patched:
        patched.setattr(type(spark), "sql", noting)
        kafka_log_lake.register(spark, lake, at=runs[0])
    assert [row.last for row in there] == [2], "who asks meanwhile gets an answer"
    assert spark.sql("SELECT records FROM compaction_report(at_ms => 0)").first() == (3,)


def test_register_creates_what_is_named_alone(spark: SparkSession, lake: str) -> None:
    session = spark.newSession()
    kafka_log_lake.register(session, lake, views=["lost_offsets", "crc32c"])
    views = {row.viewName for row in session.sql("SHOW VIEWS").collect()}
    assert session.table("lost_offsets").collect() == []
    assert session.sql("SELECT crc32c(x'00')").collect() != []
    assert {"lost_offsets", "segments"} <= views
    assert views.isdisjoint({"messages", "records", "hanging_transactions"})
    with pytest.raises(UserError, match=r"^views: there is no 'mesages'; did you mean messages\?$"):
        kafka_log_lake.register(session, lake, views="mesages")
    with pytest.raises(UserError, match=r"^views: there is no ''"):
        kafka_log_lake.register(session, lake, views=[])
    spark.createDataFrame([], "a INT")  # makes the session of other tests the active one again


def test_register_refuses_a_folder_without_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no lake"):
        kafka_log_lake.register(spark, str(tmp_path))
