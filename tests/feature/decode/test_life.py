"""What a segment that the ledger knows needs now: one rule a test, on plain values."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.plan.segment_actions import (
    Action,
    Seen,
    must_compare,
    next_action,
    stay_if_same,
)
from kafka_log_lake.udfs.format.schema import SEGMENTS
from kafka_log_lake.udfs.storage.fingerprint import FileMatch

KNOWN = LedgerRow(
    topic="t",
    partition=0,
    partition_dir="file:///logs/t-0",
    segment="file:///logs/t-0/00000000000000000000.log",
    file_base_offset=0,
    length=100,
    modified=7,
    decoded_bytes=100,
    fingerprint="0:61:aa/0:61:aa",
    decoded_at=50,
)
TORN = {"tail": "torn", "tail_bytes": 40, "decoded_bytes": 60}
ZEROS = {"tail": "zeros", "tail_bytes": 40, "decoded_bytes": 60}
DAMAGED_END = {"damaged": 1, "ends_in_damage": True}


def action(
    seen: dict[str, Any],
    was: dict[str, Any],
    marks: FileMatch = FileMatch.SAME,
    requested: bool = False,
) -> Action:
    listed = Seen(**{"length": 100, "modified": 7, "has_successor": False} | seen)
    return next_action(listed, replace(KNOWN, **was), marks, requested)


@pytest.mark.parametrize(
    ("seen", "was", "marks", "expected"),
    [
        ({}, {}, FileMatch.SAME, Action.UNCHANGED),
        ({"modified": 8}, {}, FileMatch.SAME, Action.UNCHANGED),
        ({"length": 101}, {}, FileMatch.SAME, Action.GO_ON),
        ({"length": 99}, {}, FileMatch.SAME, Action.REPLACE),
        ({"length": 0}, {}, FileMatch.CHANGED, Action.REPLACE),
        ({}, {}, FileMatch.CHANGED, Action.REPLACE),
        ({"length": 101}, {}, FileMatch.CHANGED, Action.REPLACE),
        ({}, TORN, FileMatch.SAME, Action.UNCHANGED),
        ({"length": 101}, TORN, FileMatch.TAIL_CHANGED, Action.GO_ON),
        ({"length": 80}, TORN, FileMatch.TAIL_CHANGED, Action.GO_ON),
        ({"length": 60}, TORN, FileMatch.TAIL_CHANGED, Action.GO_ON),
        ({"length": 59}, TORN, FileMatch.SAME, Action.REPLACE),
        ({"modified": 8}, TORN, FileMatch.SAME, Action.GO_ON),
        ({"has_successor": True}, TORN, FileMatch.SAME, Action.GO_ON),
        ({"has_successor": True}, ZEROS, FileMatch.SAME, Action.UNCHANGED),
        ({"modified": 8}, ZEROS, FileMatch.SAME, Action.GO_ON),
        ({}, ZEROS, FileMatch.TAIL_CHANGED, Action.GO_ON),  # written under the same time
        ({}, DAMAGED_END, FileMatch.SAME, Action.UNCHANGED),
        ({"length": 101}, DAMAGED_END, FileMatch.SAME, Action.REPLACE),
        ({"modified": 8}, DAMAGED_END, FileMatch.SAME, Action.REPLACE),
        ({}, DAMAGED_END, FileMatch.TAIL_CHANGED, Action.REPLACE),
        ({"topic_id": "b"}, {"topic_id": "a"}, FileMatch.SAME, Action.REPLACE),
        ({"topic_id": "b"}, {}, FileMatch.SAME, Action.GO_ON),  # the ledger gets the id
        ({"topic_id": "b"}, DAMAGED_END, FileMatch.SAME, Action.REPLACE),
        ({}, {"topic_id": "a"}, FileMatch.SAME, Action.UNCHANGED),
        ({"length": 5}, {}, FileMatch.UNREADABLE, Action.UNCHANGED),
    ],
)
def test_what_a_known_segment_needs(
    seen: dict[str, Any], was: dict[str, Any], marks: FileMatch, expected: Action
) -> None:
    assert action(seen, was, marks) is expected


def test_redecode_replaces_what_it_names() -> None:
    assert action({}, {}, requested=True) is Action.REPLACE


@pytest.mark.parametrize(
    ("seen", "requested", "expected"),
    [
        ({"landed_at": 51, "length": 150}, False, Action.GO_ON),
        ({"landed_at": 51, "length": 50}, False, Action.REPLACE),
        # the tables know a later state of the file than the landed bytes
        ({"landed_at": 50, "length": 150}, False, Action.UNCHANGED),
        ({"landed_at": 50, "length": 50}, False, Action.UNCHANGED),
        ({"landed_at": 50, "length": 50}, True, Action.UNCHANGED),
        ({"landed_at": 50, "length": 100}, True, Action.REPLACE),
    ],
)
def test_landed_bytes_never_take_away_what_files_gave(
    seen: dict[str, Any], requested: bool, expected: Action
) -> None:
    assert action(seen, {}, requested=requested) is expected


@pytest.mark.parametrize(
    ("seen", "was", "marks", "expected"),
    [
        ({"modified": 8}, {"damaged": 1}, FileMatch.SAME, True),
        ({"length": 101}, {"damaged": 1}, FileMatch.TAIL_CHANGED, True),
        ({}, {"damaged": 1}, FileMatch.SAME, False),
        ({"modified": 8}, {}, FileMatch.SAME, False),
        ({"modified": 8}, {"damaged": 1}, FileMatch.CHANGED, False),
        ({"modified": 8}, DAMAGED_END, FileMatch.SAME, False),
    ],
)
def test_all_bytes_are_compared_where_what_was_damaged_may_be_there_now(
    seen: dict[str, Any], was: dict[str, Any], marks: FileMatch, expected: bool
) -> None:
    listed = Seen(**{"length": 100, "modified": 7, "has_successor": False} | seen)
    assert must_compare(listed, replace(KNOWN, **was), marks) is expected


def test_whole_columns_decide_as_single_rows_do() -> None:
    """Nothing stays by its columns that its row would not let stay; and most segments do."""
    listed: list[dict[str, Any]] = [
        {"length": 100 + more, "modified": modified, "has_successor": followed, "topic_id": topic_id}
        | {"landed_at": landed_at}
        for more, modified, followed in product((-1, 0, 1), (6, 7, 8), (False, True))
        for topic_id, landed_at in product((None, "a", "b"), (None, 49, 51))
    ]
    changed: list[dict[str, Any]] = [{}, TORN, ZEROS, DAMAGED_END, {"damaged": 1}]
    changed += [{"left_out": -1}, {"left_out": 2, "scope": "offset >= 7"}, {"topic_id": "a"}]
    pairs = list(product(listed, (replace(KNOWN, **was) for was in changed)))
    kinds = {"length": pa.int64(), "modified": pa.int64(), "topic_id": pa.string(), "landed_at": pa.int64()}
    seen = pa.table({name: pa.array([one[name] for one, _ in pairs], kind) for name, kind in kinds.items()})
    stays = stay_if_same(seen, ledger.to_arrow([was for _, was in pairs]).cast(ledger.SCHEMA))
    for (one, was), stay in zip(pairs, stays.tolist(), strict=True):
        found = next_action(Seen(**one), was, FileMatch.SAME)
        assert found is Action.UNCHANGED or not stay, (one, was)
        assert not (stay and must_compare(Seen(**one), was, FileMatch.SAME)), (one, was)
    same = {"length": 100, "modified": 7, "topic_id": None}
    as_before = [same.items() <= one.items() and was == KNOWN for one, was in pairs]
    is_file = [one["landed_at"] is None for one, _ in pairs]
    assert all(stay for stay, before, file in zip(stays, as_before, is_file, strict=True) if before and file)


def test_a_row_of_the_ledger_has_the_columns_of_the_table() -> None:
    assert {f.name for f in fields(LedgerRow)} == {column.name for column in SEGMENTS.columns}
    found = ledger.to_arrow([KNOWN]).cast(ledger.SCHEMA).select(ledger.NAMES)
    assert list(ledger.rows(found)) == [KNOWN]
