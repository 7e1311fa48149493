"""Finds the offsets that no segment of a log has, and says why.

A segment in the middle is missing, or has lost its bytes; a base offset is wrong; or the log begins later, or
ends before, than the broker's checkpoint files say. The rules are those of the view ``lost_offsets``, which
knows the causes of all ranges.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.listing.witnesses import ListedLog
from kafka_log_lake.pipelines.rules import files, offsets
from kafka_log_lake.pipelines.rules.files import Files, files_of
from kafka_log_lake.udfs.batches.account import (
    ASIDE,
    REMOTE,
    WRONG_BASE,
    Unseen,
    Witnesses,
    after_end,
    before_start,
)
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, Order
from kafka_log_lake.udfs.compute import pc

# Of the ledger, what decides
COLUMNS = (
    *files.COLUMNS,
    *("length", "first_offset", "records", "batches", "damaged", "offset_regressions", "decoded_bytes"),
    *("tail", "tail_bytes"),
)
# Gives offsets.BATCH_COLUMNS of all sound batches of files, and offsets.PLACE_COLUMNS of their damaged ranges
Read = Callable[[Files], tuple[pa.Table, pa.Table]]


def lost_texts(missing: Iterable[Unseen]) -> list[str]:
    """Says in words for a verdict how many offsets are missing, or have records under wrong offsets."""
    gone, misplaced = 0, 0
    for one in missing:
        gone += one.count * (one.is_lost and one.cause != WRONG_BASE)
        misplaced += one.count * (one.cause == WRONG_BASE)
    under = f"at most {counted_noun(misplaced, 'offset')} whose records are under wrong offsets"
    return [f"{counted_noun(gone, 'offset')} in no segment" if gone else "", under if misplaced else ""]


def elsewhere_texts(missing: Iterable[Unseen]) -> list[str]:
    """Says in words for a verdict how many unread offsets lie elsewhere: in remote storage, or set aside."""
    counts: Counter[str] = Counter()
    for one in missing:
        counts[one.state] += one.count
    words = {
        REMOTE: "in remote storage alone",
        ASIDE: "in files or folders that the broker left behind (--include-deleted)",
    }
    return [
        f"{counted_noun(counts[state], 'offset')} {text}" for state, text in words.items() if counts[state]
    ]


def missing_ranges(
    found: Order, empty: Collection[int], unread: Collection[int], retentions: Mapping[int, int]
) -> list[Unseen]:
    """Returns the missing offsets of a log, by offset; what is damaged is not among them.

    empty: base offsets of the files that were read, and have no batch. unread: of those that are there, and
    were not selected or can't be read; what lies in front of them is not judged. retentions: of each file,
    as the view ``log_stretches`` has it; {} where nothing is known of earlier runs.
    """
    missing = []
    for hole in found.holes:
        if hole.damages or hole.goes_back or hole.first is None or hole.file_base in unread:
            continue
        last = None if hole.next is None else hole.next - 1
        if hole.misplaced:
            missing.append(Unseen(hole.first, last, cause=WRONG_BASE, seek_to=hole.next))
            continue
        assert hole.file_base is not None, "only at the end of a log"
        is_deleted = hole.file_before is not None and (
            retentions.get(hole.file_base, 0) > retentions.get(hole.file_before, 0)
        )
        if hole.first < hole.file_base and not found.is_compacted and not is_deleted:
            without = [one for one in empty if hole.first <= one < hole.file_base]
            missing.append(Unseen(hole.first, last, len(without), seek_to=hole.next))
    return missing


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
    end of a log, where its batches tell it better than the ledger.
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
    found = files_of(rows.filter(pc.is_in(rows.column("partition_dir"), pa.array(whole, pa.string()))))
    begins = np.flatnonzero(np.diff(found.log, prepend=-1))
    if not len(begins):
        return []
    starts = np.minimum(found.base, found.rows.column("log_start_offset").to_numpy())
    reached = np.maximum(found.base, _ends(found) + 1)
    edges = zip(
        found.logs.to_pylist(),
        np.minimum.reduceat(starts, begins).tolist(),
        np.maximum.reduceat(reached, begins).tolist(),
        strict=True,
    )
    return [Edges(**log, start=start, end=ends.get(log["partition_dir"], end)) for log, start, end in edges]


def _ends(found: Files) -> np.ndarray:
    """Returns int64[n]: the last offset of each file, below the next file's name.

    Base offset - 1 without a batch.
    """
    end = found.rows.column("end_offset").fill_null(-1).to_numpy()
    result: np.ndarray = np.where((end < found.limit) & (end >= found.base), end, found.base - 1)
    return result


def of_ledger(
    rows: pa.Table, listed: pa.Table, read: Read
) -> tuple[list[tuple[str, Unseen]], dict[str, int]]:
    """Finds the missing offsets between segments of logs in the ledger, each with ``<topic>-<partition>``.

    rows: COLUMNS of the ledger. listed: LISTING_SCHEMA; what is there alone was not decoded. Most logs
    show by their rows that nothing is missing; of the others the batches are read. The second value:
    partition_dir -> the offset after the last batch of each of these logs.
    """
    suspects = _suspects(files_of(rows))
    if not len(suspects.rows):
        return [], {}
    folders = suspects.logs.column("partition_dir")
    here = listed.filter(pc.is_in(listed.column("partition_dir"), value_set=folders.combine_chunks()))
    unread = unread_segments(here, suspects.rows.column("segment"))
    found, ends = [], {}
    for number, one in offsets.orders_of(suspects, *read(suspects), unread):
        topic, partition, folder = (value.as_py() for value in (c[number] for c in suspects.logs.columns))
        of_log = np.flatnonzero(suspects.log == number)
        is_empty = pc.equal(suspects.rows.column("batches"), 0).to_numpy()[of_log]
        retentions = dict(
            zip(suspects.base[of_log].tolist(), suspects.retentions[of_log].tolist(), strict=True)
        )
        empty = suspects.base[of_log][is_empty].tolist()
        found += [
            (f"{topic}-{partition}", missing)
            for missing in missing_ranges(one, empty, unread[folder], retentions)
        ]
        if one.end is not None:
            ends[folder] = max(one.end, int(suspects.base[of_log].max()))
    return found, ends


def unread_segments(listed: pa.Table, read: pa.Array | pa.ChunkedArray) -> dict[str, list[int]]:
    """Returns, by folder, the base offsets of segments that are there and were not decoded, or can't be read.

    listed: LISTING_SCHEMA. read: string[n], the names of the others.
    """
    found: dict[str, list[int]] = defaultdict(list)
    others = listed.filter(pc.invert(pc.is_in(listed.column("segment"), read)))
    for row in others.select(["partition_dir", "file_base_offset"]).to_pylist():
        found[row["partition_dir"]].append(row["file_base_offset"])
    return found


def _suspects(found: Files) -> Files:
    """Returns the files of logs in which something may be missing, by the ledger alone.

    A segment begins after the end of the one before, unless another shows that the log cleaner ran; or a
    base offset may be wrong: offsets go back, or leave what the names of the files allow.
    """
    rows = found.rows
    end, first = (rows.column(name).fill_null(-1).to_numpy() for name in ("end_offset", "first_offset"))
    has_end, has_first = (rows.column(name).is_valid().to_numpy() for name in ("end_offset", "first_offset"))
    is_wrong = (rows.column("offset_regressions").fill_null(0).to_numpy() > 0) | (
        (has_end & ((end < found.base) | (end >= found.limit))) | (has_first & (first < found.base))
    )
    is_gap = np.zeros(len(rows), dtype=bool)
    reached = np.where(has_end, end, found.base - 1)
    is_gap[1:] = (found.log[1:] == found.log[:-1]) & (found.base[1:] - 1 > reached[:-1])
    is_whole = (rows.column("damaged").to_numpy() == 0) & (
        rows.column("left_out").fill_null(0).to_numpy() == 0
    )
    holds = rows.column("records").to_numpy()
    is_cleaned = (
        has_end & has_first & is_whole & ~is_wrong & (found.limit != NO_LIMIT) & (reached - first >= holds)
    )
    logs = len(found.logs)
    wrong, gaps, cleaned = (
        np.bincount(found.log[mask], minlength=logs) > 0 for mask in (is_wrong, is_gap, is_cleaned)
    )
    kept = (wrong | (gaps & ~cleaned))[found.log]
    return files_of(rows.filter(pa.array(kept)))
