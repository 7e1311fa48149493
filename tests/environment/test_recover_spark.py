"""``recover`` in a session of Spark: the same lake as by worker processes, in both engines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.recover import command as recover
from kafka_log_lake.pipelines.recover import job
from tests.support import as_command
from tests.support.answers import same_in_both
from tests.support.logs import batch, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("replica_report", "divergence", "lost_ranges", "lost_records", "healed_batches", "healed_records")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """One copy diverged, another is damaged; a second partition has damage in its only copy."""
    folder = tmp_path_factory.mktemp("disks")
    hurt = bytearray(batch(3))
    hurt[-1] ^= 1
    put(folder / "one" / "t-0", 0, batch(0), batch(3), batch(6, text="alone"))
    put(folder / "two" / "t-0", 0, batch(0), bytes(hurt), batch(6, text="true", leader_epoch=1))
    put(folder / "two" / "t-1", 0, batch(0), bytes(hurt), batch(6))
    return tuple(f"{name}={folder / name}" for name in ("one", "two"))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, sources: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lake") / "spark"
    named = [f"--source={one}" for one in sources]
    assert recover.main([*named, "--lake", str(found), "--with-copies", "--cores", "2"]) == 0
    return found


def test_its_tasks_give_what_worker_processes_give(
    sources: tuple[str, ...], lake: Path, tmp_path: Path
) -> None:
    settings = Settings(source=sources, lake=str(tmp_path / "here"), cores=1)
    job.recover(settings, partial(as_command.decode, None), map)
    assert rows(tmp_path / "here") == rows(lake)


def rows(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, without the places of the lake's own files."""
    own = {"segment", "run_id"}
    found = {}
    for name in TABLES:
        table = connect(str(lake)).sql(f"SELECT * FROM {name} ORDER BY ALL").to_arrow_table()
        found[name] = table.drop_columns([one for one in table.column_names if one in own]).to_pylist()
    assert all(found.values())
    return found


@pytest.mark.parametrize("log", [None, "healed", "two"])
def test_both_engines_give_the_same_of_each_log(spark: SparkSession, lake: Path, log: str | None) -> None:
    names = TABLES if log != "two" else ("records", "quarantine", "committed_records")
    register_views(spark, str(lake), " ".join(names), log=log)
    database = connect(str(lake), log=log)
    for name in names:
        assert same_in_both(spark, database, f"SELECT * FROM {name}"), name
