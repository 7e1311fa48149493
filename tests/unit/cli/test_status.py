"""What a person sees while a command works, and the tables it prints at the end."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli import status
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text, text_lines
from kafka_log_lake.pipelines.decode.print_summary import print_round
from kafka_log_lake.pipelines.decode.progress import Pace, Progress
from kafka_log_lake.pipelines.decode.summary import Summary, TopicTotals


class Terminal(io.StringIO):
    """A terminal that tells when a text was written."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self.awaited, self.seen = awaited, threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.awaited in self.getvalue():
            self.seen.set()
        return written

    def lines(self) -> list[str]:
        """What is left on the screen: text after the last erasure of each line."""
        return [line.split("\r\x1b[K")[-1] for line in self.getvalue().split("\n")]


def test_a_terminal_shows_one_line_that_is_rewritten_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = iter(["", "1 of 2 segments", "2 of 2 segments"])
    terminal = Terminal("2 of 2")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with status.phase("decoding", lambda: next(printed)):
        assert terminal.seen.wait(10)
        status.say("warning: a line that stays")
    assert "decoding: 0 s" in terminal.getvalue()
    assert terminal.getvalue().index("1 of 2 segments") < terminal.getvalue().index("2 of 2 segments")
    assert terminal.lines() == ["warning: a line that stays", ""]


def test_a_long_status_line_stays_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal("xx")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    with status.phase("x" * 100 + "\x1b[31m\n"):
        assert terminal.seen.wait(10)
    assert max(map(len, terminal.getvalue().replace("\r\x1b[K", "\n").split("\n"))) == 39
    assert "\n" not in terminal.getvalue()


def test_a_terminal_without_escapes_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal(""))
    monkeypatch.setenv("TERM", "dumb")
    assert not status.rewrites()


def test_a_detail_that_fails_does_not_disturb_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        terminal = Terminal("nothing")
        patch.setattr(sys, "stderr", terminal)
        with status.phase("decoding", lambda: str(1 // 0)):
            threading.Event().wait(0.1)
        assert terminal.getvalue() == ""
    assert capsys.readouterr().err == ""


def test_a_pipe_gets_nothing_of_a_short_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with status.phase("planning"):
        pass
    assert capsys.readouterr().err == ""


def test_progress_in_a_notebook_is_not_red(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jupyter shows standard error in red; its streams are of a class of ipykernel."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(status, "_FIRST_AFTER", 0.0)
    seen = threading.Event()

    def detail() -> str:
        seen.set()
        return "1 of 2 segments"

    with status.phase("decoding", detail):
        assert seen.wait(10)
    status.say("warning: one")
    assert capsys.readouterr().out == "decoding: 1 of 2 segments\n"
    assert stream.getvalue() == "warning: one\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (2.5e15, "2,500.0 TB"),
    ],
)
def test_sizes_are_reported_in_fitting_units(size: float, text: str) -> None:
    assert size_text(size) == text


def test_a_summary_shows_each_topic_and_damage_first() -> None:
    summary = Summary("run", "/lake", seconds=2.0, unchanged=3, skipped={"file is not a segment": 2})
    summary.add("a", 0, TopicTotals(batches=1, records=10, bytes=1_000_000))
    summary.add("a", 1, TopicTotals(batches=1, records=1_000, bytes=1_000_000))
    summary.add("b", 0, TopicTotals(batches=2, records=5, bytes=70, damaged=2))
    summary.damaged_segments = {"file:///logs/b-0/0.log": 2}
    summary.damaged_bytes = 1000
    lines = summary.to_text().splitlines()
    assert lines[:10] == [
        "decoded 3 segments (2.0 MB) in 2.0 s, 1.0 MB/s",
        "  topic  partitions  segments  batches  records   bytes  damaged ranges",
        "  b               1         1        2        5    70 B               2",
        "  a               2         2        2    1,010  2.0 MB               0",
        "damage",
        "  segment                 ranges  found by",
        "  file:///logs/b-0/0.log       2  this run",
        "nothing new in 3 known segments",
        "skipped: 2 x file is not a segment",
        "tables are in /lake",
    ]
    assert lines[-1] == (
        "verdict: not sound: 3 segments (2.0 MB) and 3 known segments (by length and fingerprint) checked, "
        "over 99.9% of the bytes are sound; 2 damaged ranges (1,000 bytes); "
        "lost: the offsets of damaged ranges, in the view lost_offsets"
    )


def test_a_round_of_watch_is_one_line_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("run", "/lake", seconds=2.0)
    print_round(summary)
    summary.add("a", 0, TopicTotals(batches=1, records=10, bytes=1_000_000, damaged=1))
    summary.damaged_bytes = 70
    print_round(summary)
    idle, busy = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ nothing new to decode", idle)
    assert busy.endswith(
        "Z decoded 1 segment (1.0 MB) in 2.0 s, 500.0 kB/s, 10 records, 1 damaged range (70 bytes)"
    )


def test_a_verdict_of_known_segments_says_what_was_not_compared() -> None:
    summary = Summary("run", "/lake", unchanged=3)
    assert summary.verdict_line() == (
        "verdict: sound: 3 known segments (by length and fingerprint) checked; "
        "nothing is damaged, nothing is lost"
    )
    summary.touched = 1
    assert summary.verdict_line().startswith("verdict: incomplete: 3 known segments")
    assert "not checked: the contents of 1 segment with a new modification time" in summary.verdict_line()
    assert f"verdict: {json.loads(summary.to_json())['verdict']}" == summary.verdict_line()
    (warning,) = summary.own_warnings()
    assert "the bytes between were not compared; --verify-content compares them" in warning


def test_a_summary_shows_twenty_topics_and_counts_the_others() -> None:
    summary = Summary("run", "/lake")
    for number in range(25):
        summary.add(f"topic-{number:02d}", 0, TopicTotals())
    (section,) = summary.sections()
    lines = list(text_lines(section))
    assert (lines[1].split()[0], lines[20].split()[0], lines[21]) == ("topic-00", "topic-19", "  and 5 more")


def test_words_get_their_plural() -> None:
    nouns = ("batch", "copy", "epoch", "key")
    assert [counted_noun(2, noun) for noun in nouns] == ["2 batches", "2 copies", "2 epochs", "2 keys"]


def test_a_stage_tells_bytes_the_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the whole job, whose bounded runs follow each other."""
    clock, details = [100.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    @contextmanager
    def phase(name: str, detail: Callable[[], str]) -> Iterator[None]:
        details.append(detail())
        clock[0] += 10
        share[0] = 0.5
        details.append(detail())
        yield

    monkeypatch.setattr(status, "phase", phase)
    progress, share = Progress(), [0.0]
    progress.planned, progress.planned_bytes = 30, 40_000_000_000
    for run in range(2):
        segments: Any = [
            SimpleNamespace(segment=f"{run}/{i}", planned_bytes=1_000_000_000) for i in range(10)
        ]
        share[0] = 0.0
        with progress.stage("decoding", segments, nullcontext(lambda: share[0])):
            pass
    assert details == [
        "0 B of 40.0 GB (0 of 30 segments)",
        "5.0 GB of 40.0 GB (5 of 30 segments), 500.0 MB/s, 1 min 10 s left",
        "10.0 GB of 40.0 GB (10 of 30 segments)",
        "15.0 GB of 40.0 GB (15 of 30 segments), 500.0 MB/s, 50 s left",
    ]


def test_a_bounded_run_is_of_about_half_a_minute() -> None:
    pace = Pace(10 << 30)
    assert pace.limit == 1 << 30
    pace.took(1 << 30, 10.0)
    assert pace.limit == 3 << 30
    pace.took(3 << 30, 1.0)
    assert pace.limit == 10 << 30
    pace.took(1000, 60.0)
    assert pace.limit == 1 << 30
    assert Pace(5).limit == 5
