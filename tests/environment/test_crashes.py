"""Real processes killed and real disks full, at chosen points: the next run finishes what was begun.

A phase is seen from outside, by what lies in the lake. Death at every point between two things that a run
leaves behind is in ``test_commit``, death at random moments in ``tests.soak``.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.lake.path_lake import PathLake
from tests.soak import scenario, victims
from tests.soak.victims import DRIVER, Job
from tests.support.as_command import error_line, without_progress
from tests.support.cluster import ROOT
from tests.support.dying import arrange
from tests.support.logs import versions
from tests.support.processes import (
    A_MOMENT,
    as_anybody,
    descendants,
    is_locked,
    python_workers,
    send,
    stop_a_holder,
    wait_for,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SLICE_BYTES = 1 << 20


@dataclass(frozen=True)
class World:
    """Log directories, a lake that knows an earlier state of them, and the tables of an undisturbed run."""

    logs: Path
    known: Path
    expected: scenario.State

    def decode(self, spark: SparkSession, lake: Path, **settings: Any) -> None:
        source = (str(self.logs),)
        decode_batches.run(
            spark, Settings(lake=str(lake), source=source, slice_bytes=SLICE_BYTES, **settings)
        )

    def start(self, lake: Path, embedded: bool = False) -> Job:
        options = ["--slice-bytes", str(SLICE_BYTES)]
        log = lake.parent / "job.log"
        return victims.start(lake, self.logs, log, embedded=embedded, options=options)

    def main(self, lake: Path, *options: str) -> int:
        arguments = ["--source", str(self.logs), "--lake", str(lake), "--slice-bytes", str(SLICE_BYTES)]
        return decode_batches.main([*arguments, *options])

    def is_reached(self, lake: Path) -> None:
        assert scenario.state(lake).differences(self.expected) == []
        assert scenario.left_behind(lake) == []


@pytest.fixture(scope="module")
def world(spark: SparkSession, lake_template: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("crashes")
    made = World(place / "logs", place / "known", scenario.State({}))
    scenario.first_state(made.logs)
    shutil.copytree(lake_template, made.known)
    made.decode(spark, made.known)
    undisturbed = scenario.copy(made.known, place / "undisturbed")
    scenario.second_state(made.logs, bulk_batches=200)
    made.decode(spark, undisturbed)
    return World(made.logs, made.known, scenario.state(undisturbed))


@pytest.fixture
def lake(world: World, tmp_path: Path) -> Path:
    return scenario.copy(world.known, tmp_path / "lake")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_python_worker_that_is_killed_costs_a_task_and_no_row(
    spark: SparkSession, world: World, lake: Path
) -> None:
    failed: list[BaseException] = []

    def decode() -> None:
        try:
            world.decode(spark, lake)
        except BaseException as error:
            failed.append(error)

    job = threading.Thread(target=decode)
    job.start()
    writer = stop_a_holder(lambda: python_workers(os.getpid()), lake / "records", job.is_alive)
    os.kill(writer, signal.SIGKILL)
    job.join()
    assert failed == []
    world.is_reached(lake)
    assert scenario.orphans(lake) > 0


def test_a_worker_process_that_is_killed_costs_a_task_and_no_row(world: World, lake: Path) -> None:
    job = world.start(lake)
    os.kill(job.stop_a_writer(), signal.SIGKILL)
    assert job.wait() == 0, job.said()
    world.is_reached(lake)
    assert scenario.orphans(lake) > 0


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_tasks_write_keeps_what_is_whole_and_a_second_one_ends_at_once(
    spark: SparkSession, world: World, lake: Path, presses: int
) -> None:
    """A terminal sends the signal to every process of the command."""
    before = versions(str(lake))
    job = world.start(lake)
    writer = job.stop_a_writer()
    below = [job.process.pid, *descendants(job.process.pid)]
    for _ in range(presses):
        send(below, signal.SIGINT)
        wait_for(lambda: "Ctrl-C again stops at once" in job.said(), lambda: job.is_alive)
    send([writer], signal.SIGCONT)
    assert job.wait() == 130
    last = without_progress(job.said())[-1]
    kept = re.fullmatch(
        r"interrupted(: (\d+) of \d+ segments are in the lake)?; start the same command again to continue",
        last,
    )
    assert kept
    assert (kept.group(1) is None) == (presses == 2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in below[1:])
    assert (versions(str(lake)) == before) == (presses == 2 or kept.group(2) == "0")
    world.decode(spark, lake)
    world.is_reached(lake)


def kill_driver(job: Job, *standing: int) -> None:
    """Kills the job's Python, and waits until those below have seen it and gone too, and who was standing."""
    below = descendants(job.process.pid)
    (pid,) = job.victims(DRIVER)
    os.kill(pid, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    send(standing, signal.SIGCONT)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), lambda: True)


@pytest.mark.parametrize("embedded", [False, True], ids=["processes", "Spark"])
def test_a_driver_killed_while_tasks_write_has_changed_no_table(
    spark: SparkSession, world: World, lake: Path, embedded: bool
) -> None:
    before = versions(str(lake))
    job = world.start(lake, embedded)
    kill_driver(job, job.stop_a_writer())
    assert versions(str(lake)) == before
    assert Intents(str(lake)).pending() == []
    world.decode(spark, lake)
    world.is_reached(lake)


def test_a_driver_killed_between_two_commits_is_succeeded_by_the_next(
    spark: SparkSession, world: World, lake: Path
) -> None:
    before = scenario.committed(lake)
    job = world.start(lake)
    wait_for(victims.reaches(job, "between commits"), lambda: job.is_alive, A_MOMENT)
    kill_driver(job)
    (intent,) = Intents(str(lake)).pending()
    done = {name for name, version in scenario.committed(lake).items() if version == intent.version}
    assert {"records"} <= done < {*before}
    world.decode(spark, lake)
    world.is_reached(lake)


def test_of_two_runs_at_once_one_leaves_with_one_line_and_the_other_wins(
    spark: SparkSession, world: World, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = world.start(lake)
    wait_for(lambda: is_locked(lake / "_runs" / "lock"), lambda: job.is_alive, A_MOMENT)
    with stopped(job.process.pid):
        assert world.main(lake) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (f"error: another run is writing to {lake}: wait for it to end, then start again")
    assert job.wait() == 0, job.said()
    world.is_reached(lake)


@contextmanager
def full_disk(pids: list[int], room: int) -> Iterator[None]:
    """No file of these processes can grow past ``room`` bytes: EFBIG, where a full disk says ENOSPC."""
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        for pid in {*limits, *descendants(os.getpid())}:
            if Path(f"/proc/{pid}").exists():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits.get(pid, limits[pids[0]]))


def test_a_disk_that_is_full_while_tasks_write_is_reported_in_one_line(
    spark: SparkSession, world: World, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = versions(str(lake))
    with full_disk(descendants(os.getpid()), room=1024):
        assert world.main(lake) == 1
    said = error_line(capsys.readouterr().err)
    assert "File too large" in said
    assert versions(str(lake)) == before
    assert Intents(str(lake)).pending() == []
    world.decode(spark, lake)
    world.is_reached(lake)


# What is called when the disk is full, at which call -> whether the next run has an intent to finish
COMMITS = {
    "the intent": ((Intents, "write", 1, "before"), 0),
    "records": ((DeltaTable, "create_write_transaction", 1, "before"), 1),
    "batches": ((DeltaTable, "create_write_transaction", 2, "before"), 1),
    "the ledger": ((PathLake, "replace_ledger", 1, "before"), 1),
}


@pytest.mark.parametrize("point", COMMITS)
def test_a_disk_that_is_full_at_a_commit_leaves_what_the_next_run_finishes(
    spark: SparkSession, world: World, lake: Path, capsys: pytest.CaptureFixture[str], point: str
) -> None:
    where, pending = COMMITS[point]
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        arrange(where, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard)), patch.setattr)
        try:
            code = world.main(lake)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 1
    said = error_line(capsys.readouterr().err)
    assert "File too large" in said
    assert len(Intents(str(lake)).pending()) == pending
    world.decode(spark, lake)
    world.is_reached(lake)


def test_a_read_only_lake_is_reported_in_one_line(spark: SparkSession, world: World, lake: Path) -> None:
    before = versions(str(lake))
    folders = [lake, *(p for p in lake.rglob("*") if p.is_dir())]
    modes = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in folders}
    for folder in folders:
        folder.chmod(0o555)
    try:
        arguments = ["--source", str(world.logs), "--lake", str(lake)]
        command = as_anybody("-m", "pipelines.decode_batches", *arguments)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)
    assert (done.returncode, done.stderr) == (
        2,
        f"error: the lake {lake} cannot be written: {lake} is not writable for this user; name "
        "another folder\n",
    )
    assert versions(str(lake)) == before
    world.decode(spark, lake)
    world.is_reached(lake)
