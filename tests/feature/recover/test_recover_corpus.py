"""The healed log of every partition of the corpus equals what real brokers agreed on, record by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_log_lake.pipelines.recover.compare import Compared
from kafka_log_lake.pipelines.recover.history import Certainty
from kafka_log_lake.pipelines.recover.log_writer import copy_log, healed_log, write_log
from kafka_log_lake.udfs.files import decode_segment
from tests.support import replicas

_COLUMNS = ("offset", "leader_epoch", "key", "value", "headers", "control_type")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replicas.unpack(tmp_path_factory.mktemp("replicas"))


def healed_records(one: Compared, folder: Path) -> list[tuple[Any, ...]]:
    """The records of the log as it is written: (offset, epoch, key, value, headers, control type)."""
    listed = f"{folder}-pieces"
    write_log(healed_log(one), listed)
    copy_log(listed, str(folder))
    found = []
    for path in sorted(folder.glob("*.log")):
        for batch in decode_segment(path, columns=_COLUMNS, on_damage="raise"):
            for row in batch.to_pylist():
                headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
                values = (row[name] for name in ("offset", "leader_epoch", "key", "value"))
                found.append((*values, headers, row["control_type"]))
    return [row for row in found if row[0] >= one.history.start]


def latest_by_key(records: list[tuple[Any, ...]]) -> dict[bytes, bytes]:
    """The value that compaction leaves of each key; a tombstone leaves none."""
    found = {row[2]: row[3] for row in records if row[5] is None and row[2] is not None}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("scenario", replicas.SCENARIOS)
def test_the_healed_log_is_what_the_brokers_agreed_on(corpus: Path, tmp_path: Path, scenario: str) -> None:
    _, partitions = replicas.compared(corpus, scenario)
    checked = 0
    for one in partitions:
        name = f"{one.topic}-{one.partition}"
        truth = replicas.truth(corpus, scenario, name)
        if truth is None:
            continue
        checked += 1
        found = healed_records(one, tmp_path / name)
        if scenario.startswith("s10c"):  # the one file that knew is gone
            assert one.history.sure == Certainty.UNCERTAIN, name
            continue
        expected = [replicas.comparable(row) for row in truth.records]
        assert one.history.start == truth.summary["logStartOffset"], name
        if one.is_compacted:
            lost = truth.unrecoverable_offsets
            assert {row[:4] for row in expected if row[0] not in lost} <= {row[:4] for row in found}, name
            assert latest_by_key(found) == latest_by_key(expected), name
        else:
            assert found == [row for row in expected if row[0] not in truth.lost_offsets], name
            ranges = [(lost.first, lost.last) for lost in one.healed.lost]
            assert all(last is not None for _, last in ranges), name
            lost_offsets = {o for first, last in ranges for o in range(first, (last or 0) + 1)}
            assert lost_offsets == truth.lost_offsets, name
            assert sum(lost.certain for lost in one.healed.lost) == sum(
                count for *_, count in truth.unrecoverable
            ), name
    assert checked, "a scenario without a partition tells nothing"


@pytest.mark.parametrize(
    ("scenario", "words"),
    [("s09a-base-offset", "base"), ("s09b-leader-epoch", "epoch"), ("s08b-header-bits", "size")],
)
def test_what_no_checksum_covers_is_corrected(corpus: Path, scenario: str, words: str) -> None:
    """Every batch that was changed there is placed as the other copies have it."""
    changed = 0
    _, partitions = replicas.compared(corpus, scenario)
    for one in partitions:
        sound = [copy.entries[copy.entries["is_sound"]] for copy in one.copies]
        places: dict[int, set[tuple[int, int]]] = {}
        for entry in np.concatenate(sound):
            places.setdefault(int(entry["crc"]), set()).add((int(entry["base"]), int(entry["epoch"])))
        assert all(len(found) == 1 for found in places.values()), f"{one.topic}: {words}"
        changed += sum(int(np.count_nonzero(entries["mended"])) for entries in sound)
    assert changed >= 4


def test_copies_know_what_they_lack(corpus: Path) -> None:
    """One follower was killed first: it ends before, and nothing of it is lost."""
    _, partitions = replicas.compared(corpus, "s02-behind")
    for one in partitions:
        assert [copy.name for copy in one.copies] == ["broker-1", "broker-2", "broker-3"]
        ends = [int(copy.sound["last"].max()) + 1 for copy in one.copies]
        assert ends[0] == ends[1] == one.history.end > ends[2], one.topic
        assert not one.healed.lost


def test_folders_that_brokers_left_are_distinguished(corpus: Path) -> None:
    inventory, partitions = replicas.compared(corpus, "s07-leftovers")
    found = {(one.topic, one.partition): one for one in partitions}
    states = {copy.state for one in found.values() for copy in (*one.copies, *one.others)}
    assert states == {"live", "future", "delete", "stray"}
    assert not found["gone", 0].copies, "a deleted topic has no log"
    again = found["again", 0]
    assert {copy.topic_id for copy in again.copies} == {again.topic_id}
    assert {copy.topic_id for copy in again.others}.isdisjoint({again.topic_id})
    disks = [name for name, identity in inventory.log_dirs.values() if identity.node_id == 2]
    assert disks == ["broker-2", "broker-2"]
