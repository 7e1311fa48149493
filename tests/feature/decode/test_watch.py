"""``--watch``: a process that follows logs while they grow, and ends on a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.errors import DamageFound, RunFailed
from kafka_log_lake.pipelines.cli.options import set_up_logging
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.watch import Batching, watch
from kafka_log_lake.pipelines.lake.intents import Intents
from tests.support.logs import batch, put, rows
from tests.support.processes import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parents[3]


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


def printed(process: subprocess.Popen[str]) -> tuple[int, int]:
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
        assert printed(process) == (1, 3)
        with path.open("ab") as file:
            file.write(batch(3) + whole[:40])  # the broker is in the middle of a batch
        assert printed(process) == (1, 3)
        with path.open("ab") as file:
            file.write(whole[40:])
        put(logs / "b-0", 0, batch(0, 1))
        found = [printed(process)]
        if found == [(1, 3)] or found == [(1, 1)]:  # a run between the two
            found.append(printed(process))
        assert sum(records for _, records in found) == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert offsets(lake) == sorted([*range(9), 0])
    assert os.listdir(f"{lake}/_runs") == ["lock"]


def test_a_stop_while_it_still_starts_ends_it_as_a_later_one_does(lake: str, tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a-0", 0, batch(0))
    with watching(tmp_path / "logs", lake) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        wait_for(lambda: "pyarrow" in maps.read_text(), lambda: process.poll() is None)  # it imports
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


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
    assert caplog.messages == [f"{one}; the next run tries again" for one in ("disk full", "a", "b")]
    plan = [RunFailed("wrong from the start"), None]
    with pytest.raises(RunFailed):
        watch(run, 0.0)
    plan = [None, DamageFound("2 damaged ranges"), None]
    with pytest.raises(DamageFound):
        watch(run, 0.0)


def test_watch_waits_while_another_job_holds_the_lake(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    other = ExitStack()
    runs, done = 0, []

    def run() -> None:
        nonlocal runs
        runs += 1
        if runs in (1, 8):
            other.enter_context(Intents(lake).lock())
        if runs in (6, 13):
            other.close()
        with Intents(lake).lock():
            done.append(runs)
        if runs == 14:
            signal.raise_signal(signal.SIGTERM)

    with other:
        watch(run, 0.0)
    assert done == [6, 7, 13, 14]
    line = f"another run is writing to {lake}: waiting until it ends"
    assert capsys.readouterr().err.splitlines() == [line] * 2


def test_watch_and_redecode_are_refused(
    lake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    arguments = ["--source", str(tmp_path), "--lake", lake, "--watch", "--redecode", "a"]
    assert decode_batches.main(arguments) == 2
    assert "--watch would repeat --redecode" in capsys.readouterr().err


# Changes that wait

Decoded = tuple[int, int] | None  # segments and records of a run; None if it decoded nothing
Script = Generator[float, Decoded, None]


@pytest.fixture
def follow(
    spark: SparkSession,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """``decode --watch`` on ``logs``, whose runs a script calls; its exit code, and what it said at the end.

    A script changes files, yields the second at which the next run begins, and gets what that run decoded.
    """

    def decoded() -> Decoded:
        lines = capsys.readouterr().out.splitlines()
        found = [json.loads(line) for line in lines]
        return (found[0]["segments"], found[0]["records"]) if found else None

    def call(script: Callable[[], Script], *options: str) -> tuple[int, str]:
        now = 0.0

        def by_script(run: Callable[[], None], interval: float) -> None:
            nonlocal now
            run()
            steps, last = script(), decoded()
            now = next(steps)
            while True:
                run()
                last = decoded()
                try:
                    now = steps.send(last)
                except StopIteration:
                    return

        monkeypatch.setattr(decode_batches, "watch", by_script)
        monkeypatch.setattr(decode_batches, "Batching", partial(Batching, clock=lambda: now))
        source = ["--source", str(tmp_path / "logs"), "--lake", lake]
        code = decode_batches.main([*source, "--watch", "--json", *options])
        return code, capsys.readouterr().err

    return call


def add(path: Path, *batches: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(batches))


def test_changes_wait_until_they_are_many_or_old(
    follow: Callable[..., tuple[int, str]], lake: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "logs" / "a-0", 0, batch(0))
    three = len(batch(3) + batch(6) + batch(0))

    def script() -> Script:
        add(path, batch(3))
        assert (yield 1) is None
        add(path, batch(6))
        assert (yield 2) is None
        assert offsets(lake) == [0, 1, 2]
        put(tmp_path / "logs" / "b-0", 0, batch(0))
        assert (yield 3) == (2, 9)  # bytes, of both logs
        assert (yield 4) is None
        add(path, batch(9))
        assert (yield 5) is None
        add(path, batch(12))
        assert (yield 64.5) is None
        assert (yield 65) == (1, 6)  # the older of both has waited for so long
        add(path, batch(15))
        assert (yield 66) is None

    code, printed = follow(script, "--commit-bytes", str(three), "--commit-lag", "60")
    assert code == 0
    (line,) = printed.splitlines()
    size = len(batch(15))
    assert line == f"not decoded yet: {size} B of new bytes in 1 segment; the next start decodes them at once"
    assert offsets(lake) == sorted([*range(15), 0, 1, 2])

    def nothing_more() -> Script:
        assert offsets(lake) == sorted([*range(18), 0, 1, 2])
        assert (yield 1) is None

    code, printed = follow(nothing_more, "--commit-lag", "60")
    assert (code, printed) == (0, "")


def test_changes_that_are_no_growth_wait_no_longer_than_others(
    follow: Callable[..., tuple[int, str]], lake: str, tmp_path: Path
) -> None:
    first, second = (put(tmp_path / "logs" / "a-0", base, batch(base)) for base in (0, 3))
    times = {first: 1_700_000_000, second: 1_700_000_100}
    for path, time in times.items():
        os.utime(path, (time, time))

    def values() -> list[bytes]:
        return sorted(row["value"] for row in rows(lake, "records"))

    def script() -> Script:
        second.unlink()  # the log cleaner found nothing to keep in it
        os.utime(first, (times[second], times[second]))
        assert (yield 1) is None
        assert offsets(lake) == [*range(6)]
        assert (yield 61) is None
        assert values() == [b"v0", b"v1", b"v2"]
        first.write_bytes(batch(0, text="w"))
        assert (yield 70) is None
        assert (yield 129) is None
        assert values() == [b"v0", b"v1", b"v2"]
        assert (yield 130) == (1, 3)
        assert values() == [b"w0", b"w1", b"w2"]
        first.write_bytes(b"")
        assert (yield 131) is None
        assert (yield 191) == (1, 0)
        assert values() == []

    assert follow(script, "--commit-bytes", "1GiB")[0] == 0  # which waits for a minute at most


def test_a_change_is_due_until_a_run_has_ended_well() -> None:
    now = 0.0
    one = Batching(Settings(commit_lag=60.0), lambda: now)
    plan: Any = SimpleNamespace(has_changes=True, planned=1, new_bytes=1)
    assert one.is_due(plan)  # the first run
    one.done()
    assert not one.is_due(plan)
    one.done()
    now = 60.0
    assert one.is_due(plan)  # and fails
    assert one.is_due(plan)
    one.done()
    assert not one.is_due(plan)


COMMITS = "--commit-bytes and --commit-lag say when a run of --watch decodes: add --watch"
WAITS = "--interval says how long --watch waits between two runs: add --watch"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [("--commit-bytes", "1MiB", COMMITS), ("--commit-lag", "60", COMMITS), ("--interval", "5", WAITS)],
)
def test_waiting_without_watch_is_refused(
    lake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, value: str, why: str
) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    assert decode_batches.main(["--source", str(tmp_path), "--lake", lake, option, value]) == 2
    assert capsys.readouterr().err == f"error: {why}\n"
