"""The last line of scan, decode and the quality report: what was checked, what is sound, what is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.scan import command as scan
from tests.support.logs import batch, data, marker, put

LOST_IN_TAIL = "lost: an unknown number of offsets in the tails of 1 log"
SMALL = batch(0)
CASES = {
    "zeros": (
        [bytes(10_000)],
        "not sound: 1 segment (10.0 kB) checked, 0% of the bytes are sound; 1 log of nothing but zeros",
        f"verdict: not sound: 1 segment (10.0 kB) checked, 0% of the bytes are sound; 1 log of nothing but "
        f"zeros; {LOST_IN_TAIL}",
        "Not sound: 1 log of nothing but zeros; 1 warning (torn tails)",
    ),
    "torn": (
        [SMALL, batch(3, 60, text="x" * 30)[:1209]],
        "incomplete: 1 segment (1.3 kB) checked, 7.21% of the bytes are sound; not checked: 1 incomplete "
        "last batch (1,209 bytes, which claims 60 offsets), still being written or cut off",
        "7.21% of the bytes are sound; not checked: 1 incomplete last batch (1,209 bytes, which claims 60 "
        "offsets), still being written or cut off",
        "Incomplete: 1 log with an incomplete last batch; 2 warnings (torn tails, tiny batches)",
    ),
    "preallocated": (
        [SMALL, bytes(10_000)],
        "sound: 1 segment (10.1 kB) checked; nothing is damaged, nothing is lost",
        "sound: 1 segment (10.1 kB) checked; nothing is damaged, nothing is lost",
        "Sound, with 1 warning (tiny batches); no byte of 1 partition with 10.1 kB is damaged.",
    ),
    "random": (
        [random.Random(1).randbytes(5000)],
        "1 damaged range (5,000 bytes); lost: the end of 1 log, of unknown length",
        "1 damaged range (5,000 bytes); lost: the offsets of damaged ranges, in the view lost_offsets",
        "Lost: the end of 1 log, of unknown length (view lost_offsets).",
    ),
    "wrong base offset": (
        [SMALL, batch(2**40), batch(6)],
        "contradict; lost: at most 3 offsets whose records are under wrong offsets",
        "offsets go backwards in 1 segment; lost: at most 3 offsets whose records are under wrong offsets",
        "Lost: at most 3 offsets whose records are under wrong offsets (view lost_offsets).",
    ),
    "wrong base offset at the end": (
        [SMALL, batch(3), batch(2)],
        "1 wrong base offset, which the batches around or the file's name contradict; no offset is lost",
        "offsets go backwards in 1 segment; no offset is lost",
        "no byte of 1 partition with 282 B is damaged.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_command_says_what_is_sound_and_what_is_lost(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, *sentences = CASES[case]
    put(tmp_path / "logs" / "t-0", 0, *parts)
    logs, lake = str(tmp_path / "logs"), str(tmp_path / "lake")

    def last(command: object, *argv: str) -> str:
        code = command.main(list(argv))  # type: ignore[attr-defined]
        line = capsys.readouterr().out.splitlines()[-1]
        assert code == (3 if line.startswith("verdict: Not sound") else 0)
        return line

    assert sentences[0] in last(scan, logs)
    assert sentences[1] in last(decode_batches, "--source", logs, "--lake", lake)
    again = last(decode_batches, "--source", logs, "--lake", lake)  # nothing is new
    assert sentences[1].partition("lost: ")[2] in again
    assert ("not sound" in again) == (case not in ("preallocated", "torn"))
    assert ("incomplete: " in again) == (case == "torn")
    checked = last(quality_report, "--lake", lake, "--output", str(tmp_path / "page"))
    assert sentences[2] in checked
    assert ("Lost: the end of" in checked) == (case == "random")


def test_offsets_before_the_first_segment_may_be_in_tiered_storage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "logs" / "t-0", 6, batch(6))
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    logs, lake = str(tmp_path / "logs"), str(tmp_path / "lake")
    assert decode_batches.main(["--source", logs, "--lake", lake]) == 0
    assert quality_report.main(["--lake", lake, "--output", str(tmp_path / "page")]) == 3
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith("(view lost_offsets). 4 of them may be in tiered storage: decode --tier reads it.")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "SELECT count(*) AS n FROM messages",
            "messages hides 3 records of aborted and open transactions",
        ),
        ("SELECT count(*) AS n FROM records", ""),
        ("SELECT messages AS n FROM topic_overview", ""),
        (
            "SELECT count(*) AS n FROM committed_records WHERE topic = 'none'",
            "committed_records hides 3 ",
        ),
    ],
)
def test_a_query_of_committed_records_says_what_they_leave_out(
    statement: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "logs" / "t-0", 0, data(0, 7, 2), marker(2, 7, commit=False), data(3, 8), batch(4))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake]) == 0
    capsys.readouterr()
    assert query.main(["--lake", lake, "--engine", "duckdb", "--format", "csv", statement]) == 0
    found = capsys.readouterr()
    assert found.out.startswith("n\n")
    assert found.err.startswith(said)
    assert bool(found.err) == bool(said)
