"""Finds the true history of a log: that of the highest leader epoch (KIP-101, KIP-279).

An epoch has one leader, so all batches of an epoch belong to one history. Before a leader writes anything it
notes its epoch and the offset where it begins, in ``leader-epoch-checkpoint``; its followers note it with the
first batch. The epoch before ends at that offset: batches of that epoch from there on, in a copy that did not
follow, are not of the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from kafka_log_lake.pipelines.recover.bounds import (
    END,
    Epochs,
    believed_epochs,
    check_snapshots,
    epochs_of_batches,
    log_end,
    log_start,
    name_of_empty_end,
)
from kafka_log_lake.pipelines.recover.entries import DELETED, Copy, are_among, identities
from kafka_log_lake.udfs.format import layout as f


class Certainty(StrEnum):
    """How certain a history is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    UNCERTAIN = "uncertain"


@dataclass
class History:
    """The true history of a log.

    epochs: its leader epochs with the offsets they begin with. start: the first offset; end: the one after
    the last. holders: numbers of the copies that know the highest epoch; primary: the one that batches are
    taken from first. is_true: by number of a copy, bool[n] of its entries. sure, rule: how certain it is, and
    why.
    """

    epochs: Epochs
    start: int
    end: int
    holders: list[int]
    primary: int
    is_true: dict[int, np.ndarray]
    sure: Certainty
    rule: str
    doubts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Leader:
    """A broker that led a partition last, and in which epoch, by its own ``__cluster_metadata``."""

    copy: int
    epoch: int


def true_history(copies: Sequence[Copy], leaders: Sequence[Leader]) -> History:
    """Finds the true history of a log, from copies whose batches ``audit.mend`` has corrected."""
    if not copies:
        return History([], 0, 0, [], -1, {}, Certainty.CERTAIN, "no copy is of this topic")
    noted = {copy.number: believed_epochs(copy) for copy in copies}
    for copy in copies:
        check_snapshots(copy)
    doubts: list[str] = []
    for leader in leaders:
        _add_leader(copies, noted, leader, doubts)
    known = {copy.number: _joined(noted[copy.number], epochs_of_batches(copy)) for copy in copies}
    whole = {copy.number: known[copy.number] for copy in copies if copy.state != DELETED}
    highest = max((epochs[-1][0] for epochs in whole.values() if epochs), default=-1)
    holders = [n for n, epochs in whole.items() if (epochs[-1][0] if epochs else -1) == highest]
    by_number = {copy.number: copy for copy in copies}
    epochs = _lineage([known[n] for n in holders])
    live = [n for n in holders if by_number[n].state == "live"] or holders
    starts = [log_start(by_number[n], noted[n]) for n in live]
    is_true = {copy.number: _is_true(copy, epochs, known[copy.number]) for copy in copies}
    for n in holders:
        is_true[n] |= by_number[n].entries["magic"] < 2
    _accept_where_holders_are_hurt(copies, holders, epochs, is_true)
    ends = {n: _end(by_number[n], is_true[n]) for n in holders}
    primary = max(live, key=lambda n: (ends[n], -len(by_number[n].hurts), -n))
    doubts += _diverged_without_epochs(copies, by_number[primary], is_true)
    start = max(starts, default=0)
    reached = filter(None, (name_of_empty_end(by_number[n]) for n in holders))
    end = max([start, *ends.values(), *(_end(by_number[n], is_true[n]) for n in whole), *reached])
    for copy in copies:  # a broker cut off what it deleted after the end
        if copy.state == DELETED:
            is_true[copy.number] &= copy.entries["last"] < end
    history = History(epochs, start, end, holders, primary, is_true, Certainty.CERTAIN, "", doubts)
    _judge(history, copies, noted, known)
    return history


def _add_leader(copies: Sequence[Copy], noted: dict[int, Epochs], leader: Leader, doubts: list[str]) -> None:
    """Adds the epoch that a broker led last, where its epoch file is missing; it began at the log's end."""
    copy = next(held_copy for held_copy in copies if held_copy.number == leader.copy)
    highest = max([epoch for epoch, _ in noted[copy.number]] + copy.sound["epoch"].tolist(), default=-1)
    if copy.epochs is None and leader.epoch > highest:
        noted[copy.number] = [*noted[copy.number], (leader.epoch, log_end(copy))]
        doubts.append(
            f"{copy.name} has no leader-epoch-checkpoint; its __cluster_metadata says that it led "
            f"in epoch {leader.epoch}"
        )


def _joined(noted: Epochs, of_batches: Epochs) -> Epochs:
    """Joins the noted epochs with those of batches; an epoch begins at the lower of both offsets.

    Batches before the log's start may still be there, and the first noted epoch begins at that start.
    """
    starts = dict(of_batches)
    for epoch, start in noted:
        starts[epoch] = min(starts.get(epoch, start), start)
    return sorted(starts.items())


def _lineage(known: Sequence[Epochs]) -> Epochs:
    """Joins the epochs of copies that know the highest one; each begins at the lowest offset they give."""
    starts: dict[int, int] = {}
    for epochs in known:
        for epoch, start in epochs:
            starts[epoch] = min(starts.get(epoch, END), start)
    kept: Epochs = []
    for epoch, start in sorted(starts.items(), reverse=True):
        if not kept or start <= kept[-1][1]:
            kept.append((epoch, start))
    return kept[::-1]


def _is_true(copy: Copy, epochs: Epochs, known: Epochs) -> np.ndarray:
    """Returns bool[n]: entries of one of the history's epochs that lie before the next epoch begins.

    known: the copy's own epochs. A batch of magic 0 or 1 belongs to the epoch that began last before it.
    """
    entries = copy.entries
    if not epochs:
        return np.ones(len(entries), dtype=bool)
    numbers, starts = np.array(epochs, dtype=np.int64).T
    ends = np.append(starts[1:], END)
    noted, begins = np.array([(-1, -END - 1), *known], dtype=np.int64).T
    before = noted[np.searchsorted(begins, entries["base"], side="right") - 1]
    epoch = np.where(entries["magic"] < 2, before, entries["epoch"])
    at = np.clip(np.searchsorted(numbers, epoch), 0, len(numbers) - 1)
    # before the first epoch that is known the history is everybody's
    is_older = (epoch < numbers[0]) & (entries["last"] < starts[0])
    result: np.ndarray = is_older | ((epoch == numbers[0]) & (entries["last"] < ends[0]))
    return result | ((numbers[at] == epoch) & (entries["base"] >= starts[at]) & (entries["last"] < ends[at]))


def _accept_where_holders_are_hurt(
    copies: Sequence[Copy], holders: Sequence[int], epochs: Epochs, is_true: dict[int, np.ndarray]
) -> None:
    """Accepts batches of an epoch that no holder has, where all holders are damaged at that place.

    The history does not list an epoch that no file names and whose batches are damaged in all holders.
    """
    known_epochs = {epoch for epoch, _ in epochs}
    held = [holder for holder in copies if holder.number in holders]
    for copy in copies:
        for at in np.flatnonzero(~is_true[copy.number] & copy.entries["is_sound"]).tolist():
            entry = copy.entries[at]
            if int(entry["epoch"]) in known_epochs or any(holder.epochs for holder in held):
                continue
            if all(
                _is_hurt(holder, int(entry["base"]), int(entry["last"]), int(entry["epoch"]))
                for holder in held
            ):
                is_true[copy.number][at] = True


def _diverged_without_epochs(
    copies: Sequence[Copy], primary: Copy, is_true: dict[int, np.ndarray]
) -> list[str]:
    """Drops messages of magic 0 and 1 from the history where the primary has others at their offsets.

    Returns a sentence for each such copy. They have no leader epoch: where a copy has another message at an
    offset, its log differs from there on. Only messages without compression are compared: the log cleaner
    rewrites wrappers.
    """
    older = [copy for copy in copies if (copy.entries["magic"] < 2).any()]
    if primary not in older:
        return []
    true = primary.entries[is_true[primary.number] & primary.entries["is_sound"]]
    ours = true[_are_plain(true)]
    doubts = []
    for copy in older:
        entries = copy.entries
        theirs = entries[is_true[copy.number] & entries["is_sound"] & _are_plain(entries)]
        _, at, there = np.intersect1d(theirs["base"], ours["base"], return_indices=True)
        differs = theirs["magic"][at] == ours["magic"][there]
        differs &= identities(np.take(theirs, at)) != identities(np.take(ours, there))
        if differs.any():
            first = int(theirs["base"][at][differs].min())
            is_other = (entries["magic"] < 2) & (entries["base"] >= first)
            is_true[copy.number] &= ~is_other | are_among(entries, true)
            doubts.append(
                f"{copy.name} has other messages of magic 0 or 1 than {primary.name} from offset {first} on, "
                f"and no leader epoch says which are true: those of {primary.name} are taken"
            )
    return doubts


def _are_plain(entries: np.ndarray) -> np.ndarray:
    """Returns bool[n]: messages of magic 0 and 1 that are not compressed."""
    result: np.ndarray = (entries["magic"] < 2) & (entries["attributes"] & f.CODEC_MASK == 0)
    return result


def _is_hurt(copy: Copy, base: int, last: int, epoch: int) -> bool:
    """Returns whether a copy is damaged at a batch's offsets, and its neighbours there leave room for it."""
    sound = copy.sound
    before = sound[sound["last"] < base][-1:]
    behind = sound[sound["base"] > last][:1]
    if (
        not len(before)
        or not len(behind)
        or len(sound) != int((sound["last"] < base).sum() + (sound["base"] > last).sum())
    ):
        return False
    return bool(
        before["epoch"][0] <= epoch <= behind["epoch"][0]
        and before["hurt_before"][0] < behind["hurt_before"][0]
    )


def _end(copy: Copy, is_true: np.ndarray) -> int:
    kept = copy.entries[is_true & copy.entries["is_sound"]]
    return int(kept["last"].max()) + 1 if len(kept) else 0


def _judge(
    history: History, copies: Sequence[Copy], noted: dict[int, Epochs], known: dict[int, Epochs]
) -> None:
    """Sets how certain the history is, why, and its doubts.

    A leader that wrote nothing is known only from its ``leader-epoch-checkpoint``.
    """
    live = [copy for copy in copies if copy.state == "live"]
    missing = [copy.name for copy in live if not _has_all_epochs(copy)]
    highest = history.epochs[-1][0] if history.epochs else -1
    names = [copy.name for copy in copies if copy.number in history.holders]
    history.rule = (
        f"the history of leader epoch {highest}, the highest that any copy knows ({', '.join(names)}); an "
        "epoch ends where the next one begins (KIP-101, KIP-279)"
    )
    whole = [copy for copy in copies if copy.state != DELETED]
    loses = any((~history.is_true[copy.number] & copy.entries["is_sound"]).any() for copy in whole)
    if missing and not history.doubts:
        history.sure = Certainty.UNCERTAIN if not loses and len(missing) < len(live) else Certainty.LIKELY
        history.doubts.append(
            f"{', '.join(missing)} without a whole leader-epoch-checkpoint: only that file tells of "
            "an election after which nothing was written"
        )
    history.doubts += _unreached(history, copies)
    history.doubts += _unclear_start(history, copies, noted)
    history.doubts += _before_first(history, copies)
    for copy in copies:
        wrong = [epoch_ for epoch_ in copy.epochs or [] if epoch_ not in noted[copy.number]]
        history.doubts += [
            f"leader-epoch-checkpoint of {copy.name} says that epoch {epoch} begins at offset {start}, which "
            "its batches contradict"
            for epoch, start in wrong
            if epoch > highest or copy.number in history.holders
        ]
    if history.doubts and history.sure == Certainty.CERTAIN:
        history.sure = Certainty.LIKELY


def _has_all_epochs(copy: Copy) -> bool:
    """Returns whether ``leader-epoch-checkpoint`` is whole, with all epochs of batches since its first."""
    if copy.epochs is None or not copy.has_whole_epochs:
        return False
    noted = [epoch for epoch, _ in copy.epochs]
    stored = copy.sound["epoch"]
    return bool(np.isin(stored[stored >= min(noted, default=0)], noted).all())


def _unreached(history: History, copies: Sequence[Copy]) -> list[str]:
    """Returns a sentence if no copy with the highest epoch reaches the offset where that epoch begins.

    A leader notes the end of its log: either the log was cut off since, or the entry is wrong.
    """
    epoch, start = history.epochs[-1] if history.epochs else (-1, 0)
    if any(log_end(copy) >= start for copy in copies if copy.number in history.holders):
        return []
    return [
        f"leader-epoch-checkpoint says that epoch {epoch} begins at offset {start}, which no log of it "
        "reaches: what lay before that offset is gone, or the entry is wrong and another epoch is the last"
    ]


def _unclear_start(history: History, copies: Sequence[Copy], noted: dict[int, Epochs]) -> list[str]:
    """Returns a sentence if files of the holders give different log starts, and batches lie between these.

    A broker that moves the start writes it to ``leader-epoch-checkpoint`` at once, to
    ``log-start-offset-checkpoint`` within a minute.
    """
    holders = [
        copy for copy in copies if copy.number in history.holders and copy.epochs and noted[copy.number]
    ]
    start, noted_start = history.start, max((noted[copy.number][0][1] for copy in holders), default=0)
    for copy in holders if noted_start != start else ():
        kept = copy.sound[copy.sound["magic"] == 2]
        is_cut = (kept["last"] >= start) & (kept["base"] < noted_start)
        is_left = (kept["last"] >= noted_start) & (kept["last"] < start)
        if is_cut.any() or is_left.any():
            first, last = min(start, noted_start), max(start, noted_start) - 1
            return [
                f"the log begins at offset {noted_start} by leader-epoch-checkpoint, at {start} by other "
                f"files: records from {first} to {last} may have been deleted"
            ]
    return []


def _before_first(history: History, copies: Sequence[Copy]) -> list[str]:
    """Returns a sentence if the log has batches of older epochs than those that its holders know."""
    first, start = history.epochs[0] if history.epochs else (-1, 0)
    for copy in copies:
        kept = copy.entries[history.is_true[copy.number] & copy.entries["is_sound"]]
        older = (kept["magic"] == 2) & (kept["epoch"] < first) & (kept["last"] >= history.start)
        if older.any():
            return [
                f"batches before offset {start} are of epochs older than all that the last one is known to "
                "follow: they may be of another history"
            ]
    return []
