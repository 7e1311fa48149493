"""Puts the scans of a log's slices together: the order of its offsets, its damaged ranges, what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kafka_log_lake.pipelines.plan.missing import missing_ranges
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange, SliceScan
from kafka_log_lake.udfs.batches.account import ZEROS, Unseen
from kafka_log_lake.udfs.batches.offset_findings import (
    Order,
    is_known_compacted,
    order,
    with_undecoded,
)
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT

Scanned = tuple[Segment, list[SliceScan]]  # a segment with its slices in order


def end_of(scanned: Sequence[Scanned], segments: Sequence[Segment]) -> int:
    """Returns the offset after the last batch of a log; 0 without one.

    segments: all of the log. scanned: the scans of some of them.
    """
    known = [each for each in scanned if not any(scan.report.problem for scan in each[1])]
    read = {segment for segment, _ in known}
    unread = [segment.file_base_offset for segment in segments if segment not in read]
    last = placed(known, unread)[0].last if known else None
    return 0 if last is None else last + 1


def missing_in(scanned: list[Scanned], unread: list[int], order_: Order) -> list[Unseen]:
    """Returns the offsets of a log that no segment has.

    unread: base offsets of segments that can't be read. found: the order of the log's offsets.
    """
    empty = [
        s.file_base_offset
        for s, slices in scanned
        if not any(slice_.report.totals.batches for slice_ in slices)
    ]
    zeros = [segment.file_base_offset for segment, slices in scanned if is_zeros(segment, slices)]
    return [
        replace(gap, state=ZEROS) if any(gap.first <= base <= (gap.last or base) for base in zeros) else gap
        for gap in missing_ranges(order_.holes, empty)
    ]


def damages_of(segment: Segment, slices: list[SliceScan]) -> list[DamagedRange]:
    """Returns the damaged ranges of a segment, with the offsets around them."""
    return placed([(segment, slices)], [segment.file_limit] if segment.file_limit != NO_LIMIT else [])[1]


def placed(
    scanned: list[Scanned], unread: list[int], cleaned_before: int | None = None
) -> tuple[Order, list[DamagedRange]]:
    """Returns the order of a log's offsets, and its damaged ranges with the offsets around them.

    cleaned_before: what ``cleaner-offset-checkpoint`` notes of the log, None for nothing.
    """
    files, places = files_of(scanned, unread), places_of(scanned)
    runs = with_undecoded(joined(scanned, "runs"), unread, files)
    is_compacted = is_known_compacted(scanned[0][0].topic, files[0], cleaned_before)
    order_ = order(runs, places, files, is_compacted, unread)
    damages = [
        replace(damage, segment=segment.uri)
        for segment, slices in scanned
        for scan in slices
        for damage in scan.damages
    ]
    return order_, [
        replace(damage, last_offset=last, next_offset=next_)
        for damage, (last, next_) in zip(damages, order_.around, strict=True)
    ]


def files_of(scanned: Sequence[Scanned], unread: Sequence[int]) -> list[int]:
    """Returns the base offsets of all files of a log, rising."""
    return sorted({*unread, *(segment.file_base_offset for segment, _ in scanned)})


def places_of(scanned: list[Scanned]) -> np.ndarray:
    """Returns int64[m, 3]: file, position and bytes of each damaged range of a log."""
    places = [
        (segment.file_base_offset, damage.position, damage.size)
        for segment, slices in scanned
        for scan in slices
        for damage in scan.damages
    ]
    return np.array(places, dtype=np.int64).reshape(-1, 3)


def joined(scanned: Sequence[Scanned], name: str) -> np.ndarray:
    """Concatenates the arrays of all slices. name: of the array, runs or transactional."""
    return np.concatenate([getattr(scan, name) for _, slices in scanned for scan in slices])


def is_zeros(segment: Segment, slices: list[SliceScan]) -> bool:
    """Says whether a segment has bytes, all of them zero."""
    zeros = sum(scan.report.totals.tail_bytes for scan in slices if scan.report.totals.tail == "zeros")
    return 0 < zeros == segment.length
