"""What a segment that the ledger knows needs now: one rule a test, on plain values."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from pipelines.plan import ledger
from pipelines.plan.ledger import LedgerRow
from pipelines.plan.life import Action, Seen, must_compare, next_action
from udfs.format.schema import SEGMENTS
from udfs.source.fingerprint import Marks

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
    seen: dict[str, Any], was: dict[str, Any], marks: Marks = Marks.SAME, asked: bool = False
) -> Action:
    listed = Seen(**{"length": 100, "modified": 7, "has_successor": False} | seen)
    return next_action(listed, replace(KNOWN, **was), marks, asked)


@pytest.mark.parametrize(
    ("seen", "was", "marks", "expected"),
    [
        ({}, {}, Marks.SAME, Action.UNCHANGED),
        ({"modified": 8}, {}, Marks.SAME, Action.UNCHANGED),
        ({"length": 101}, {}, Marks.SAME, Action.GO_ON),
        ({"length": 99}, {}, Marks.SAME, Action.REPLACE),
        ({"length": 0}, {}, Marks.CHANGED, Action.REPLACE),
        ({}, {}, Marks.CHANGED, Action.REPLACE),
        ({"length": 101}, {}, Marks.CHANGED, Action.REPLACE),
        ({}, TORN, Marks.SAME, Action.UNCHANGED),
        ({"length": 101}, TORN, Marks.TAIL_CHANGED, Action.GO_ON),
        ({"length": 80}, TORN, Marks.TAIL_CHANGED, Action.GO_ON),
        ({"length": 60}, TORN, Marks.TAIL_CHANGED, Action.GO_ON),
        ({"length": 59}, TORN, Marks.SAME, Action.REPLACE),
        ({"modified": 8}, TORN, Marks.SAME, Action.GO_ON),
        ({"has_successor": True}, TORN, Marks.SAME, Action.GO_ON),
        ({"has_successor": True}, ZEROS, Marks.SAME, Action.UNCHANGED),
        ({"modified": 8}, ZEROS, Marks.SAME, Action.GO_ON),
        ({}, ZEROS, Marks.TAIL_CHANGED, Action.GO_ON),  # written under the same time
        ({}, DAMAGED_END, Marks.SAME, Action.UNCHANGED),
        ({"length": 101}, DAMAGED_END, Marks.SAME, Action.REPLACE),
        ({"modified": 8}, DAMAGED_END, Marks.SAME, Action.REPLACE),
        ({}, DAMAGED_END, Marks.TAIL_CHANGED, Action.REPLACE),
        ({"topic_id": "b"}, {"topic_id": "a"}, Marks.SAME, Action.REPLACE),
        ({"topic_id": "b"}, {}, Marks.SAME, Action.UNCHANGED),
        ({}, {"topic_id": "a"}, Marks.SAME, Action.UNCHANGED),
        ({"length": 5}, {}, Marks.UNREADABLE, Action.UNCHANGED),
    ],
)
def test_what_a_known_segment_needs(
    seen: dict[str, Any], was: dict[str, Any], marks: Marks, expected: Action
) -> None:
    assert action(seen, was, marks) is expected


def test_redecode_replaces_what_it_names() -> None:
    assert action({}, {}, asked=True) is Action.REPLACE


@pytest.mark.parametrize(
    ("seen", "asked", "expected"),
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
    seen: dict[str, Any], asked: bool, expected: Action
) -> None:
    assert action(seen, {}, asked=asked) is expected


@pytest.mark.parametrize(
    ("seen", "was", "marks", "expected"),
    [
        ({"modified": 8}, {"damaged": 1}, Marks.SAME, True),
        ({"length": 101}, {"damaged": 1}, Marks.TAIL_CHANGED, True),
        ({}, {"damaged": 1}, Marks.SAME, False),
        ({"modified": 8}, {}, Marks.SAME, False),
        ({"modified": 8}, {"damaged": 1}, Marks.CHANGED, False),
        ({"modified": 8}, DAMAGED_END, Marks.SAME, False),
    ],
)
def test_all_bytes_are_compared_where_what_was_damaged_may_be_there_now(
    seen: dict[str, Any], was: dict[str, Any], marks: Marks, expected: bool
) -> None:
    listed = Seen(**{"length": 100, "modified": 7, "has_successor": False} | seen)
    assert must_compare(listed, replace(KNOWN, **was), marks) is expected


def test_a_row_of_the_ledger_has_the_columns_of_the_table() -> None:
    assert {f.name for f in fields(LedgerRow)} == {column.name for column in SEGMENTS.columns}
    found = ledger.to_arrow([KNOWN]).cast(ledger.SCHEMA).select(ledger.NAMES)
    assert list(ledger.rows(found)) == [KNOWN]
