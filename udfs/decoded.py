"""A range of a segment, and what decoding it gives: groups of batches, damaged ranges, totals in the end.

Plain values, without a kernel: the driver reads totals too, and must not load the decoder for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Range:
    """What to decode of a segment: the batches that begin in [start, stop).

    ``exact``: a batch begins at ``start``; else the first that proves itself is looked for. ``length``:
    bytes of the segment that count. ``has_successor``: the folder holds a later segment.
    """

    length: int
    start: int = 0
    stop: int | None = None
    exact: bool = True
    has_successor: bool = False
    previous_last_offset: int | None = None


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
        """Short: the bytes may be a mebibyte."""
        return f"Damage({self.reason} at byte {self.position}, {self.size} bytes: {self.detail})"


@dataclass
class Group:
    """What one step of the decoder gives: batches (BATCH[n]), their records, damaged ranges."""

    batches: np.ndarray
    records: pa.RecordBatch | None
    damages: list[Damage]


@dataclass
class Totals:
    """Totals of a decoded range. Offsets and timestamps (us) are over records; None without any.

    begin: where its first batch begins, None where it holds none. end: where its last batch, or damage, ends.
    sound_end: where the last sound batch ends; the range's start without one. last_position: of the last
    batch. first_base_offset, end_offset: of its first and last batch.
    """

    begin: int | None = None
    end: int = 0
    sound_end: int = 0
    batches: int = 0
    records: int = 0
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
