"""Verdicts on what the stage reports: chains of slices, accounting, rows of the ledger. No Spark."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.pipelines.cli.errors import RunFailed
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.plan.segment_actions import Action
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.pipelines.tasks.verdicts import SegmentVerdict, judge, shortened
from kafka_log_lake.udfs.decoder.decoded import Totals
from kafka_log_lake.udfs.spark.protocol import SliceReport, StageOptions

DATA = bytes(range(100))


RUN = StageOptions("run", 7, 1, 1, 1, "", "zstd")


def segment(**values: Any) -> Segment:
    made: dict[str, Any] = {"has_successor": False} | values
    return Segment("t", 0, "file:///t-0", "file:///t-0/0.log", 0, 100, 5, **made)


def report(
    start: int, begin: int | None, end: int, fingerprint: str | None = None, **values: Any
) -> SliceReport:
    first = start if start == 0 or begin is None else begin
    size = end - first if begin is not None else 0
    made: dict[str, Any] = {"begin": begin, "end": end, "sound_end": end, "sound_bytes": size}
    made |= {"content_crc32c": crc32c.crc32c(DATA[first:end])}
    return SliceReport(0, "file:///t-0/0.log", start, Totals(**(made | values)), fingerprint)


def verdict(*reports: SliceReport, **values: Any) -> SegmentVerdict:
    return judge(segment(**values), reports, RUN)


def row(*reports: SliceReport, **values: Any) -> LedgerRow:
    found = verdict(*reports, **values).row
    assert found is not None
    return found


def test_slices_that_chain_are_sound() -> None:
    assert verdict(report(40, 45, 100), report(0, 0, 45)).row is not None


def test_a_slice_without_a_batch_of_its_own_is_passed_over() -> None:
    assert verdict(report(0, 0, 80), report(40, None, 60), report(60, 80, 100)).row is not None


@pytest.mark.parametrize(
    "reports",
    [
        (report(0, 0, 45), report(40, 50, 100)),
        (report(0, 0, 55), report(40, 50, 100)),
        (report(0, 0, 45), report(40, None, 40)),
    ],
)
def test_slices_that_do_not_fit_are_decoded_whole(reports: tuple[SliceReport, ...]) -> None:
    assert verdict(*reports).broken
    assert verdict(*reports).row is None


def test_bytes_that_nobody_accounts_for_fail_the_run() -> None:
    with pytest.raises(RunFailed, match="100 planned, found 90 sound"):
        verdict(report(0, 0, 100, sound_bytes=90))


def test_sound_quarantined_and_tail_bytes_make_up_the_length() -> None:
    found = row(report(0, 0, 90, sound_bytes=50, quarantined_bytes=40, tail="torn", tail_bytes=10))
    assert (found.decoded_bytes, found.tail, found.tail_bytes) == (90, "torn", 10)


def test_counts_add_up_and_extremes_span_the_slices() -> None:
    found = row(
        report(
            0, 0, 45, batches=2, records=5, first_offset=3, last_offset=9, min_timestamp_us=70, end_offset=9
        ),
        report(40, 45, 100, batches=1, records=1, first_offset=10, last_offset=12, max_timestamp_us=90),
    )
    assert (found.batches, found.records) == (3, 6)
    assert (found.first_offset, found.last_offset, found.end_offset) == (3, 12, 9)
    assert (found.min_timestamp, found.max_timestamp) == (70, 90)


@pytest.mark.parametrize(("base", "count"), [(10, 0), (9, 1), (3, 1), (None, 0)])
def test_offsets_that_go_back_between_slices_are_counted(base: int | None, count: int) -> None:
    found = row(report(0, 0, 45, end_offset=9), report(40, 45, 100, first_base_offset=base))
    assert found.offset_regressions == count


def going_on(**values: Any) -> dict[str, Any]:
    was = LedgerRow(
        topic="t",
        partition=0,
        partition_dir="file:///t-0",
        segment="file:///t-0/0.log",
        file_base_offset=0,
        length=70,
        decoded_bytes=60,
        batches=2,
        records=5,
        tail="torn",
        tail_bytes=10,
        fingerprint="old",
        content_crc32c=crc32c.crc32c(DATA[:60]),
        end_offset=4,
    )
    return {"action": Action.GO_ON, "was": replace(was, **values)}


def test_going_on_adds_to_the_row_that_is_there() -> None:
    found = row(report(60, 60, 100, batches=1, records=2, fingerprint="new", end_offset=6), **going_on())
    assert (found.batches, found.records, found.end_offset) == (3, 7, 6)
    assert (found.decoded_bytes, found.tail, found.fingerprint) == (100, "none", "new")
    assert found.content_crc32c == crc32c.crc32c(DATA)


def test_nothing_new_changes_no_ledger() -> None:
    still_torn = report(60, 60, 60, sound_bytes=0, tail="torn", tail_bytes=40)
    assert not verdict(still_torn, **going_on(length=100, tail_bytes=40)).changes_ledger
    assert verdict(still_torn, **going_on()).changes_ledger


@pytest.mark.parametrize(("sound_end", "ends_in_damage"), [(100, False), (60, True)])
def test_damage_at_the_end_is_noted(sound_end: int, ends_in_damage: bool) -> None:
    found = row(report(0, 0, 100, sound_bytes=60, quarantined_bytes=40, damaged=1, sound_end=sound_end))
    assert found.ends_in_damage is ends_in_damage


def test_a_rewritten_segment_that_reaches_no_further_was_cut() -> None:
    was = going_on()["was"]
    for end_offset, was_cut in ((3, True), (4, True), (9, False)):
        made = report(0, 0, 100, "new", end_offset=end_offset)
        assert bool(shortened([verdict(made, action=Action.REPLACE, was=was)])) is was_cut
    again = report(0, 0, 100, "old", end_offset=4)  # --redecode: the same bytes
    assert shortened([verdict(again, action=Action.REPLACE, was=was)]) == []


@given(cuts=st.lists(st.integers(1, 99), max_size=5, unique=True))
def test_the_checksum_of_the_content_equals_that_of_the_whole(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 100]
    reports = [report(a, a, b) for a, b in itertools.pairwise(edges)]
    assert row(*reports).content_crc32c == crc32c.crc32c(DATA)
