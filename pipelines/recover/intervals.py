"""Joins and intersects intervals of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

Interval = tuple[int, int]  # first and last offset


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Sorts intervals, and joins those that touch or overlap."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def missing(known: Sequence[Interval], first: int, end: int) -> list[Interval]:
    """Returns the intervals of [first, end) that none of the known ones covers."""
    gaps, at = [], first
    for begin, last in known:
        if begin > at and at < end:
            gaps.append((at, min(begin, end) - 1))
        at = max(at, last + 1)
    if at < end:
        gaps.append((at, end - 1))
    return gaps


def common(one: Sequence[Interval], other: Sequence[Interval]) -> Iterator[Interval]:
    """Yields the intersections of two lists of intervals, each in order."""
    i = j = 0
    while i < len(one) and j < len(other):
        first, last = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first <= last:
            yield first, last
        i, j = (i + 1, j) if one[i][1] < other[j][1] else (i, j + 1)


def overlaps(batches: np.ndarray, covered: Sequence[Interval]) -> np.ndarray:
    """Returns bool[n]: which batches share an offset with an interval."""
    if not covered:
        return np.zeros(len(batches), dtype=bool)
    firsts = np.array([first for first, _ in covered], dtype=np.int64)
    lasts = np.array([last for _, last in covered], dtype=np.int64)
    at = np.searchsorted(lasts, batches["base"])
    inside = at < len(firsts)
    result: np.ndarray = inside & (firsts[np.minimum(at, len(firsts) - 1)] <= batches["last"])
    return result
