"""Offsets that no segment of a log has: a segment in the middle is missing, or has lost its bytes; or the log
begins later, or ends before, than the broker's checkpoint files say.

What is known of each segment decides: its row of the ledger, or the totals of a scan. The view
``lost_offsets`` knows every batch, and the causes of all ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.command.terminal import counted_noun
from pipelines.plan import ledger
from pipelines.source.checkpoints import Checkpoint
from pipelines.source.listing import ListedLog

# Causes, as the view lost_offsets names them
SEGMENT, START, END = "missing_segment", "missing_start", "missing_end"
# Of the ledger, what tells which offsets are missing
COLUMNS = (
    *("topic", "partition", "partition_dir", "segment", "file_base_offset", "length", "left_out"),
    *("log_start_offset", "first_offset", "end_offset", "records", "damaged", "ends_in_damage"),
)


@dataclass(frozen=True)
class Extent:
    """What a segment covers. first, last: offsets of its sound batches, None without any.

    is_damaged: whether it may hold more than that, in damage or because it was not decoded.
    """

    file_base_offset: int
    first: int | None
    last: int | None
    records: int
    is_damaged: bool = False
    ends_in_damage: bool = False

    @classmethod
    def unread(cls, file_base_offset: int) -> Extent:
        """Of a segment that was not decoded, or can't be: it may hold what seems to be missing."""
        return cls(file_base_offset, None, None, 0, is_damaged=True)

    @property
    def has_holes(self) -> bool:
        """Whether the log cleaner, and not damage, has removed records."""
        if self.is_damaged or self.last is None:
            return False
        first = self.file_base_offset
        return self.first != first or self.last - first + 1 > self.records


@dataclass(frozen=True)
class Missing:
    """Offsets that no segment has.

    empty: segments among them without a batch. cause: SEGMENT, START or END. is_certain: whether records
    were there. At the end that is so below the high watermark; above it, up to the recovery point, a new
    leader may have truncated them. At the start the broker may have deleted them since, or moved them to
    remote storage.
    """

    first: int
    last: int
    empty: int = 0
    cause: str = SEGMENT
    is_certain: bool = True

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def why(self) -> str:
        if self.cause == START:
            noted = f"the checkpoint's log start offset is {self.first:,}"
            return f"{noted}: the first segment is lost, deleted since, or in remote storage"
        if self.cause == END:
            noted = "high watermark" if self.is_certain else "recovery point"
            return (
                f"the checkpoint's {noted} is {self.last + 1:,}: the end of the log is lost, or the "
                "checkpoint file was copied later than the segment"
            )
        return (
            f"{counted_noun(self.empty, 'segment')} without a batch" if self.empty else "no segment has them"
        )


def missing_ranges(extents: Iterable[Extent]) -> list[Missing]:
    """The missing offsets between the segments of a log, by offset; none of a log that was compacted."""
    extents = sorted(extents, key=lambda one: one.file_base_offset)
    if any(one.has_holes for one in extents):
        return []
    found, empty = [], 0
    following = extents[0].file_base_offset if extents else 0
    in_damage = False
    for one in extents:
        in_damage |= one.last is None and one.is_damaged
        if one.last is None:
            empty += 1
            continue
        if one.file_base_offset > following and not in_damage:
            found.append(Missing(following, one.file_base_offset - 1, empty))
        following, empty, in_damage = max(following, one.last + 1), 0, one.ends_in_damage
    return found


class Edges(NamedTuple):
    """A log as its segments have it.

    start: base offset of the first one. end: the offset behind the last batch, or the base offset of the last
    segment if that is higher, as Kafka's log end offset is.
    """

    topic: str
    partition: int
    partition_dir: str
    start: int
    end: int


def at_edges(edges: Edges, checkpoint: Checkpoint | None) -> list[Missing]:
    """The offsets that a checkpoint names before the start and behind the end of a log."""
    if checkpoint is None:
        return []
    found = []
    noted = checkpoint.log_start_offset
    if noted is not None and noted < edges.start:
        found.append(Missing(noted, edges.start - 1, cause=START, is_certain=False))
    end = edges.end
    for offset, is_certain in ((checkpoint.high_watermark, True), (checkpoint.recovery_point, False)):
        if offset is not None and offset > end:
            found.append(Missing(end, offset - 1, cause=END, is_certain=is_certain))
            end = offset
    return found


def edges_of_ledger(rows: pa.Table, noted: Mapping[str, ListedLog]) -> list[Edges]:
    """The edges of logs in the ledger, of those that hold the end that was listed.

    A segment that was left out, or could not be decoded, leaves the end unknown.
    """
    last = pa.array([log.last_segment for log in noted.values()], pa.string())
    ends = rows.filter(pc.is_in(rows.column("segment"), last)).select(["partition_dir", "length", "left_out"])
    whole = [
        row["partition_dir"]
        for row in ends.to_pylist()
        if row["left_out"] >= 0 and row["length"] >= noted[row["partition_dir"]].last_length
    ]
    rows = rows.filter(pc.is_in(rows.column("partition_dir"), pa.array(whole, pa.string())))
    logs = rows.group_by(["topic", "partition", "partition_dir"]).aggregate(
        [(name, "min") for name in ("file_base_offset", "log_start_offset")]
        + [(name, "max") for name in ("file_base_offset", "end_offset")]
    )
    return [
        Edges(
            row["topic"],
            row["partition"],
            row["partition_dir"],
            min(row["file_base_offset_min"], row["log_start_offset_min"]),
            max(
                row["file_base_offset_max"],
                -1 if row["end_offset_max"] is None else row["end_offset_max"] + 1,
            ),
        )
        for row in logs.to_pylist()
    ]


def of_ledger(rows: pa.Table, listed: pa.Table) -> list[tuple[str, Missing]]:
    """The missing offsets between the segments of logs in the ledger, each with ``<topic>-<partition>``.

    rows: COLUMNS of the ledger. listed: LISTING_SCHEMA; what is there alone was not decoded.
    """
    with_gaps = _of_logs_with_gaps(rows)
    if not with_gaps.num_rows:
        return []
    folders = pc.unique(with_gaps.column("partition_dir"))
    listed = listed.filter(pc.is_in(listed.column("partition_dir"), folders))
    unread = unread_segments(listed, with_gaps.column("segment"))
    found = []
    for folder, log in groupby(ledger.rows(with_gaps), key=lambda row: row.partition_dir):
        segments = list(log)
        name = f"{segments[0].topic}-{segments[0].partition}"
        found += [(name, one) for one in missing_ranges([*map(_extent, segments), *unread[folder]])]
    return found


def unread_segments(listed: pa.Table, read: pa.Array | pa.ChunkedArray) -> dict[str, list[Extent]]:
    """Of each folder the segments that are there, and that were not asked for or can't be read.

    listed: LISTING_SCHEMA. read: string[n], the names of the others.
    """
    found: dict[str, list[Extent]] = defaultdict(list)
    others = listed.filter(pc.invert(pc.is_in(listed.column("segment"), read)))
    for row in others.select(["partition_dir", "file_base_offset"]).to_pylist():
        found[row["partition_dir"]].append(Extent.unread(row["file_base_offset"]))
    return found


def _of_logs_with_gaps(rows: pa.Table) -> pa.Table:
    """The rows of logs in which a segment begins behind the end of the one before, by log."""
    folders = rows.column("partition_dir")
    folder = pc.index_in(folders, value_set=pc.unique(folders)).to_numpy()
    bases = rows.column("file_base_offset")
    ends = pc.coalesce(rows.column("end_offset"), pc.subtract(bases, 1))
    order = np.lexsort((bases.to_numpy(), folder))
    in_order, base, end = folder[order], bases.to_numpy()[order], ends.to_numpy()[order]
    is_gap = (in_order[1:] == in_order[:-1]) & (base[1:] > end[:-1] + 1)
    return rows.filter(pa.array(np.isin(folder, in_order[1:][is_gap]))).sort_by("partition_dir")


def _extent(row: ledger.LedgerRow) -> Extent:
    damage = row.damaged > 0 or row.left_out != 0, row.ends_in_damage
    return Extent(row.file_base_offset, row.first_offset, row.end_offset, row.records, *damage)
