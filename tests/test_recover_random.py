"""Random sets of copies, damaged at random, against a model that knows what every leader wrote."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipelines.recovery import rows
from pipelines.recovery.compare import Compared, Reading, compare
from pipelines.recovery.log_writer import log_to_write, write_log
from pipelines.recovery.sources import find_copies
from tests.support.replica_sets import ReplicaSet, replica_set, write
from udfs.files import decode_segment
from udfs.replicas.history import END

SEEDS = range(40)


def written(one: Compared, folder: Path) -> list[bytes]:
    """The batches of the healed log, as bytes."""
    history = one.history
    write_log(log_to_write(str(folder), None, one.copies, one.healed.batches, history.epochs, history.start))
    found = []
    for path in sorted(folder.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from(">i", data, at + 8)[0] + 12
            found.append(data[at : at + size])
            at += size
    return found


def check(made: ReplicaSet, one: Compared, batches: list[bytes]) -> None:
    whole = {batch.data for broker in made.brokers for batch in broker.whole}
    true = [batch.data for batch in made.truth]
    assert one.history.start == made.start
    assert [data for data in batches if data not in true] == [], "what no leader of the true history wrote"
    assert len(batches) == len(set(batches)), "each offset once"
    assert [data for data in true if data in whole and data not in batches] == [], "what a copy has whole"
    ranges = [(lost.first, lost.last) for lost in one.healed.lost if lost.last is not None]
    known = {offset for first, last in ranges for offset in range(first, last + 1)}
    offsets = {
        offset
        for batch in made.truth
        for offset in range(max(batch.base, made.start), batch.last + 1)
        if batch.data not in batches
    }
    assert {offset for offset in offsets if offset < one.history.end} <= known <= offsets


def check_bill(made: ReplicaSet, one: Compared) -> None:
    true = {(batch.base, batch.epoch) for batch in made.truth}
    billed = {
        (copy.name, int(entry["base"]), int(entry["epoch"])): why
        for copy, why, entries in rows.losing(one)
        for entry in entries
    }
    for broker in made.brokers:
        for batch in broker.whole:
            why = billed.get((f"broker-{broker.number}", batch.base, batch.epoch))
            if (batch.base, batch.epoch) not in true:
                assert why is not None, f"{batch.base} of broker {broker.number} is not billed"
            else:
                assert why in (None, "before-log-start")


@pytest.mark.parametrize("damage", [0.0, 0.1])
def test_the_true_log_is_healed_and_the_rest_is_billed(tmp_path: Path, damage: float) -> None:
    for seed in SEEDS:
        made = replica_set(seed, moves_start=seed % 2 == 1)
        sources = write(made, tmp_path / str(seed), seed, damage)
        reading = Reading(1, 1 << 27, 1 << 28)
        for one in compare(find_copies(sources, lambda topic: True), reading):
            try:
                check(made, one, written(one, tmp_path / f"{seed}-healed"))
                check_bill(made, one)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, damage {damage}: {error}") from error


@pytest.mark.parametrize("damage", [0.0, 0.05])
def test_a_compacted_log_keeps_the_newest_value_of_each_key(tmp_path: Path, damage: float) -> None:
    """Copies were cleaned differently: none brings back what a newer tombstone deleted."""
    for seed in range(30):
        made = replica_set(seed, is_compacted=True)
        sources = write(made, tmp_path / str(seed), seed, damage)
        for one in compare(find_copies(sources, lambda topic: True), Reading(1, 1 << 27, 1 << 28)):
            folder = tmp_path / f"{seed}-healed"
            written(one, folder)
            true = {offset: (key, value) for batch in made.truth for offset, key, value in batch.records}
            found = {
                row["offset"]: (row["key"], row["value"])
                for path in sorted(folder.glob("*.log"))
                for rows_ in decode_segment(path, columns=("offset", "key", "value"), on_damage="raise")
                for row in rows_.to_pylist()
            }
            assert found.items() <= true.items(), f"seed {seed}: a record that the true log did not have"
            lost = [(gap.first, END if gap.last is None else gap.last) for gap in one.healed.lost]
            newest = {key: (offset, value) for offset, (key, value) in sorted(found.items())}
            for key, (offset, value) in {k: (o, v) for o, (k, v) in sorted(true.items())}.items():
                if damage and any(first <= offset <= last for first, last in lost):
                    continue
                kept = newest.get(key, (offset, None))
                assert kept == (offset, value) or kept[1] is value is None, f"seed {seed}: {key!r}"
