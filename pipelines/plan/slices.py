"""A bounded run's segments cut into slices, slices gathered into groups, groups packed into tasks.

Pure functions over plain dataclasses: no Spark, no files. ``execute.slice_rows`` makes the rows of the
stage of them. A group is what one task decodes into one set of Parquet files:

* a segment above ``slice_bytes`` gives several slices, each its own group, so that a broken chain of slices
  costs that segment's files and no other's;
* smaller segments of a partition share a group up to ``slice_bytes``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

NEW, GO_ON, REWRITTEN = "new", "go on", "rewritten"

# What opening one segment costs, as bytes decoded: many empty segments must not end in one task.
SEGMENT_COST = 256 * 1024
TASKS_PER_CORE = 3


@dataclass(frozen=True)
class Segment:
    """One segment of a run.

    segment: canonical URI; log_dir its folder.
    length: bytes that the listing saw; later ones do not exist for this run.
    modified_us: modification time, microseconds since 1970 UTC.
    action: NEW, GO_ON (from the ledger's decoded_bytes) or REWRITTEN (rows are replaced).
    was: the ledger's row by column name (timestamps in microseconds), or None. GO_ON adds to it.
    """

    topic: str
    partition: int
    log_dir: str
    segment: str
    file_base_offset: int
    length: int
    modified_us: int
    has_successor: bool
    action: str = NEW
    was: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def start(self) -> int:
        """First byte that this run decodes."""
        return int(self.was["decoded_bytes"]) if self.action == GO_ON and self.was else 0

    @property
    def planned_bytes(self) -> int:
        return self.length - self.start


@dataclass(frozen=True)
class Slice:
    """The entries of a segment that begin in [start, stop).

    exact_start: start is a known entry boundary; else the worker looks for an entry that proves itself.
    expected_crc32c: of the slice's bytes, where a second pass must find the same; None: not checked.
    """

    group_id: int
    segment: Segment
    start: int
    stop: int
    exact_start: bool
    expected_crc32c: int | None = None


@dataclass(frozen=True)
class Task:
    """Groups that one Spark task decodes one after the other."""

    task_id: int
    slices: tuple[Slice, ...]


def cut(segment: Segment, slice_bytes: int) -> list[tuple[int, int]]:
    """Even [start, stop) pieces of what is to be decoded, at least one.

    None is above slice_bytes by more than a tenth: a segment is seldom of a round size, and a few bytes too
    many are not worth a task.
    """
    count = max(1, -(-segment.planned_bytes * 10 // (slice_bytes * 11)))
    edges = [segment.start + segment.planned_bytes * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))


def make_slices(
    segments: Iterable[Segment], slice_bytes: int, first_group: int = 0, split: bool = True
) -> list[Slice]:
    """Slices of all segments, numbered by group from ``first_group`` on, in the segments' order.

    split: whether a segment above slice_bytes may be cut; small ones go together either way.
    """
    ids = itertools.count(first_group)
    slices: list[Slice] = []
    together: dict[tuple[str, int], tuple[int, int]] = {}  # partition -> (group, bytes in it)
    for segment in segments:
        pieces = cut(segment, slice_bytes) if split else []
        if len(pieces) > 1:
            for start, stop in pieces:
                slices.append(Slice(next(ids), segment, start, stop, exact_start=start == segment.start))
            continue
        partition = (segment.topic, segment.partition)
        group, held = together.get(partition, (-1, slice_bytes))
        if held + segment.planned_bytes > slice_bytes:
            group, held = next(ids), 0
        together[partition] = (group, held + segment.planned_bytes)
        slices.append(Slice(group, segment, segment.start, segment.length, exact_start=True))
    return slices


def whole(segments: Iterable[Segment], first_group: int) -> list[Slice]:
    """Each segment in one slice of its own group: what is left where its slices do not fit together."""
    ids = itertools.count(first_group)
    return [Slice(next(ids), s, s.start, s.length, exact_start=True) for s in segments]


def pack(slices: Sequence[Slice], cores: int, slice_bytes: int) -> list[Task]:
    """Groups spread over tasks about equal in bytes: a few a core, more where there are more slices."""
    groups = [tuple(members) for members in _by_group(slices)]
    costs = [sum(s.stop - s.start + SEGMENT_COST for s in members) for members in groups]
    wanted = max(cores * TASKS_PER_CORE, -(-sum(costs) // (slice_bytes + SEGMENT_COST)))
    # Below this much work a task is not worth its start
    worth = max(cores, -(-sum(costs) // (16 * SEGMENT_COST)))
    count = max(1, min(len(groups), wanted, worth))
    loads: list[tuple[int, int]] = [(0, task) for task in range(count)]
    members_of: list[list[Slice]] = [[] for _ in range(count)]
    for index in sorted(range(len(groups)), key=lambda i: -costs[i]):
        load, task = heapq.heappop(loads)
        members_of[task] += groups[index]
        heapq.heappush(loads, (load + costs[index], task))
    return [
        Task(task, tuple(sorted(members, key=_order))) for task, members in enumerate(members_of) if members
    ]


def _by_group(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    by_id: dict[int, list[Slice]] = {}
    for piece in slices:
        by_id.setdefault(piece.group_id, []).append(piece)
    return iter(by_id.values())


def _order(piece: Slice) -> tuple[int, str, int, str, int]:
    at = piece.segment
    return (piece.group_id, at.log_dir, at.file_base_offset, at.segment, piece.start)


def take(segments: Iterable[Segment], max_files: int, max_bytes: int) -> list[Segment]:
    """The first segments that a bounded run may hold; always at least one."""
    taken: list[Segment] = []
    total = 0
    for segment in segments:
        total += segment.planned_bytes
        if taken and (len(taken) >= max_files or total > max_bytes):
            break
        taken.append(segment)
    return taken


def second_pass(piece: Slice, begin: int, end: int, crc32c: int) -> Slice:
    """The same entries once more, now that both their ends and their bytes' checksum are known."""
    return replace(piece, start=begin, stop=end, exact_start=True, expected_crc32c=crc32c)
