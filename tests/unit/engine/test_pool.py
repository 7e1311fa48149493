"""Worker processes: every task is answered once, whatever becomes of the process that had it."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_log_lake.pipelines.cli.errors import RunFailed, one_line
from kafka_log_lake.pipelines.engine.pool import StartedWorker, WorkerPool
from kafka_log_lake.udfs import now_reading
from kafka_log_lake.udfs.calls import MakeStage, StageFailed, ask, run_stage
from tests.support import stages
from tests.support.cluster import ROOT
from tests.support.kept_workers import KeptWorkers
from tests.support.processes import children, local_workers, wait_for


@pytest.fixture(scope="module", autouse=True)
def _kept_workers(workers: KeptWorkers) -> None:
    """Here each worker ends with its job."""
    workers.end()


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    started = WorkerPool(2)
    yield started
    started.close()
    assert local_workers(os.getpid()) == []


def tasks(*numbers: int) -> list[pa.Table]:
    return [pa.table({"n": [n]}) for n in numbers]


def found(answers: list[pa.Table]) -> list[int]:
    return [n for answer in answers for n in answer.column("n").to_pylist()]


def run(pool: WorkerPool, make: MakeStage, some: Iterable[pa.Table]) -> list[pa.Table]:
    return list(pool.map(partial(run_stage, make), some))


def test_answers_come_in_the_order_of_the_tasks(pool: WorkerPool) -> None:
    many = pa.table({"n": range(5_000)})  # of more than one batch
    answers = run(pool, stages.doubled, [*tasks(3, 1, 2), many])
    assert found(answers) == [6, 2, 4, *range(0, 10_000, 2)]
    assert [rows.num_rows for rows in run(pool, stages.doubled, [many.slice(0, 0)])] == [0]
    assert pool.finished_share() == 1


def test_workers_share_tasks_and_are_used_again(pool: WorkerPool) -> None:
    first = set(found(run(pool, stages.own_pid, tasks(*range(6)))))
    assert len(first) == 2
    assert set(found(run(pool, stages.own_pid, tasks(*range(6))))) == first
    assert os.getpid() not in first


def test_one_task_starts_one_worker(pool: WorkerPool) -> None:
    run(pool, stages.doubled, tasks(1))
    assert len(local_workers(os.getpid())) == 1


def test_what_a_library_prints_is_no_answer(pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    assert found(run(pool, partial(stages.doubled, "a warning"), tasks(1, 2))) == [2, 4]
    printed = capfd.readouterr()
    assert (printed.out, "a warning" in printed.err) == ("", True)


def test_no_module_of_the_current_folder_is_taken_for_ours(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("pyarrow.py", "kafka_log_lake.udfs.py"):
        (tmp_path / name).write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    assert found(run(pool, stages.doubled, tasks(1))) == [2]


def test_an_error_of_a_stage_is_reported_in_one_line(pool: WorkerPool) -> None:
    with pytest.raises(StageFailed) as failed:
        run(pool, stages.refused, tasks(7))
    assert one_line(failed.value) == "ValueError: nothing can be done with [7]"
    assert found(run(pool, stages.doubled, tasks(1))) == [2]


def test_ctrl_c_ends_no_worker_that_is_starting() -> None:
    started = StartedWorker()
    try:
        os.kill(started._process.pid, signal.SIGINT)
        assert found(
            [ask(started.connection, pickle.dumps((partial(run_stage, stages.doubled), *tasks(1))))]
        ) == [2]
    finally:
        started.end()


def test_a_task_of_a_killed_worker_is_done_by_another(pool: WorkerPool, tmp_path: Path) -> None:
    killed = partial(stages.killed, str(tmp_path / "mark"), 3)
    assert found(run(pool, killed, tasks(1, 2, 3, 4, 5))) == [2, 4, 6, 8, 10]


def test_a_task_that_kills_each_of_its_workers_fails(pool: WorkerPool, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"^a worker process was ended by SIGKILL, as the system does where"):
        run(pool, partial(stages.killed, str(tmp_path / "mark"), 99), tasks(1))
    assert (tmp_path / "mark").stat().st_size == 4


def test_workers_work_where_the_system_has_no_place_for_their_notes(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_: str) -> int:
        raise PermissionError(errno.EACCES, "vm.memfd_noexec")

    monkeypatch.setattr("os.memfd_create", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(RunFailed, match=r"^a worker process was ended by SIGKILL, as the system does where"):
        run(pool, partial(stages.killed, str(tmp_path / "mark"), 99), tasks(1))
    assert found(run(pool, stages.doubled, tasks(1, 2))) == [2, 4]


@pytest.mark.parametrize("name", ["/logs/\ud800.log", "/" + "ü" * 5_000])
def test_any_name_can_be_noted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryFile() as file:
        monkeypatch.setattr(now_reading, "_place", file.fileno())
        now_reading.note(name)
        noted = now_reading.noted(file.fileno())
    assert noted.startswith(name.encode(errors="backslashreplace").decode()[:1_000])


def test_where_no_worker_starts_the_task_fails(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RunFailed, match=r"^a worker process ended with code 1$"):
        run(pool, stages.doubled, tasks(1))


def test_a_failed_task_ends_those_that_run_next_to_it(pool: WorkerPool) -> None:
    with pytest.raises(StageFailed):
        run(pool, stages.failing_or_stuck, tasks(0, 1, 0, 0))
    assert local_workers(os.getpid()) == []


def test_workers_of_a_killed_process_end_with_it() -> None:
    """The kernel closes their input; nobody is left to end them."""
    code = (
        "from tests.unit.engine.test_pool import *\n"
        "one = WorkerPool(2)\n"
        "pids = set(found(run(one, stages.own_pid, tasks(*range(6)))))\n"
        "print(*pids, flush=True)\n"
        "input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = {int(pid) for pid in parent.stdout.readline().split()}
        assert set(children()[parent.pid]) == pids
        parent.kill()
    assert len(pids) == 2
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), lambda: True)


def test_a_task_that_finds_the_disk_full_leaves_no_file(tmp_path: Path) -> None:
    def decode(topic: str, most: str) -> subprocess.CompletedProcess[str]:
        """most: kB of a file, past which a write fails."""
        job = f"ulimit -f {most} && exec {sys.executable} -m kafka_log_lake decode --lake {tmp_path}/lake"
        command = ["bash", "-c", f"{job} --source tests/data/corpus/{topic}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert decode("v2-headers", "unlimited").returncode == 0
    before = set(tmp_path.rglob("*.parquet"))
    done = decode("v2-codec-none", "4")
    assert (done.returncode, done.stderr.count("error: "), "Traceback" in done.stderr) == (1, 1, False)
    assert "File too large" in done.stderr
    assert set(tmp_path.rglob("*.parquet")) == before
