"""Which logs, and which of their segments, are searched, in what order, and by which processes.

A slice that begins within a segment looks for its first batch. Where that is not the batch at which the slice
before it ended, the slice is searched again from there: so slices give what one search of the segment gives.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.find.slice_search import Found, search_each
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan.listed import listed_segments
from kafka_log_lake.pipelines.plan.scope import outside_by_name
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, cut
from kafka_log_lake.pipelines.tasks.pool import WorkerPool
from kafka_log_lake.udfs.decoder.decoded import Bounds, Scope

SLICE_BYTES = 32 << 20  # so that what is found appears soon


@dataclass
class _Log:
    """The log in one partition folder."""

    topic: str
    partition: int
    partition_dir: str

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass
class Log(_Log):
    """A log of segments.

    segments: those to search, by base offset. all_segments: with those that no source names (others), or that
    cannot hold what is looked for: their markers decide about transactions too.
    """

    segments: list[Segment] = field(default_factory=list)
    all_segments: list[Segment] = field(default_factory=list)
    others: list[Segment] = field(default_factory=list)


@dataclass
class LakeLog(_Log):
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


AnyLog = TypeVar("AnyLog", Log, LakeLog)


def logs_of(listing: Listing, request: Request) -> list[Log]:
    """All logs of which a source names a segment, each with the segments that may hold a match."""
    outside = _outside(listing.segments, request.offsets)
    logs: dict[str, Log] = {}
    for (segment, wanted), is_outside in zip(listed_segments(listing), outside.tolist(), strict=True):
        log = logs.setdefault(
            segment.partition_dir, Log(segment.topic, segment.partition, segment.partition_dir)
        )
        log.all_segments.append(segment)
        if not wanted:
            log.others.append(segment)
        elif not is_outside:
            log.segments.append(segment)
    return [log for log in logs.values() if len(log.others) < len(log.all_segments)]


def home_first(logs: Collection[AnyLog], request: Request) -> tuple[list[AnyLog], int]:
    """Those of all logs that may hold a match, in the order in which they are searched; how many others.

    First come those that Kafka's default partitioner gives the keys to, among as many partitions as the
    highest number of the topic says. The others follow, unless the partitioner is trusted.
    """
    found = [log for log in logs if log.segments and request.takes(log.partition)]
    found.sort(key=lambda log: (log.topic, log.partition, log.partition_dir))
    if not request.keys:
        return found, 0
    partitions: dict[str, int] = defaultdict(int)
    for log in logs:
        partitions[log.topic] = max(partitions[log.topic], log.partition + 1)
    home = {topic: _partitions_of(request.keys, number) for topic, number in partitions.items()}
    first = [log for log in found if log.partition in home[log.topic]]
    rest = [log for log in found if log.partition not in home[log.topic]]
    return (first, len(rest)) if request.trust_partitioner else (first + rest, 0)


def _outside(segments: pa.Table, offsets: Sequence[Bounds]) -> np.ndarray:
    """bool[n]: the segments that hold none of the offsets, by their names."""
    names = ("partition_dir", "file_base_offset")
    folders, bases = (segments.column(name).combine_chunks() for name in names)
    if not offsets or not len(bases):
        return np.zeros(len(bases), dtype=bool)
    return np.all([outside_by_name(folders, bases, Scope(bounds)) for bounds in offsets], axis=0)


def _partitions_of(keys: Sequence[bytes], number: int) -> set[int]:
    """The partitions, among a number of them, that Kafka's default partitioner gives keys to."""
    from kafka_log_lake.udfs.kernels.column_functions import murmur2

    hashed = [int(murmur2(np.frombuffer(key, dtype=np.uint8), 0, len(key))) for key in keys]
    return {(one & 0x7FFFFFFF) % number for one in hashed}


def tasks_of(segments: Sequence[Segment], is_bounded: bool) -> Iterator[tuple[Slice, ...]]:
    """Slices of segments, in their order: parts of large ones, or several small ones, make a task.

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
    """The task in two, the first of ``size`` bytes; as it is where its first slice is no larger."""
    first = task[0]
    if first.stop - first.start > size > 0:
        middle = first.start + size
        yield (replace(first, stop=middle),)
        task = (replace(first, start=middle, exact_start=False), *task[1:])
    yield task


Work = Callable[[Slice], Found]
_AHEAD = 2  # tasks that wait for each process


class _Late(Future[list[Found]]):
    """A task that this process runs when its result is requested."""

    def __init__(self, work: Work, slices: tuple[Slice, ...]) -> None:
        super().__init__()
        self._task = work, slices

    def result(self, timeout: float | None = None) -> list[Found]:
        return search_each(*self._task)


class Workers:
    """Worker processes; without a pool this process, if one is enough."""

    def __init__(self, number: int, pool: WorkerPool | None = None) -> None:
        self._number, self._pool, self._is_first = number, pool, True

    def _submit(self, work: Work, slices: tuple[Slice, ...]) -> Future[list[Found]]:
        """Runs the first task here, which loads the kernels that forked processes then share."""
        if self._pool is None:
            return _Late(work, slices)
        if not self._is_first:
            return self._pool.submit(search_each, work, slices)
        self._is_first = False
        done: Future[list[Found]] = Future()
        done.set_result(search_each(work, slices))
        return done

    def in_order(
        self, tasks: Iterable[tuple[Work, tuple[Slice, ...]]], done: Collection[str] = ()
    ) -> Iterator[Found]:
        """What work on each slice finds. tasks: taken when a process will soon be free.

        done: partition folders of which no more is wanted; whoever takes the results may add to it.
        """
        source, waiting = iter(tasks), deque[tuple[Work, tuple[Slice, ...], Future[list[Found]]]]()
        end: tuple[str, int] | None = None  # the segment of the slice before, and where that ended
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
                for found in self._all(work, slices, future, done):
                    for one in _fitting(work, found, end):
                        end = one.slice_.segment.uri, _end_of(one)
                        yield one
        finally:
            for _, _, future in waiting:
                future.cancel()

    def _all(
        self, work: Work, slices: tuple[Slice, ...], future: Future[list[Found]], done: Collection[str]
    ) -> Iterator[Found]:
        """What is found in each slice; interrupted ones go on here, as their matches are taken."""
        while slices and slices[0].segment.partition_dir not in done:
            results = future.result()
            yield from results
            last, slices = results[-1], slices[len(results) :]
            if last.rest is not None:
                slices = (_rest_of(last), *slices)
            if slices:
                future = self._submit(work, slices)


def _rest_of(found: Found) -> Slice:
    assert found.rest is not None
    return replace(found.slice_, start=found.rest, exact_start=True)


def _end_of(found: Found) -> int:
    return found.scan.report.totals.end if found.rest is None else found.rest


def _fitting(work: Work, found: Found, end: tuple[str, int] | None) -> Iterator[Found]:
    """What is found in a slice, or in its part behind the slice before, which ended at ``end``."""
    slice_, totals = found.slice_, found.scan.report.totals
    if end is None or end[0] != slice_.segment.uri or slice_.exact_start or found.scan.report.problem:
        yield found
        return
    if end[1] >= slice_.stop:
        return
    if totals.begin == end[1]:
        yield found
        return
    again = replace(slice_, start=end[1], exact_start=True)
    while True:
        found = work(again)
        yield found
        if found.rest is None:
            return
        again = _rest_of(found)


@contextmanager
def workers(number: int) -> Iterator[Workers]:
    """Up to ``number`` processes."""
    if number == 1:
        yield Workers(1)
        return
    with WorkerPool(number) as pool:
        yield Workers(number, pool)
