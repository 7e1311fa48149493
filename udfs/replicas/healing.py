"""Takes each offset of the true history from a copy that is sound there, and says which no copy has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from udfs.replicas.entries import ENTRY, TAILS, Copy, Hurt
from udfs.replicas.history import History, log_end

Interval = tuple[int, int]  # first and last offset


class Lost(NamedTuple):
    """Offsets of the true history that no copy has.

    certain: records that were there for sure; possible: records that may have been there. last, possible:
    None where the end is not known.
    """

    first: int
    last: int | None
    certain: int
    possible: int | None
    reason: str
    detail: str


@dataclass
class Healed:
    """The healed log.

    batches: ENTRY[n] by offset, of all copies. lost: what none has. known: by number of a copy, the intervals
    of offsets in which it is sound.
    """

    batches: np.ndarray
    lost: list[Lost]
    known: dict[int, list[Interval]]


def is_compacted(copies: Sequence[Copy]) -> bool:
    """Whether the log cleaner ran over a copy: by its checkpoint, or by batches that lack records."""
    for copy in copies:
        kept = copy.entries[copy.entries["is_sound"] & (copy.entries["magic"] == 2)]
        lacks = (kept["count"] <= kept["delta"]) | (kept["attributes"] & (1 << 6) != 0)
        if copy.cleaned_before is not None or bool(lacks.any()):
            return True
    return False


def heal(copies: Sequence[Copy], history: History, compacted: bool) -> Healed:
    """The batches of the true history from ``history.start`` on, each from one copy."""
    known, true = {}, {}
    for copy in copies:
        kept = copy.entries[history.is_true[copy.number] & copy.entries["is_sound"]]
        true[copy.number] = kept[np.argsort(kept["base"], kind="stable")]
        known[copy.number] = _known(copy, true[copy.number], compacted)
    chosen: list[np.ndarray] = []
    covered: list[Interval] = []
    for copy in _by_preference(copies, history):
        own = true[copy.number]
        own = own[own["last"] >= history.start]
        chosen.append(own[~_overlaps(own, covered)])
        covered = joined([*covered, *known[copy.number]])
    batches = np.concatenate(chosen) if chosen else np.zeros(0, dtype=ENTRY)
    batches = _each_once(batches[np.argsort(batches["base"], kind="stable")])
    gaps = missing(covered, history.start, history.end)
    lost = [_lost(copies, history, gap, compacted) for gap in gaps]
    lost += _lost_at_the_end(copies, history)
    return Healed(batches, lost, known)


def _by_preference(copies: Sequence[Copy], history: History) -> list[Copy]:
    """The primary, the other copies that know the highest epoch, then those that reach further."""
    states = ("live", "future", "stray", "delete")

    def rank(copy: Copy) -> tuple[bool, bool, int, int, int]:
        is_holder = copy.number in history.holders
        state = states.index(copy.state)
        return copy.number != history.primary, not is_holder, state, -log_end(copy), copy.number

    return sorted(copies, key=rank)


def _known(copy: Copy, true: np.ndarray, compacted: bool) -> list[Interval]:
    """The intervals of offsets of which a copy has every record that the history still has.

    Between two batches without damage in between the log cleaner dropped what is missing; in a log that is
    not compacted, and where a segment is missing, nothing is known of it.
    """
    if not len(true):
        return []
    first, last = true["base"], np.maximum.accumulate(true["last"])
    follows = first[1:] <= last[:-1] + 1
    if compacted:
        same = true["hurt_before"][1:] == true["hurt_before"][:-1]
        orphans = np.array([-1, *copy.orphans], dtype=np.int64)
        count = np.searchsorted(orphans, true["file_base"], side="right")
        follows |= same & (count[1:] == count[:-1])
    begins = np.flatnonzero(np.concatenate([[True], ~follows]))
    ends = np.append(begins[1:], len(true)) - 1
    found = list(zip(first[begins].tolist(), last[ends].tolist(), strict=True))
    if compacted and true["hurt_before"][0] == 0 and copy.first_file is not None:
        begin, end = found[0]
        found[0] = (min(begin, copy.first_file), end)
    return joined(found)


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in their order, those that touch joined."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _overlaps(batches: np.ndarray, covered: Sequence[Interval]) -> np.ndarray:
    """bool[n]: batches that share an offset with an interval."""
    if not covered:
        return np.zeros(len(batches), dtype=bool)
    firsts = np.array([first for first, _ in covered], dtype=np.int64)
    lasts = np.array([last for _, last in covered], dtype=np.int64)
    at = np.searchsorted(lasts, batches["base"])
    inside = at < len(firsts)
    result: np.ndarray = inside & (firsts[np.minimum(at, len(firsts) - 1)] <= batches["last"])
    return result


def _each_once(batches: np.ndarray) -> np.ndarray:
    """Batches by offset without those that overlap one before."""
    if not len(batches):
        return batches
    reached = np.maximum.accumulate(batches["last"])
    clear = np.concatenate([[True], batches["base"][1:] > reached[:-1]])
    return batches[clear]


def missing(known: Sequence[Interval], first: int, end: int) -> list[Interval]:
    """The intervals of [first, end) that none of the known ones covers."""
    found, at = [], first
    for begin, last in known:
        if begin > at and at < end:
            found.append((at, min(begin, end) - 1))
        at = max(at, last + 1)
    if at < end:
        found.append((at, end - 1))
    return found


def _lost(copies: Sequence[Copy], history: History, gap: Interval, compacted: bool) -> Lost:
    """What a gap of all copies was. In a log that is not compacted each of its offsets was a record."""
    first, last = gap
    possible = last - first + 1
    certain, why, is_damaged = 0 if compacted else possible, [], False
    for copy in copies:
        ghosts = copy.entries[~copy.entries["is_sound"] & (copy.entries["base"] >= first)]
        ghosts = ghosts[ghosts["last"] <= last]
        if compacted and copy.number == history.primary:
            certain = int(np.minimum(np.maximum(ghosts["count"], 0), ghosts["delta"] + 1).sum())
        reasons = sorted({hurt.reason for hurt in _hurts_in(copy, gap)})
        is_damaged |= bool(reasons)
        if reasons:
            why.append(f"{copy.name}: {', '.join(reasons)}")
        elif log_end(copy) <= first:
            why.append(f"{copy.name}: ends before, at {log_end(copy)}")
        else:
            why.append(f"{copy.name}: no batch there")
    reason = "damaged" if is_damaged else "missing"
    return Lost(first, last, min(certain, possible), possible, reason, "; ".join(why))


def _hurts_in(copy: Copy, gap: Interval) -> list[Hurt]:
    """The damaged ranges of a copy between the batches around a gap."""
    sound = copy.entries[copy.entries["is_sound"]]
    before = sound[sound["last"] < gap[0]]
    behind = sound[sound["base"] > gap[1]]
    low = max(((int(e["file"]), int(e["position"])) for e in before[-1:]), default=(-1, -1))
    high = min(((int(e["file"]), int(e["position"])) for e in behind[:1]), default=(1 << 30, 0))
    return [hurt for hurt in copy.hurts if low < (hurt.file, hurt.position) < high]


def _lost_at_the_end(copies: Sequence[Copy], history: History) -> list[Lost]:
    """Offsets behind the healed log that a copy of its history is known to have had."""
    reach, witnesses = history.end, []
    for copy in copies:
        entries = copy.entries[copy.entries["is_sound"]]
        is_on_it = bool(history.is_true[copy.number][copy.entries["is_sound"]].all())
        if copy.number not in history.holders or not is_on_it or not len(entries):
            continue
        for name, offset in (
            ("high watermark", copy.high_watermark),
            ("recovery point", copy.recovery_point),
            ("producer snapshot", max(copy.snapshots, default=None)),
            *_claimed(copy),
            ("leader epoch", history.epochs[-1][1] if history.epochs else None),
        ):
            if offset is not None and offset > history.end:
                witnesses.append(f"{copy.name}: {name} {offset}")
                reach = max(reach, offset)
    if reach == history.end:
        return _unknown_at_the_end(copies, history)
    count = reach - history.end
    return [Lost(history.end, reach - 1, count, count, "cut off", "; ".join(witnesses))]


def _unknown_at_the_end(copies: Sequence[Copy], history: History) -> list[Lost]:
    """Damaged bytes behind the healed log of which no header says what they were; a torn tail is none."""
    found = []
    for copy in copies:
        sound = copy.entries[copy.entries["is_sound"]]
        if copy.number not in history.holders or log_end(copy) != history.end:
            continue
        last = max(((int(e["file"]), int(e["position"])) for e in sound[-1:]), default=(-1, -1))
        size = sum(
            hurt.size for hurt in copy.hurts if (hurt.file, hurt.position) > last and hurt.reason not in TAILS
        )
        if size:
            found.append(f"{copy.name}: {size} damaged bytes behind it")
    return [Lost(history.end, None, 0, None, "damaged", "; ".join(found))] if found else []


def _claimed(copy: Copy) -> Iterator[tuple[str, int]]:
    """(what says it, offset) of damaged batches behind the log: their headers follow it and each other."""
    end = log_end(copy)
    for hurt in sorted(copy.hurts, key=lambda one: (one.file, one.position)):
        if hurt.first == end and hurt.last is not None and 0 <= hurt.last - hurt.first < 1 << 24:
            end = hurt.last + 1
            yield f"the header of a {hurt.reason} batch", end
