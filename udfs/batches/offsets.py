"""Makes runs of a log's batches, and finds which base offsets are wrong.

The base offset of a batch lies outside its checksum, and so does the offset of a message of magic 0 or 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NO_LIMIT = np.iinfo(np.int64).max  # of the last file of a log

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
        ("damages", "i8"),  # damaged ranges of the log before it; ``offset_findings.order`` sets both
        ("damaged_bytes", "i8"),
        ("is_cleaned", "?"),  # a batch of it has fewer records than offsets, or a delete horizon
    ]
)


def are_cleaned(first: np.ndarray, last: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Returns bool[n]: batches with fewer records than offsets, which the log cleaner alone leaves.

    first, last: their offsets; a wrong base offset may be below 0. records: of each, -1 where unknown.
    """
    span = np.where(first >= 0, np.maximum(first, last) - first, -1)
    result: np.ndarray = (records >= 0) & (span >= records)
    return result


def begins_of_runs(first: np.ndarray, last: np.ndarray, low: Any, limit: Any) -> np.ndarray:
    """Returns bool[n]: which batches of a file do not continue the previous one, or are judged apart from it.

    first, last: their offsets. low, limit: base offsets in the names of the file and of the next one.
    """
    begins = np.ones(len(first), dtype=bool)
    begins[1:] = first[1:] - 1 != last[:-1]
    for is_apart in (first < low, first == low, last >= limit):
        begins[1:] |= is_apart[1:] != is_apart[:-1]
    return begins


def runs_of(
    first: np.ndarray,
    last: np.ndarray,
    position: np.ndarray,
    size: np.ndarray,
    is_cleaned: np.ndarray,
    file_base: int,
    file_limit: int,
) -> np.ndarray:
    """Returns RUN[n] of sound batches of one file in its order.

    first, last, position, size: int64[m] of each batch. is_cleaned: bool[m], it shows that the log cleaner
    ran. file_base, file_limit: base offsets in the names of the file and of the next one.
    """
    runs = np.zeros(len(first), dtype=RUN)
    runs["file_base"], runs["file_limit"], runs["position"] = file_base, file_limit, position
    runs["first"], runs["last"] = first, np.maximum(first, last)
    runs["first_last"], runs["last_base"], runs["batches"] = runs["last"], first, 1
    runs["is_cleaned"] = is_cleaned
    begins = begins_of_runs(first, runs["last"], file_base, file_limit)
    begins[1:] |= position[1:] != position[:-1] + size[:-1]
    return joined(runs, begins)


def joined(runs: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Joins runs (RUN[n]) up to the next one that begins another run (bool[n]); the first one does."""
    at = np.flatnonzero(begins)
    merged = np.take(runs, at)
    if len(at):
        ends = np.append(at[1:], len(runs)) - 1
        for name in ("last", "last_base"):
            merged[name] = runs[name][ends]
        merged["batches"] = np.add.reduceat(runs["batches"], at)
        merged["is_cleaned"] = np.logical_or.reduceat(runs["is_cleaned"], at)
    return merged


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
