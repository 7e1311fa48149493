"""Ctrl-C, which a terminal sends to each process of a command, and SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.engine.pool import WorkerPool
from tests.support import logs
from tests.support.kept_workers import KeptWorkers
from tests.support.processes import wait_for
from tests.support.segment_maker import Batch, Record


@pytest.fixture(scope="module", autouse=True)
def _kept_workers(workers: KeptWorkers) -> None:
    """Here each worker ends with its job."""
    workers.end()


COMMAND = """
    import signal
    from kafka_log_lake.pipelines.engine.pool import WorkerPool

    def interrupted(number):
        signal.raise_signal(signal.SIGINT)
        return number

    with WorkerPool(2, is_forked=True) as pool:
        print(sum(pool.map(interrupted, range(20))), flush=True)
"""


def test_a_worker_leaves_ctrl_c_to_its_parent() -> None:
    """A worker that it ended would have to do its task again."""
    command = [sys.executable, "-c", textwrap.dedent(COMMAND)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "190\n", "")


def test_ctrl_c_ends_what_the_workers_have_not_begun(tmp_path: Path) -> None:
    command = """
        import os, signal, sys, time
        from pathlib import Path
        from kafka_log_lake.pipelines.engine.pool import WorkerPool

        def interrupting(number):
            if number == 0:
                os.kill(os.getppid(), signal.SIGINT)
                time.sleep(60)
            elif number == 1:
                Path(sys.argv[1]).touch()

        with WorkerPool(1, is_forked=True) as pool:
            list(pool.map(interrupting, range(128)))
    """
    begun = tmp_path / "begun"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(command), begun],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert not begun.exists()


def test_a_command_that_is_terminated_removes_its_temporary_files(lake_template: str, tmp_path: Path) -> None:
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"
    command = [sys.executable, "-m", "kafka_log_lake", "query", "--lake", lake_template, endless]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: list(tmp_path.glob("kafka-log-lake-*")), lambda: process.poll() is None)
            process.send_signal(signal.SIGTERM)
            assert (process.communicate(timeout=60)[1], process.returncode) == ("", -signal.SIGTERM)
        finally:
            process.kill()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_keeps_what_was_decoded_and_the_next_run_does_the_rest(
    presses: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition, offset in product(range(20), range(3)):
        logs.put(tmp_path / f"logs/t-{partition}", offset, Batch([Record(b"k")], base_offset=offset).encode())
    command = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--cores", "1"]
    command += ["--slice-bytes", "100"]  # a group is a segment, a task has several
    run, left = WorkerPool._run, [presses]

    def interrupted(self: WorkerPool, *args: Any) -> object:
        answer = run(self, *args)
        while left[0] > 0:
            left[0] -= 1
            os.kill(os.getpid(), signal.SIGINT)
            wait_for(lambda: self.was_stopped, lambda: True)
        return answer

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # that of other tests
    monkeypatch.setattr(WorkerPool, "_run", interrupted)
    assert decode_batches.main(command) == 130
    printed = capsys.readouterr().err
    assert "Ctrl-C again stops at once" in printed
    assert printed.endswith("start the same command again to continue\n")
    before = offsets(tmp_path / "lake")
    assert all(found == list(range(len(found))) for found in before.values()), "a log without its middle"
    decoded = sum(map(len, before.values()))
    assert (0 < decoded < 60) if presses == 1 else decoded == 0
    assert (f"interrupted: {decoded} of 60 segments are in the lake; " in printed) == (presses == 1)

    assert decode_batches.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["segments"] == 60 - decoded
    assert offsets(tmp_path / "lake") == {partition: [0, 1, 2] for partition in range(20)}
    runs = DeltaTable(tmp_path / "lake/runs").to_pyarrow_table().column("segments").to_pylist()
    assert sorted(runs) == sorted(filter(None, (decoded, 60 - decoded)))


def offsets(lake: Path) -> dict[int, list[int]]:
    """The offsets of each partition in ``records``."""
    found: dict[int, list[int]] = {}
    for row in DeltaTable(lake / "records").to_pyarrow_table(columns=["partition", "offset"]).to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(one) for partition, one in sorted(found.items())}
