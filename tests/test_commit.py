"""Every table exactly once: runs that die at each point, and are finished by the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from pipelines import decode_batches
from pipelines.command.errors import UserError
from pipelines.command.settings import Settings
from pipelines.lake import commit
from pipelines.lake.intents import Intent, Replaced, Runs
from tests.soak.scenario import change as after
from tests.soak.scenario import first_state as before
from tests.support.dying import ARROW_POINTS, SPARK_POINTS, DiedError, arrange
from tests.support.logs import batch, batches, contents, put, rows, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
POINTS = [("arrow", p) for p in ARROW_POINTS] + [("spark", p) for p in SPARK_POINTS]


def decode(spark: SparkSession, lake: str, source: Path, **settings: Any) -> None:
    decode_batches.run(spark, Settings(lake=lake, source=(str(source),), **settings))


def die_at(point: Any, spark: SparkSession, lake: str, source: Path, **settings: Any) -> None:
    """A run that dies at a point of ``tests.support.dying``."""

    def die() -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        arrange(point, die, patch.setattr)
        with pytest.raises(DiedError):
            decode(spark, lake, source, **settings)


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, lake_template: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """(lake after the first run, sources as the second run sees them, tables after it, undisturbed)."""
    place = tmp_path_factory.mktemp("undisturbed")
    logs, first, second = place / "logs", place / "first", place / "second"
    before(logs)
    shutil.copytree(lake_template, first)
    decode(spark, str(first), logs)
    after(logs)
    shutil.copytree(first, second)
    decode(spark, str(second), logs)
    return first, logs, contents(str(second))


@pytest.mark.parametrize(("sink", "point"), POINTS)
def test_a_run_that_dies_is_finished_by_the_next(
    spark: SparkSession,
    expected: tuple[Path, Path, dict[str, Any]],
    tmp_path: Path,
    sink: str,
    point: str,
) -> None:
    first, logs, tables = expected
    lake = str(tmp_path / "lake")
    shutil.copytree(first, lake)
    die_at((ARROW_POINTS if sink == "arrow" else SPARK_POINTS)[point], spark, lake, logs, sink=sink)
    decode(spark, lake, logs, sink=sink)
    assert contents(lake) == tables
    assert sorted(os.listdir(f"{lake}/_runs")) == ["lock"]
    finished = versions(lake)
    decode(spark, lake, logs, sink=sink)
    assert versions(lake) == finished


@pytest.mark.parametrize("point", ["after the intent", "records added", "after quarantine"])
def test_a_run_whose_files_a_vacuum_took_is_decoded_again(
    spark: SparkSession, expected: tuple[Path, Path, dict[str, Any]], tmp_path: Path, point: str
) -> None:
    first, logs, tables = expected
    lake = str(tmp_path / "lake")
    shutil.copytree(first, lake)
    die_at(ARROW_POINTS[point], spark, lake, logs)
    for table in ("records", "batches", "quarantine"):
        DeltaTable(f"{lake}/{table}").vacuum(0, dry_run=False, enforce_retention_duration=False)
    decode(spark, lake, logs)
    assert contents(lake) == tables


@pytest.mark.parametrize(("sink", "point"), [("arrow", "records added"), ("spark", "batches added")])
def test_a_driver_that_is_killed_is_succeeded_by_the_next(
    spark: SparkSession, expected: tuple[Path, Path, dict[str, Any]], tmp_path: Path, sink: str, point: str
) -> None:
    first, logs, tables = expected
    lake = str(tmp_path / "lake")
    shutil.copytree(first, lake)
    arguments = ["--source", str(logs), "--lake", lake, "--sink", sink]
    job = [sys.executable, "-m", "tests.support.dying", point, *arguments]
    assert subprocess.run(job, cwd=ROOT, check=False, timeout=300).returncode == -9
    decode(spark, lake, logs, sink=sink)
    assert contents(lake) == tables


def test_a_write_that_fails_takes_the_intent_back(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 2))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(commit.Lake, "append", full)
        with pytest.raises(OSError, match="No space left"):
            decode(spark, lake, tmp_path / "logs", sink="spark")
    assert Runs(lake).pending() == []
    decode(spark, lake, tmp_path / "logs", sink="spark")
    assert len(rows(lake, "records")) == 6


def test_an_intent_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    runs = Runs(str(tmp_path))
    intent = Intent(
        app_id="app",
        version=3,
        run_id="run",
        files={"records": [{"path": "a%20'b\n", "size": 1}]},
        replaced=[Replaced("t'\\", 0, "file:///a", 7)],
        partitions=[("t'\\", 0)],
        put=[{"segment": "file:///a", "min_timestamp": -(2**62)}],
    )
    Path(runs.folder, "app-0000000009.json.tmp").write_text("{half")
    runs.write(intent)
    assert Runs(str(tmp_path)).pending() == [intent]
    with pytest.raises(UserError, match="another run"):
        runs.write(intent)
    runs.remove(intent)
    assert runs.pending() == []


def test_a_lake_that_takes_no_files_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't write to the lake"):
        Runs(str(tmp_path / "file"))


def test_rows_that_make_way_are_named_safely() -> None:
    condition = commit.making_way(
        "records", [Replaced("t'\\", 3, "file:///it's/x", 0), Replaced("u", 4, "s", 9)]
    )
    assert condition == (
        "topic IN ('t\\'\\\\', 'u') AND `partition` IN (3, 4) AND "
        "(segment IN ('file:///it\\'s/x') OR (segment = 's' AND batch_position >= 9))"
    )


def test_names_from_hostile_folders_stay_data(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    names = ["x' OR 1=1 --", "a\\' OR true OR '", "${spark.app.name}", "..", "%2e%2e%2f", "new\nline", "`"]
    for name in names:
        put(logs / f"{name}-0", 0, *batches(0, 2))
    put(logs / "kept-0", 0, *batches(0, 2))
    decode(spark, lake, logs)
    for name in names:
        put(logs / f"{name}-0", 0, batch(3))
    decode(spark, lake, logs)
    found = [(r["topic"], r["offset"]) for r in rows(lake, "records")]
    wanted = [(name, offset) for name in names for offset in (3, 4, 5)] + [("kept", o) for o in range(6)]
    assert sorted(found) == sorted(wanted)
    assert {p.name for p in Path(lake).iterdir()} == {*versions(lake), "_runs"}
    assert spark.read.format("delta").load(f"{lake}/records").count() == len(wanted)


def test_versions_of_a_run_are_the_same_in_every_table(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    before(tmp_path / "logs")
    decode(spark, lake, tmp_path / "logs")
    after(tmp_path / "logs")
    decode(spark, lake, tmp_path / "logs", sink="spark")
    for table in ("records", "batches", "quarantine", "segments"):
        assert DeltaTable(f"{lake}/{table}").transaction_version(commit.DECODE_APP) == 2
