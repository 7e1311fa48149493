"""Defines a range of a segment, and what decoding it returns: groups of batches, damaged ranges, totals.

Plain values, without a kernel: the driver reads totals too, and must not load the decoder for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.words import count_of

_TERM = re.compile(r"(\w+) (>=|<) (-?\d+)")


class Bounds(NamedTuple):
    """Bounds of a column: ``low`` is inclusive, ``high`` exclusive; None: no bound."""

    low: int | None = None
    high: int | None = None

    def hull(self, other: Bounds) -> Bounds:
        """Returns the narrowest bounds that contain both."""
        low = None if None in (self.low, other.low) else min(self.low, other.low)  # type: ignore[type-var]
        high = None if None in (self.high, other.high) else max(self.high, other.high)  # type: ignore[type-var]
        return Bounds(low, high)


NO_BOUNDS = Bounds()


@dataclass(frozen=True)
class Scope:
    """The records that are requested, by bounds of their columns.

    A ``timestamp_ms`` of -1 means no timestamp.
    """

    offset: Bounds = NO_BOUNDS
    timestamp_ms: Bounds = NO_BOUNDS

    @classmethod
    def parse(cls, condition: str | None) -> Scope:
        """Returns the scope that ``condition`` gives as SQL text; None: all records."""
        bounds: dict[str, Bounds] = {}
        for name, operator, value in _TERM.findall(condition or ""):
            bound = {"low" if operator == ">=" else "high": int(value)}
            bounds[name] = bounds.get(name, NO_BOUNDS)._replace(**bound)
        return cls(**bounds)

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Returns the bounds by column name, of the columns that are bounded."""
        return {name: bounds for name, bounds in vars(self).items() if bounds != NO_BOUNDS}

    @property
    def condition(self) -> str | None:
        """Returns the scope as an SQL condition on records; None: all records."""
        terms = [
            f"{name} {operator} {value}"
            for name, bounds in self.bounds.items()
            for operator, value in zip((">=", "<"), bounds, strict=True)
            if value is not None
        ]
        return " AND ".join(terms) or None

    def hull(self, other: Scope) -> Scope:
        """Returns the narrowest scope that contains both."""
        return Scope(self.offset.hull(other.offset), self.timestamp_ms.hull(other.timestamp_ms))

    def within(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records that lie in the scope. ``records`` must have the columns that are bounded."""
        for name, (low, high) in self.bounds.items():
            column = records.column(name)
            above = True if low is None else pc.greater_equal(column, low)
            below = True if high is None else pc.less(column, high)
            inside = pc.and_(above, below)
            if not pc.all(inside).as_py():  # filtering copies all values: only where some are outside
                records = records.filter(inside)
        return records


ALL = Scope()


@dataclass(frozen=True)
class Range:
    """The range of a segment to decode: the batches that begin in [start, stop).

    ``exact``: a batch begins at ``start``; else the first that proves itself is searched for. ``length``:
    bytes of the segment. ``has_successor``: the folder holds a later segment.
    ``file_base_offset``: in the file's name, None where it is not known. ``scope``: the records to give; all
    batches are checked, and given, in any case.
    """

    length: int
    start: int = 0
    stop: int | None = None
    exact: bool = True
    has_successor: bool = False
    previous_last_offset: int | None = None
    file_base_offset: int | None = None
    scope: Scope = ALL


@dataclass(frozen=True)
class Damage:
    """One damaged byte range: a row of ``quarantine``. ``base_offset`` is None without a header."""

    position: int
    size: int
    base_offset: int | None
    reason: str
    detail: str
    next_position: int
    content: bytes

    def __repr__(self) -> str:
        """Returns a short text without ``content``, which may be a mebibyte."""
        return f"Damage({self.reason} at byte {self.position}, {count_of(self.size, 'byte')}: {self.detail})"


@dataclass
class Group:
    """The result of one step of the decoder: batches (BATCH[n]), their records, damaged ranges.

    holders: the batches (BATCH[m]) that hold the records: ``batches``; or, where records of one large batch
    come in several groups, that batch, which the group before them has in ``batches``. None without records.
    """

    batches: np.ndarray
    records: pa.RecordBatch | None
    damages: list[Damage]
    holders: np.ndarray | None = None


_MOST_RUNS = 64


def runs(batches: np.ndarray, wanted: np.ndarray | None) -> Iterator[tuple[int, int, bool]]:
    """Yields (begin, end, whether it is wanted) of each run of batches (BATCH[n], n > 0).

    wanted: bool[n]; None: all. Batches at fault always are. Where there are many runs, what lies between the
    first and the last wanted batch is one.
    """
    if wanted is None:
        yield 0, len(batches), True
        return
    wanted = wanted | (batches["fault"] != 0)
    edges = np.flatnonzero(wanted[1:] != wanted[:-1]) + 1
    if len(edges) > _MOST_RUNS:
        inside = np.flatnonzero(wanted)
        edges = np.array([edge for edge in (inside[0], inside[-1] + 1) if 0 < edge < len(wanted)])
    ends = [*edges.tolist(), len(wanted)]
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        yield begin, end, bool(wanted[begin])


@dataclass
class Totals:
    """Totals of a decoded range. Offsets and timestamps (us) are over records; None without any.

    records: those in the scope; left_out: the others, of sound batches too.

    begin: where its first batch begins, None where it holds none. end: where its last batch, or damage, ends.
    sound_end: where the last sound batch ends; the range's start without one. last_position: of the last
    batch. first_base_offset, end_offset: of its first and last batch.
    """

    begin: int | None = None
    end: int = 0
    sound_end: int = 0
    batches: int = 0
    records: int = 0
    left_out: int = 0
    damaged: int = 0
    sound_bytes: int = 0
    quarantined_bytes: int = 0
    unreadable_bytes: int = 0
    tail: str = "none"
    tail_bytes: int = 0
    offset_regressions: int = 0
    transactional: int = 0
    first_base_offset: int | None = None
    end_offset: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None
    content_crc32c: int = 0
    last_position: int | None = None

    def add_bounds(
        self, first: int | None, last: int | None, earliest: int | None, latest: int | None
    ) -> None:
        """Widens the bounds of offsets and of timestamps (us) by those of more records.

        None stands for bounds of no values.
        """
        if first is not None and last is not None:
            self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
            self.last_offset = last if self.last_offset is None else max(self.last_offset, last)
        if earliest is not None and latest is not None:
            before = self.min_timestamp_us, self.max_timestamp_us
            self.min_timestamp_us = earliest if before[0] is None else min(earliest, before[0])
            self.max_timestamp_us = latest if before[1] is None else max(latest, before[1])


def min_max(records: pa.RecordBatch, name: str) -> tuple[int | None, int | None]:
    """Returns the lowest and highest value of a column, int64 or timestamp[us]; None where there is none."""
    if name not in records.schema.names:
        return None, None
    extremes = pc.min_max(records.column(name).cast(pa.int64()))
    return extremes["min"].as_py(), extremes["max"].as_py()


def stored_offset(e: np.void) -> int:
    """Returns the offset field of the batch as stored.

    For a wrapper that is the offset of its last inner message.
    """
    return int(e["last_offset"] if e["magic"] < f.MAGIC_V2 else e["base_offset"])
