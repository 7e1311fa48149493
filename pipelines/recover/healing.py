"""Takes each offset of the true history from a copy that is sound there, and says which no copy has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kafka_log_lake.pipelines.recover.bounds import END, log_end
from kafka_log_lake.pipelines.recover.cleaned import (
    cleaned_until,
    gaps_before,
    lack_records,
    places_that_lack,
)
from kafka_log_lake.pipelines.recover.doubts import unconfirmed
from kafka_log_lake.pipelines.recover.entries import (
    DELETED,
    Copy,
    by_offset,
    concatenated,
    rows_where,
)
from kafka_log_lake.pipelines.recover.history import History
from kafka_log_lake.pipelines.recover.intervals import Interval, common, joined, missing, overlaps
from kafka_log_lake.pipelines.recover.lost_ranges import Lost, lost_at_the_end, lost_between

Offer = tuple[int, Sequence[Interval]]  # number of a copy, where batches are taken from it
Take = Callable[[Sequence[Offer]], tuple[np.ndarray, list[Interval]]]


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


def heal(copies: Sequence[Copy], history: History, compacted: bool) -> Healed:
    """Takes the batches of the true history from ``history.start`` on, each from one copy.

    ``.log.deleted`` files of a compacted log are not used: the log cleaner replaced them.
    """
    known, true, cleaned, fit = {}, {}, {}, list[int]()
    everything = copies
    copies = [copy for copy in copies if not (compacted and copy.state == DELETED)]
    for copy in copies:
        kept = rows_where(copy.entries, history.is_true[copy.number] & copy.entries["is_sound"])
        batches = true[copy.number] = by_offset(kept)
        known[copy.number] = _known(copy, batches, gaps_before(copy, batches) if compacted else 0)
        cleaned[copy.number] = cleaned_until(copy, batches, known[copy.number]) if compacted else 0
        if _lost_a_side(copy, history, cleaned[copy.number]):
            known[copy.number] = _known(copy, batches, 0)
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
        unfit = ~np.isin(batches["copy"], fit) & lack_records(batches)
        doubts += [
            f"records of offsets {batch['base']} to {batch['last']} may be gone: their copy was cleaned by "
            "records of a losing history"
            for batch in batches[unfit][:1]
        ]
    doubts += unconfirmed(copies, batches, compacted)
    gaps = missing(covered, history.start, history.end)
    lost = [lost_between(copies, history, gap, compacted) for gap in gaps]
    lost += lost_at_the_end(copies, history, batches, compacted)
    return Healed(batches, lost, {copy.number: [] for copy in everything} | known, doubts)


def _taken(
    true: Mapping[int, np.ndarray], known: Mapping[int, Sequence[Interval]], offers: Sequence[Offer]
) -> tuple[np.ndarray, list[Interval]]:
    """Takes batches from the first copy, in the order of ``offers``, that knows the place.

    Returns (ENTRY[n] by offset, the intervals of offsets that are covered).
    """
    taken, covered = list[np.ndarray](), list[Interval]()
    for number, places in offers:
        batches = true[number]
        batches = rows_where(batches, overlaps(batches, places))
        taken.append(rows_where(batches, ~overlaps(batches, covered)))
        covered = joined([*covered, *common(known[number], places)])
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
    lacking = places_that_lack(batches, covered)
    is_at_risk = np.zeros(len(lacking), dtype=bool)
    for number in np.unique(batches["copy"]).tolist():
        first = batches["base"][batches["copy"] == number].min()
        is_at_risk |= (lacking[:, 0] > first) & (lacking[:, 1] >= cleaned[number])
    return [(first, last) for first, last in lacking[is_at_risk].tolist()]


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


def _known(copy: Copy, true: np.ndarray, cleaned_before: int) -> list[Interval]:
    """Returns the intervals of offsets of which a copy has every record that the history still has.

    Offsets that are missing between two batches, before the offset ``cleaned_before`` and without damage in
    between, were removed by the log cleaner. After that offset, and where a segment is missing, nothing is
    known of them.
    """
    if not len(true):
        return []
    first, last = true["base"], np.maximum.accumulate(true["last"])
    follows = first[1:] <= last[:-1] + 1
    if cleaned_before:
        same = true["hurt_before"][1:] == true["hurt_before"][:-1]
        orphans = np.array([-1, *copy.orphans], dtype=np.int64)
        count = np.searchsorted(orphans, true["file_base"], side="right")
        follows |= same & (count[1:] == count[:-1]) & (first[1:] <= cleaned_before)
    begins = np.flatnonzero(np.concatenate([[True], ~follows]))
    ends = np.append(begins[1:], len(true)) - 1
    ranges = list(zip(first[begins].tolist(), last[ends].tolist(), strict=True))
    if first[0] <= cleaned_before and true["hurt_before"][0] == 0 and copy.first_file is not None:
        begin, end = ranges[0]
        ranges[0] = (min(begin, copy.first_file), end)
    return joined(ranges)


def _each_once(batches: np.ndarray) -> np.ndarray:
    """Drops batches that overlap one before them. The batches are in the order of their offsets."""
    if not len(batches):
        return batches
    reached = np.maximum.accumulate(batches["last"])
    return rows_where(batches, np.concatenate([[True], batches["base"][1:] > reached[:-1]]))
