"""What decode stores of the offsets of logs: its summary, scan and the views tell the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.recover.compare import compare
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.pipelines.scan.report_json import to_json
from tests.support import as_command
from tests.support.corpus import ROOT
from tests.support.disks_agree import contradictions, write_disk
from tests.support.logs import batch, put, rows
from tests.support.processes import as_anybody

SHOP = Path(__file__).parents[2] / "data" / "shop"

LOST = "SELECT first_lost, last_lost, cause FROM lost_offsets ORDER BY ALL"
GAPS = "SELECT first_offset, last_offset, cause FROM offset_gaps ORDER BY ALL"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log of three segments, of which the second is gone."""
    put(tmp_path / "logs" / "a-0", 0, batch(0, 3))
    put(tmp_path / "logs" / "a-0", 6, batch(6, 2))
    return tmp_path / "logs"


def as_owner(*arguments: str) -> dict[str, Any]:
    """What a command prints as JSON, in a process for which file permissions hold."""
    python = as_anybody() if os.geteuid() == 0 else [sys.executable]
    command = [*python, "-m", "kafka_log_lake", *arguments, "--json"]
    printed: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    return printed


def decoded(logs: Path, lake: Path) -> list[tuple[int, int | None]]:
    """The missing offsets of the summary of a run."""
    summary = as_command.decode(None, Settings(source=(str(logs),), lake=str(lake)))
    return [(range_.first, range_.last) for _, range_ in summary.missing]


def scanned(logs: Path) -> list[tuple[int, int]]:
    """The missing offsets of the only log, as ``scan --json`` tells them."""
    (log,) = to_json(scan(logs))["logs"]
    return [(range_["first"], range_["last"]) for range_ in log["missing"]]


def test_a_file_that_cannot_be_read_is_unread_and_not_lost(logs: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert decoded(logs, lake) == [(3, 5)]
    assert connect(lake).sql(LOST).fetchall() == [(3, 5, "missing_segment")]
    file = put(logs / "a-0", 3, batch(3, 3))
    file.chmod(0)
    assert as_owner("decode", "--source", str(logs), "--lake", str(lake))["missing"] == []
    assert connect(lake).sql(LOST).fetchall() == []
    assert connect(lake).sql(GAPS).fetchall() == [(3, 5, "unread")]
    (log,) = as_owner("scan", str(logs))["logs"]
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


Searched = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def searched(capsys: pytest.CaptureFixture[str]) -> Searched:
    """What find gives for a key that no record has: its exit code, and what it names as not searched."""

    def search(*where: str) -> tuple[int, list[str]]:
        code = find.main([*where, "--key", "no such key"])
        return code, [line for line in capsys.readouterr().err.splitlines() if ": offsets " in line]

    return search


def test_a_log_has_lost_what_lies_before_an_empty_last_file(tmp_path: Path, searched: Searched) -> None:
    logs, lake = tmp_path / "logs", tmp_path / "lake"
    put(logs / "a-0", 0, batch(0, 3))
    put(logs / "a-0", 9)
    assert decoded(logs, lake) == [(3, 8)]
    assert connect(lake).sql(LOST).fetchall() == [(3, 8, "missing_segment")]
    assert connect(lake).sql(GAPS).fetchall() == [(3, 8, "missing_segment")]
    assert scanned(logs) == [(3, 8)]
    by_files, by_lake = searched(str(logs)), searched("--lake", str(lake))
    assert by_files == by_lake
    assert by_files[0] == 5
    assert "a-0: offsets 3 to 8" in by_files[1][0]


@pytest.mark.parametrize(("noted", "is_cleaned"), [(360, True), (0, False), (None, False)])
def test_the_checkpoint_of_the_log_cleaner_tells_that_it_ran(
    tmp_path: Path, noted: int | None, is_cleaned: bool, searched: Searched
) -> None:
    """Of a compacted topic: its first segment is one batch now, as the cleaner may have left it."""
    logs, lake = tmp_path / "logs", tmp_path / "lake"
    put(logs / "customers-0", 0, batch(0, 3))
    shutil.copy(SHOP / "customers-0" / f"{360:020d}.log", logs / "customers-0")
    if noted is not None:
        (logs / "cleaner-offset-checkpoint").write_text(f"0\n1\ncustomers 0 {noted}\n")
    lost = [] if is_cleaned else [(3, 359)]
    assert decoded(logs, lake) == lost
    assert connect(lake).sql(LOST).fetchall() == [(*one, "missing_segment") for one in lost]
    cause = "compaction" if is_cleaned else "missing_segment"
    assert connect(lake).sql(GAPS).fetchall() == [(3, 359, cause)]
    assert scanned(logs) == lost
    assert searched(str(logs))[0] == searched("--lake", str(lake))[0] == (4 if is_cleaned else 5)
    (copy,) = compare(find_copies([str(logs)], lambda _: True), Settings(cores=1))
    assert copy.is_compacted == is_cleaned
    assert decoded(logs, lake) == lost  # by what the run before stored


def test_batches_without_records_at_the_start_of_a_segment_are_no_gap(tmp_path: Path) -> None:
    source = ROOT / "v2-compacted-empty"
    decoded(source, tmp_path / "lake")
    between = "SELECT first_offset, last_offset FROM offset_gaps WHERE place = 'between batches' ORDER BY ALL"
    assert connect(tmp_path / "lake").sql(between).fetchall() == [(6, 7), (18, 19), (30, 31)]


def test_scan_find_decode_and_views_say_the_same_of_damaged_disks(tmp_path: Path) -> None:
    """Shapes that no model knows; many more by ``python -m tests.support.disks_agree 300``."""
    write_disk(random.Random(1100), tmp_path / "disk", 40)
    assert [*contradictions(tmp_path / "disk", tmp_path / "lake")] == []
