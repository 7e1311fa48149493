"""Which logs, and which of their segments, are searched, and in what order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pipelines.finding.request import Request
from pipelines.plan.listed import listed_segments
from pipelines.plan.scope import outside_by_name
from pipelines.plan.slices import Segment, Slice, cut
from pipelines.source.listing import Listing
from udfs.decoded import Bounds, Scope

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

    segments: those to search, by base offset. all_segments: with those that no source names, or that cannot
    hold what is looked for: their markers decide about transactions too.
    """

    segments: list[Segment] = field(default_factory=list)
    all_segments: list[Segment] = field(default_factory=list)


@dataclass
class LakeLog(_Log):
    """A log in a lake. damaged: its damaged ranges. left_out: segments that were not decoded whole."""

    segments: int
    damaged: int
    left_out: int

    @property
    def place(self) -> list[Any]:
        return [self.topic, self.partition, self.partition_dir]


AnyLog = TypeVar("AnyLog", Log, LakeLog)


def logs_to_search(listing: Listing, request: Request) -> tuple[list[Log], int]:
    """The logs that may hold a match, in the order in which they are searched; how many others there are."""
    outside = _outside(listing.segments, request.offsets)
    logs: dict[str, Log] = {}
    for (segment, wanted), is_outside in zip(listed_segments(listing), outside.tolist(), strict=True):
        log = logs.setdefault(
            segment.partition_dir, Log(segment.topic, segment.partition, segment.partition_dir)
        )
        log.all_segments.append(segment)
        if wanted and not is_outside:
            log.segments.append(segment)
    return home_first(logs.values(), request)


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
    from udfs.kernels.column_functions import murmur2

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
