"""Chooses which logs and segments are searched, in what order, and by which processes.

A slice that begins within a segment looks for its first batch. Where that is not the batch at which the slice
before it ended, the slice is searched again from there: so slices give what one search of the segment gives.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.engine.pool import WorkerPool
from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.find.slice_search import SliceResult, search_each
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan.listed import listed_segments
from kafka_log_lake.pipelines.plan.scope import outside_by_name
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, cut
from kafka_log_lake.udfs.decoder.decoded import Bounds, Scope

SLICE_BYTES = 32 << 20  # so that matches appear soon


@dataclass
class _PartitionLog:
    """The log in one partition folder."""

    topic: str
    partition: int
    partition_dir: str

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass
class SegmentLog(_PartitionLog):
    """A log of segments.

    segments: those to search, by base offset. all_segments: also those that no source names (``others``) or
    that cannot hold a match: their markers decide about transactions too.
    """

    segments: list[Segment] = field(default_factory=list)
    all_segments: list[Segment] = field(default_factory=list)
    others: list[Segment] = field(default_factory=list)


@dataclass
class LakeLog(_PartitionLog):
    """A log in a lake. damaged: its damaged ranges. left_out: segments that were not decoded whole.

    bytes: that were decoded.
    """

    segments: int
    damaged: int
    left_out: int
    bytes: int

    @property
    def place(self) -> list[Any]:
        return [self.topic, self.partition, self.partition_dir]


AnyLog = TypeVar("AnyLog", SegmentLog, LakeLog)


def logs_of(listing: Listing, request: Request) -> list[SegmentLog]:
    """Returns all logs of which a source names a segment, each with the segments that may hold a match."""
    outside = _outside(listing.segments, request.offsets)
    logs: dict[str, SegmentLog] = {}
    for (segment, wanted), is_outside in zip(listed_segments(listing), outside.tolist(), strict=True):
        log = logs.setdefault(
            segment.partition_dir, SegmentLog(segment.topic, segment.partition, segment.partition_dir)
        )
        log.all_segments.append(segment)
        if not wanted:
            log.others.append(segment)
        elif not is_outside:
            log.segments.append(segment)
    return [log for log in logs.values() if len(log.others) < len(log.all_segments)]


def home_first(logs: Collection[AnyLog], request: Request) -> tuple[list[AnyLog], int]:
    """Returns the logs that may hold a match in the order of the search, and how many were left out.

    First come those that Kafka's default partitioner gives the keys to, among as many partitions as the
    highest number of the topic says. The others follow, unless the partitioner is trusted.
    """
    searched = [log for log in logs if log.segments and request.takes(log.partition)]
    searched.sort(key=lambda log: (log.topic, log.partition, log.partition_dir))
    if not request.keys:
        return searched, 0
    partitions: dict[str, int] = defaultdict(int)
    for log in logs:
        partitions[log.topic] = max(partitions[log.topic], log.partition + 1)
    home = {topic: _partitions_of(request.keys, number) for topic, number in partitions.items()}
    first = [log for log in searched if log.partition in home[log.topic]]
    rest = [log for log in searched if log.partition not in home[log.topic]]
    return (first, len(rest)) if request.trust_partitioner else (first + rest, 0)


def _outside(segments: pa.Table, offsets: Sequence[Bounds]) -> np.ndarray:
    """Returns bool[n]: which segments hold none of the offsets, by their names."""
    names = ("partition_dir", "file_base_offset")
    folders, bases = (segments.column(name).combine_chunks() for name in names)
    if not offsets or not len(bases):
        return np.zeros(len(bases), dtype=bool)
    return np.all([outside_by_name(folders, bases, Scope(bounds)) for bounds in offsets], axis=0)


def _partitions_of(keys: Sequence[bytes], number: int) -> set[int]:
    """Returns the partitions, among ``number`` of them, that Kafka's default partitioner gives keys to."""
    from kafka_log_lake.udfs.kernels.column_functions import murmur2

    hashed = [int(murmur2(np.frombuffer(key, dtype=np.uint8), 0, len(key))) for key in keys]
    return {(hash_ & 0x7FFFFFFF) % number for hash_ in hashed}


def tasks_of(segments: Sequence[Segment], is_bounded: bool) -> Iterator[tuple[Slice, ...]]:
    """Yields tasks of slices in the order of segments: a part of a large one, or several small ones.

    is_bounded: whether a search begins and ends within segments; then they are not cut.
    """
    task: list[Slice] = []
    size = 0
    for segment in segments:
        parts = [(0, segment.length)] if is_bounded else cut(segment, SLICE_BYTES)
        for start, stop in parts:
            if task and size + stop - start > SLICE_BYTES:
                yield tuple(task)
                task, size = [], 0
            task.append(Slice(0, segment, start, stop, exact_start=start == 0))
            size += stop - start
    if task:
        yield tuple(task)


def begin_with(size: int, task: tuple[Slice, ...]) -> Iterator[tuple[Slice, ...]]:
    """Splits off the first ``size`` bytes of a task, unless its first slice is no larger or size is 0."""
    first = task[0]
    if first.stop - first.start > size > 0:
        middle = first.start + size
        yield (replace(first, stop=middle),)
        task = (replace(first, start=middle, exact_start=False), *task[1:])
    yield task


SliceTask = Callable[[Slice], SliceResult]
_AHEAD = 2  # tasks that wait for each process


class InlineFuture(Future[list[SliceResult]]):
    """A task that this process runs when its result is requested."""

    def __init__(self, work: SliceTask, slices: tuple[Slice, ...]) -> None:
        super().__init__()
        self._task = work, slices

    def result(self, timeout: float | None = None) -> list[SliceResult]:
        return search_each(*self._task)


class Workers:
    """Runs tasks in worker processes; without a pool in this process."""

    def __init__(self, number: int, pool: WorkerPool | None = None) -> None:
        self._number, self._pool, self._is_first = number, pool, True

    def _submit(self, work: SliceTask, slices: tuple[Slice, ...]) -> Future[list[SliceResult]]:
        """Submits a task; runs the first one here: it loads the kernels that forked processes then share."""
        if self._pool is None:
            return InlineFuture(work, slices)
        if not self._is_first:
            return self._pool.submit(partial(search_each, work), slices)
        self._is_first = False
        done: Future[list[SliceResult]] = Future()
        done.set_result(search_each(work, slices))
        return done

    def in_order(
        self, tasks: Iterable[tuple[SliceTask, tuple[Slice, ...]]], done: Collection[str] = ()
    ) -> Iterator[SliceResult]:
        """Yields the result of each slice, in order. tasks: taken when a process will soon be free.

        done: partition folders of which no more is wanted; the caller may add to it while it iterates.
        """
        source, waiting = iter(tasks), deque[tuple[SliceTask, tuple[Slice, ...], Future[list[SliceResult]]]]()
        end: tuple[str, int] | None = None  # the segment of the previous slice, and where that ended
        try:
            while True:
                while len(waiting) < self._number * (1 + _AHEAD) and (task := next(source, None)) is not None:
                    waiting.append((*task, self._submit(*task)))
                if not waiting:
                    return
                work, slices, future = waiting.popleft()
                if slices[0].segment.partition_dir in done:
                    future.cancel()
                    continue
                for result_ in self._all(work, slices, future, done):
                    for result in _continuous(work, result_, end):
                        end = result.slice_.segment.uri, _end_of(result)
                        yield result
        finally:
            for _, _, future in waiting:
                future.cancel()

    def _all(
        self,
        work: SliceTask,
        slices: tuple[Slice, ...],
        future: Future[list[SliceResult]],
        done: Collection[str],
    ) -> Iterator[SliceResult]:
        """Yields the result of each slice; resumes interrupted slices as their matches are taken."""
        while slices and slices[0].segment.partition_dir not in done:
            results = future.result()
            yield from results
            last, slices = results[-1], slices[len(results) :]
            if last.rest is not None:
                slices = (_rest_of(last), *slices)
            if slices:
                future = self._submit(work, slices)


def _rest_of(result: SliceResult) -> Slice:
    assert result.rest is not None
    return replace(result.slice_, start=result.rest, exact_start=True)


def _end_of(result: SliceResult) -> int:
    return result.scan.report.totals.end if result.rest is None else result.rest


def _continuous(work: SliceTask, result: SliceResult, end: tuple[str, int] | None) -> Iterator[SliceResult]:
    """Searches a slice again if it does not start where the previous one ended; yields the results.

    end: segment URI and byte where the previous slice ended; None before the first.
    """
    slice_, totals = result.slice_, result.scan.report.totals
    if end is None or end[0] != slice_.segment.uri or slice_.exact_start or result.scan.report.problem:
        yield result
        return
    if end[1] >= slice_.stop:
        return
    if totals.begin == end[1]:
        yield result
        return
    again = replace(slice_, start=end[1], exact_start=True)
    while True:
        result = work(again)
        yield result
        if result.rest is None:
            return
        again = _rest_of(result)


@contextmanager
def workers(number: int) -> Iterator[Workers]:
    """Starts up to ``number`` worker processes; 1: none, tasks run in this process."""
    if number == 1:
        yield Workers(1)
        return
    with WorkerPool(number, is_forked=True) as pool:
        yield Workers(number, pool)
