"""``--watch``: a process that follows logs while they grow, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines import decode_batches
from pipelines.command.errors import DamageFound, RunFailed
from pipelines.execute.watch import watch
from tests.support.logs import batch, put, rows

PROJECT = Path(__file__).resolve().parent.parent


@contextmanager
def watching(logs: Path, lake: str) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--source", str(logs), "--lake", lake, "--watch", "--interval", "0.1", "--json"]
    command = [sys.executable, "-m", "pipelines.decode_batches", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def told(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Segments and records of the next run that decoded something."""
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    return line["segments"], line["records"]


def offsets(lake: str) -> list[int]:
    return [row["offset"] for row in sorted(rows(lake, "records"), key=lambda row: row["offset"])]


@pytest.mark.spark
def test_every_record_that_is_written_meanwhile_arrives_once(lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    path = put(logs / "a-0", 0, batch(0))
    whole = batch(6)
    with watching(logs, lake) as process:
        assert told(process) == (1, 3)
        with path.open("ab") as file:
            file.write(batch(3) + whole[:40])  # the broker is in the middle of a batch
        assert told(process) == (1, 3)
        with path.open("ab") as file:
            file.write(whole[40:])
        put(logs / "b-0", 0, batch(0, 1))
        found = [told(process)]
        if found == [(1, 3)] or found == [(1, 1)]:  # a run between the two
            found.append(told(process))
        assert sum(records for _, records in found) == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert offsets(lake) == sorted([*range(9), 0])
    assert os.listdir(f"{lake}/_runs") == ["lock"]


class Stopped(Exception):
    pass


def test_an_error_of_the_first_run_ends_it_and_a_later_one_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan: list[Exception | None] = [
        None,
        RunFailed("disk full"),
        None,
        RunFailed("a"),
        RunFailed("b"),
        Stopped("c"),
    ]

    def run() -> None:
        error = plan.pop(0)
        if error is not None:
            raise error

    with pytest.raises(Stopped):
        watch(run, 0.0)
    assert plan == []
    plan = [RunFailed("wrong from the start"), None]
    with pytest.raises(RunFailed):
        watch(run, 0.0)
    plan = [None, DamageFound("2 damaged ranges"), None]
    with pytest.raises(DamageFound):
        watch(run, 0.0)


def test_watch_and_redecode_are_refused(
    lake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    arguments = ["--source", str(tmp_path), "--lake", lake, "--watch", "--redecode", "a"]
    assert decode_batches.main(arguments) == 2
    assert "--watch would repeat --redecode" in capsys.readouterr().err
