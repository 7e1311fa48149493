"""Cuts the segments of a bounded run into slices, collects slices in groups, packs groups into tasks.

Pure functions over plain dataclasses: no Spark, no files. ``tasks.slice_rows`` makes the input rows of the
stage to Spark. One task decodes a group into one set of Parquet files:

* a segment above ``slice_bytes`` is cut into several slices, each a separate group: if its slices do not
  fit together, only the files of this segment are discarded;
* smaller segments of a partition share a group of up to ``slice_bytes``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.plan.segment_actions import Action
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT
from kafka_log_lake.udfs.decoder.decoded import ALL, Range, Scope
from kafka_log_lake.udfs.spark.protocol import SLICE_SCHEMA

# The cost of opening a segment, in decoded bytes: keeps many empty segments from filling one task
SEGMENT_COST = 256 * 1024
TASKS_PER_CORE = 3
LITTLE = 16 * SEGMENT_COST  # bytes that are not worth the start of a task or process
_PLACE = ("topic", "partition", "partition_dir", "segment", "file_base_offset")


@dataclass(frozen=True)
class Segment:
    """One segment of a run.

    segment: canonical URI. partition_dir: URI of its folder.
    file: URI of the swap file that holds its bytes, or of the list of its pieces; None: the segment does.
    landed: URIs of the Parquet files of ``raw_segments`` that may hold its bytes, those with its last chunks
    first; None: the file does.
    length: bytes when it was listed; this run ignores bytes that were appended later.
    modified: modification time, microseconds since 1970 UTC.
    log_start_offset, topic_id: of its folder when it was listed; topic_id None if unknown.
    landed_at: when its bytes were landed, microseconds since 1970 UTC; None for a file.
    action: NEW, GO_ON (continue at the ledger's decoded_bytes) or REPLACE.
    was: its ledger row, to which GO_ON adds; None if the ledger does not know it.
    scope: the records of it that are requested.
    file_limit: base offset in the name of the folder's next file; NO_LIMIT for the last, and where it is not
    set (``listed_segments`` does).
    """

    topic: str
    partition: int
    partition_dir: str
    segment: str
    file_base_offset: int
    length: int
    modified: int
    has_successor: bool
    log_start_offset: int = 0
    topic_id: str | None = None
    landed_at: int | None = None
    file: str | None = None
    landed: tuple[str, ...] | None = None
    action: Action = Action.NEW
    was: LedgerRow | None = field(default=None, compare=False)
    scope: Scope = ALL
    file_limit: int = NO_LIMIT

    @property
    def uri(self) -> str:
        """Returns the URI of the file with its bytes."""
        return self.file or self.segment

    @property
    def start(self) -> int:
        """Returns the first byte that this run decodes."""
        return self.was.decoded_bytes if self.action is Action.GO_ON and self.was else 0

    @property
    def planned_bytes(self) -> int:
        return self.length - self.start

    def new_row(self, **values: Any) -> LedgerRow:
        """Returns a ledger row of the segment.

        values: of the other columns, which are as for nothing decoded.
        """
        return LedgerRow(**{name: getattr(self, name) for name in _PLACE}, **values)


@dataclass(frozen=True)
class Slice:
    """The record batches of a segment that begin in [start, stop).

    exact_start: a batch begins at start; else the worker searches for a batch that proves itself.
    expected_crc32c: CRC-32C that a second pass must find over the slice's bytes; None: not checked.
    """

    group_id: int
    segment: Segment
    start: int
    stop: int
    exact_start: bool
    expected_crc32c: int | None = None

    @property
    def range(self) -> Range:
        """Returns the range of the segment that a decoder reads, for all of its records."""
        segment = self.segment
        return Range(
            segment.length,
            self.start,
            self.stop,
            self.exact_start,
            segment.has_successor,
            file_base_offset=segment.file_base_offset,
        )


def cut(segment: Segment, slice_bytes: int) -> list[tuple[int, int]]:
    """Cuts the bytes to decode into equal parts [start, stop), at least one.

    A part may exceed slice_bytes by a tenth: segments are often a little larger than a round size, and a few
    bytes are not worth another task.
    """
    count = max(1, -(-segment.planned_bytes * 10 // (slice_bytes * 11)))
    edges = [segment.start + segment.planned_bytes * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))


def make_slices(
    segments: Iterable[Segment], slice_bytes: int, first_group: int = 0, split: bool = True
) -> list[Slice]:
    """Returns the slices of all segments, in their order; group ids count from ``first_group``.

    split: whether a segment above slice_bytes may be cut. Smaller segments share groups in either case.
    """
    ids = itertools.count(first_group)
    slices: list[Slice] = []
    open_groups: dict[tuple[str, int], tuple[int, int]] = {}  # topic-partition -> (group id, bytes in it)
    for segment in segments:
        parts = cut(segment, slice_bytes) if split else []
        if len(parts) > 1:
            for start, stop in parts:
                slices.append(Slice(next(ids), segment, start, stop, exact_start=start == segment.start))
            continue
        partition = (segment.topic, segment.partition)
        group, filled = open_groups.get(partition, (-1, slice_bytes))
        if filled + segment.planned_bytes > slice_bytes:
            group, filled = next(ids), 0
        open_groups[partition] = (group, filled + segment.planned_bytes)
        slices.append(Slice(group, segment, segment.start, segment.length, exact_start=True))
    return slices


def whole(segments: Iterable[Segment], first_group: int) -> list[Slice]:
    """Returns each segment as one slice in a separate group: its slices did not fit together."""
    ids = itertools.count(first_group)
    return [Slice(next(ids), s, s.start, s.length, exact_start=True) for s in segments]


def pack(slices: Sequence[Slice], cores: int, slice_bytes: int) -> list[list[Slice]]:
    """Packs slices into tasks; a task decodes its groups one after another.

    The tasks have about equal bytes: a few tasks per core, more for a large run.
    """
    by_group: dict[int, list[Slice]] = defaultdict(list)
    for slice_ in slices:
        by_group[slice_.group_id].append(slice_)
    groups = list(by_group.values())
    costs = [sum(s.stop - s.start + SEGMENT_COST for s in members) for members in groups]
    wanted = max(cores * TASKS_PER_CORE, -(-sum(costs) // (slice_bytes + SEGMENT_COST)))
    worthwhile = max(cores, -(-sum(costs) // LITTLE))
    count = max(1, min(len(groups), wanted, worthwhile))
    loads: list[tuple[int, int]] = [(0, task) for task in range(count)]
    members_of: list[list[Slice]] = [[] for _ in range(count)]
    for index in sorted(range(len(groups)), key=lambda i: -costs[i]):
        load, task = heapq.heappop(loads)
        members_of[task] += groups[index]
        heapq.heappush(loads, (load + costs[index], task))
    return [sorted(members, key=_order) for members in members_of if members]


def _order(slice_: Slice) -> tuple[int, str, int, str, int]:
    segment = slice_.segment
    place = (segment.partition_dir, segment.file_base_offset, segment.segment, slice_.start)
    return (slice_.group_id, *place)


def to_arrow(slices: Sequence[Slice]) -> pa.Table:
    """Returns slices as the input rows of a task: one row a slice, columns of SLICE_SCHEMA.

    Content is null.
    """
    return pa.Table.from_pylist([slice_row(s) for s in slices], schema=SLICE_SCHEMA)


def slice_row(slice_: Slice) -> dict[str, object]:
    """Returns the row of ``to_arrow`` for one slice, by column."""
    segment = slice_.segment
    continued = segment.was if segment.start > 0 else None
    previous = continued if slice_.start == segment.start else None
    of_segment = (
        *_PLACE,
        "file",
        "landed",
        "length",
        "modified",
        "log_start_offset",
        "topic_id",
        "has_successor",
    )
    of_slice = ("group_id", "start", "stop", "exact_start", "expected_crc32c")
    return {
        **{name: getattr(segment, name) for name in of_segment},
        **{name: getattr(slice_, name) for name in of_slice},
        "previous_last_offset": previous.end_offset if previous else None,
        "scope": segment.scope.condition,
        "fingerprint": continued.fingerprint if continued else None,
        "chunk_position": 0,
    }
