"""A tier and a disk that change between runs of ``decode``, and runs that die: each record once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.lake.path_lake import PathLake
from tests.feature.tier.test_tier_in_lakes import DATA, committed, decode, truth
from tests.support.answers import asked
from tests.support.docs import ROOT
from tests.support.dying import POINTS, DiedError, arrange

STEPS = {
    name: POINTS[name]
    for name in (
        *("after the stage", "after the intent", "records added", "batches added"),
        *("before the ledger", "before the intent goes"),
    )
} | {
    "before the report of the tier": (PathLake, "replace_report_rows", 1, "before"),
    "after the report of the tier": (PathLake, "replace_report_rows", 1, "after"),
    "after the places of segments": (PathLake, "replace_report_rows", 2, "after"),
}
FIRST_ON_DISK = 609


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "local", tmp_path / "case"))


def on_disk(case: Path) -> Path:
    return case / "log-dir" / "small-0"


def as_before_retention(case: Path) -> None:
    """Puts all segments of the tier back on the disk, where they lay first."""
    for path in (case / "tier").rglob("*.log"):
        shutil.copy(path, on_disk(case) / f"{path.name[:20]}.log")


def hidden(case: Path, below: int) -> Path:
    """Takes the objects of segments that begin below an offset out of the tier; returns where they are."""
    away = case / "away"
    for path in sorted((case / "tier").rglob("*-*.*")):
        if int(path.name[:20]) < below:
            target = away / path.relative_to(case / "tier")
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    return away


def uploaded(case: Path, below: int) -> None:
    """Puts hidden objects of segments that begin below an offset into the tier."""
    for path in sorted((case / "away").rglob("*-*.*")):
        if int(path.name[:20]) < below:
            path.rename(case / "tier" / path.relative_to(case / "away"))


def state(lake: Path) -> list[tuple[object, ...]]:
    """Returns what a run that adds nothing leaves as it is."""
    rows = asked(lake, "SELECT segment, records, decoded_at FROM segments ORDER BY segment")
    return [*rows, (DeltaTable(lake / "records").version(),)]


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_dies_at_a_step_is_finished_by_the_next(step: str, case: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"

    def die() -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        arrange(STEPS[step], die, patch.setattr)
        with pytest.raises(DiedError):
            decode(case, lake)
    decode(case, lake)
    assert committed(lake) == truth("local")
    assert asked(lake, "SELECT count(*) FROM segment_places") == [(14,)]
    before = state(lake)
    decode(case, lake)
    assert state(lake) == before


def test_objects_that_come_after_the_disk_has_lost_them_are_decoded_when_they_are_there(
    case: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    hidden(case, 409)
    decode(case, lake)
    assert committed(lake) == {row for row in truth("local") if row[2] >= 409}
    uploaded(case, 409)
    decode(case, lake)
    assert committed(lake) == truth("local")
    before = state(lake)
    decode(case, lake)
    assert state(lake) == before


def test_segments_that_leave_the_disk_before_and_after_their_upload_are_decoded_once(
    case: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    as_before_retention(case)
    hidden(case, FIRST_ON_DISK)
    decode(case, lake)
    assert committed(lake) == truth("local")
    before = state(lake)
    uploaded(case, 300)  # both have them
    decode(case, lake)
    uploaded(case, FIRST_ON_DISK)
    for path in on_disk(case).glob("*.log"):
        if int(path.stem) < FIRST_ON_DISK:
            path.unlink()
    decode(case, lake)
    assert committed(lake) == truth("local")
    assert state(lake) == before


def test_a_disk_that_lost_the_topic_takes_nothing_from_a_lake(case: Path, tmp_path: Path) -> None:
    """Uploads have the times that the cleaner's output would have: that of the last file, in milliseconds."""
    lake, anew = tmp_path / "lake", tmp_path / "anew"
    last_file = on_disk(case) / f"{739:020}.log"
    for path in [last_file, *(case / "tier").rglob("*-*.*")]:
        os.utime(path, ns=(1_740_787_364_580_000_000,) * 2)
    decode(case, lake)
    shutil.rmtree(on_disk(case))
    decode(case, lake)
    assert committed(lake) == truth("local")
    decode(case, anew)
    assert committed(anew) == {row for row in truth("local") if row[2] <= 738}  # the end of the tier


@contextmanager
def watching(case: Path, lake: Path) -> Iterator[subprocess.Popen[str]]:
    places = ["--source", str(case / "log-dir"), "--tier", str(case / "tier"), "--lake", str(lake)]
    command = [sys.executable, "-m", "kafka_log_lake", "decode", *places, "--topics", "small"]
    command += ["--watch", "--interval", "0.1", "--json", "--cores", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_run_that_watches_follows_a_tier_that_grows(case: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    hidden(case, 409)
    with watching(case, lake) as process:
        assert process.stdout is not None
        rounds = [json.loads(process.stdout.readline())]
        for below in (200, 409):
            uploaded(case, below)
            while sum(one["records"] for one in rounds) < sum(
                row[2] < below or row[2] >= 409 for row in truth("local")
            ):
                rounds.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert sum(one["records"] for one in rounds) == len(truth("local"))
    assert committed(lake) == truth("local")
    of_tier = [one["reads"]["tier"]["bytes"] for one in rounds]
    sizes = {int(path.name[:20]): path.stat().st_size for path in (case / "tier").rglob("*.log")}
    assert sum(of_tier) < 1.2 * sum(size for base, size in sizes.items() if base < FIRST_ON_DISK)
