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
    """The epochs that copies have for each batch at its offset, before any is corrected."""

    def __init__(self, copies: Sequence[Copy], ids: Mapping[int, np.ndarray]) -> None:
        numbers = [ids[copy.number][copy.entries["is_sound"]] for copy in copies]
        entries = [copy.entries[copy.entries["is_sound"]] for copy in copies]
        rows = np.zeros(sum(map(len, numbers)), dtype=[("id", "i8"), ("base", "i8"), ("epoch", "i4")])
        rows["id"] = np.concatenate(numbers)
        for name in ("base", "epoch"):
            rows[name] = np.concatenate([found[name] for found in entries])
        self._rows = np.sort(rows)

    def count(self, ids: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int64[n], int64[n]): copies with the batch at its offset; those of them with the same epoch."""
        every, same = (self._range(names, ids, entries)[1] for names in (_PLACE, (*_PLACE, "epoch")))
        return every, same

    def epochs(self, number: int, entry: np.void) -> Counter[int]:
        """The epochs of a batch at its offset, and how many copies have each."""
        begin, count = self._range(_PLACE, np.array([number]), np.array([entry]))
        return Counter(self._rows["epoch"][begin[0] : begin[0] + count[0]].tolist())

    def _range(
        self, names: Sequence[str], ids: np.ndarray, entries: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(first row, number of rows) that equal each entry in these columns."""
        wanted = np.zeros(len(entries), dtype=self._rows.dtype)
        wanted["id"], wanted["base"], wanted["epoch"] = ids, entries["base"], entries["epoch"]
        own, found = self._rows[list(names)], wanted[list(names)]
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


def _epochs_at(epochs: Sequence[tuple[int, int]], offsets: np.ndarray) -> np.ndarray:
    """int64[n]: the epoch of each offset by (epoch, start offset) in rising order; _NONE before the first."""
    starts = np.array([start for _, start in epochs], dtype=np.int64)
    values = np.array([_NONE, *(epoch for epoch, _ in epochs)], dtype=np.int64)
    found: np.ndarray = values[np.searchsorted(starts, offsets, side="right")]
    return found


def mend_epochs(copy: Copy, ids: np.ndarray, witnesses: Witnesses) -> None:
    entries = copy.entries
    placed = np.flatnonzero(entries["is_sound"] & (entries["magic"] == 2))
    placed = placed[np.argsort(entries["base"][placed], kind="stable")]
    own = entries[placed]
    all_, same = witnesses.count(ids[placed], own)
    agree, against = same - 1, all_ - same
    noted = _noted(copy, own)
    by_file = _epochs_at(noted, own["last"])  # the log's start, and so the first entry, may lie in a batch
    is_doubtful = np.where(by_file == own["epoch"], against > agree + 1, agree == 0)
    is_doubtful[by_file == _NONE] = (against > agree)[by_file == _NONE]
    kept = rising(own["epoch"]) & ~is_doubtful
    epochs = own["epoch"].tolist()
    for i in np.flatnonzero(~kept).tolist():
        at = int(placed[i])
        low = next((epochs[j] for j in range(i - 1, -1, -1) if kept[j]), None)
        high = next((epochs[j] for j in range(i + 1, len(placed)) if kept[j]), None)
        others = witnesses.epochs(int(ids[at]), entries[at])
        chosen = _chosen_epoch(noted, entries[at], low, high, others)
        if chosen == epochs[i]:
            kept[i] = True
            continue
        if chosen is None:
            entries["is_sound"][at] = False
            continue
        entries["epoch"][at], epochs[i], kept[i] = chosen, chosen, True
        entries["mended"][at] |= LEADER_EPOCH


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


def _chosen_epoch(
    noted: Sequence[tuple[int, int]],
    entry: np.void,
    low: int | None,
    high: int | None,
    others: Counter[int],
) -> int | None:
    """The epoch of a batch whose own is in doubt; low, high: of the batches around it.

    others: the epochs that copies have for it, its own among them.
    """
    if low is not None and low == high:
        return low

    def is_between(epoch: int) -> bool:
        return epoch >= 0 and (low is None or epoch >= low) and (high is None or epoch <= high)

    votes = Counter({epoch: 2 * count for epoch, count in others.items()})
    by_file = int(_epochs_at(noted, entry["last"]))
    if by_file != _NONE:
        votes[by_file] += 3  # more than one copy, less than two
    fitting = [epoch for epoch in votes if is_between(epoch)]
    if fitting:  # a changed bit most often makes a number larger
        return min(fitting, key=lambda epoch: (-votes[epoch], epoch))
    return low if low is not None else high
