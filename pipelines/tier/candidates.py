"""Holds the segments of which a log may be made: of the disk, and of its tier, each with the offsets it
has.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.storage.byte_source import SourceError
from kafka_log_lake.udfs.storage.opening import open_source

Epochs = Sequence[tuple[int, int]]  # leader epoch, the offset where it begins
NO_END = 1 << 62
MISSING = "its .log object is missing"
# Which is taken where several have an offset: lower ones first
DISK, REMOTE, UNNAMED, UNFINISHED, UNREADABLE = range(5)
_BATCH = np.dtype([(name, "i8") for name in ("base", "last", "position", "end", "epoch")])


class Interval(NamedTuple):
    """First and last offset of a range."""

    first: int
    last: int


@dataclass
class Candidate:
    """A segment that may be a part of the log.

    rank: as above. uri: by which ``open_source`` opens it. base, length, modified: of the file, as a listing
    has them. first, last: its offsets; last is NO_END where only its content tells it. epochs: of it; empty
    where only its content tells them. name: for people. problem: why it can't be read.
    is_cut: whether the object is shorter than the metadata say; whole: URI and bytes of a longer one.
    segment_id, stored_bytes: of a remote segment, and of all its objects. intervals: of its offsets, those
    that count.
    """

    rank: int
    uri: str
    base: int
    length: int
    modified: int
    first: int
    last: int = NO_END
    epochs: tuple[tuple[int, int], ...] = ()
    name: str = ""
    problem: str | None = None
    is_cut: bool = False
    whole: tuple[str, int] | None = None
    segment_id: str | None = None
    stored_bytes: int = 0
    intervals: list[Interval] = field(default_factory=list)

    @cached_property
    def batches(self) -> np.ndarray:
        """Returns its sound batches, by position: base and last offset, position, end, leader epoch."""
        parts = [np.zeros(0, dtype=_BATCH)]
        try:
            with closing(open_source(self.uri, self.length)) as source:
                decoder = SegmentDecoder(
                    source,
                    Range(self.length, file_base_offset=self.base, has_successor=True),
                    columns=(),
                    content_crc=False,
                    select=lambda _, batches: np.zeros(len(batches), dtype=bool),
                )
                for group in decoder:
                    sound = group.batches[group.batches["fault"] == 0]
                    part = np.zeros(len(sound), dtype=_BATCH)
                    part["base"], part["last"] = sound["base_offset"], sound["last_offset"]
                    part["position"], part["epoch"] = sound["position"], sound["leader_epoch"]
                    part["end"] = sound["position"] + sound["size"]
                    parts.append(part)
        except SourceError as error:
            self.problem = str(error)
        return np.concatenate(parts)

    def check_first(self) -> None:
        """Takes the offsets of its content where its first batch is not the one that the metadata name; ranks
        it last where it can't be opened, as without its key.
        """
        head = np.zeros(8, dtype=np.uint8)
        try:
            with closing(open_source(self.uri, self.length)) as source:
                if source.read_into(0, head) < len(head) or source.unreadable(0, len(head)):
                    return
        except SourceError as error:
            self.problem = str(error).removeprefix(f"{self.name.rpartition('/')[2]}: ")
            self.rank = UNREADABLE
            return
        base = int.from_bytes(head.tobytes(), "big", signed=True)
        if base == self.first:
            return
        self.uri, self.length = self.whole or (self.uri, self.length)
        if len(self.batches):
            self.base = self.first = int(self.batches["base"][0])
            self.last, self.epochs = NO_END, ()

    def runs(self) -> list[Interval]:
        """Returns the offsets of its sound batches, as intervals in which none is missing."""
        intervals: list[Interval] = []
        for base, last in zip(self.batches["base"].tolist(), self.batches["last"].tolist(), strict=True):
            if intervals and base == intervals[-1].last + 1:
                intervals[-1] = Interval(intervals[-1].first, last)
            else:
                intervals.append(Interval(base, last))
        return intervals

    def own_epochs(self) -> Epochs:
        """Returns its leader epochs with the offsets where they begin in it, by metadata or by its
        batches.
        """
        if self.epochs or self.last != NO_END:
            return self.epochs
        epochs = self.batches["epoch"]
        begins = np.flatnonzero(np.diff(epochs, prepend=-2))
        return list(zip(epochs[begins].tolist(), self.batches["base"][begins].tolist(), strict=True))


def history_of(candidates: Sequence[Candidate]) -> Epochs:
    """Returns the history of the highest leader epoch: each epoch ends where the next one begins
    (KIP-101).
    """
    begins: dict[int, int] = {}
    for candidate in candidates:
        for epoch, start in candidate.own_epochs():
            begins[epoch] = min(begins.get(epoch, start), start)
    kept: list[tuple[int, int]] = []
    for epoch, start in sorted(begins.items(), reverse=True):
        if not kept or start <= kept[-1][1]:
            kept.append((epoch, start))
    return kept[::-1]


def true_intervals(candidate: Candidate, history: Epochs) -> list[Interval]:
    """Returns the offsets of a segment whose epochs are those of the history there (KIP-405).

    history: of the leader. Epochs before its first one are of everybody's history: retention and
    DeleteRecords removed them.
    """
    epochs = [(epoch, start) for epoch, start in candidate.own_epochs() if epoch >= 0]
    if not history or not epochs:
        return [Interval(candidate.first, candidate.last)]
    ends = [start - 1 for _, start in history[1:]] + [NO_END]
    begins = {epoch: (start, end) for (epoch, start), end in zip(history, ends, strict=True)}
    first_epoch, first_start = history[0]
    begins[first_epoch] = 0, ends[0]
    intervals: list[Interval] = []
    limits = [start - 1 for _, start in epochs[1:]] + [candidate.last]
    for at, ((epoch, start), limit) in enumerate(zip(epochs, limits, strict=True)):
        is_older = epoch < first_epoch
        low, high = (0, first_start - 1) if is_older else begins.get(epoch, (0, -1))
        first, last = max(candidate.first if at == 0 else start, low), min(limit, high)
        if first > last:
            continue
        if intervals and intervals[-1].last + 1 == first:
            intervals[-1] = Interval(intervals[-1].first, last)
        else:
            intervals.append(Interval(first, last))
    return intervals


class Part(NamedTuple):
    """The offsets of a log that are taken from one candidate."""

    of: Candidate
    first: int
    last: int


def parts_of(candidates: Sequence[Candidate]) -> list[Part]:
    """Chooses for each offset the candidate with the lowest rank that has it, then the one that reaches
    further.
    """
    ranges = sorted(
        (first, candidate.rank, -last, number)
        for number, candidate in enumerate(candidates)
        for first, last in candidate.intervals
    )
    parts: list[Part] = []
    open_: list[tuple[int, int, int]] = []  # rank, negative last offset, number: of those that began
    at, next_ = -1, 0
    while next_ < len(ranges) or open_:
        if not open_:
            at = max(at, ranges[next_][0])
        while next_ < len(ranges) and ranges[next_][0] <= at:
            heapq.heappush(open_, ranges[next_][1:])
            next_ += 1
        while open_ and -open_[0][1] < at:
            heapq.heappop(open_)
        if not open_:
            continue
        rank, negative, number = open_[0]
        following = itertools.takewhile(lambda range_, last=-negative: range_[0] <= last, ranges[next_:])  # type: ignore[misc]
        better = next((first for first, other, _, _ in following if other < rank), 1 - negative)
        parts.append(Part(candidates[number], at, better - 1))
        at = better
    return parts


def holes_of(parts: Sequence[Part], start: int) -> list[Interval]:
    """Returns the offsets from ``start`` on that no part has, up to the last part."""
    holes, at = [], start
    for part in parts:
        if part.first > at:
            holes.append(Interval(at, part.first - 1))
        at = max(at, part.last + 1)
    return holes
