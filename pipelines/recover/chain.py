"""Finds the heaviest part of a sequence that never falls, where a few of its numbers are wrong."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

Claim = tuple[int, int, int]  # first and last number of a place, and how much it weighs, more than 0


class _Best:
    """The heaviest chains by their last number: of two, the one that ends later weighs more."""

    def __init__(self) -> None:
        self._lasts: list[int] = []
        self._sums: list[int] = []
        self._links: list[int] = []

    def upto(self, first: int) -> tuple[int, int]:
        """Returns (weight, last link) of the heaviest chain that ends by ``first``; (0, -1) without one."""
        at = bisect_right(self._lasts, first) - 1
        return (self._sums[at], self._links[at]) if at >= 0 else (0, -1)

    def end(self) -> int:
        """Returns the last link of the heaviest chain; -1 without one."""
        return self._links[-1] if self._links else -1

    def add(self, last: int, total: int, link: int) -> None:
        """Adds a chain, unless one that ends there or before weighs as much."""
        if self.upto(last)[0] >= total:
            return
        begin = end = bisect_left(self._lasts, last)
        while end < len(self._lasts) and self._sums[end] <= total:
            end += 1
        self._lasts[begin:end], self._sums[begin:end], self._links[begin:end] = [last], [total], [link]

    def join(self, other: _Best) -> None:
        """Adds all chains of another _Best."""
        for claim in zip(other._lasts, other._sums, other._links, strict=True):
            self.add(*claim)


def heaviest_chain(
    claims: Sequence[Sequence[Claim]], stretches: Sequence[int] | None = None, gap: int = 0
) -> list[int]:
    """Returns the claim of each place in the chain that never falls and weighs most; -1 for none.

    claims: of each place, in their order. A claim begins with the number that the one before ends with, or
    with a higher one. stretches: of each place; between two of the same stretch a step up costs ``gap``.
    """
    far, near = _Best(), _Best()  # of other stretches, and of the present one
    level: dict[int, tuple[int, int]] = {}  # of the present one too, by the last number
    links: list[tuple[int, int, int]] = []  # place, claim, link before
    for place, options in enumerate(claims):
        if stretches is None or (place and stretches[place] != stretches[place - 1]):
            far.join(near)
            near, level = _Best(), {}
        made = []
        for number, (first, last, weight) in enumerate(options):
            total, link = near.upto(first)
            chains = far.upto(first), level.get(first, (0, -1)), (total - gap, link)
            total, link = max(chains, key=lambda chain: chain[0])
            made.append((last, total + weight, len(links)))
            links.append((place, number, link))
        for last, total, link in made:
            near.add(last, total, link)
            if level.get(last, (0, -1))[0] < total:
                level[last] = total, link
    far.join(near)
    chosen, link = [-1] * len(claims), far.end()
    while link >= 0:
        place, number, link = links[link]
        chosen[place] = number
    return chosen
