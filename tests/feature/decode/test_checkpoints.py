"""The broker's checkpoint files next to the logs: what is lost at the edges of a log, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.listing.checkpoints import Checkpoint, Checkpoints
from kafka_log_lake.pipelines.scan import report
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.pipelines.scan.findings import Findings
from kafka_log_lake.pipelines.scan.report_json import to_json
from tests.support import as_command
from tests.support.logs import batch, batches, put

START, FLUSHED, VISIBLE = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


def note(folder: Path, name: str, **logs: int) -> Path:
    """A checkpoint file of the partitions 0 of these topics, as a broker writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    lines = ["0", str(len(logs)), *(f"{topic} 0 {offset}" for topic, offset in logs.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def found(*sources: Path, **settings: Any) -> Findings:
    return scan(Settings(source=tuple(map(str, sources)), cores=1, **settings))


def missing(findings: Findings) -> list[tuple[str, int, int | None, str, bool]]:
    return [(log.topic, one.first, one.last, one.cause, one.is_certain) for log, one in findings.missing]


# The files


def test_the_files_of_kafka_are_read(tmp_path: Path) -> None:
    note(tmp_path, START, b=3)
    note(tmp_path, FLUSHED, a=10, b=20)
    note(tmp_path, VISIBLE, a=7)
    (tmp_path / "a-0").mkdir()
    checkpoints = Checkpoints()
    assert not checkpoints.found
    checkpoints.read(str(tmp_path))
    assert checkpoints.of(f"file://{tmp_path}/a-0", "a", 0) == Checkpoint(None, 10, 7)
    assert checkpoints.of(f"file://{tmp_path}/b-0", "b", 0) == Checkpoint(3, 20, None)
    assert checkpoints.of(f"file://{tmp_path}/a-0", "a", 1) is None
    assert checkpoints.of("s3://bucket/a-0", "a", 0) is None
    assert not checkpoints.warnings


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"1\n0\n", "its version is '1', not 0"),
        (b"0\n2\na 0 5\n", "it has 1 entry, and says '2'"),
        (b"0\n1\na 0\n", "line 3 is not a topic, a partition and an offset: 'a 0'"),
        (b"0\n1\na 0 9223372036854775808\n", "line 3 is not"),
        (b"0\nmany\n", "it has 0 entries, and says 'many'"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
    ],
)
def test_another_file_of_the_name_is_one_warning(tmp_path: Path, content: bytes, why: str) -> None:
    put(tmp_path / "a-0", 0, *batches(0, 2))
    (tmp_path / VISIBLE).write_bytes(content)
    note(tmp_path, FLUSHED, a=9)
    findings = found(tmp_path)
    (warning,) = findings.warnings
    assert warning.startswith(f"{tmp_path}/{VISIBLE} can't be read, no log is compared with it: ")
    assert why in warning
    assert missing(findings) == [("a", 6, 8, "missing_end", False)]  # the other file counts


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0\n", b"0\n1\na 0 -5\n"])
def test_a_file_without_an_entry_says_nothing(tmp_path: Path, content: bytes) -> None:
    put(tmp_path / "a-0", 0, *batches(0, 2))
    (tmp_path / VISIBLE).write_bytes(content)
    findings = found(tmp_path)
    assert (findings.warnings, missing(findings)) == ([], [])


# scan


def logs_with_edges(folder: Path) -> None:
    """Of each topic what is noted; the segments hold 6 to 17, or nothing."""
    for topic in ("whole", "cut", "flushed", "both", "late", "torn"):
        put(folder / f"{topic}-0", 6, *batches(6, 2))
        put(folder / f"{topic}-0", 12, *batches(12, 2), *([batch(18)[:40]] if topic == "torn" else []))
    put(folder / "broken-0", 6, batch(6), batch(9)[:-1] + b"\xff")
    put(folder / "empty-0", 5)
    note(folder, START, whole=8, late=2)
    note(folder, FLUSHED, whole=18, flushed=20, both=25, empty=5)
    note(
        folder, VISIBLE, whole=18, cut=21, flushed=18, both=20, late=12, torn=21, empty=6, broken=12, gone=100
    )


EXPECTED = [
    ("both", 18, 19, "missing_end", True),
    ("both", 20, 24, "missing_end", False),
    ("broken", 9, 11, "missing_end", True),
    ("cut", 18, 20, "missing_end", True),
    ("empty", 5, 5, "missing_end", True),
    ("flushed", 18, 19, "missing_end", False),
    ("late", 2, 5, "missing_start", False),
    ("torn", 18, 20, "missing_end", True),
]


@pytest.mark.parametrize("below", ["", "cut-0"])
def test_a_scan_reports_what_is_missing_at_the_edges(tmp_path: Path, below: str) -> None:
    logs_with_edges(tmp_path)
    expected = [row for row in EXPECTED if not below or below.startswith(row[0])]
    findings = found(tmp_path / below)
    assert missing(findings) == expected
    text = "\n".join(report.to_text(findings))
    assert "the checkpoint's high watermark is 21: the end of the log is lost, or the checkpoint file" in text
    printed = [one for log in to_json(findings)["logs"] for one in log["missing"]]
    at_end = {"first": 18, "last": 20, "empty": 0, "cause": "missing_end", "is_certain": True}
    assert any(at_end.items() <= one.items() for one in printed)


def test_what_was_not_requested_is_not_missing(tmp_path: Path) -> None:
    logs_with_edges(tmp_path)
    first, last = (tmp_path / "cut-0" / f"{base:020d}.log" for base in (6, 12))
    assert missing(found(first)) == []
    assert missing(found(last)) == []
    assert missing(found(first, last)) == [EXPECTED[3]]


# The tables

COLUMNS = "topic, first_lost, last_lost, cause, is_certain"


class Lake:
    def __init__(self, address: str, logs: Path) -> None:
        self.address, self.logs = address, logs

    def run(self, **settings: Any) -> Summary:
        return as_command.decode(None, Settings(lake=self.address, source=(str(self.logs),), **settings))

    def lost(self) -> list[tuple[Any, ...]]:
        query = f"SELECT {COLUMNS} FROM lost_offsets ORDER BY topic, first_lost, cause"
        return connect(self.address).sql(query).fetchall()

    def rows(self) -> int:
        return len(connect(self.address).sql("SELECT * FROM checkpoints"))


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[0], row[1], row[3]))


def test_the_lake_shows_what_is_missing_at_the_edges(lake: str, tmp_path: Path) -> None:
    held = Lake(lake, tmp_path / "logs")
    logs_with_edges(held.logs)
    for name in (START, FLUSHED, VISIBLE):
        (held.logs / name).write_text("2\n")
    summary = held.run(offsets=":12")
    assert (held.rows(), summary.missing) == (0, [])  # no such table yet
    assert len([text for text in summary.warnings if "can't be read, no log is compared" in text]) == 3
    damage = ("broken", 9, None, "damage", True)
    assert held.lost() == [damage]

    logs_with_edges(held.logs)
    held.run(offsets=":12")
    # the last segments of the others are left out: nothing is known of their ends
    edges = [row for row in EXPECTED if row[0] in ("broken", "empty")]
    assert held.lost() == in_order([*edges, damage])

    summary = held.run()
    assert held.lost() == in_order([*EXPECTED, damage])
    assert [(log, one.first, one.last) for log, one in summary.missing] == [
        (f"{topic}-0", first, last) for topic, first, last, _, _ in EXPECTED
    ]
    printed = json.loads(summary.to_json())
    assert printed["missing_offsets"] == sum(last - first + 1 for _, first, last, _, _ in EXPECTED)
    cut = {"log": "cut-0", "first": 18, "last": 20, "cause": "missing_end", "is_certain": True}
    assert cut.items() <= printed["missing"][3].items()
    assert "the checkpoint's high watermark is 21" in summary.to_text()
    held.run()
    assert held.rows() == 8  # one of each log, once, and of the one whose log start cuts something off


def test_what_comes_back_is_not_lost(lake: str, tmp_path: Path) -> None:
    held = Lake(lake, tmp_path / "logs")
    for topic in ("copied", "truncated", "rolled"):
        put(held.logs / f"{topic}-0", 0, batch(0))
    note(held.logs, VISIBLE, copied=6, truncated=6, rolled=6)
    held.run()
    assert [row[0] for row in held.lost()] == ["copied", "rolled", "truncated"]
    put(held.logs / "copied-0", 0, *batches(0, 2))  # a copy that was completed
    put(held.logs / "rolled-0", 6, batch(6))
    note(held.logs, VISIBLE, copied=6, truncated=3, rolled=6)
    held.run(topics="rolled|truncated", offsets=":3")
    assert [(row[0], row[3]) for row in held.lost()] == [
        ("copied", "missing_end"),
        ("rolled", "missing_segment"),
    ]
    held.run()
    assert held.lost() == [("rolled", 3, 5, "missing_segment", True)]
    assert held.rows() == 4
