"""Corrects base offsets and leader epochs, which no checksum covers, in batches that are otherwise sound.

A batch may contradict its neighbours in the file, the same batch in other copies, or the broker's
``leader-epoch-checkpoint``. What most of them say is believed; where none of them says it, the batch counts
as damaged. The leader epoch is judged by the order of epochs, that file, and other copies of the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kafka_log_lake.pipelines.recover.base_offsets import mend_bases
from kafka_log_lake.pipelines.recover.chain import heaviest_chain
from kafka_log_lake.pipelines.recover.entries import ENTRY, LEADER_EPOCH, Copy, CopyDamage, rows_where
from kafka_log_lake.udfs.words import counted_noun

_CONTENT = ("crc", "size", "delta", "count")  # what the bytes under the checksum say of a batch

_ROUNDS = 3  # of epochs: one that was corrected in a copy is a witness for the others


def mend(copies: Sequence[Copy], is_compacted: bool) -> list[str]:
    """Corrects base offsets and epochs in all copies of a log, in place; returns sentences on doubts."""
    if not copies:
        return []
    for copy in copies:
        copy.entries["hurt_before"] = _hurt_before(copy)
    was_sound = {copy.number: copy.entries["is_sound"].copy() for copy in copies}
    ids = _ids(copies)
    mend_bases(copies, ids, is_compacted)
    guessed: list[str] = []
    for _ in range(_ROUNDS):
        witnesses = Witnesses(copies, ids)
        are_mended = [mend_epochs(copy, ids[copy.number], witnesses, guessed) for copy in copies]
        if not any(are_mended):
            break
    doubts = [
        f"the leader epochs of {counted_noun(len(guessed), 'batch')} were corrected by "
        f"leader-epoch-checkpoint alone or by the batches "
        f"next to them, which may be wrong too, first at {first}"
        for first in guessed[:1]
    ]
    for copy in copies:
        unplaced = copy.entries[was_sound[copy.number] & ~copy.entries["is_sound"]]
        _add_unplaced(copy, unplaced)
        doubts += [
            f"{counted_noun(len(unplaced), 'whole batch')} of {copy.name}: nothing says at which "
            f"offsets or in which leader epoch, the first at byte {first['position']} of its segment"
            for first in unplaced[:1]
        ]
    return doubts


def _add_unplaced(copy: Copy, entries: np.ndarray) -> None:
    """Adds a damaged range for each batch whose offsets or epoch nothing tells."""
    why = "its base offset or leader epoch is wrong, and nothing corrects it"
    for entry in entries:
        place = int(entry["file"]), int(entry["position"]), int(entry["size"])
        copy.hurts.append(CopyDamage(*place, "unplaced", why))
    if len(entries):
        copy.entries["hurt_before"] = _hurt_before(copy)


def _ids(copies: Sequence[Copy]) -> dict[int, np.ndarray]:
    """Numbers batches so that the same content has the same number: number of a copy -> int64[n]."""
    columns = [_column(copies, name) for name in _CONTENT]
    order = np.lexsort(columns)
    numbers = np.zeros(len(order), dtype=np.int64)
    numbers[order] = _groups(*(column[order] for column in columns))
    ends = np.cumsum([len(copy.entries) for copy in copies])
    parts = np.split(numbers, ends[:-1])
    return {copy.number: part for copy, part in zip(copies, parts, strict=True)}


def _column(copies: Sequence[Copy], name: str) -> np.ndarray:
    return np.concatenate([copy.entries[name] for copy in copies])


def _groups(*columns: np.ndarray) -> np.ndarray:
    """Returns int64[n]: numbers, from 0 on, of groups of equal rows that follow each other."""
    differs = np.zeros(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return np.concatenate([np.zeros(min(len(columns[0]), 1), dtype=np.int64), np.cumsum(differs)])


def _hurt_before(copy: Copy) -> np.ndarray:
    """Returns int32[n]: the number of damaged ranges of the copy before each of its entries."""
    hurts = np.zeros(len(copy.hurts), dtype=ENTRY)
    hurts["file"] = [hurt.file for hurt in copy.hurts]
    hurts["position"] = [hurt.position for hurt in copy.hurts]
    both = np.concatenate([hurts, copy.entries])
    is_hurt = np.arange(len(both)) < len(hurts)
    order = np.lexsort([~is_hurt, both["position"], both["file"]])
    counts = np.zeros(len(both), dtype=np.int32)
    counts[order] = np.cumsum(is_hurt[order])
    return counts[len(hurts) :] - ~copy.entries["is_sound"]  # a damaged batch is not damage before itself


# Leader epochs

_NONE = -2  # no entry of leader-epoch-checkpoint
_BY_COPY, _BY_FILE, _BY_BOTH = 2, 3, 5  # weights of what they say of a batch


class Witnesses:
    """The leader epochs that copies and their files give for each batch, as stored, with weights.

    A file weighs more than one copy, and less than two.
    """

    def __init__(self, copies: Sequence[Copy], ids: Mapping[int, np.ndarray]) -> None:
        kept = [copy.entries["is_sound"] for copy in copies]
        entries = [rows_where(copy.entries, is_kept) for copy, is_kept in zip(copies, kept, strict=True)]
        numbers = np.concatenate(
            [ids[copy.number][is_kept] for copy, is_kept in zip(copies, kept, strict=True)]
        )
        bases, epochs = (np.concatenate([batches[name] for batches in entries]) for name in ("base", "epoch"))
        shared = Counter(entry for copy in copies for entry in copy.epochs or [])
        by_file = np.concatenate(
            [_by_file(copy, batches, shared) for copy, batches in zip(copies, entries, strict=True)]
        )
        apart = np.flatnonzero((by_file != epochs) & (by_file != _NONE))  # a file contradicts its copy
        columns = [np.append(column, column[apart]) for column in (numbers, bases)]
        columns.append(np.append(epochs, by_file[apart]))
        weights = np.append(np.where(by_file == epochs, _BY_BOTH, _BY_COPY), np.full(len(apart), _BY_FILE))
        order = np.lexsort(columns[::-1])
        self._ids, self._bases, self._epochs = (column[order] for column in columns)
        self._weights = weights[order]
        sums = []
        for equal in ([self._ids, self._bases, self._epochs], [self._ids, self._bases]):
            group = np.cumsum(_differs(equal))
            votes = np.zeros(len(order), dtype=np.int64)
            votes[order] = np.bincount(group, self._weights)[group]
            sums.append(votes[: len(numbers)])
        ends = np.cumsum([len(batches) for batches in entries])[:-1]
        parts = zip(*(np.split(column, ends) for column in sums), strict=True)
        self._sums = {copy.number: part for copy, part in zip(copies, parts, strict=True)}

    def sums(self, copy: Copy) -> tuple[np.ndarray, np.ndarray]:
        """Returns the votes that the epoch of each sound batch of a copy has, and those of all epochs there.

        Two arrays of int64[n], batches in the order of the copy.
        """
        return self._sums[copy.number]

    def votes(self, number: int, entry: np.void) -> Counter[int]:
        """Returns the weight of each epoch that is given for a batch at its offset."""
        begin, end = (np.searchsorted(self._ids, number, side=side) for side in ("left", "right"))
        count_of: Counter[int] = Counter()
        for at in (np.flatnonzero(self._bases[begin:end] == entry["base"]) + begin).tolist():
            count_of[int(self._epochs[at])] += int(self._weights[at])
        return count_of


def _differs(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Returns bool[n]: rows that differ from the row before."""
    differs = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def rising(epochs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns bool[n]: the heaviest part of the epochs that, in their order, never falls.

    Of parts with equal weight it takes the one whose epochs more batches have.
    """
    n = len(epochs)
    if not (np.diff(epochs) < 0).any():
        return np.ones(n, dtype=bool)
    begins = np.flatnonzero(np.concatenate([[True], np.diff(epochs) != 0]))
    sizes = np.diff(np.append(begins, n))
    values = epochs[begins]
    _, number, counts = np.unique(epochs, return_inverse=True, return_counts=True)
    sums = np.add.reduceat(weights, begins).tolist()
    counts = counts[number.reshape(-1)[begins]].tolist()
    more = sum(counts) + 1
    claims = [
        [(value, value, more * weight + count)]
        for value, weight, count in zip(values.tolist(), sums, counts, strict=True)
    ]
    is_rising: np.ndarray = np.repeat(np.array(heaviest_chain(claims)) == 0, sizes)
    return is_rising


def _by_file(copy: Copy, sound: np.ndarray, shared: Counter[tuple[int, int]]) -> np.ndarray:
    """Returns int64[n]: the epochs of batches by the copy's ``leader-epoch-checkpoint``; _NONE: unknown.

    Damage does not give two batches the same wrong epoch: where two have an epoch that is not in the file,
    the file lacks that entry and all later ones. shared: how many copies' files have an entry.
    """
    epochs = _noted(copy, sound, shared)
    starts = np.array([start for _, start in epochs], dtype=np.int64)
    values = np.array([_NONE, *(epoch for epoch, _ in epochs)], dtype=np.int64)
    # the log's start, and so the first entry, may lie in a batch
    of_file: np.ndarray = values[np.searchsorted(starts, sound["last"], side="right")]
    stored, counts = np.unique(sound["epoch"], return_counts=True)
    lacks = stored[(counts > 1) & ~np.isin(stored, values)]
    is_behind = (lacks > values[-1]).any() & (sound["epoch"] > values[-1])
    of_file[is_behind | np.isin(sound["epoch"], lacks)] = _NONE
    return of_file


def mend_epochs(copy: Copy, ids: np.ndarray, witnesses: Witnesses, guessed: list[str]) -> bool:
    """Corrects the epochs of a copy's batches, in place; returns whether any was wrong.

    guessed: gets the places of batches whose right epoch is not sure.
    """
    entries = copy.entries
    sound = np.flatnonzero(entries["is_sound"])
    order = np.argsort(entries["base"][sound], kind="stable")
    order = order[entries["magic"][sound[order]] == 2]
    placed = sound[order]
    batches = entries[placed]
    for_own, for_any = (column[order] for column in witnesses.sums(copy))
    kept = for_any < 2 * for_own
    kept[kept] = rising(batches["epoch"][kept], for_own[kept])
    epochs = batches["epoch"].tolist()
    is_mended = False
    for i in np.flatnonzero(~kept).tolist():
        at = int(placed[i])
        low = next((epochs[j] for j in range(i - 1, -1, -1) if kept[j]), None)
        high = next((epochs[j] for j in range(i + 1, len(placed)) if kept[j]), None)
        votes = witnesses.votes(int(ids[at]), entries[at])
        chosen, is_sure = _chosen_epoch(epochs[i], low, high, votes)
        alike = np.count_nonzero(batches["epoch"][max(i - 1, 0) : i + 2] == batches["epoch"][i])
        if chosen is not None and alike > 1:  # damage does not change two to the same
            is_sure &= votes[chosen] > _BY_FILE
        if chosen == epochs[i]:
            kept[i] = True
            continue
        is_mended = True
        guessed += [] if is_sure else [f"offset {entries['base'][at]} of {copy.name}"]
        if chosen is None:
            entries["is_sound"][at] = False
            continue
        entries["epoch"][at], epochs[i], kept[i] = chosen, chosen, True
        entries["mended"][at] |= LEADER_EPOCH
    return is_mended


def _noted(copy: Copy, sound: np.ndarray, shared: Counter[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns entries of ``leader-epoch-checkpoint`` that are confirmed, or that batches don't contradict.

    An entry is confirmed by a batch of its epoch or by another copy's file. Two batches after the start of an
    epoch contradict it, if they are of the epoch before or of one in between.
    """
    noted = copy.epochs or []
    ends = [*(start for _, start in noted[1:]), np.iinfo(np.int64).max][: len(noted)]
    befores = [0, *(epoch for epoch, _ in noted)]
    kept = []
    for entry, end, before in zip(noted, ends, befores, strict=False):
        epoch, start = entry
        stored = sound["epoch"][(sound["base"] >= start) & (sound["base"] < end)]
        against = np.count_nonzero((stored >= before) & (stored < epoch))
        if against < 2 or shared[entry] > 1 or (sound["epoch"] == epoch).any():
            kept.append(entry)
    return kept


def _chosen_epoch(
    stored: int, low: int | None, high: int | None, votes: Counter[int]
) -> tuple[int | None, bool]:
    """Returns the epoch of a batch whose own is in doubt, None if nothing says it; and whether it is sure.

    low, high: of the batches around it. A file by itself is not sure where the batch's own epoch fits too.
    """
    if low is not None and low == high:
        return low, True

    def is_between(epoch: int) -> bool:
        return epoch >= 0 and (low is None or epoch >= low) and (high is None or epoch <= high)

    fitting = [epoch for epoch in votes if is_between(epoch)]
    if not fitting:
        chosen = low if low is not None else high
        return chosen, chosen is None
    # a changed bit most often makes a number larger
    chosen = min(fitting, key=lambda epoch: (-votes[epoch], epoch not in (low, high), epoch))
    return chosen, votes[chosen] > _BY_FILE or not is_between(stored)
