"""Finds batches of a healed log whose base offset, which no checksum covers, nothing confirms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafka_log_lake.pipelines.recover.cleaned import without_gaps
from kafka_log_lake.pipelines.recover.entries import (
    BASE_OFFSET,
    LEADER_EPOCH,
    TAILS,
    Copy,
    are_among,
    rows_where,
)
from kafka_log_lake.udfs.words import counted_noun

_CORRECTED = BASE_OFFSET | LEADER_EPOCH
_PLACE = ["file", "position"]


def unconfirmed(copies: Sequence[Copy], batches: np.ndarray, is_compacted: bool) -> list[str]:
    """Returns a sentence on healed batches (ENTRY[n]) whose base offset may be wrong, or [].

    A base offset is confirmed by a batch that touches it, by the name of the segment that begins with it, or
    by other copies of the batch: one that is itself confirmed, or two that store the same offset. One that
    was corrected in the cleaned part of a log is not confirmed by its neighbours. One that was so after
    damage is not confirmed by the name of the next segment alone, or by as few neighbours as were corrected.
    One after a gap that nothing explains is confirmed by other copies alone.
    """
    is_hurt = any(hurt.reason not in TAILS for copy in copies for hurt in copy.hurts)
    is_hurt |= any((copy.entries["mended"] & _CORRECTED).any() for copy in copies)
    is_doubtful = [
        _is_behind_gap(copy, is_compacted) | (is_hurt & ~_is_confirmed(copy, is_compacted)) for copy in copies
    ]
    count, first = 0, ""
    for copy, of_copy in zip(copies, is_doubtful, strict=True):
        taken = rows_where(batches, batches["copy"] == copy.number)
        left = taken[np.isin(taken[_PLACE], rows_where(copy.entries, of_copy)[_PLACE])]
        if not len(left):
            continue
        votes = np.zeros(len(left), dtype=np.int64)
        for other, of_other in zip(copies, is_doubtful, strict=True):
            entries, is_sound = other.entries, other.entries["is_sound"]
            is_stored = entries["mended"] & BASE_OFFSET == 0
            votes += are_among(left, rows_where(entries, is_sound & is_stored))
            votes += 2 * are_among(left, rows_where(entries, is_sound & ~of_other))
        left = left[votes < 2]
        if len(left) and not count:
            first = f"offset {left['base'][0]} of {copy.name}"
        count += len(left)
    if not count:
        return []
    return [
        f"nothing confirms the base offset of {counted_noun(count, 'batch')} next to damage or gaps, "
        f"the first at {first}: it lies outside of the checksum"
    ]


def _is_behind_gap(copy: Copy, is_compacted: bool) -> np.ndarray:
    """Returns bool[n]: entries of a copy after a gap that neither damage nor the log cleaner explains."""
    entries = copy.entries
    is_whole = without_gaps(copy, np.zeros(len(entries), dtype=bool), is_compacted)
    gap = is_whole.copy()
    if copy.cleaned_before is not None:  # the log cleaner leaves no gap across where it ended
        gap[1:] |= (entries["last"][:-1] < copy.cleaned_before) & (copy.cleaned_before < entries["base"][1:])
    gap[1:] &= entries["is_sound"][:-1] & (entries["base"][1:] > entries["last"][:-1] + 1)
    gap[1:] &= (entries["file"][1:] == entries["file"][:-1]) & (np.diff(entries["hurt_before"]) == 0)
    gap[:1] = False
    gap |= is_whole & (entries["position"] == 0) & (entries["base"] > entries["file_base"])
    result: np.ndarray = gap & entries["is_sound"]
    return result


def _is_confirmed(copy: Copy, is_compacted: bool) -> np.ndarray:
    """Returns bool[n]: entries of a copy whose base offset is confirmed within the copy."""
    entries = copy.entries
    is_first = (entries["position"] == 0) & (entries["base"] == entries["file_base"])
    adjoins = entries["base"][1:] == entries["last"][:-1] + 1
    is_weak = (entries["mended"] & _CORRECTED) != 0
    is_weak &= ~without_gaps(copy, np.zeros(len(entries), dtype=bool), is_compacted)
    # after damage a run of batches is placed by the base offsets that are stored in it; the next file's name
    # counts as one: a segment may be missing between them
    is_stored, is_apart = entries["mended"] & BASE_OFFSET == 0, np.diff(entries["file"]) != 0
    run = np.cumsum(np.append(True, ~adjoins | is_apart)[: len(entries)])
    votes = np.where(is_stored, 1, -1)
    votes[:-1] += adjoins & is_apart & is_first[1:]
    is_weak |= ~is_stored & (np.bincount(run, votes)[run] <= 0) & (np.bincount(run, is_first)[run] == 0)
    touches = adjoins & ~is_weak[1:] & ~is_weak[:-1]
    is_confirmed: np.ndarray = ~is_weak & is_first
    is_confirmed[1:] |= touches
    is_confirmed[:-1] |= touches
    return is_confirmed
