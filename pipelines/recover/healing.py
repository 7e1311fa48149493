"""Takes each offset of the true history from a copy that is sound there, and says which no copy has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.recover.bounds import END, log_end
from kafka_log_lake.pipelines.recover.doubts import unconfirmed
from kafka_log_lake.pipelines.recover.entries import (
    DELETED,
    TAILS,
    Copy,
    CopyDamage,
    by_offset,
    concatenated,
    rows_where,
)
from kafka_log_lake.pipelines.recover.history import History

Interval = tuple[int, int]  # first and last offset
Offer = tuple[int, Sequence[Interval]]  # number of a copy, where batches are taken from it
_EPOCH = "leader epoch"  # says where a log ended when its leader was elected
Take = Callable[[Sequence[Offer]], tuple[np.ndarray, list[Interval]]]


class Lost(NamedTuple):
    """A range of offsets of the true history that no copy has.

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
    """The batches of the healed log, and what is known and not known of it.

    batches: ENTRY[n] by offset, of all copies. lost: what none has. known: by number of a copy, the intervals
    of offsets in which it is sound. doubts: why the batches may be wrong.
    """

    batches: np.ndarray
    lost: list[Lost]
    known: dict[int, list[Interval]]
    doubts: list[str]


def is_compacted(copies: Sequence[Copy]) -> bool:
    """Returns whether the log cleaner ran over a copy, by its checkpoint or by batches that lack records."""
    for copy in copies:
        entries = copy.entries
        lacks = (entries["count"] <= entries["delta"]) | (entries["attributes"] & (1 << 6) != 0)
        lacks &= entries["is_sound"] & (entries["magic"] == 2)
        if copy.cleaned_before is not None or bool(lacks.any()):
            return True
    return False


def heal(copies: Sequence[Copy], history: History, compacted: bool) -> Healed:
    """Takes the batches of the true history from ``history.start`` on, each from one copy.

    ``.log.deleted`` files of a compacted log are not used: the log cleaner replaced them.
    """
    known, true, cleaned, fit = {}, {}, {}, list[int]()
    everything = copies
    copies = [copy for copy in copies if not (compacted and copy.state == DELETED)]
    for copy in copies:
        kept = rows_where(copy.entries, history.is_true[copy.number] & copy.entries["is_sound"])
        own = true[copy.number] = by_offset(kept)
        known[copy.number] = _known(copy, own, _gaps_before(copy, own) if compacted else 0)
        cleaned[copy.number] = _cleaned(copy, own, known[copy.number]) if compacted else 0
        if _lost_a_side(copy, history, cleaned[copy.number]):
            known[copy.number] = _known(copy, own, gaps_before=0)
        else:
            fit.append(copy.number)
    take = partial(_taken, true, known)
    order = _by_preference(copies, history, fit)
    whole: list[Offer] = [(copy.number, [(history.start, END)]) for copy in order]
    batches, covered = take(whole)
    doubts: list[str] = []
    if compacted:
        at_risk = _at_risk(batches, covered, cleaned)
        if at_risk:
            batches, covered_then = _without_deleted(take, at_risk, whole, cleaned, fit)
            doubts += _may_be_back(_at_risk(batches, covered_then, cleaned))
        unfit = ~np.isin(batches["copy"], fit) & (batches["count"] <= batches["delta"])
        doubts += [
            f"records of offsets {batch['base']} to {batch['last']} may be gone: their copy was cleaned by "
            "records of a losing history"
            for batch in batches[unfit & (batches["magic"] == 2)][:1]
        ]
    doubts += unconfirmed(copies, batches, compacted)
    gaps = missing(covered, history.start, history.end)
    lost = [_lost(copies, history, gap, compacted) for gap in gaps]
    lost += _lost_at_the_end(copies, history, batches, compacted)
    return Healed(batches, lost, {copy.number: [] for copy in everything} | known, doubts)


def _taken(
    true: Mapping[int, np.ndarray], known: Mapping[int, Sequence[Interval]], offers: Sequence[Offer]
) -> tuple[np.ndarray, list[Interval]]:
    """Takes batches from the first copy, in the order of ``offers``, that knows the place.

    Returns (ENTRY[n] by offset, the intervals of offsets that are covered).
    """
    taken, covered = list[np.ndarray](), list[Interval]()
    for number, places in offers:
        own = true[number]
        own = rows_where(own, _overlaps(own, places))
        taken.append(rows_where(own, ~_overlaps(own, covered)))
        covered = joined([*covered, *_common(known[number], places)])
    return _each_once(by_offset(concatenated(taken))), covered


def _without_deleted(
    take: Take,
    at_risk: Sequence[Interval],
    whole: Sequence[Offer],
    cleaned: Mapping[int, int],
    fit: Sequence[int],
) -> tuple[np.ndarray, list[Interval]]:
    """Takes the batches of a compacted log so that no old value of a key is left without its tombstone.

    Returns the batches and the intervals of offsets that are covered, as ``_taken`` does.

    A log cleaner removes a tombstone only after all older records of its key, from a copy that it cleaned
    beyond the tombstone. A copy that was not cleaned so far may have them, and has the tombstone unless it is
    damaged: the place at risk is taken from such a copy. Where none is sound, all before that place is taken
    from copies that were cleaned beyond it. whole: every copy by preference, with the whole log; fit: copies
    that were cleaned by records of the true history alone.
    """
    fuller: list[Offer] = [
        (number, [place for place in at_risk if place[1] >= cleaned[number]]) for number, _ in whole
    ]
    left = _at_risk(*take([*fuller, *whole]), cleaned)
    end = left[-1][1] if left else -1
    beyond: list[Offer] = [
        (number, [(first, end)])
        for number, [(first, _)] in whole
        if left and number in fit and cleaned[number] > end
    ]
    return take([*beyond, *fuller, *whole])


def _may_be_back(at_risk: Sequence[Interval]) -> list[str]:
    if not at_risk:
        return []
    first, last = at_risk[0][0], at_risk[-1][1]
    return [
        f"tombstones between offsets {first} and {last} may be gone while older values of their keys are "
        "left, as the copies that were cleaned beyond them are damaged: a deleted key may be back"
    ]


def _lost_a_side(copy: Copy, history: History, cleaned: int) -> bool:
    """Returns whether a copy may lack true records because newer ones of a losing history replaced them."""
    losing = copy.entries[copy.entries["is_sound"] & ~history.is_true[copy.number]]
    return bool((losing["base"] < cleaned).any())


def _at_risk(batches: np.ndarray, covered: Sequence[Interval], cleaned: Mapping[int, int]) -> list[Interval]:
    """Finds places that lack records, after batches of a copy that was not cleaned as far."""
    lacking = _lacking(batches, covered)
    found = np.zeros(len(lacking), dtype=bool)
    for number in np.unique(batches["copy"]).tolist():
        first = batches["base"][batches["copy"] == number].min()
        found |= (lacking[:, 0] > first) & (lacking[:, 1] >= cleaned[number])
    return [(first, last) for first, last in lacking[found].tolist()]


def _cleaned(copy: Copy, true: np.ndarray, known: Sequence[Interval]) -> int:
    """Returns the offset up to which a copy was cleaned, by its checkpoint and at least by its batches."""
    noted = min(copy.cleaned_before or 0, log_end(copy))
    return max([noted, *(_lacking(true, known)[-1:, 1] + 1).tolist()])


def _parts(batches: np.ndarray) -> np.ndarray:
    """Returns the batches that lack records."""
    return rows_where(batches, (batches["magic"] == 2) & (batches["count"] <= batches["delta"]))


def _gaps_before(copy: Copy, true: np.ndarray) -> int:
    """Returns the offset before which the log cleaner may have removed whole batches of a copy.

    The checkpoint says how far the log cleaner came. Where it has no entry for the log, but other checkpoints
    of the disk do, the log cleaner never ran, unless batches lack records. END where nothing says it.
    """
    ends = (_parts(true)["last"] + 1).tolist()
    if copy.cleaned_before is None and (ends or copy.high_watermark is None):
        return END
    return max([copy.cleaned_before or 0, *ends])


def _lacking(batches: np.ndarray, covered: Sequence[Interval]) -> np.ndarray:
    """Returns int64[n, 2]: (first, last) offset of each known place that lacks records, in their order.

    Such a place is a batch that lacks some, or has no batch.
    """
    part = _parts(batches)
    outside = np.array(missing(covered, -1, END), dtype=np.int64).reshape(-1, 2)
    spans = np.concatenate([np.stack([batches["base"], batches["last"]], axis=1), outside])
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    begins, ends = np.maximum.accumulate(spans[:, 1])[:-1] + 1, spans[1:, 0] - 1
    empty = np.stack([begins, ends], axis=1)[begins <= ends]
    found = np.concatenate([empty, np.stack([part["base"], part["last"]], axis=1)])
    result: np.ndarray = found[np.argsort(found[:, 0], kind="stable")]
    return result


def _by_preference(copies: Sequence[Copy], history: History, fit: Sequence[int]) -> list[Copy]:
    """Sorts copies by the order in which batches are taken from them.

    First the primary, then other copies that know the highest epoch, then those whose log ends later. Copies
    that are not fit come last: they may lack records that all others have.
    """
    states = ("live", "future", "tier", "stray", "delete", DELETED)

    def rank(copy: Copy) -> tuple[bool, bool, bool, int, int, int]:
        number, state = copy.number, states.index(copy.state)
        is_first, is_holder = number == history.primary, number in history.holders
        return number not in fit, not is_first, not is_holder, state, -log_end(copy), number

    return sorted(copies, key=rank)


def _known(copy: Copy, true: np.ndarray, gaps_before: int) -> list[Interval]:
    """Returns the intervals of offsets of which a copy has every record that the history still has.

    Offsets that are missing between two batches, before the offset ``gaps_before`` and without damage in
    between, were removed by the log cleaner. After that offset, and where a segment is missing, nothing is
    known of them.
    """
    if not len(true):
        return []
    first, last = true["base"], np.maximum.accumulate(true["last"])
    follows = first[1:] <= last[:-1] + 1
    if gaps_before:
        same = true["hurt_before"][1:] == true["hurt_before"][:-1]
        orphans = np.array([-1, *copy.orphans], dtype=np.int64)
        count = np.searchsorted(orphans, true["file_base"], side="right")
        follows |= same & (count[1:] == count[:-1]) & (first[1:] <= gaps_before)
    begins = np.flatnonzero(np.concatenate([[True], ~follows]))
    ends = np.append(begins[1:], len(true)) - 1
    found = list(zip(first[begins].tolist(), last[ends].tolist(), strict=True))
    if first[0] <= gaps_before and true["hurt_before"][0] == 0 and copy.first_file is not None:
        begin, end = found[0]
        found[0] = (min(begin, copy.first_file), end)
    return joined(found)


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Sorts intervals, and joins those that touch or overlap."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _overlaps(batches: np.ndarray, covered: Sequence[Interval]) -> np.ndarray:
    """Returns bool[n]: which batches share an offset with an interval."""
    if not covered:
        return np.zeros(len(batches), dtype=bool)
    firsts = np.array([first for first, _ in covered], dtype=np.int64)
    lasts = np.array([last for _, last in covered], dtype=np.int64)
    at = np.searchsorted(lasts, batches["base"])
    inside = at < len(firsts)
    result: np.ndarray = inside & (firsts[np.minimum(at, len(firsts) - 1)] <= batches["last"])
    return result


def _each_once(batches: np.ndarray) -> np.ndarray:
    """Drops batches that overlap one before them. The batches are in the order of their offsets."""
    if not len(batches):
        return batches
    reached = np.maximum.accumulate(batches["last"])
    return rows_where(batches, np.concatenate([[True], batches["base"][1:] > reached[:-1]]))


def _common(one: Sequence[Interval], other: Sequence[Interval]) -> Iterator[Interval]:
    """Yields the intersections of two lists of intervals, each in order."""
    i = j = 0
    while i < len(one) and j < len(other):
        first, last = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first <= last:
            yield first, last
        i, j = (i + 1, j) if one[i][1] < other[j][1] else (i, j + 1)


def missing(known: Sequence[Interval], first: int, end: int) -> list[Interval]:
    """Returns the intervals of [first, end) that none of the known ones covers."""
    found, at = [], first
    for begin, last in known:
        if begin > at and at < end:
            found.append((at, min(begin, end) - 1))
        at = max(at, last + 1)
    if at < end:
        found.append((at, end - 1))
    return found


def _lost(copies: Sequence[Copy], history: History, gap: Interval, compacted: bool) -> Lost:
    """Describes a range of offsets that no copy has: how many records, and why each copy lacks them.

    In a log that is not compacted each of the offsets was a record.
    """
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
        elif absent := [one.why for one in copy.absent if one.first <= last and one.last >= first]:
            why.append(f"{copy.name}: {'; '.join(absent)}")
        elif copy.state == DELETED:
            continue
        elif log_end(copy) <= first:
            why.append(f"{copy.name}: ends before, at {log_end(copy)}")
        else:
            why.append(f"{copy.name}: no batch there")
    reason = "damaged" if is_damaged else "missing"
    return Lost(first, last, min(certain, possible), possible, reason, "; ".join(why))


def _hurts_in(copy: Copy, gap: Interval) -> list[CopyDamage]:
    """Returns the damaged ranges of a copy between the sound batches before and after a gap."""
    sound = copy.entries[copy.entries["is_sound"]]
    before = sound[sound["last"] < gap[0]]
    behind = sound[sound["base"] > gap[1]]
    low = max(((int(e["file"]), int(e["position"])) for e in before[-1:]), default=(-1, -1))
    high = min(((int(e["file"]), int(e["position"])) for e in behind[:1]), default=(1 << 30, 0))
    return [hurt for hurt in copy.hurts if low < (hurt.file, hurt.position) < high]


def _lost_at_the_end(
    copies: Sequence[Copy], history: History, batches: np.ndarray, compacted: bool
) -> list[Lost]:
    """Finds offsets after the healed log that a copy of its history is known to have had."""
    reach, certain, witnesses = history.end, history.end, []
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
            (_EPOCH, history.epochs[-1][1] if history.epochs else None),
        ):
            if offset is not None and offset > history.end:
                witnesses.append(f"{copy.name}: {name} {offset}")
                reach = max(reach, offset)
                if name != _EPOCH:  # a doubt of the history
                    certain = max(certain, offset)
    if reach == history.end:
        return _unknown_at_the_end(copies, history, batches, compacted)
    counts = certain - history.end, reach - history.end
    return [Lost(history.end, reach - 1, *counts, "cut off", "; ".join(witnesses))]


def _unknown_at_the_end(
    copies: Sequence[Copy], history: History, batches: np.ndarray, compacted: bool
) -> list[Lost]:
    """Finds damaged bytes after the healed log whose records no header counts; a torn tail does not count.

    In a log that is not compacted a batch has the same size in each copy. So the healed batches that follow a
    copy's last sound one account for as many damaged bytes; only more bytes than that are after the healed
    log.
    """
    found = []
    for copy in copies:
        sound = copy.entries[copy.entries["is_sound"]]
        end = log_end(copy)
        if copy.number not in history.holders or (compacted and end != history.end):
            continue
        last = max(((int(e["file"]), int(e["position"])) for e in sound[-1:]), default=(-1, -1))
        size = sum(
            hurt.size for hurt in copy.hurts if (hurt.file, hurt.position) > last and hurt.reason not in TAILS
        )
        size -= int(batches["size"][batches["base"] >= end].sum())
        if size > 0:
            found.append(f"{copy.name}: {size} damaged bytes after it")
    return [Lost(history.end, None, 0, None, "damaged", "; ".join(found))] if found else []


def _claimed(copy: Copy) -> Iterator[tuple[str, int]]:
    """Yields (witness, end offset) of damaged batches after the log, whose headers follow each other."""
    end = log_end(copy)
    for hurt in sorted(copy.hurts, key=lambda one: (one.file, one.position)):
        if hurt.first == end and hurt.last is not None and 0 <= hurt.last - hurt.first < 1 << 24:
            end = hurt.last + 1
            yield f"the header of a {hurt.reason} batch", end
