"""Many known files are checked side by side, and without Java where their tasks run on this machine."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand, spark_on_demand
from kafka_log_lake.pipelines.plan import file_checks
from kafka_log_lake.udfs.storage.byte_source import FileSource
from kafka_log_lake.udfs.storage.fingerprint import TO_CHECK_SCHEMA, FileMatch, fingerprint
from tests.support.logs import batch, put

MANY = 5_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, list[FileMatch]]:
    """Files with what was decoded of them: every seventh has changed since, every eleventh is gone."""
    logs = tmp_path_factory.mktemp("logs")
    sound, other = put(logs / "a-0", 0, batch(0)), put(logs / "b-0", 0, batch(0, text="other"))
    size = sound.stat().st_size
    source = FileSource(str(sound))
    decoded = {"decoded_bytes": size, "fingerprint": fingerprint(source, 0, size, None, size, size)}
    source.close()
    rows, expected = [], []
    for number in range(MANY):
        path = logs / f"{number}.log"
        kind = (
            FileMatch.UNREADABLE
            if number % 11 == 0
            else FileMatch.CHANGED
            if number % 7 == 0
            else FileMatch.SAME
        )
        if kind is not FileMatch.UNREADABLE:
            os.link(sound if kind is FileMatch.SAME else other, path)
        rows.append({"segment": f"file://{path}", **decoded})
        expected.append(kind)
    return pa.Table.from_pylist(rows, TO_CHECK_SCHEMA), expected


def test_many_files_are_checked_without_spark(
    many: tuple[pa.Table, list[FileMatch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    to_check, expected = many
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # that of other tests
    with spark_on_demand(Settings(cores=3)) as on_demand:
        assert file_checks.check(on_demand, to_check) == expected
        assert "spark" not in vars(on_demand)


def test_the_workers_of_a_cluster_check_many_files(
    spark: SparkSession, many: tuple[pa.Table, list[FileMatch]]
) -> None:
    to_check, expected = many
    on_demand = SparkOnDemand(Settings(), given=spark)
    on_demand.has_executors = True  # as this session would be one of a cluster
    assert file_checks.check(on_demand, to_check) == expected
