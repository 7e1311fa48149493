"""``find --source NAME=PATH``: whose record a match is, and whether the true history has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.find.output import MatchTable
from tests.feature.find.test_find_command import stored
from tests.support.logs import batch, put
from tests.support.segment_maker import Record


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    """b1 led alone in epoch 0 and wrote 3 to 8; then b2 was elected, and wrote 3 to 5 in epoch 1."""
    put(
        tmp_path / "b1" / "a-0",
        0,
        batch(0, leader_epoch=0),
        batch(3, leader_epoch=0),
        batch(6, leader_epoch=0),
    )
    put(tmp_path / "b2" / "a-0", 0, batch(0, leader_epoch=0), batch(3, text="new", leader_epoch=1))
    return [f"--source={name}={tmp_path / name}" for name in ("b1", "b2")]


def rows(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    find.main([*arguments, "--cores", "1", "--format", "json"])
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_each_match_has_its_side_and_what_took_its_offset(
    disks: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("copy", "offset", "leader_epoch", "side", "why", "replaced_by", "replaced_by_epoch")
    found = [tuple(row[name] for name in names) for row in rows(capfd, *disks, "--key", "k0")]
    assert found == [
        ("b1", 0, 0, "true", None, None, None),
        ("b1", 3, 0, "losing", "diverged", "b2", 1),
        ("b1", 6, 0, "losing", "diverged", None, None),
        ("b2", 0, 0, "true", None, None, None),
        ("b2", 3, 1, "true", None, None, None),
    ]
    without = rows(capfd, disks[0].partition("b1=")[2], "--key", "k0")
    assert "copy" not in without[0]


def test_a_table_says_it_at_80_columns(disks: list[str]) -> None:
    sources = [one.removeprefix("--source=") for one in disks]
    lines = [line for found in find.find(sources, key="k0", cores=1) for line in MatchTable(80).lines(found)]
    (said,) = [
        line for line in lines if line.startswith("    b1: losing side (diverged, ") and "taken" in line
    ]
    assert said.endswith("offset taken by b2, epoch 1")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("topic", ["a", "customer-orders-archive"])
def test_a_key_that_was_searched_is_not_cut(topic: str, tmp_path: Path) -> None:
    put(tmp_path / f"{topic}-12", 0, batch(0, records=2, base_timestamp=1_700_000_000_000))
    (found,) = find.find(tmp_path, key="k1", cores=1)
    found = found.set_column(found.schema.names.index("key"), "key", pa.array([b"user17"]))
    lines = [*MatchTable(80, keys_first=True).lines(found)]
    assert "user17 " in lines[1]
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[0].endswith("-12")


def test_text_is_searched_everywhere_and_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = [
        Record(key=b"in the needle key", value=b"\xff"),
        Record(key=None, value=b"a needle"),
        Record(key=None, value=None, headers=((b"needle", None),)),
        Record(key=None, value=None, headers=((b"a", b"1"), (b"b", b"needle"))),
        Record(key=b"need", value=b"le", headers=((b"nee", b"dle"),)),
    ]
    put(tmp_path / "a-0", 0, stored(0, *made), stored(5, *made, codec=4))
    found = rows(capfd, str(tmp_path), "--text", "needle")
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert [(row["key_text"], row["value_text"]) for row in found[:3]] == [
        ("in the needle key", None),
        (None, "a needle"),
        (None, None),
    ]
    assert [row["offset"] for row in rows(capfd, str(tmp_path), "--not", "--text", "needle")] == [4, 9]
