"""A range of a segment, and what decoding it gives: pieces, their damaged ranges, a summary in the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from udfs.format import faults
from udfs.kernels import framing
from udfs.kernels.record_columns import MAX_OFFSET, MAX_TIMESTAMP, MIN_OFFSET, MIN_TIMESTAMP


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


@dataclass
class Piece:
    """What one step of the loop gives: entries (ENTRY[n]), their records, damaged ranges."""

    entries: np.ndarray
    records: pa.RecordBatch | None
    damages: list[Damage]


@dataclass
class Summary:
    """What a decoded range came to. Offsets and timestamps (us) are over records; None without any."""

    begin: int | None = None
    end: int = 0
    entries: int = 0
    records: int = 0
    damaged: int = 0
    sound_bytes: int = 0
    quarantined_bytes: int = 0
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
    last_entry_position: int | None = None

    def add_records(self, counts: np.ndarray, n: int) -> None:
        self.records += n
        low, high = int(counts[MIN_OFFSET]), int(counts[MAX_OFFSET])
        self.first_offset = low if self.first_offset is None else min(self.first_offset, low)
        self.last_offset = high if self.last_offset is None else max(self.last_offset, high)
        low, high = int(counts[MIN_TIMESTAMP]), int(counts[MAX_TIMESTAMP])
        if low <= high:
            known = self.min_timestamp_us is not None
            self.min_timestamp_us = min(low, self.min_timestamp_us) if known else low  # type: ignore[type-var]
            self.max_timestamp_us = max(high, self.max_timestamp_us) if known else high  # type: ignore[type-var]

    def add_entries(self, entries: np.ndarray) -> int:
        """Count entries in order: sizes of the sound ones, offsets that go back; how many are faulty."""
        if not len(entries):
            return 0
        sums = np.empty(framing.SUMS_SIZE, dtype=np.int64)
        framing.sum_up(entries, sums)
        sound, faulty, regressions, first, last, transactional = sums.tolist()
        self.entries += len(entries)
        self.sound_bytes += sound
        self.transactional += transactional
        if self.end_offset is not None and first <= self.end_offset:
            regressions += 1
        self.offset_regressions += regressions
        if self.first_base_offset is None:
            self.first_base_offset = first
        self.end_offset = last
        self.last_entry_position = int(entries["position"][-1])
        return int(faulty)


@dataclass(frozen=True)
class Range:
    """What to decode of a segment: the entries that begin in [start, stop).

    ``exact``: an entry begins at ``start``; else the first that proves itself is looked for. ``length``:
    bytes of the segment that count. ``has_successor``: the folder holds a later segment.
    """

    length: int
    start: int = 0
    stop: int | None = None
    exact: bool = True
    has_successor: bool = False
    previous_last_offset: int | None = None


def describe_entry(e: np.void) -> str | None:
    """The text of ``batches.error``: None for an entry that is ok."""
    if e["fault"]:
        return faults.describe(
            int(e["fault"]), int(e["fault_expected"]), int(e["fault_found"]), int(e["fault_at"])
        )
    return faults.describe_suspect(int(e["marks"]), int(e["position"])) if e["marks"] else None
