"""Finds which base offsets of a log are wrong, and which offsets no batch has.

The base offset of a batch lies outside its checksum, and so does the offset of a message of magic 0 or 1. The
rules are those of the views ``sound_batches`` and ``ordered_batches``; one test holds both to one model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NO_LIMIT = np.iinfo(np.int64).max  # of the last file of a log
_LARGEST = np.iinfo(np.int64).max

# Consecutive sound batches of one file, each of which begins where the one before ends, with nothing damaged
# between them. A segment that was not decoded is a run without batches, with the offsets up to the next file
RUN = np.dtype(
    [
        ("file_base", "i8"),  # base offset in the file's name
        ("file_limit", "i8"),  # the same of the next file of the log; NO_LIMIT for the last
        ("position", "i8"),  # of the first batch
        ("first", "i8"),  # base offset of the first batch
        ("first_last", "i8"),  # last offset of the first batch, not below first
        ("last", "i8"),  # last offset of the last batch, not below first
        ("last_base", "i8"),  # base offset of the last batch
        ("batches", "i8"),
        ("damages", "i8"),  # damaged ranges of the log before it
        ("is_cleaned", "?"),  # a batch of it has fewer records than offsets, or a delete horizon
    ]
)


class Hole(NamedTuple):
    """A range of offsets that no batch has.

    first: the first of them; None past 2^63 - 1. next: base offset of the batch after the hole; None at the
    end of the log. file_base: base offset in the name of that batch's file, None at the end; file_before: the
    same of the batch before the hole, None at the start. damages: damaged ranges in the hole. misplaced:
    batches in it whose base offset is wrong. goes_back: the batch after the hole lies before the other one in
    the files.
    """

    first: int | None
    next: int | None
    file_base: int | None
    file_before: int | None
    damages: int
    misplaced: int
    goes_back: bool


class Order(NamedTuple):
    """The holes, ends and damaged ranges of a log, with its runs sorted by offset.

    holes: by offset. is_compacted: the log shows that the log cleaner ran. first, last: offsets of its
    batches, without those whose base offset is wrong; None without any. end: the offset after the highest
    one; the base offset of the first file without a batch; None past 2^63 - 1. around: for each damaged
    range, in the order of the files, the highest offset before it and the base offset after it, None without
    one. unconfirmed: (first offset that no batch has, base offset) before a last batch whose base offset
    nothing confirms; None where no offset is missing there, or the log is compacted. It is the cause
    ``unknown`` of the view ``offset_gaps``.
    """

    holes: list[Hole]
    is_compacted: bool
    first: int | None
    last: int | None
    end: int | None
    around: list[tuple[int, int | None]]
    unconfirmed: tuple[int, int] | None


def misplaced(runs: np.ndarray, log: np.ndarray | None = None) -> np.ndarray:
    """Returns bool[n]: the runs of one batch whose base offset is wrong.

    A file's name contradicts it, or has it although another batch is the first of the file; or its neighbours
    contradict it, and leave room for it between them; or it is the last batch of the log and does not begin
    after the base offset of the one before. A neighbour that is wrong by itself, or contradicts its own
    neighbours, proves nothing. runs: RUN[n] in the order of the files. log: int[n], the log of each; None if
    all are of one.
    """
    n = len(runs)
    if not n:
        return np.zeros(0, dtype=bool)
    log = np.zeros(n, dtype=np.int64) if log is None else log
    first, last, base = runs["first"], runs["last"], runs["file_base"]
    has_before, has_after = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    has_before[1:] = has_after[:-1] = log[1:] == log[:-1]
    before = np.where(has_before, np.roll(last, 1), base - 1)
    after = np.roll(first, -1)
    span = np.where((first >= 0) | (last < 0), last - first, 0)  # a difference past int64 is wrapped
    limited = runs["file_limit"] != NO_LIMIT
    is_later = has_before & (np.roll(base, 1) == base)  # a file is named by its first batch
    outside_file = (first < base) | (is_later & (first == base)) | (limited & (last >= runs["file_limit"]))
    is_between = (before < first) & (last < after)
    comparable = has_after & (before >= -1) & (before < after) & (first != base)
    # batches that follow each other confirm each other
    outside = comparable & ~is_between & (after - 1 - before > span) & (runs["batches"] == 1)
    wrong = outside_file | outside
    wrong_before = has_before & np.roll(wrong, 1)
    wrong_after = has_after & np.roll(wrong, -1)
    is_behind = has_before & (first <= np.roll(runs["last_base"], 1))
    by_neighbours = np.where(has_after, outside & ~wrong_after, is_behind) & ~wrong_before
    result: np.ndarray = outside_file | (by_neighbours & (runs["batches"] == 1))
    return result


def order(runs: np.ndarray, damages: int, files: tuple[int, int], is_compacted: bool = False) -> Order:
    """Finds the offsets that no batch of a log has.

    runs: RUN[n] in the order of the files. damages: damaged ranges of the log. files: base offsets in the
    names of its first and last file. is_compacted: whether that is known otherwise.
    """
    is_wrong = np.zeros(len(runs), dtype=bool)
    is_wrong[runs["batches"] > 0] = misplaced(runs[runs["batches"] > 0])
    wrong_before = np.cumsum(is_wrong)[~is_wrong]
    kept = runs[~is_wrong]
    by_offset = np.lexsort((np.arange(len(kept)), kept["first_last"], kept["first"]))
    sorted_ = kept[by_offset]
    number_last = np.cumsum(np.maximum(kept["batches"], 1))[by_offset]
    number = number_last - np.maximum(sorted_["batches"], 1) + 1
    reached = np.maximum.accumulate(sorted_["last"]) if len(kept) else sorted_["last"]
    before = np.concatenate([[files[0] - 1], reached[:-1]])[: len(kept)]
    hurt = np.diff(np.maximum.accumulate(np.concatenate([[0], sorted_["damages"]])))
    skipped = np.diff(np.maximum.accumulate(np.concatenate([[0], wrong_before[by_offset]])))
    # the batch before is the one that begins last, of those with one base offset the longest
    ranked = np.lexsort((by_offset, sorted_["last"], sorted_["last_base"]))
    nearest = ranked[np.maximum.accumulate(np.argsort(ranked))]
    number_before = np.concatenate([[0], number_last[nearest][:-1]])[: len(kept)]
    until = np.maximum.accumulate(sorted_["damages"])
    skipped = skipped + np.maximum(number - number_before - 1, 0)
    is_hole = sorted_["first"] - 1 > before
    is_clear = (hurt == 0) & (skipped == 0) & (number > number_before)
    confirmed = (sorted_["file_base"] != files[1]) | (sorted_["batches"] > 1)
    confirmed[:-1] = True
    inside = is_hole & (sorted_["first"] > sorted_["file_base"]) & is_clear & confirmed
    is_compacted = is_compacted or bool(inside.any() or runs["is_cleaned"].any())
    holes = []
    for at in np.flatnonzero(is_hole).tolist():
        place = sorted_[at]
        first, next_ = int(before[at]) + 1, int(place["first"])
        before_it = int(sorted_["file_base"][nearest[at - 1]]) if at else None
        flags = int(hurt[at]), int(skipped[at]), bool(number[at] < number_before[at])
        holes.append(Hole(first, next_, int(place["file_base"]), before_it, *flags))
    around: list[tuple[int, int | None]] = []
    for at in np.searchsorted(until, np.arange(1, damages + 1)).tolist():
        if at < len(kept):
            around.append((int(before[at]), int(sorted_["first"][at])))
        else:
            around.append((int(reached[-1]) if len(kept) else files[0] - 1, None))
    with_batches = sorted_[sorted_["batches"] > 0]
    end: int | None = files[0]
    if len(kept):
        end = int(reached[-1]) + 1 if reached[-1] < _LARGEST else None
    hurt_last = damages - int(sorted_["damages"].max(initial=0))
    wrong_last = int(is_wrong.sum()) - int(wrong_before.max(initial=0))
    if hurt_last > 0 or wrong_last > 0:
        holes.append(Hole(end, None, None, None, hurt_last, wrong_last, False))
    lowest, highest = (
        (int(with_batches["first"].min()), int(with_batches["last"].max()))
        if len(with_batches)
        else (None, None)
    )
    unconfirmed = None
    if len(kept) and not is_compacted:
        is_last = is_hole & is_clear & ~confirmed & (sorted_["batches"] > 0)
        if is_last[-1] and sorted_["first"][-1] > sorted_["file_base"][-1]:
            begin = max(int(before[-1]) + 1, int(sorted_["file_base"][-1]))
            unconfirmed = begin, int(sorted_["first"][-1])
    return Order(holes, is_compacted, lowest, highest, end, around, unconfirmed)
