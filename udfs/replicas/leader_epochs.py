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
_PLACE = ("id", "base")


class Witnesses:
    """The epochs that copies and their files have for each batch at its offset, before any is corrected."""

    def __init__(self, copies: Sequence[Copy], ids: Mapping[int, np.ndarray]) -> None:
        kept = [copy.entries["is_sound"] for copy in copies]
        entries = [copy.entries[is_kept] for copy, is_kept in zip(copies, kept, strict=True)]
        numbers = np.concatenate([ids[copy.number][one] for copy, one in zip(copies, kept, strict=True)])
        places = np.concatenate(entries)
        by_file = [epochs_by_file(copy, own) for copy, own in zip(copies, entries, strict=True)]
        self._rows = _rows(numbers, places, places["epoch"])
        self._noted = _rows(numbers, places, np.concatenate(by_file))

    def count(self, ids: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int64[n], int64[n]): copies with the batch at its offset; those of them with the same epoch."""
        every, same = (_range(self._rows, names, ids, entries)[1] for names in (_PLACE, (*_PLACE, "epoch")))
        return every, same

    def votes(self, number: int, entry: np.void) -> Counter[int]:
        """The epochs of a batch at its offset: a file says more than one copy, less than two."""
        found: Counter[int] = Counter()
        for rows, weight in ((self._rows, 2), (self._noted, 3)):
            begin, count = _range(rows, _PLACE, np.array([number]), np.array([entry]))
            for epoch in rows["epoch"][begin[0] : begin[0] + count[0]].tolist():
                found[epoch] += weight
        found.pop(_NONE, None)
        return found


def _rows(numbers: np.ndarray, entries: np.ndarray, epochs: np.ndarray) -> np.ndarray:
    rows = np.zeros(len(numbers), dtype=[("id", "i8"), ("base", "i8"), ("epoch", "i4")])
    rows["id"], rows["base"], rows["epoch"] = numbers, entries["base"], epochs
    return np.sort(rows)


def _range(
    rows: np.ndarray, names: Sequence[str], ids: np.ndarray, entries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(first row, number of rows) that equal each entry in these columns."""
    wanted = np.zeros(len(entries), dtype=rows.dtype)
    wanted["id"], wanted["base"], wanted["epoch"] = ids, entries["base"], entries["epoch"]
    own, found = rows[list(names)], wanted[list(names)]
    begin = np.searchsorted(own, found, side="left")
    return begin, np.searchsorted(own, found, side="right") - begin


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
    placed = np.flatnonzero(entries["is_sound"] & (entries["magic"] == 2))
    placed = placed[np.argsort(entries["base"][placed], kind="stable")]
    own = entries[placed]
    all_, same = witnesses.count(ids[placed], own)
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
