"""The part of a sequence that is in order, where a few of its numbers are wrong."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np


def heaviest_chain(spans: Sequence[tuple[int, int]], weights: Sequence[int]) -> np.ndarray:
    """bool[n]: the spans (first, last), in their order, that rise without overlap and weigh most in sum."""
    lasts: list[int] = []  # of the best chains, rising, as their weights do
    sums: list[int] = []
    at: list[int] = []
    before = [-1] * len(spans)
    for i, (first, last) in enumerate(spans):
        place = bisect_left(lasts, first)
        before[i] = at[place - 1] if place else -1
        total = weights[i] + (sums[place - 1] if place else 0)
        place = bisect_left(lasts, last + 1)
        if place and sums[place - 1] >= total:
            continue
        begin = place - 1 if place and lasts[place - 1] == last else place
        end = begin
        while end < len(lasts) and sums[end] <= total:
            end += 1
        lasts[begin:end], sums[begin:end], at[begin:end] = [last], [total], [i]
    chosen = np.zeros(len(spans), dtype=bool)
    i = at[-1] if at else -1
    while i >= 0:
        chosen[i], i = True, before[i]
    return chosen
