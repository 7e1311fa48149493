"""Finds the offsets that no segment of a log has, and says why.

A segment in the middle is missing, or has lost its bytes; a base offset is wrong; or the log begins later, or
ends before, than the broker's checkpoint files say. The rules are
``udfs.batches.offset_findings``, which knows the causes of all ranges, and ``account``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.listing.witnesses import ListedLog
from kafka_log_lake.pipelines.rules import files
from kafka_log_lake.pipelines.rules.files import files_of
from kafka_log_lake.udfs.batches.account import (
    ASIDE,
    REMOTE,
    SEGMENT,
    WRONG_BASE,
    Unseen,
    Witnesses,
    after_end,
    before_start,
)
from kafka_log_lake.udfs.batches.offset_findings import CAUSES
from kafka_log_lake.udfs.compute import pc

# Of the ledger, what decides
COLUMNS = (
    *files.COLUMNS,
    *("length", "batches", "decoded_bytes", "tail", "tail_bytes"),
)
_NOT_DAMAGED = tuple(map(CAUSES.index, (SEGMENT, WRONG_BASE)))


def lost_texts(missing: Iterable[Unseen]) -> list[str]:
    """Says in words for a verdict how many offsets are missing, or have records under wrong offsets."""
    gone, misplaced = 0, 0
    for range_ in missing:
        gone += range_.count * (range_.is_lost and range_.cause != WRONG_BASE)
        misplaced += range_.count * (range_.cause == WRONG_BASE)
    under = f"at most {counted_noun(misplaced, 'offset')} whose records are under wrong offsets"
    return [f"{counted_noun(gone, 'offset')} in no segment" if gone else "", under if misplaced else ""]


def elsewhere_texts(missing: Iterable[Unseen]) -> list[str]:
    """Says in words for a verdict how many unread offsets lie elsewhere: in remote storage, or set aside."""
    counts: Counter[str] = Counter()
    for range_ in missing:
        counts[range_.state] += range_.count
    words = {
        REMOTE: "in remote storage alone",
        ASIDE: "in files or folders that the broker left behind (--include-deleted)",
    }
    return [
        f"{counted_noun(counts[state], 'offset')} {text}" for state, text in words.items() if counts[state]
    ]


def missing_ranges(holes: np.ndarray, empty: Collection[int]) -> list[Unseen]:
    """Returns the missing offsets of a log, by offset; what is damaged is not among them.

    holes: HOLE. empty: base offsets of the files that were read, and have no batch.
    """
    missing = []
    for hole in holes[np.isin(holes["lost"], _NOT_DAMAGED) & (holes["first"] >= 0)]:
        first, base = int(hole["first"]), int(hole["file_base"])
        next_ = None if hole["next"] < 0 else int(hole["next"])
        missing.append(missing_range(CAUSES[hole["lost"]], first, next_, base, empty))
    return missing


def missing_range(
    cause: str, first: int, next_: int | None, file_base: int, empty: Collection[int]
) -> Unseen:
    """Returns a range of missing offsets. next_: base offset of the batch after it, in the file file_base."""
    last = None if next_ is None else next_ - 1
    without = [base for base in empty if first <= base < file_base] if cause == SEGMENT else []
    return Unseen(first, last, len(without), cause=cause, seek_to=next_)


class Edges(NamedTuple):
    """The start and the end of a log, by its segments.

    start: base offset of the first one. end: the offset after the last batch, or the base offset of the last
    segment if that is higher, as Kafka's log end offset is.
    """

    topic: str
    partition: int
    partition_dir: str
    start: int
    end: int


def at_edges(edges: Edges, witnesses: Witnesses) -> list[Unseen]:
    """Returns the offsets before the start and after the end of a log that witnesses name."""
    return [*before_start(edges.start, witnesses), *after_end(edges.end, witnesses)]


def edges_of_ledger(rows: pa.Table, noted: Mapping[str, ListedLog], ends: Mapping[str, int]) -> list[Edges]:
    """Returns the edges of those logs in the ledger that hold the end that was listed.

    A segment that was left out, or could not be decoded, leaves the end unknown. ends: partition_dir -> the
    end of a log, where ``offset_findings`` says that it is not where the ledger has it.
    """
    last = pa.array([log.last_segment for log in noted.values()], pa.string())
    listed = rows.filter(pc.is_in(rows.column("segment"), last)).select(
        ["partition_dir", "length", "left_out"]
    )
    whole = [
        row["partition_dir"]
        for row in listed.to_pylist()
        if row["left_out"] >= 0 and row["length"] >= noted[row["partition_dir"]].last_length
    ]
    files = files_of(rows.filter(pc.is_in(rows.column("partition_dir"), pa.array(whole, pa.string()))))
    begins = np.flatnonzero(np.diff(files.log, prepend=-1))
    if not len(begins):
        return []
    starts = np.minimum(files.base, files.rows.column("log_start_offset").to_numpy())
    reached = np.maximum(files.base, files.rows.column("end_offset").fill_null(-1).to_numpy() + 1)
    edges = zip(
        files.logs.to_pylist(),
        np.minimum.reduceat(starts, begins).tolist(),
        np.maximum.reduceat(reached, begins).tolist(),
        strict=True,
    )
    return [Edges(**log, start=start, end=ends.get(log["partition_dir"], end)) for log, start, end in edges]


def of_findings(rows: pa.Table, findings: pa.Table) -> list[tuple[str, Unseen]]:
    """Returns the missing offsets between segments, each with ``<topic>-<partition>``.

    rows: COLUMNS of the ledger. findings: rows of the table ``offset_findings``.
    """
    kinds = pa.array([SEGMENT, WRONG_BASE])
    lost = findings.filter(pc.is_in(findings.column("lost_cause"), kinds))
    lost = lost.filter(lost.column("first_offset").is_valid()).sort_by(
        [(name, "ascending") for name in ("topic", "partition", "partition_dir", "first_offset")]
    )
    folders = pc.unique(lost.column("partition_dir"))
    without = rows.filter(
        pc.and_(pc.equal(rows.column("batches"), 0), pc.is_in(rows.column("partition_dir"), folders))
    )
    empty: dict[str, list[int]] = defaultdict(list)
    for row in without.select(["partition_dir", "file_base_offset"]).to_pylist():
        empty[row["partition_dir"]].append(row["file_base_offset"])
    return [
        (
            f"{row['topic']}-{row['partition']}",
            missing_range(
                row["lost_cause"],
                row["first_offset"],
                row["next_offset"],
                row["file_base_offset"],
                empty[row["partition_dir"]],
            ),
        )
        for row in lost.to_pylist()
    ]


def unread_segments(listed: pa.Table, read: pa.Array | pa.ChunkedArray) -> dict[str, list[int]]:
    """Returns, by folder, the base offsets of segments that are there and were not decoded, or can't be read.

    listed: LISTING_SCHEMA. read: string[n], the names of the others.
    """
    by_folder: dict[str, list[int]] = defaultdict(list)
    others = listed.filter(pc.invert(pc.is_in(listed.column("segment"), read)))
    for row in others.select(["partition_dir", "file_base_offset"]).to_pylist():
        by_folder[row["partition_dir"]].append(row["file_base_offset"])
    return by_folder
