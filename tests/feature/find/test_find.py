"""``find``: its answers are those of a plain loop over all records."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake import find
from kafka_log_lake.pipelines.find.conditions import OneOf, matching
from kafka_log_lake.pipelines.find.unsearched import Unsearched
from tests.support import corpus
from tests.support.drawn import first
from tests.support.plain_search import LIMIT, Condition, PlainLog, holds, read_log, some_conditions

pytestmark = pytest.mark.sampled

_FIELDS = ("topic", "partition", "segment", "offset", "key", "value", "timestamp_ms", "batch_position")
SOUND = sorted({path.parent for path in corpus.segments()})
HOSTILE = sorted({path.parent for path in corpus.segments(hostile=True)})


@cache
def log_of(folder: Path) -> PlainLog:
    return read_log(folder)


def found(
    path: Path, conditions: list[Condition], **options: Any
) -> tuple[list[dict[str, Any]], list[Unsearched]]:
    unsearched: list[Unsearched] = []
    options |= {"on_unsearched": unsearched.append, "cores": 1, "max_batch_uncompressed": LIMIT}
    batches = find(path, **dict(conditions), **options)
    return [row for batch in batches for row in batch.to_pylist()], unsearched


def compare(log: PlainLog, conditions: list[Condition], **options: Any) -> int:
    """Asserts that find gives the records of a plain loop, in their order; how many."""
    expected = [r for r in log.records if all(holds(one, r) for one in conditions)]
    if options.get("committed"):
        expected = [r for r in expected if r["is_committed"]]
    got, _ = found(log.folder, conditions, **options)
    said = f"{log.folder} {conditions} {options}"
    names = (*_FIELDS, "producer_id", "producer_epoch", "outcome", "control_type")
    assert [[row[name] for name in names] for row in got] == [
        [r[name] for name in names] for r in expected
    ], said
    pairs = [[(one["key"], one["value"]) for one in row["headers"] or ()] for row in got]
    assert pairs == [[tuple(one) for one in r["headers"] or ()] for r in expected], said
    return len(got)


def compare_at_random(folders: list[Path], seed: int, times: int) -> int:
    chance = random.Random(seed)
    some = 0
    for _ in range(times):
        log = log_of(chance.choice(folders))
        if log.records:
            conditions = some_conditions(chance, log.records)
            some += compare(log, conditions, committed=chance.random() < 0.1) > 0
    return some


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_random_conditions_on_real_logs_give_what_a_plain_loop_gives(seed: int) -> None:
    assert compare_at_random(SOUND, seed, 100) > 25


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_random_conditions_on_damaged_logs_give_what_a_plain_loop_gives(seed: int) -> None:
    assert compare_at_random(HOSTILE, seed, 60) > 10


def test_a_record_newer_than_its_batch_says_is_found() -> None:
    (folder,) = [one for one in HOSTILE if one.name == "max-timestamp-lie-0"]
    newest = max(record["timestamp_ms"] for record in log_of(folder).records)
    assert compare(log_of(folder), [("since", newest)]) > 0


@pytest.mark.parametrize("folder", HOSTILE, ids=lambda folder: folder.name)
def test_every_damaged_range_is_named(folder: Path) -> None:
    log = log_of(folder)
    _, unsearched = found(folder, [("not_partition", 2**31 - 1)])
    named = [(one.damage.segment, one.damage.position) for one in unsearched if one.damage is not None]
    assert named == log.damaged


@pytest.mark.parametrize(("key", "found"), [(b"", [0, 4]), (b"a", [2]), (b"b", []), (b"x", [])])
def test_a_null_key_is_no_empty_one(key: bytes, found: list[int]) -> None:
    keys = pa.array([b"x", b"", None, b"a", None, b"", b"aa"])
    records = pa.RecordBatch.from_pydict({"key": keys})[1:]
    assert matching([OneOf("key", pa.array([key]))], records).tolist() == found
