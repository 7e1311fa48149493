"""Ctrl-C, which a terminal sends to each process of a command, and SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.processes import wait_for

COMMAND = """
    import signal
    from pipelines.scanning.pool import WorkerPool

    def interrupted(number):
        signal.raise_signal(signal.SIGINT)
        return number

    with WorkerPool(2) as pool:
        print(sum(pool.map(interrupted, range(20))), flush=True)
"""


def test_a_worker_leaves_ctrl_c_to_its_parent() -> None:
    """A worker that it ends may keep the lock of the results: the others would wait for it for ever."""
    command = [sys.executable, "-c", textwrap.dedent(COMMAND)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "190\n", "")


def test_ctrl_c_ends_what_the_workers_have_not_begun(tmp_path: Path) -> None:
    command = """
        import os, signal, sys, time
        from pathlib import Path
        from pipelines.scanning import pool

        def interrupting(number):
            if number == 0:
                os.kill(os.getppid(), signal.SIGINT)
                for _ in range(1000):
                    time.sleep(0 if pool.is_ended() else 0.01)
            elif number == 1:
                Path(sys.argv[1]).touch()

        with pool._workers(2) as run:
            list(run(interrupting, range(128)))
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
