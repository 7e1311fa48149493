"""Source files that change while a job runs: between the plan and the read, and between two reads.

Every change is made to a partition of its own, all of them at the same moment of one job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode import job
from tests.support import as_command
from tests.support.logs import batch, batches, contents, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.decode.summary import Summary

THEN = 1_700_000_000


def make(folder: Path, base: int, *batches: bytes) -> Path:
    """A segment of a certain time: the ledger keeps it, and the cleaner does."""
    path = put(folder, base, *batches)
    os.utime(path, (THEN, THEN))
    return path


def replace(path: Path, *batches: bytes) -> None:
    """Another file in this one's place, as the cleaner does it."""
    make(path.parent.parent / "being-made", 0, *batches).replace(path)


def before(logs: Path) -> None:
    """What an earlier run knows."""
    shutil.rmtree(logs, ignore_errors=True)
    make(logs / "goes-on-0", 0, batch(0), batch(3))


def planned(logs: Path) -> None:
    """What the run lists."""
    before(logs)
    make(logs / "goes-on-0", 0, batch(0), batch(3), batch(6), batch(9))
    for topic in ("deleted", "cut", "appended-closed", "merged"):
        make(logs / f"{topic}-0", 0, *batches(0, 2))
        make(logs / f"{topic}-0", 6, *batches(6, 2))
    for topic in ("appended", "same-length"):
        make(logs / f"{topic}-0", 0, *batches(0, 2))


def change(logs: Path) -> None:
    """What happens to it before it is read."""
    first, second = f"{0:020d}.log", f"{6:020d}.log"
    replace(logs / "goes-on-0" / first, batch(0), batch(6), batch(9), batch(12), batch(15, records=9))
    (logs / "deleted-0" / first).unlink()
    os.truncate(logs / "cut-0" / first, 100)
    os.utime(logs / "cut-0" / first, (THEN, THEN))
    make(logs / "appended-closed-0", 0, *batches(0, 2), batch(6, records=1))
    replace(logs / "merged-0" / first, *batches(0, 4))
    (logs / "merged-0" / second).unlink()
    make(logs / "appended-0", 0, *batches(0, 3))
    replace(logs / "same-length-0" / first, *batches(0, 2, text="w"))


# topic -> offsets that the run gives; and the segments that it leaves for the next one
GIVEN = {
    "goes-on": range(6),
    "deleted": range(6, 12),
    "cut": range(6, 12),
    "appended-closed": range(6, 12),
    "appended": range(6),
    "same-length": range(6),
}
LEFT = {("goes-on", 0), ("deleted", 0), ("cut", 0), ("appended-closed", 0), ("merged", 0), ("merged", 6)}


def decode(spark: SparkSession, lake: Path, logs: Path, **settings: Any) -> Summary:
    return as_command.decode(spark, Settings(lake=str(lake), source=(str(logs),), **settings))


def offsets(lake: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows(str(lake), "records"):
        found.setdefault(row["topic"], []).append(row["offset"])
    return {topic: sorted(numbers) for topic, numbers in found.items()}


def values(lake: Path, topic: str) -> set[bytes]:
    return {row["value"] for row in rows(str(lake), "records") if row["topic"] == topic}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changing") / "logs"


@pytest.fixture(scope="module")
def knowing(spark: SparkSession, lake_template: str, logs: Path) -> Path:
    """A lake that knows what was there before; no test writes to it."""
    lake = logs.parent / "knowing"
    shutil.copytree(lake_template, lake)
    before(logs)
    decode(spark, lake, logs)
    return lake


@pytest.fixture(scope="module")
def expected(spark: SparkSession, lake_template: str, logs: Path) -> dict[str, Any]:
    """The tables of an empty lake after one undisturbed run over the changed files."""
    lake = logs.parent / "undisturbed"
    shutil.copytree(lake_template, lake)
    planned(logs)
    change(logs)
    decode(spark, lake, logs)
    return contents(str(lake))


def change_once(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    logs: Path,
    *,
    returned: bool = False,
    how: Callable[[Path], object] = change,
) -> None:
    """Changes the files at the first call of a method: before it, or when it has returned."""
    original, left = getattr(owner, name), [how]

    def changing(*arguments: Any) -> Any:
        if left and not returned:
            left.pop()(logs)
        found = original(*arguments)
        if left:
            left.pop()(logs)
        return found

    patch.setattr(owner, name, changing)


@pytest.mark.parametrize("read", ["direct", "binary"])
def test_what_changes_after_planning_is_read_as_planned_or_left_for_the_next_run(
    spark: SparkSession,
    knowing: Path,
    expected: dict[str, Any],
    logs: Path,
    tmp_path: Path,
    read: str,
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(knowing, lake)
    planned(logs)
    with pytest.MonkeyPatch.context() as patch:
        change_once(patch, job, "make_plan", logs, returned=True)
        summary = decode(spark, lake, logs, read=read)
    assert offsets(lake) == {topic: list(numbers) for topic, numbers in GIVEN.items()}
    assert rows(str(lake), "quarantine") == []
    assert values(lake, "same-length") == {b"w%d" % i for i in range(6)}
    warned = [w for w in summary.warnings if "changed while it was read, left for the next run" in w]
    assert len(warned) == len(LEFT)
    for topic, base in LEFT:
        assert any(f"{logs}/{topic}-0/{base:020d}.log" in w for w in warned)
    decode(spark, lake, logs, read=read)
    assert contents(str(lake)) == expected


def test_of_many_segments_that_changed_the_first_are_named_and_the_others_counted(
    spark: SparkSession, tmp_path: Path, logs: Path
) -> None:
    paths = [make(logs / f"t-{n}", 0, *batches(0, 2)) for n in range(13)]

    def cut(_: Path) -> None:
        for path in paths:
            os.truncate(path, 100)

    with pytest.MonkeyPatch.context() as patch:
        change_once(patch, job, "make_plan", logs, returned=True, how=cut)
        summary = decode(spark, tmp_path / "lake", logs)
    *named, last = summary.warnings
    what = "changed while it was read, left for the next run"
    names = sorted(f"file://{path}" for path in paths)
    assert [text.partition(": ")[0] for text in named] == [f"{name} {what}" for name in names[:10]]
    assert last == f"and 3 more {what}"


def test_what_changes_before_it_is_landed_is_landed_by_the_next_run(
    spark: SparkSession,
    lake_template: str,
    expected: dict[str, Any],
    logs: Path,
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(lake_template, lake)
    settings = Settings(lake=str(lake), source=(str(logs),))
    before(logs)
    as_command.ingest(spark, settings)
    planned(logs)
    with pytest.MonkeyPatch.context() as patch:
        change_once(patch, job, "make_plan", logs, returned=True)
        as_command.ingest(spark, settings)
    landed = {(r["topic"], r["file_base_offset"]) for r in rows(str(lake), "raw_segments")}
    assert landed & LEFT == {("goes-on", 0)}
    as_command.ingest(spark, settings)
    as_command.decode(spark, Settings(lake=str(lake), from_raw=True))
    assert contents(str(lake)) == expected
