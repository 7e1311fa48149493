"""Every table exactly once: runs that die at each point, and are finished by the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError, unwritable
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.land import Lander
from kafka_log_lake.pipelines.lake.intents import Intent, Intents, RowRange
from kafka_log_lake.pipelines.lake.path_lake import PathLake
from kafka_log_lake.pipelines.lake.published import DECODE_APP
from kafka_log_lake.pipelines.lake.superseded import delete_predicate
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.query import spark as with_spark
from kafka_log_lake.udfs.arrow.parquet_sink import DataFile
from tests.soak import scenario
from tests.soak.scenario import change as after
from tests.soak.scenario import first_state as before
from tests.support import as_command
from tests.support.answers import answer
from tests.support.dying import POINTS, DiedError, arrange
from tests.support.logs import TABLES, batch, batches, contents, put, rows, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ROOT = Path(__file__).parents[2]


def decode(spark: SparkSession, lake: str, source: Path, **settings: Any) -> None:
    as_command.decode(spark, Settings(lake=lake, source=(str(source),), **settings))


def die_at(point: Any, spark: SparkSession, lake: str, source: Path, **settings: Any) -> None:
    """A run that dies at a point of ``tests.support.dying``."""

    def die() -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        arrange(point, die, patch.setattr)
        with pytest.raises(DiedError):
            decode(spark, lake, source, **settings)


@dataclass(frozen=True)
class Undisturbed:
    """A lake after a first run, the sources as the second sees them, the tables after it, what views give."""

    first: Path
    logs: Path
    tables: dict[str, Any]
    seen_before: dict[str, list[str]]
    seen_after: dict[str, list[str]]


def seen(lake: str, spark: SparkSession | None = None) -> dict[str, list[str]]:
    """What the views give: by DuckDB, or by Spark."""
    names = {
        "committed_records": "segment, offset, value",
        "crc_report": "*",
        "latest_by_key": "segment, offset",
    }
    statements = {view: f"SELECT {columns} FROM {view}" for view, columns in names.items()}
    if spark is None:
        return {view: sorted(answer(lake, one)) for view, one in statements.items()}
    with_spark.prepare(spark, lake, "\n".join(statements.values()))
    return {view: sorted(with_spark.results(spark, one, "json")) for view, one in statements.items()}


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, lake_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed:
    place = tmp_path_factory.mktemp("undisturbed")
    logs, first, second = place / "logs", place / "first", place / "second"
    before(logs)
    shutil.copytree(lake_template, first)
    decode(spark, str(first), logs)
    after(logs)
    shutil.copytree(first, second)
    decode(spark, str(second), logs)
    return Undisturbed(first, logs, contents(str(second)), seen(str(first)), seen(str(second)))


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_dies_is_not_seen_and_is_finished_by_the_next(
    spark: SparkSession,
    expected: Undisturbed,
    tmp_path: Path,
    point: str,
) -> None:
    first, logs, tables = expected.first, expected.logs, expected.tables
    lake = str(tmp_path / "lake")
    shutil.copytree(first, lake)
    die_at(POINTS[point], spark, lake, logs)
    published = point in (
        "after the ledger",
        "before the intent goes",
    )
    wanted = expected.seen_after if published else expected.seen_before
    assert seen(lake) == wanted
    if point in ("before the ledger", "after the ledger"):
        assert seen(lake, spark) == wanted
    decode(spark, lake, logs)
    assert contents(lake) == tables
    assert sorted(os.listdir(f"{lake}/_runs")) == ["lock"]
    finished = versions(lake)
    decode(spark, lake, logs)
    assert versions(lake) == finished


def vacuum(lake: str) -> None:
    """Deletes every file that no table names; without ``full`` deltalake keeps those that it never knew."""
    for table in TABLES:
        delta = DeltaTable(f"{lake}/{table}")
        delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


@pytest.mark.parametrize(
    "point", ["after the intent", "records added", "quarantine added", "before the ledger"]
)
def test_a_run_whose_files_a_vacuum_took_is_decoded_again(
    spark: SparkSession, expected: Undisturbed, tmp_path: Path, point: str
) -> None:
    first, logs, tables = expected.first, expected.logs, expected.tables
    lake = str(tmp_path / "lake")
    shutil.copytree(first, lake)
    die_at(POINTS[point], spark, lake, logs)
    before = scenario.orphans(Path(lake))
    vacuum(lake)
    assert (scenario.orphans(Path(lake)) < before) is (point in ("after the intent", "records added"))
    decode(spark, lake, logs)
    assert contents(lake) == tables


@pytest.mark.parametrize("how", [{"redecode": "/rewritten-0/"}, {"verify_content": True}])
@pytest.mark.parametrize("point", ["after the intent", "records added", "batches added", "before the ledger"])
def test_rows_that_are_to_be_replaced_outlive_a_death_and_a_vacuum(
    spark: SparkSession, lake_template: str, tmp_path: Path, how: dict[str, Any], point: str
) -> None:
    """Nothing is deleted before what takes its place counts."""
    lake, logs = str(tmp_path / "lake"), tmp_path / "logs"
    shutil.copytree(lake_template, lake)
    path = put(logs / "rewritten-0", 0, *batches(0, 5))
    decode(spark, lake, logs)
    before_ = contents(lake)
    if "verify_content" in how:
        put(logs / "rewritten-0", 0, batch(0), batch(3, text="w"), *batches(6, 3))
    die_at(POINTS[point], spark, lake, logs, **how)
    vacuum(lake)
    path.unlink()  # the source is gone for good
    put(logs / "other-0", 0, batch(0))
    decode(spark, lake, logs)
    offsets = sorted(r["offset"] for r in rows(lake, "records") if r["topic"] == "rewritten")
    assert offsets == list(range(15))
    if "redecode" in how:
        kept = [r for r in rows(lake, "records") if r["topic"] == "rewritten"]
        assert kept == before_["records"]


@pytest.mark.parametrize("point", ["records added", "batches added"])
def test_a_driver_that_is_killed_is_succeeded_by_the_next(
    spark: SparkSession, expected: Undisturbed, tmp_path: Path, point: str
) -> None:
    first, logs, tables = expected.first, expected.logs, expected.tables
    lake = str(tmp_path / "lake")
    shutil.copytree(first, lake)
    arguments = ["--source", str(logs), "--lake", lake]
    job = [sys.executable, "-m", "tests.support.dying", point, *arguments]
    assert subprocess.run(job, cwd=ROOT, check=False, timeout=300).returncode == -9
    decode(spark, lake, logs)
    assert contents(lake) == tables


RAW_POINTS = {
    "before the stage": (Lander, "run", 1, "before"),
    "before the intent": (Intents, "write", 1, "before"),
    "after the intent": (Intents, "write", 1, "after"),
    "rows added": (PathLake, "replace_rows", 1, "after"),
    "before the intent goes": (Intents, "remove", 1, "before"),
}


@pytest.mark.parametrize("point", RAW_POINTS)
def test_a_landing_that_dies_loses_and_doubles_nothing(
    expected: Undisturbed, tmp_path: Path, point: str
) -> None:
    lake, logs = str(tmp_path / "lake"), tmp_path / "logs"
    shutil.copytree(expected.logs, logs)

    def die() -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        arrange(RAW_POINTS[point], die, patch.setattr)
        with pytest.raises(DiedError):
            as_command.ingest(None, Settings(lake=lake, source=(str(logs),)))
    as_command.ingest(None, Settings(lake=lake, source=(str(logs),)))
    landed: dict[str, bytes] = {}
    for row in sorted(rows(lake, "raw_segments"), key=lambda row: (row["segment"], row["chunk_position"])):
        landed[row["segment"]] = landed.get(row["segment"], b"") + row["content"]
    assert landed == {f"file://{path}": path.read_bytes() for path in logs.rglob("*.log")}


@pytest.mark.parametrize("point", ["after the stage", "records added", "before the ledger"])
def test_decoding_landed_bytes_that_dies_is_finished_by_the_next(tmp_path: Path, point: str) -> None:
    lake, logs = str(tmp_path / "lake"), tmp_path / "logs"
    put(logs / "a-0", 0, *batches(0, 5))
    as_command.ingest(None, Settings(lake=lake, source=(str(logs),)))
    settings = Settings(lake=lake, from_raw=True, slice_bytes=100)

    def die() -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        arrange(POINTS[point], die, patch.setattr)
        with pytest.raises(DiedError):
            as_command.decode(None, settings)
    as_command.decode(None, settings)
    assert sorted(row["offset"] for row in rows(lake, "records")) == list(range(15))


def test_an_intent_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    runs = Intents(str(tmp_path))
    intent = Intent(
        app_id="app",
        version=3,
        run_id="run",
        files=[DataFile("records", "a%20'b\n", {"topic": "t"}, 1, {})],
        cut=[RowRange("t'\\", 0, "file:///a", 7)],
        goes_on={"file:///a": 7},
        put=[
            LedgerRow(
                topic="t", partition=0, partition_dir="file:///", segment="file:///a", file_base_offset=0
            )
        ],
        transactional=[("t'\\", 0)],
    )
    Path(runs._folder, "app-0000000009.json.tmp").write_text("{half")
    runs.write(intent)
    assert Intents(str(tmp_path)).pending() == [intent]
    with pytest.raises(UserError, match="another run"):
        runs.write(intent)
    runs.remove(intent)
    assert runs.pending() == []


def test_a_lake_that_takes_no_files_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^the lake .* can't be written: Not a directory$"):
        Intents(str(tmp_path / "file"))
    assert str(unwritable("the lake x", OSError())) == "the lake x can't be written: OSError: no message"


def test_rows_to_delete_are_named_safely() -> None:
    condition = delete_predicate("records", [RowRange("t'\\", 3, "file:///it's/x"), RowRange("u", 4, "s", 9)])
    assert condition == (
        "topic IN ('t''\\', 'u') AND \"partition\" IN (3, 4) AND "
        "(segment IN ('file:///it''s/x') OR (segment = 's' AND batch_position >= 9))"
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
    assert {p.name for p in Path(lake).iterdir()} == {*versions(lake), "_runs", "runs"}
    assert spark.read.format("delta").load(f"{lake}/records").count() == len(wanted)


def test_versions_of_a_run_are_the_same_in_every_table(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    before(tmp_path / "logs")
    decode(spark, lake, tmp_path / "logs")
    after(tmp_path / "logs")
    decode(spark, lake, tmp_path / "logs")
    for table in ("records", "batches", "quarantine", "segments"):
        assert DeltaTable(f"{lake}/{table}").transaction_version(DECODE_APP) == 2
