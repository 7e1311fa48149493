"""Which leader epochs of a copy's batches are wrong, and what is right.

Their order, ``leader-epoch-checkpoint`` and other copies of the batch are the witnesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from udfs.replicas.chain import heaviest_chain
from udfs.replicas.entries import LEADER_EPOCH, Copy

_NONE = -2  # no entry of leader-epoch-checkpoint


class Witnesses:
    """The epochs that copies and their files have for each batch at its offset, before any is corrected."""

    def __init__(self, copies: Sequence[Copy], ids: Mapping[int, np.ndarray]) -> None:
        kept = [copy.entries["is_sound"] for copy in copies]
        entries = [copy.entries[is_kept] for copy, is_kept in zip(copies, kept, strict=True)]
        by_file = [epochs_by_file(copy, own) for copy, own in zip(copies, entries, strict=True)]
        columns = (
            np.concatenate([ids[copy.number][one] for copy, one in zip(copies, kept, strict=True)]),
            *(np.concatenate([own[name] for own in entries]) for name in ("base", "epoch")),
        )
        order = np.lexsort(columns[::-1])
        self._ids, self._bases, self._epochs = (column[order] for column in columns)
        self._by_file = np.concatenate(by_file)[order]
        places = [self._ids, self._bases]
        counts = []
        for equal in (places, [*places, self._epochs]):
            group = np.cumsum(_differs(equal))
            count = np.zeros(len(order), dtype=np.int64)
            count[order] = np.bincount(group)[group]
            counts.append(count)
        ends = np.cumsum([len(own) for own in entries])[:-1]
        parts = zip(*(np.split(count, ends) for count in counts), strict=True)
        self._counts = {copy.number: part for copy, part in zip(copies, parts, strict=True)}

    def counts(self, copy: Copy) -> tuple[np.ndarray, np.ndarray]:
        """(int64[n], int64[n]) of a copy's sound batches: copies with the batch at its offset; those of them
        with the same epoch.
        """
        return self._counts[copy.number]

    def votes(self, number: int, entry: np.void) -> Counter[int]:
        """The epochs of a batch at its offset: a file says more than one copy, less than two."""
        begin, end = (np.searchsorted(self._ids, number, side=side) for side in ("left", "right"))
        found: Counter[int] = Counter()
        for at in (np.flatnonzero(self._bases[begin:end] == entry["base"]) + begin).tolist():
            found[int(self._epochs[at])] += 2
            found[int(self._by_file[at])] += 3
        found.pop(_NONE, None)
        return found


def _differs(columns: Sequence[np.ndarray]) -> np.ndarray:
    """bool[n]: rows that differ from the one before."""
    found = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def rising(epochs: np.ndarray) -> np.ndarray:
    """bool[n]: the largest part of the epochs, in their order, that never falls.

    Of equal ones that whose epochs more batches have.
    """
    n = len(epochs)
    if not (np.diff(epochs) < 0).any():
        return np.ones(n, dtype=bool)
    begins = np.flatnonzero(np.concatenate([[True], np.diff(epochs) != 0]))
    sizes = np.diff(np.append(begins, n))
    values = epochs[begins].astype(np.int64)
    _, number, counts = np.unique(epochs, return_inverse=True, return_counts=True)
    weights = 4 * sizes + (counts[number.reshape(-1)[begins]] > sizes)
    spans = [(2 * value + 1, 2 * value) for value in values.tolist()]  # equal ones follow each other
    found: np.ndarray = np.repeat(heaviest_chain(spans, weights.tolist()), sizes)
    return found


def epochs_by_file(copy: Copy, sound: np.ndarray) -> np.ndarray:
    """int64[n]: the epochs of batches by the copy's ``leader-epoch-checkpoint``; _NONE where it has none."""
    epochs = _noted(copy, sound)
    starts = np.array([start for _, start in epochs], dtype=np.int64)
    values = np.array([_NONE, *(epoch for epoch, _ in epochs)], dtype=np.int64)
    # the log's start, and so the first entry, may lie in a batch
    found: np.ndarray = values[np.searchsorted(starts, sound["last"], side="right")]
    return found


def mend_epochs(copy: Copy, ids: np.ndarray, witnesses: Witnesses) -> bool:
    """Corrects the epochs of a copy's batches; whether any was wrong."""
    entries = copy.entries
    sound = np.flatnonzero(entries["is_sound"])
    order = np.argsort(entries["base"][sound], kind="stable")
    order = order[entries["magic"][sound[order]] == 2]
    placed = sound[order]
    own = entries[placed]
    all_, same = (count[order] for count in witnesses.counts(copy))
    agree, against = same - 1, all_ - same
    by_file = epochs_by_file(copy, own)
    is_doubtful = np.where(by_file == own["epoch"], against > agree + 1, agree == 0)
    is_doubtful[by_file == _NONE] = (against > agree)[by_file == _NONE]
    kept = rising(own["epoch"]) & ~is_doubtful
    epochs = own["epoch"].tolist()
    is_mended = False
    for i in np.flatnonzero(~kept).tolist():
        at = int(placed[i])
        low = next((epochs[j] for j in range(i - 1, -1, -1) if kept[j]), None)
        high = next((epochs[j] for j in range(i + 1, len(placed)) if kept[j]), None)
        chosen = _chosen_epoch(low, high, witnesses.votes(int(ids[at]), entries[at]))
        if chosen == epochs[i]:
            kept[i] = True
            continue
        is_mended = True
        if chosen is None:
            entries["is_sound"][at] = False
            continue
        entries["epoch"][at], epochs[i], kept[i] = chosen, chosen, True
        entries["mended"][at] |= LEADER_EPOCH
    return is_mended


def _noted(copy: Copy, sound: np.ndarray) -> list[tuple[int, int]]:
    """Entries of ``leader-epoch-checkpoint`` without those that no batch has and two or more contradict."""
    noted = copy.epochs or []
    ends = [*(start for _, start in noted[1:]), np.iinfo(np.int64).max][: len(noted)]
    return [
        (epoch, start)
        for (epoch, start), end in zip(noted, ends, strict=True)
        if (sound["epoch"] == epoch).any()
        or np.count_nonzero((sound["base"] >= start) & (sound["base"] < end) & (sound["epoch"] < epoch)) < 2
    ]


def _chosen_epoch(low: int | None, high: int | None, votes: Counter[int]) -> int | None:
    """The epoch of a batch whose own is in doubt; low, high: of the batches around it."""
    if low is not None and low == high:
        return low

    def is_between(epoch: int) -> bool:
        return epoch >= 0 and (low is None or epoch >= low) and (high is None or epoch <= high)

    fitting = [epoch for epoch in votes if is_between(epoch)]
    if fitting:  # a changed bit most often makes a number larger
        return min(fitting, key=lambda epoch: (-votes[epoch], epoch not in (low, high), epoch))
    return low if low is not None else high
