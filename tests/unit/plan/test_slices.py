"""Slices, groups and tasks of a run: pure functions."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.plan.segment_actions import Action
from kafka_log_lake.pipelines.plan.slices import Segment, cut, make_slices, pack, whole


def segment(name: str = "0", length: int = 100, partition: int = 0, **rest: Any) -> Segment:
    folder = f"file:///logs/t-{partition}"
    values: dict[str, Any] = {"has_successor": False} | rest
    return Segment("t", partition, folder, f"{folder}/{name:0>20}.log", int(name), length, 0, **values)


def decoded(size: int) -> LedgerRow:
    """A row of the ledger that says how far a segment was decoded."""
    return LedgerRow(
        topic="t", partition=0, partition_dir="", segment="", file_base_offset=0, decoded_bytes=size
    )


def test_a_segment_of_one_slice_is_decoded_from_its_start_to_its_length() -> None:
    (slice_,) = make_slices([segment(length=100)], slice_bytes=1000)
    assert (slice_.start, slice_.stop, slice_.exact_start) == (0, 100, True)


def test_an_empty_segment_has_one_empty_slice() -> None:
    (slice_,) = make_slices([segment(length=0)], slice_bytes=1000)
    assert (slice_.start, slice_.stop) == (0, 0)


def test_going_on_starts_where_the_ledger_stopped() -> None:
    (slice_,) = make_slices([segment(length=100, action=Action.GO_ON, was=decoded(40))], slice_bytes=1000)
    assert (slice_.start, slice_.stop, slice_.exact_start) == (40, 100, True)


@given(length=st.integers(0, 10_000), slice_bytes=st.integers(1, 3000), start=st.integers(0, 5000))
def test_parts_cover_the_segment_without_gap_or_overlap(length: int, slice_bytes: int, start: int) -> None:
    start = min(start, length)
    parts = cut(segment(length=length, action=Action.GO_ON, was=decoded(start)), slice_bytes)
    assert parts[0][0] == start
    assert parts[-1][1] == length
    assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))
    assert all((stop - begin - 1) * 10 < slice_bytes * 11 for begin, stop in parts)


def test_each_slice_of_a_big_segment_is_its_own_group() -> None:
    slices = make_slices([segment(length=1000), segment("1", length=10)], slice_bytes=400)
    assert [(s.group_id, s.start, s.exact_start) for s in slices] == [
        (0, 0, True),
        (1, 333, False),
        (2, 666, False),
        (3, 0, True),
    ]


def test_small_segments_of_a_partition_share_a_group_up_to_the_size_of_a_slice() -> None:
    slices = make_slices([segment(str(i), length=40) for i in range(5)], slice_bytes=100)
    assert [s.group_id for s in slices] == [0, 0, 1, 1, 2]


def test_partitions_share_no_group() -> None:
    segments = [segment(partition=p, length=1) for p in (0, 1, 0, 1)]
    assert [s.group_id for s in make_slices(segments, slice_bytes=100)] == [0, 1, 0, 1]


def test_nothing_is_split_where_it_may_not_be() -> None:
    slices = make_slices([segment(length=1000), segment("1", length=10)], slice_bytes=400, split=False)
    assert [(s.start, s.stop) for s in slices] == [(0, 1000), (0, 10)]


def test_group_numbers_go_on_where_requested() -> None:
    segments = [segment(), segment("1")]
    assert [s.group_id for s in whole(segments, 7)] == [7, 8]
    assert [s.group_id for s in make_slices(segments, 100, first_group=7)] == [7, 8]


@given(
    lengths=st.lists(st.integers(0, 50_000_000), max_size=40),
    cores=st.integers(1, 8),
)
def test_every_slice_is_in_one_task_and_groups_stay_together(lengths: list[int], cores: int) -> None:
    segments = [segment(str(i), length=n, partition=i % 3) for i, n in enumerate(lengths)]
    slices = make_slices(segments, slice_bytes=16_000_000)
    tasks = pack(slices, cores, slice_bytes=16_000_000)
    assert sorted(map(repr, (s for t in tasks for s in t))) == sorted(map(repr, slices))
    homes: dict[int, set[int]] = {}
    for number, task in enumerate(tasks):
        ids = [s.group_id for s in task]
        assert ids == sorted(ids)
        for group in ids:
            homes.setdefault(group, set()).add(number)
    assert all(len(home) == 1 for home in homes.values())


def test_tasks_are_about_equal_in_bytes() -> None:
    segments = [segment(str(i), length=20_000_000, partition=i) for i in range(60)]
    tasks = pack(make_slices(segments, 16_000_000), cores=2, slice_bytes=16_000_000)
    sizes = [sum(s.stop - s.start for s in t) for t in tasks]
    assert max(sizes) <= 2 * min(sizes)


def test_little_work_takes_no_more_tasks_than_cores() -> None:
    segments = [segment(str(i), length=10, partition=i) for i in range(10)]
    assert len(pack(make_slices(segments, 1000), cores=2, slice_bytes=2**27)) == 2
