"""Disk and tier in a lake: decoded as one log, and as copies of brokers that led one after the other."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.recover import command as recover
from tests.support.answers import asked
from tests.support.docs import ROOT, blocks

DATA = Path(__file__).resolve().parents[2] / "data" / "tiered"
COLUMNS = 'topic, partition, "offset", timestamp_ms, key, value'
Row = tuple[Any, ...]


def truth(case: str) -> set[Row]:
    """Topic, partition, offset, timestamp, key and value of each record that a Java consumer got."""
    with gzip.open(DATA / case / "read_committed.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {(*row[:4], *(None if one is None else base64.b64decode(one) for one in row[4:])) for row in rows}


def committed(lake: Path, view: str = "committed_records") -> set[Row]:
    rows = asked(
        lake, f"SELECT {COLUMNS} FROM {view} WHERE NOT is_control AND topic NOT LIKE '\\_\\_%' ESCAPE '\\'"
    )
    found = {(*row[:4], *(None if one is None else bytes(one) for one in row[4:])) for row in rows}
    assert len(found) == len(rows), "a record twice"
    return found


def decode(case: Path, lake: Path) -> None:
    argv = ["--source", str(case / "log-dir"), "--tier", str(case / "tier"), "--lake", str(lake)]
    assert decode_batches.main([*argv, "--cores", "1"]) == 0


def test_a_segment_that_moves_to_the_tier_is_decoded_once(tmp_path: Path) -> None:
    case, lake = tmp_path / "case", tmp_path / "lake"
    shutil.copytree(DATA / "local", case)
    decode(case, lake)
    assert committed(lake) == truth("local")
    runs = "SELECT max(decoded_at) FROM segments"
    before = asked(lake, runs)
    for path in (case / "log-dir" / "small-0").glob("*0609.*"):  # local retention: the tier has it
        path.unlink()
    decode(case, lake)
    assert committed(lake) == truth("local")
    assert asked(lake, runs) == before


def test_segment_places_say_where_each_piece_lies(tmp_path: Path) -> None:
    case, lake = tmp_path / "case", tmp_path / "lake"
    shutil.copytree(DATA / "local", case)
    (gone,) = (case / "tier").rglob("*0200-*.log")
    gone.unlink()
    decode(case, lake)
    rows = asked(lake, "SELECT place, first_offset, last_offset, is_read, file FROM segment_places")
    truths = {(first, last) for _, first, last, _, _ in rows if last is not None}
    # places.jsonl of the corpus: on the disk alone from 739 on, on both from 609 on, else in the tier
    on_disk = {(first, last): read for place, first, last, read, _ in rows if place == "disk"}
    assert on_disk == {(609, 675): True, (676, 738): True, (739, None): True}
    assert [(first, last, file) for place, first, last, _, file in rows if place == "missing"] == [
        (200, 263, gone.as_uri())
    ]
    assert max(last for _, last in truths) == 738
    in_tier = {first: read for place, first, _, read, _ in rows if place == "tier"}
    assert in_tier == {first: first < 609 for first in in_tier}
    joined = "SELECT count(*) FROM segment_places AS p JOIN segments AS s ON p.segment = s.segment"
    assert asked(lake, joined) == asked(lake, "SELECT count(*) FROM segment_places WHERE is_read")
    (sizes,) = asked(lake, "SELECT sum(bytes) FROM segment_places WHERE place = 'tier'")
    assert sizes[0] == sum(
        path.stat().st_size for path in (case / "tier").rglob("*-*.*") if path.name[:20] != gone.name[:20]
    )
    for statement in blocks(ROOT / "docs" / "tiered_storage.md", "sql"):
        assert {row[0] for row in asked(lake, statement)} == {"small"}


def test_leaders_that_lost_their_history_left_segments_that_do_not_count(tmp_path: Path) -> None:
    case = DATA / "leaders"
    disks = [word for disk in sorted(case.glob("log-dir-*")) for word in ("--source", f"{disk.name}={disk}")]
    lake = tmp_path / "lake"
    assert recover.main([*disks, "--tier", str(case / "tier"), "--lake", str(lake), "--cores", "1"]) == 0
    assert committed(lake, "healed_records") == truth("leaders")
    assert asked(lake, "SELECT count(*) FROM lost_ranges") == [(0,)]


def test_what_no_disk_has_is_lost_under_the_name_of_its_object(tmp_path: Path) -> None:
    case, lake = tmp_path / "case", tmp_path / "lake"
    shutil.copytree(DATA / "local", case)
    (gone,) = (case / "tier").rglob("*0200-*.log")
    gone.unlink()
    argv = ["--source", f"b1={case / 'log-dir'}", "--tier", str(case / "tier"), "--lake", str(lake)]
    assert recover.main([*argv, "--cores", "1"]) == 0
    ((first, last, detail),) = asked(lake, "SELECT first_offset, last_offset, detail FROM lost_ranges")
    assert (first, last) == (200, 263)
    assert gone.name in detail
