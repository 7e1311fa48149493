"""A listing against the ledger: what a job plans, which rows go, and in what portions. No Spark, no files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake.pipelines.listing.listing import LISTING_SCHEMA, Listing
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.plan.runs import Plan, Rules, make_plan
from kafka_log_lake.pipelines.plan.segment_actions import Action
from kafka_log_lake.udfs.storage.fingerprint import FileMatch

A, B = "file:///a/t-0", "file:///b/t-0"
GONE_NOWHERE = "file:///nowhere"


def listed(folder: str, base: int, length: int = 100, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": "t", "partition": 0, "partition_dir": folder, "file_base_offset": base}
    row |= {"segment": f"{folder}/{base:020d}.log", "length": length, "modified": 7, "has_successor": False}
    row |= {"log_start_offset": 0, "topic_id": None, "landed_at": None, "wanted": True}
    return row | values


def known(folder: str, base: int, last: int, length: int = 100, **values: Any) -> LedgerRow:
    row = LedgerRow(
        topic="t",
        partition=0,
        partition_dir=folder,
        segment=f"{folder}/{base:020d}.log",
        file_base_offset=base,
        length=length,
        modified=7,
        decoded_bytes=length,
        end_offset=last,
        fingerprint="0:61:aa/0:61:aa",
    )
    return replace(row, **values)


def plan(
    rows: list[dict[str, Any]],
    ledger_rows: list[LedgerRow],
    gone: set[str] | None = None,
    changed: set[str] | None = None,
    **rules: Any,
) -> Plan:
    """gone: folders that are no more; files are where the listing does not name them."""
    listing = Listing(pa.Table.from_pylist(rows, schema=LISTING_SCHEMA))
    here = {row["segment"] for row in rows} | {row["partition_dir"] for row in rows}

    def check(table: pa.Table) -> list[FileMatch]:
        names = table.column("segment").to_pylist()
        return [FileMatch.CHANGED if n in (changed or set()) else FileMatch.SAME for n in names]

    def is_gone(uri: str) -> bool:
        return uri not in here and (uri.endswith(".log") or uri in (gone or set()))

    table = ledger.to_arrow(ledger_rows).cast(ledger.SCHEMA)
    return make_plan(listing, table, Rules(check, is_gone, **rules))


def planned(made: Plan) -> dict[str, Action]:
    return {s.segment: s.action for run in made.runs(10, lambda: 10**9) for s in run}


def going(made: Plan) -> set[tuple[str, int]]:
    return {(row.partition_dir, row.file_base_offset) for row in made.obsolete.rest()}


def test_with_an_empty_ledger_all_is_new() -> None:
    made = plan([listed(A, 0), listed(A, 9)], [])
    (run,) = made.runs(10, lambda: 10**9)
    assert [(s.file_base_offset, s.action, s.was, s.start) for s in run] == [
        (0, Action.NEW, None, 0),
        (9, Action.NEW, None, 0),
    ]
    assert (made.found, made.planned, made.unchanged) == (2, 2, 0)


def test_going_on_carries_the_ledgers_row() -> None:
    was = known(A, 0, 8, records=7)
    made = plan([listed(A, 0, 150)], [was])
    ((segment,),) = made.runs(10, lambda: 10**9)
    assert (segment.action, segment.start, segment.planned_bytes) == (Action.GO_ON, 100, 50)
    assert segment.was == was


def test_what_the_ledger_knows_is_unchanged() -> None:
    made = plan([listed(A, 0)], [known(A, 0, 8)])
    assert (made.found, made.planned, made.unchanged) == (1, 0, 1)


def test_segments_that_are_not_wanted_are_not_planned() -> None:
    assert plan([listed(A, 0), listed(A, 9, wanted=False)], []).found == 1


def test_segments_come_in_order_a_bounded_number_and_size_at_a_time() -> None:
    rows = [listed(A, base, length) for base, length in ((0, 10), (9, 10), (18, 500), (27, 10), (36, 10))]
    runs = [[s.file_base_offset for s in run] for run in plan(rows, []).runs(2, lambda: 100)]
    assert runs == [[0, 9], [18], [27, 36]]


# Segments that are gone from a folder that is there


def test_what_retention_deleted_stays() -> None:
    made = plan([listed(A, 9)], [known(A, 0, 8), known(A, 9, 17)])
    assert going(made) == set()
    assert made.obsolete.warnings() == []


def test_a_segment_that_an_earlier_one_covers_goes_without_a_word() -> None:
    made = plan([listed(A, 0)], [known(A, 0, 17), known(A, 9, 17)])
    assert going(made) == {(A, 9)}
    made.obsolete.done([], [], made.obsolete.rest())
    assert made.obsolete.warnings() == []


def test_a_segment_that_a_run_covers_goes_with_that_run() -> None:
    made = plan([listed(A, 0, 150)], [known(A, 0, 8), known(A, 9, 17)])
    assert going(made) == set()
    assert [r.file_base_offset for r in made.obsolete.with_run([known(A, 0, 17)], [])] == [9]
    assert made.obsolete.with_run([known(A, 0, 8)], []) == []


def test_what_comes_after_a_segment_that_was_cut_goes_with_a_warning() -> None:
    made = plan([listed(A, 0, 50)], [known(A, 0, 8), known(A, 9, 17), known(A, 18, 26)])
    cut = [known(A, 0, 5)]
    gone = made.obsolete.with_run(cut, cut)
    assert [r.file_base_offset for r in gone] == [9, 18]
    made.obsolete.done(cut, cut, gone)
    assert made.obsolete.warnings() == [
        f"t-0: the rows of 2 segments were removed: they are gone from {A}, and the segment before them was "
        "cut or cleaned"
    ]


def test_of_many_partitions_ten_are_named() -> None:
    rows, before = [], []
    for number in range(25):
        folder = f"file:///logs/t-{number:02}"
        rows += [listed(folder, base, partition=number) for base in (0, 18)]
        before += [known(folder, base, base + 8, partition=number) for base in (0, 9, 18)]
    lines = plan(rows, before).obsolete.warnings()
    assert len(lines) == 11
    assert lines[-1] == "and 15 more partitions with segments whose files are gone: the rows stay"


def test_a_segment_lost_from_the_middle_stays_with_a_warning() -> None:
    made = plan([listed(A, 0), listed(A, 18)], [known(A, 0, 8), known(A, 9, 17), known(A, 18, 26)])
    assert going(made) == set()
    assert made.obsolete.warnings() == [
        f"t-0: {A} no longer has the files of 1 segment, but still has that of an earlier one: the rows stay"
    ]


@pytest.mark.parametrize(("store", "left"), [("file:///a", set()), ("s3://bucket", {10})])
def test_the_time_of_a_file_tells_of_the_cleaner_and_that_of_an_object_does_not(
    store: str, left: set[int]
) -> None:
    folder = f"{store}/t-0"
    made = plan(
        [listed(folder, 0, modified=1_000), listed(folder, 20)],
        [known(folder, 0, 9), known(folder, 10, 19, modified=1_000), known(folder, 20, 29)],
    )
    assert {10} - {base for _, base in going(made)} == left


def test_a_file_that_can_still_be_seen_is_not_gone() -> None:
    here = listed(A, 9, wanted=False)
    assert going(plan([listed(A, 0), here], [known(A, 0, 17), known(A, 9, 17)])) == set()


def test_all_of_a_topic_that_was_made_again_goes() -> None:
    rows = [known(A, base, base + 8, topic_id="old") for base in (0, 9, 18)]
    made = plan([listed(A, 9, topic_id="new")], rows)
    assert planned(made) == {f"{A}/{9:020d}.log": Action.REPLACE}
    assert going(made) == {(A, 0), (A, 18)}


def test_landed_bytes_of_the_topic_before_take_nothing_away() -> None:
    rows = [known(A, base, base + 8, topic_id="new", decoded_at=50) for base in (0, 9)]
    made = plan([listed(A, 0, topic_id="old", landed_at=40)], rows)
    assert (planned(made), going(made)) == ({}, set())
    made = plan([listed(A, 0, topic_id="newer", landed_at=60)], rows)
    assert going(made) == {(A, 9)}


# Folders of a topic-partition


def test_every_copy_is_kept_with_a_warning() -> None:
    made = plan([listed(A, 0), listed(B, 0)], [])
    assert made.planned == 2
    assert made.warnings == [
        "these partitions are in several folders, and all copies are kept (--one-copy keeps one): t-0 (2)"
    ]


def test_a_copy_that_only_the_lake_knows_is_reported_too() -> None:
    made = plan([listed(B, 0)], [known(A, 0, 8)])
    assert made.warnings[0].endswith("t-0 (2)")
    assert going(made) == set()


@pytest.mark.parametrize(
    ("reaches", "kept"),
    [
        ([(A, 0, 10), (B, 0, 5), (B, 7, 1)], B),
        ([(A, 0, 10), (B, 0, 11)], B),
        ([(A, 0, 1), (A, 7, 5), (B, 7, 5)], A),
        ([(A, 0, 10), (B, 0, 10)], A),
    ],
)
def test_one_copy_is_the_one_that_reaches_furthest(reaches: list[tuple[str, int, int]], kept: str) -> None:
    made = plan([listed(*reach) for reach in reaches], [], one_copy=True)
    assert {name.rpartition("/")[0] for name in planned(made)} == {kept}
    assert made.warnings == []


def test_with_one_copy_the_rows_of_the_other_go_once_it_is_overtaken() -> None:
    rows = [known(A, 0, 8), known(A, 9, 14)]
    made = plan([listed(A, 0), listed(A, 9), listed(B, 0, 300)], rows, one_copy=True)
    assert (planned(made), going(made)) == ({}, set())  # the higher base offset decides
    made = plan([listed(A, 0), listed(A, 9), listed(B, 10)], rows, one_copy=True)
    assert {name.rpartition("/")[0] for name in planned(made)} == {B}
    assert going(made) == {(A, 0), (A, 9)}


def test_with_one_copy_what_the_lake_has_may_be_the_one() -> None:
    made = plan([listed(B, 0)], [known(A, 0, 8), known(A, 9, 14)], one_copy=True)
    assert planned(made) == {}
    assert going(made) == set()


def test_rows_of_a_folder_that_is_gone_go_where_another_holds_their_offsets() -> None:
    rows = [known(A, 0, 8), known(A, 9, 17), known(A, 18, 26)]
    made = plan([listed(B, 9), listed(B, 18)], rows, gone={A})
    new = [known(B, 9, 17), known(B, 18, 22)]
    gone = made.obsolete.with_run(new, [])
    assert [(r.partition_dir, r.file_base_offset) for r in gone] == [(A, 9), (A, 18)]
    made.obsolete.done(new, [], gone)
    assert made.obsolete.warnings() == [
        f"t-0: the rows of 2 segments were removed: {A} is gone, and another folder holds their offsets"
    ]


def test_all_of_a_topic_that_was_made_again_in_another_folder_goes() -> None:
    rows = [known(A, 0, 8, topic_id="old"), known(A, 9, 17, topic_id="old")]
    made = plan([listed(B, 0, topic_id="new")], rows, gone={A})
    new = [known(B, 0, 3, topic_id="new")]
    gone = made.obsolete.with_run(new, [])
    assert [(r.partition_dir, r.file_base_offset) for r in gone] == [(A, 0), (A, 9)]
    made.obsolete.done(new, [], gone)
    assert made.obsolete.warnings() == [
        "t-0: the rows of 2 segments were removed: the topic was deleted and made again (topic id old before)"
    ]


@pytest.mark.parametrize(
    "other", [{"topic_id": "old"}, {"topic_id": None}, {"topic_id": "new", "landed_at": 40}]
)
def test_of_a_folder_that_is_gone_rows_stay_where_the_topic_may_be_the_same(other: dict[str, Any]) -> None:
    made = plan([listed(B, 0, **other)], [known(A, 9, 17, topic_id="old", decoded_at=50)], gone={A})
    assert going(made) == set()


# Landed bytes that no run has decoded


def test_landed_segments_that_were_merged_since_are_not_decoded() -> None:
    was = known(A, 0, 17, decoded_at=50)
    listed_ = [listed(A, 0, landed_at=40), listed(A, 9, landed_at=40), listed(A, 18, landed_at=40)]
    assert planned(plan(listed_, [was])) == {f"{A}/{18:020d}.log": Action.NEW}
    later = [listed(A, 0, landed_at=40), listed(A, 9, landed_at=60)]
    assert planned(plan(later, [was])) == {f"{A}/{9:020d}.log": Action.NEW}


def test_landed_segments_of_the_topic_before_are_not_decoded() -> None:
    was = known(A, 0, 3, topic_id="new", decoded_at=50)
    assert planned(plan([listed(A, 9, topic_id="old", landed_at=40)], [was])) == {}


def test_landed_segments_that_retention_deleted_are_decoded() -> None:
    was = known(A, 9, 17, topic_id="t", decoded_at=50)
    rows = [listed(A, base, topic_id="t", landed_at=40) for base in (0, 9)]
    assert planned(plan(rows, [was])) == {f"{A}/{0:020d}.log": Action.NEW}
