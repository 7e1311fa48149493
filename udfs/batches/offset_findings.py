"""Finds which offsets no batch of a log has, why, and which of them are lost.

``scan``, ``find`` and a run of ``decode`` take these rules. A run stores what they give as the table
``offset_findings``, and the views select from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, RUN, misplaced
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS

_LARGEST = np.iinfo(np.int64).max
AT_END = _LARGEST  # file_base of a hole at the end of a log that no file follows

# Why offsets have no batch; the views offset_gaps and lost_offsets have these words. "" for none
CAUSES = (
    "",
    "damage",
    "wrong_base_offset",
    "compaction",
    "retention",
    "missing_segment",
    "unknown",
    "unread",
)
NONE, DAMAGE, WRONG_BASE, COMPACTION, RETENTION, SEGMENT, UNKNOWN, UNREAD = range(len(CAUSES))

# A range of offsets that no batch has
HOLE = np.dtype(
    [
        ("first", "i8"),  # its first offset; below 0 past 2^63 - 1
        ("next", "i8"),  # base offset of the batch after it, or of an empty last file; -1 at the end
        ("run", "i8"),  # the run of that batch, in the order of the files; -1 at the end
        ("run_before", "i8"),  # the run of the batch before it, by offset; -1 at the start
        ("file_base", "i8"),  # base offset in the name of the file after it; AT_END at the end
        ("damages", "i8"),  # damaged ranges between both batches
        ("damaged_bytes", "i8"),
        ("misplaced", "i8"),  # batches between them whose base offset is wrong
        ("goes_back", "?"),  # the batch after it lies before the other one in the files
        ("follows_retention", "?"),  # retention may have deleted segments there that no run saw
        ("is_confirmed", "?"),  # a batch or file after the next batch confirms its base offset
        ("cause", "u1"),  # of CAUSES; of a hole without damage, of its offsets before the file's name
        ("cause_in_file", "u1"),  # of those from the file's name on; NONE where there are none
        ("lost", "u1"),  # the cause of a loss; NONE where the offsets are not lost
    ]
)


@dataclass(frozen=True)
class Order:
    """The holes, ends and damaged ranges of a log, with its runs sorted by offset.

    holes: HOLE[n] by offset. is_wrong: bool[m], the runs whose base offset is wrong. is_compacted: the log
    shows that the log cleaner ran. first, last: offsets of its batches, without those whose base offset is
    wrong; None without any. end: the offset after the highest one; the base offset of the first file without
    a batch; None past 2^63 - 1. around: for each damaged range, in the order of the files, the highest offset
    before it and the base offset after it, or that of an empty last file; None without one.
    """

    holes: np.ndarray
    is_wrong: np.ndarray
    is_compacted: bool
    first: int | None
    last: int | None
    end: int | None
    around: list[tuple[int, int | None]]

    @property
    def unconfirmed(self) -> tuple[int, int] | None:
        """Returns (first offset that no batch has, base offset) before a last batch; None without one.

        Nothing confirms the base offset of that batch, and the log is not compacted.
        """
        for hole in self.holes[self.holes["cause_in_file"] == UNKNOWN]:
            return max(int(hole["first"]), int(hole["file_base"])), int(hole["next"])
        return None


def is_known_compacted(topic: str, first_file: int, cleaned_before: int | None) -> bool:
    """Returns whether something else than its batches says that the log cleaner ran over a log.

    first_file: base offset of its first file. cleaned_before: its entry in ``cleaner-offset-checkpoint`` of
    the same disk, which the cleaner writes when it has cleaned up to that offset; None without one. An entry
    at the log's start says nothing: a deletion resets it there (``LogCleanerManager.cleanableOffsets``).
    """
    return topic in COMPACTED_TOPICS or (cleaned_before is not None and cleaned_before > first_file)


def order(
    runs: np.ndarray,
    damaged: np.ndarray,
    files: Sequence[int],
    is_compacted: bool = False,
    unread: Collection[int] = (),
    retentions: np.ndarray | None = None,
) -> Order:
    """Finds the offsets that no batch of a log has, and why.

    Parameters
    ----------
    runs: RUN[n] in the order of the files.
    damaged: int64[m, 3], of each damaged range base offset of the file, position, bytes.
    files: base offsets in the names of all files of the log, rising.
    is_compacted: whether that is known otherwise (``is_known_compacted``).
    unread: base offsets of the files that are there and were not read; what lies before one is not judged.
    retentions: int64[m], of each file, how many times up to it retention may have deleted segments that no
        run saw; None where nothing is known of earlier runs.
    """
    runs = _with_damage(runs, damaged)
    is_wrong = np.zeros(len(runs), dtype=bool)
    is_wrong[runs["batches"] > 0] = misplaced(runs[runs["batches"] > 0])
    right_ones = np.flatnonzero(~is_wrong)
    kept, batches = runs[right_ones], np.maximum(runs["batches"][right_ones], 1)
    by_offset = np.lexsort((np.arange(len(kept)), kept["first_last"], kept["first"]))
    sorted_ = kept[by_offset]
    number_last = np.cumsum(batches)[by_offset]
    number = number_last - batches[by_offset] + 1
    reached = np.maximum.accumulate(sorted_["last"]) if len(kept) else sorted_["last"]
    # the batch before is the one that begins last, of those with one base offset the longest
    ranked = np.lexsort((by_offset, sorted_["last"], sorted_["last_base"]))
    nearest = ranked[np.maximum.accumulate(np.argsort(ranked))]
    before_it = np.concatenate([[-1], right_ones[by_offset][nearest]]).astype(np.int64)

    # a row for each run, and one for the end
    rows = np.zeros(len(kept) + 1, dtype=HOLE)
    rows["first"] = np.concatenate([[files[0]], reached + 1])  # past 2^63 - 1 it wraps
    rows["next"], rows["run"] = np.append(sorted_["first"], -1), np.append(right_ones[by_offset], -1)
    rows["run_before"], rows["file_base"] = before_it, np.append(sorted_["file_base"], AT_END)
    rows["damages"] = _grown(sorted_["damages"], len(damaged))
    rows["damaged_bytes"] = _grown(sorted_["damaged_bytes"], int(damaged[:, 2].sum()))
    number_before = np.concatenate([[0], number_last[nearest]])
    rows["misplaced"] = _grown(np.cumsum(is_wrong)[~is_wrong][by_offset], int(is_wrong.sum()))
    rows["misplaced"][:-1] += np.maximum(number - number_before[:-1] - 1, 0)
    rows["goes_back"][:-1] = number < number_before[:-1]
    rows["is_confirmed"] = True
    if len(kept):
        rows["is_confirmed"][-2] = sorted_["file_base"][-1] != files[-1] or sorted_["batches"][-1] > 1
    is_last_empty = files[-1] not in runs["file_base"] and files[-1] not in damaged[:, 0]
    if is_last_empty and 0 <= rows["first"][-1] < files[-1]:
        rows["next"][-1] = rows["file_base"][-1] = files[-1]  # the log had reached the name of the file
    rows["follows_retention"] = _follow_retention(runs, rows, files, retentions)

    at_end = int(rows["next"][-1]) if rows["next"][-1] >= 0 else None
    is_hole = np.append(sorted_["first"] - 1 > rows["first"][:-1] - 1, False)
    is_hole[-1] = rows["damages"][-1] + rows["misplaced"][-1] > 0 or at_end is not None
    is_clear = (rows["damages"] == 0) & (rows["misplaced"] == 0) & ~rows["goes_back"]
    inside = is_hole & is_clear & (rows["next"] > rows["file_base"]) & rows["is_confirmed"]
    is_compacted = is_compacted or bool(inside.any() or runs["is_cleaned"].any())
    rows, is_clear = rows[is_hole], is_clear[is_hole]
    _set_causes(rows, is_clear, is_compacted, np.isin(rows["file_base"], sorted(unread)))
    with_batches = sorted_[sorted_["batches"] > 0]
    return Order(
        rows,
        is_wrong,
        is_compacted,
        int(with_batches["first"].min()) if len(with_batches) else None,
        int(with_batches["last"].max()) if len(with_batches) else None,
        _end_offset(reached, files[0]),
        _around(sorted_, reached, at_end, len(damaged), files[0]),
    )


def _end_offset(reached: np.ndarray, first_file: int) -> int | None:
    """Returns the offset after the last batch, without one that of the first file; None past 2^63 - 1."""
    if not len(reached):
        return first_file
    return int(reached[-1]) + 1 if reached[-1] < _LARGEST else None


def _grown(counts: np.ndarray, total: int) -> np.ndarray:
    """Returns int64[n + 1]: by how much each count, and the total, is above the highest before it."""
    result: np.ndarray = np.diff(np.maximum.accumulate(np.concatenate([[0], counts, [total]])))
    return result


def _follow_retention(
    runs: np.ndarray, rows: np.ndarray, files: Sequence[int], retentions: np.ndarray | None
) -> np.ndarray:
    """Returns bool[n], by the files around each hole."""
    has_both: np.ndarray = (rows["next"] >= 0) & (rows["run_before"] >= 0)
    if retentions is None or not has_both.any():
        return np.zeros(len(rows), dtype=bool)
    after, before = rows["file_base"], runs["file_base"][rows["run_before"]]
    at = np.minimum(np.searchsorted(files, [after, before]), len(files) - 1)
    result: np.ndarray = has_both & (retentions[at[0]] > retentions[at[1]])
    return result


def _set_causes(rows: np.ndarray, is_clear: np.ndarray, is_compacted: bool, is_unread: np.ndarray) -> None:
    """Sets why the offsets of holes have no batch, and which of them are lost. is_unread: before such a file.

    The cleaner, retention and a missing file leave a hole before a file's name; after it
    only the cleaner does.
    """
    has_damage, has_wrong = rows["damages"] > 0, rows["misplaced"] > 0
    before = is_clear & (rows["first"] < rows["file_base"])
    rows["cause"] = np.select(
        [
            has_damage,
            ~is_clear,
            ~before,
            is_unread,
            rows["follows_retention"],
            np.full(len(rows), is_compacted),
        ],
        [DAMAGE, WRONG_BASE, NONE, UNREAD, RETENTION, COMPACTION],
        SEGMENT,
    )
    inside = is_clear & (rows["next"] > rows["file_base"])
    proved = rows["is_confirmed"] | is_compacted
    rows["cause_in_file"] = np.select([~inside, proved], [NONE, COMPACTION], UNKNOWN)
    rows["lost"] = np.select(
        [has_damage, rows["goes_back"] | is_unread, has_wrong, rows["cause"] == SEGMENT],
        [DAMAGE, NONE, WRONG_BASE, SEGMENT],
        NONE,
    )


def _around(
    sorted_: np.ndarray, reached: np.ndarray, at_end: int | None, damages: int, first_file: int
) -> list[tuple[int, int | None]]:
    """Returns the offsets around each damaged range (``Order.around``). at_end: after one at the end."""
    until = np.maximum.accumulate(sorted_["damages"])
    before = np.concatenate([[first_file - 1], reached])
    return [
        (int(before[at]), int(sorted_["first"][at]) if at < len(sorted_) else at_end)
        for at in np.searchsorted(until, np.arange(1, damages + 1)).tolist()
    ]


def are_certain(lost: np.ndarray, is_compacted: bool) -> np.ndarray:
    """Returns bool[n]: whether records were at the lost offsets for certain.

    They were in a log that is not compacted, and in a batch whose base offset is wrong. From a compacted log
    the cleaner may have removed the others. lost: the column of HOLE.
    """
    result: np.ndarray = (lost == WRONG_BASE) | (not is_compacted)
    return result


def with_undecoded(runs: np.ndarray, covered: Collection[int], every: Sequence[int]) -> np.ndarray:
    """Returns RUN: the runs, and one for each file that was not decoded, in the order of the files.

    covered: base offsets of these files. every: the base offsets of all files, rising.
    """
    limits = dict(pairwise(every))
    added = np.zeros(len(covered), dtype=RUN)
    for run, base in zip(added, sorted(covered), strict=True):
        last = limits.get(base, base) - 1
        run["file_base"], run["first"], run["last"], run["last_base"] = base, base, last, base
        run["first_last"] = last
        run["file_limit"] = limits.get(base, NO_LIMIT)
    merged = np.concatenate([runs, added])
    result: np.ndarray = merged[np.lexsort((merged["position"], merged["file_base"]))]
    return result


def places_before(places: np.ndarray, damaged: np.ndarray) -> np.ndarray:
    """Returns int64[n]: damaged ranges before each place.

    places, damaged: int64[n, 2 or more], first file and position in it.
    """
    is_damage = np.arange(len(places) + len(damaged)) >= len(places)
    file, position = np.concatenate([places[:, :2], damaged[:, :2]]).T
    in_order = np.lexsort((~is_damage, position, file))
    counted = np.empty(len(in_order), dtype=np.int64)
    counted[in_order] = np.cumsum(is_damage[in_order])
    result: np.ndarray = counted[: len(places)]
    return result


def _with_damage(runs: np.ndarray, damaged: np.ndarray) -> np.ndarray:
    """Returns the runs with the damaged ranges before each, and their bytes."""
    runs = runs.copy()
    runs["damages"] = places_before(np.stack([runs["file_base"], runs["position"]], axis=1), damaged)
    sizes = damaged[np.lexsort((damaged[:, 1], damaged[:, 0])), 2]
    runs["damaged_bytes"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)[runs["damages"]]
    return runs
