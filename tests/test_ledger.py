"""A listing beside the ledger: one rule a test, on frames made by hand."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.plan import ledger
from pipelines.plan.slices import GO_ON, NEW, REWRITTEN
from pipelines.source.listing import LISTING_DDL, NO_PARTITION
from udfs.format import schema as columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "file:///logs/t-0"
SEGMENT = f"{FOLDER}/{0:020d}.log"
THEN = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
LATER = THEN + datetime.timedelta(seconds=1)


def listing(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    first: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "log_dir": FOLDER,
        "segment": SEGMENT,
        "file_base_offset": 0,
        "length": 100,
        "modified": THEN,
        "has_successor": False,
        "skip": None,
    }
    made = [first | row for row in rows]
    return spark.createDataFrame([tuple(row.values()) for row in made], LISTING_DDL)


def known(spark: SparkSession, **values: Any) -> DataFrame:
    row = {"segment": SEGMENT, "length": 100, "decoded_bytes": 100, "modified": THEN, "tail": "none"}
    row |= {"tail_bytes": 0, "fingerprint": "0:61:aa/0:61:aa", "topic": "t", "partition": 0} | values
    ddl = ", ".join(f"`{c.name}` {c.sql_type}" for c in columns.SEGMENTS.columns)
    return spark.createDataFrame([tuple(row.get(c.name) for c in columns.SEGMENTS.columns)], ddl)


def action(spark: SparkSession, seen: dict[str, Any], was: dict[str, Any], **options: Any) -> str:
    holds = spark.createDataFrame(
        [(SEGMENT, options.pop("unchanged", True))], "segment string, unchanged boolean"
    )
    planned = ledger.plan(listing(spark, seen), known(spark, **was), holds, **options)
    (row,) = planned.collect()
    return str(row.action)


TORN = {"tail": "torn", "tail_bytes": 40, "decoded_bytes": 60}
ZEROS = {"tail": "zeros", "tail_bytes": 40, "decoded_bytes": 60}


@pytest.mark.parametrize(
    ("seen", "was", "options", "expected"),
    [
        ({}, {}, {}, ledger.UNCHANGED),
        ({"modified": LATER}, {}, {}, ledger.UNCHANGED),
        ({"length": 101}, {}, {}, GO_ON),
        ({"length": 99}, {}, {}, REWRITTEN),
        ({}, {}, {"unchanged": False}, REWRITTEN),
        ({"length": 101}, {}, {"unchanged": False}, REWRITTEN),
        ({}, TORN, {}, ledger.UNCHANGED),
        ({"length": 101}, TORN, {}, GO_ON),
        ({"length": 80}, TORN, {}, GO_ON),
        ({"length": 60}, TORN, {}, GO_ON),
        ({"length": 59}, TORN, {}, REWRITTEN),
        ({"modified": LATER}, TORN, {}, GO_ON),
        ({"has_successor": True}, TORN, {}, GO_ON),
        ({"has_successor": True}, ZEROS, {}, ledger.UNCHANGED),
        ({"modified": LATER}, ZEROS, {}, GO_ON),
        ({}, {}, {"redecode": "t-0/0+"}, REWRITTEN),
        ({}, {}, {"redecode": "t-1/"}, ledger.UNCHANGED),
    ],
)
def test_what_a_known_segment_needs(
    spark: SparkSession, seen: dict[str, Any], was: dict[str, Any], options: dict[str, Any], expected: str
) -> None:
    assert action(spark, seen, was, **options) == expected


def test_a_segment_that_the_ledger_does_not_know_is_new(spark: SparkSession) -> None:
    assert action(spark, {"segment": SEGMENT.replace("t-0", "t-1")}, {}) == NEW


def test_with_an_empty_ledger_all_is_new(spark: SparkSession) -> None:
    planned = ledger.plan(listing(spark, {}), None, None)
    (segment,) = ledger.next_segments(planned, None, 10)
    assert (segment.action, segment.was, segment.start) == (NEW, None, 0)


def test_only_segments_with_marks_are_checked(spark: SparkSession) -> None:
    frame = listing(spark, {})
    assert ledger.to_check(frame, known(spark)).count() == 1
    assert ledger.to_check(frame, known(spark, decoded_bytes=0)).count() == 0


def test_going_on_carries_the_ledgers_row(spark: SparkSession) -> None:
    holds = spark.createDataFrame([(SEGMENT, True)], "segment string, unchanged boolean")
    planned = ledger.plan(listing(spark, {"length": 150}), known(spark, records=7, end_offset=9), holds)
    (segment,) = ledger.next_segments(planned, None, 10)
    assert (segment.start, segment.planned_bytes) == (100, 50)
    assert segment.was is not None
    assert (segment.was["records"], segment.was["end_offset"]) == (7, 9)
    assert segment.modified_us == segment.was["modified"] == int(THEN.timestamp()) * 1_000_000


def test_segments_come_in_order_and_a_bounded_number_at_a_time(spark: SparkSession) -> None:
    places = [("b", 5), ("a", 5), ("a", 0), ("b", 0), ("a", 7)]
    frame = listing(
        spark,
        *({"log_dir": d, "file_base_offset": o, "segment": f"{d}/{o}"} for d, o in places),
        {"skip": "x"},
    )
    planned = ledger.plan(frame, None, None)
    first = ledger.next_segments(planned, None, 2)
    rest = ledger.next_segments(planned, first[-1], 10)
    assert [s.segment for s in first + rest] == ["a/0", "a/5", "a/7", "b/0", "b/5"]


def test_counts_of_a_plan(spark: SparkSession) -> None:
    other = {"skip": NO_PARTITION, "log_dir": "x"}
    frame = listing(
        spark, {}, {"segment": "s", "length": 30}, {**other, "segment": "1"}, {**other, "segment": "2"}
    )
    holds = spark.createDataFrame([(SEGMENT, True)], "segment string, unchanged boolean")
    counts = ledger.count(ledger.plan(frame, known(spark), holds))
    assert (counts.planned, counts.planned_bytes, counts.unchanged) == (1, 30, 1)
    assert counts.skipped == {NO_PARTITION: 1}


def copies(spark: SparkSession, *reaches: tuple[str, int, int]) -> DataFrame:
    return listing(
        spark,
        *(
            {"log_dir": folder, "segment": f"{folder}/{base}", "file_base_offset": base, "length": length}
            for folder, base, length in reaches
        ),
    )


@pytest.mark.parametrize(
    ("reaches", "kept"),
    [
        ([("a", 0, 10), ("b", 0, 5), ("b", 7, 1)], "b"),
        ([("a", 0, 10), ("b", 0, 11)], "b"),
        ([("a", 0, 1), ("a", 7, 5), ("b", 7, 5)], "a"),
        ([("a", 0, 10), ("b", 0, 10)], "a"),
    ],
)
def test_one_copy_is_the_one_that_reaches_furthest(
    spark: SparkSession, reaches: list[tuple[str, int, int]], kept: str
) -> None:
    frame = copies(spark, *reaches)
    assert {r.log_dir for r in ledger.furthest_copies(frame).collect()} == {kept}
    assert [(r.topic, r.partition, r.folders) for r in ledger.replicas(frame, 5)] == [("t", 0, 2)]


def test_rows_that_a_longer_segment_reaches_past(spark: SparkSession) -> None:
    rows = known(spark, log_dir=FOLDER, file_base_offset=10)
    assert ledger.rows_between(spark, rows, [(FOLDER, 0, 9)]) == []
    assert [r["segment"] for r in ledger.rows_between(spark, rows, [(FOLDER, 0, 10)])] == [SEGMENT]
    assert ledger.rows_between(spark, rows, [(FOLDER, 10, 20), ("other", 0, 20)]) == []
