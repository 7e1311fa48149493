"""What decode stores of the offsets of logs: its summary, scan and the views tell the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.query import command as query
from tests.support.logs import batch, put, rows
from tests.support.processes import as_anybody

LOST = "SELECT first_lost, last_lost, cause FROM lost_offsets ORDER BY ALL"
GAPS = "SELECT first_offset, last_offset, cause FROM offset_gaps ORDER BY ALL"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log of three segments, of which the second is gone."""
    put(tmp_path / "logs" / "a-0", 0, batch(0, 3))
    put(tmp_path / "logs" / "a-0", 6, batch(6, 2))
    return tmp_path / "logs"


def run(*arguments: str) -> dict[str, Any]:
    """What a command prints as JSON, where file permissions hold for it."""
    python = as_anybody() if os.geteuid() == 0 else [sys.executable]
    command = [*python, "-m", "kafka_log_lake", *arguments, "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    return found


def decoded(logs: Path, lake: Path) -> list[tuple[int, int]]:
    """The missing offsets of the summary of a run."""
    found = run("decode", "--source", str(logs), "--lake", str(lake))
    return [(one["first"], one["last"]) for one in found["missing"]]


def test_a_file_that_cannot_be_read_is_unread_and_not_lost(logs: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert decoded(logs, lake) == [(3, 5)]
    assert connect(lake).sql(LOST).fetchall() == [(3, 5, "missing_segment")]
    file = put(logs / "a-0", 3, batch(3, 3))
    file.chmod(0)
    assert decoded(logs, lake) == []
    assert connect(lake).sql(LOST).fetchall() == []
    assert connect(lake).sql(GAPS).fetchall() == [(3, 5, "unread")]
    (log,) = run("scan", str(logs))["logs"]
    assert log["missing"] == []
    file.chmod(0o600)
    assert decoded(logs, lake) == []
    assert connect(lake).sql(GAPS).fetchall() == []
    assert rows(str(lake), "offset_findings") == []


def test_a_lake_of_an_earlier_release_gets_the_table_from_the_next_run(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    decoded(logs, lake)
    stored = rows(str(lake), "offset_findings")
    shutil.rmtree(lake / "offset_findings")
    assert query.main(["--lake", str(lake), LOST]) == 2
    assert "an earlier release made the lake: the next decode" in capsys.readouterr().err
    assert decoded(logs, lake) == [(3, 5)]
    assert rows(str(lake), "offset_findings") == stored != []


def test_a_log_that_lost_its_front_to_retention_has_lost_nothing(logs: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    decoded(logs, lake)
    for base in (0, 6):
        (logs / "a-0" / f"{base:020d}.log").unlink()
    put(logs / "a-0", 20, batch(20, 2))
    decoded(logs, lake)
    assert connect(lake).sql(GAPS).fetchall() == [(3, 5, "missing_segment"), (8, 19, "retention")]
