"""``maintain``: smaller tables with the same rows; old rows go only where no file brings them back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.maintain import command as maintain
from tests.support import as_command
from tests.support.answers import asked
from tests.support.logs import TABLES, batch, contents, data, marker, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD_MS, NEW_MS = 1_500_000_000_000, int(time.time() * 1000)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def reported(capsys: pytest.CaptureFixture[str], lake: str, *options: str) -> dict[str, dict[str, int]]:
    """The tables of ``maintain --json``, by name; and the number of dropped segments."""
    capsys.readouterr()
    assert maintain.main(["--lake", lake, "--json", *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    return {one.pop("table"): one for one in printed["tables"]} | {"dropped": printed["dropped"]}


def data_files(lake: str, table: str) -> int:
    return sum("_delta_log" not in path.parts for path in Path(lake, table).rglob("*.parquet"))


def test_small_files_are_merged_and_the_rows_stay(
    spark: SparkSession,
    lake: str,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested = Settings(source=(str(logs),), lake=lake)
    for offset in range(0, 12, 3):
        put(logs / "a-0", offset, batch(offset))
        as_command.decode(spark, requested)
    before = contents(lake)
    synced: list[int] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(data_files(lake, "records")))
    found = reported(capsys, lake, "--vacuum-hours", "0")
    assert synced == [5]  # merged and old files: a power cut finds the ones or the others
    assert (found["records"]["files_before"], found["records"]["files"]) == (4, 1)
    assert found["records"]["deleted"] == 4
    assert data_files(lake, "records") == data_files(lake, "batches") == 1
    assert contents(lake) == before
    assert as_command.decode(spark, requested).segments == 0
    put(logs / "a-0", 12, batch(12))
    assert as_command.decode(spark, requested).records == 3
    # Files that a reader of the last week may need are kept
    reported(capsys, lake)
    assert (len(DeltaTable(f"{lake}/records").file_uris()), data_files(lake, "records")) == (1, 3)


def test_old_rows_are_dropped_where_no_file_brings_them_back(
    spark: SparkSession, lake: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = put(logs / "a-0", 0, batch(0, base_timestamp=OLD_MS))
    put(logs / "a-0", 3, batch(3, base_timestamp=OLD_MS))
    new = put(logs / "b-0", 0, batch(0, base_timestamp=NEW_MS))
    requested = Settings(source=(str(logs),), lake=lake)
    as_command.decode(spark, requested)
    as_command.ingest(spark, requested)
    old.unlink()
    new.unlink()
    assert reported(capsys, lake, "--keep-days", "30")["dropped"] == 1
    assert sorted((row["topic"], row["offset"]) for row in rows(lake, "records")) == [
        *(("a", offset) for offset in (3, 4, 5)),
        *(("b", offset) for offset in (0, 1, 2)),
    ]
    for table in ("batches", "segments", "raw_segments"):
        assert {(row["topic"], row["segment"][-5]) for row in rows(lake, table)} == {("a", "3"), ("b", "0")}
    # Neither the folder nor the landed bytes bring them back
    assert as_command.decode(spark, requested).segments == 0
    assert as_command.decode(spark, Settings(lake=lake, from_raw=True)).segments == 0
    assert reported(capsys, lake, "--keep-days", "30")["dropped"] == 0


def test_a_segment_waits_for_those_before_it(
    lake: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(logs / "a-0", 0, data(0, 7, base_timestamp=NEW_MS))
    put(logs / "a-0", 1, marker(1, 7))  # older, by another clock
    put(logs / "a-0", 2, batch(2, base_timestamp=NEW_MS))
    as_command.decode(None, Settings(source=(str(logs),), lake=lake))
    for base in (0, 1):
        put(logs / "a-0", base).unlink()
    assert reported(capsys, lake, "--keep-days", "30")["dropped"] == 0
    assert asked(lake, "SELECT count(*) FROM committed_records") == [(4,)]
    assert asked(lake, "SELECT * FROM lost_offsets") == []


def test_a_lake_that_a_job_writes_to_is_left_alone(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Intents(lake).lock():
        assert maintain.main(["--lake", lake]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: another run is writing to {lake}")


@pytest.mark.parametrize("arguments", [("--vacuum-hours", "a week"), ("--keep-days", "-1")])
def test_a_wrong_number_is_one_line(
    lake: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]
) -> None:
    assert maintain.main(["--lake", lake, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {arguments[0]} takes a whole number from 0 to 878,400, not {arguments[1]!r}"


def test_every_table_is_maintained(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(reported(capsys, lake)) == {*TABLES, "dropped"}
