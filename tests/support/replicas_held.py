"""What a healed log has to hold, by the model of random sets of copies: it knows what every leader wrote.

    python -m tests.support.replicas_held 2000 SEED

tries sets of every variant and prints what was answered wrongly.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.recover import rows
from kafka_log_lake.pipelines.recover.bounds import END
from kafka_log_lake.pipelines.recover.compare import Compared, compare
from kafka_log_lake.pipelines.recover.history import Certainty
from kafka_log_lake.pipelines.recover.log_writer import copy_log, healed_log, write_log
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.udfs.files import decode_segment
from tests.support.replica_disks import FUTURE, write
from tests.support.replica_sets import Made, ReplicaSet, replica_set


class Variant(NamedTuple):
    """How sets are made. damage, odds: as ``replica_disks.write`` takes them."""

    moves_start: bool
    is_compacted: bool
    damage: float
    odds: float = 0.0


VARIANTS = [
    *(Variant(moves_start, False, damage) for moves_start in (False, True) for damage in (0.0, 0.05, 0.15)),
    *(Variant(False, True, damage) for damage in (0.0, 0.05, 0.15)),
    *(Variant(False, is_compacted, damage, 0.1) for is_compacted in (False, True) for damage in (0.0, 0.05)),
    Variant(True, False, 0.0, 0.1),
]


SAID = "said to be uncertain: "


def wrong_answers(seed: int, variant: Variant, folder: Path) -> list[str]:
    """What is answered wrongly of one set; its files are written into the folder.

    It begins with SAID where the answer names the doubt.
    """
    made = replica_set(seed, variant.moves_start, variant.is_compacted)
    sources = write(made, folder / "copies", seed, variant.damage, variant.odds)
    found = []
    for one in compare(find_copies(sources, lambda topic: True), Settings(cores=1)):
        try:
            if variant.is_compacted:
                _check_compacted(made, one, folder / "healed", variant.damage + variant.odds > 0)
            else:
                _check(made, one, _written(one, folder / "healed"))
                _check_bill(made, one)
        except AssertionError as error:
            said = SAID if one.history.sure != Certainty.CERTAIN else ""
            found.append(f"{said}seed {seed}, {variant}: {error}")
    return found


def _written(one: Compared, folder: Path) -> list[bytes]:
    """The batches of the healed log, as bytes."""
    listed = f"{folder}-pieces"
    write_log(healed_log(one), listed)
    copy_log(listed, str(folder))
    found = []
    for path in sorted(folder.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from(">i", data, at + 8)[0] + 12
            found.append(data[at : at + size])
            at += size
    return found


def _whole(made: ReplicaSet) -> Iterator[tuple[str, list[Made]]]:
    """(name of a copy, batches that lie whole in it)."""
    for broker in made.brokers:
        yield f"broker-{broker.number}", broker.whole
        if broker.future is not None:
            yield f"broker-{broker.number}/{FUTURE}", broker.future


def _check(made: ReplicaSet, one: Compared, batches: list[bytes]) -> None:
    whole = {batch.data for _, some in _whole(made) for batch in some}
    true = [batch.data for batch in made.truth]
    assert one.history.start == made.start, "where the log begins"
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
    expected = {offset for offset in offsets if offset < one.history.end}
    assert expected <= known <= offsets, f"lost {sorted(expected)} to {sorted(offsets)}, not {sorted(known)}"


def _check_bill(made: ReplicaSet, one: Compared) -> None:
    true = {(batch.base, batch.epoch) for batch in made.truth}
    billed = {
        (copy.name, int(entry["base"]), int(entry["epoch"])): why
        for copy, why, entries in rows.losing(one)
        for entry in entries
    }
    for name, batches in _whole(made):
        for batch in batches:
            why = billed.get((name, batch.base, batch.epoch))
            if (batch.base, batch.epoch) not in true:
                assert why is not None, f"{batch.base} of {name} is not billed"
            else:
                assert why in (None, "before-log-start"), f"{batch.base} is billed as {why}"


def _check_compacted(made: ReplicaSet, one: Compared, folder: Path, is_damaged: bool) -> None:
    """Copies were cleaned differently: none brings back what a newer tombstone deleted."""
    _written(one, folder)
    true = {offset: (key, value) for batch in made.truth for offset, key, value in batch.records}
    found = {
        row["offset"]: (row["key"], row["value"])
        for path in sorted(folder.glob("*.log"))
        for rows_ in decode_segment(path, columns=("offset", "key", "value"), on_damage="raise")
        for row in rows_.to_pylist()
    }
    batches = {(batch.base, batch.epoch) for batch in made.truth}
    whole = [batch for _, some in _whole(made) for batch in some]
    ends = [batch.last + 1 for batch in whole if (batch.base, batch.epoch) in batches]
    assert one.history.end >= max(ends, default=0), f"the log ends at {one.history.end}, not {max(ends)}"
    others = sorted(set(found.items()) - set(true.items()))
    assert not others, f"records that the true log did not have: {others}"
    lost = [(gap.first, END if gap.last is None else gap.last) for gap in one.healed.lost]
    newest = {key: (offset, value) for offset, (key, value) in sorted(found.items())}
    for key, (offset, value) in {k: (o, v) for o, (k, v) in sorted(true.items())}.items():
        if offset >= one.history.end or (is_damaged and any(a <= offset <= b for a, b in lost)):
            continue  # a tail that is cut is no damage
        kept = newest.get(key, (offset, None))
        assert kept == (offset, value) or kept[1] is value is None, (
            f"{key!r} is {kept}, not {(offset, value)}"
        )


def main(count: int, seed: int = 1) -> int:
    began, sets, wrong, said = time.monotonic(), 0, dict.fromkeys(VARIANTS, 0), dict.fromkeys(VARIANTS, 0)
    while sets < count:
        variant = VARIANTS[sets % len(VARIANTS)]
        with tempfile.TemporaryDirectory() as folder:
            for text in wrong_answers(seed + sets, variant, Path(folder)):
                print(text, flush=True)
                (said if text.startswith(SAID) else wrong)[variant] += 1
        sets += 1
    for variant, n in wrong.items():
        print(f"{variant}: {n} answered wrongly, {said[variant]} with a doubt that says so")
    print(f"{sets:,} sets, {sum(wrong.values()):,} answered wrongly, {time.monotonic() - began:.0f} s")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
