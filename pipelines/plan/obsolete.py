"""Decides which rows go from the tables because their segments are gone.

Retention deletes from the front of a log alone; every other file that is gone was merged, emptied, truncated,
moved or lost. The policy of each case, and why: docs/operations.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_lines, first_names
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow, Partition
from kafka_log_lake.udfs.storage.byte_source import path_of_uri


def gone_segments(missing: pa.Table, listing: Listing, known: pa.Table) -> Iterator[Gone]:
    """Yields known segments that are gone from their folder while an earlier one or another topic is there.

    missing: as ``missing_from`` gives them.

    Retention deletes from the front of a log alone. So these were merged into an earlier one or emptied by
    the log cleaner, truncated by a new leader, or lost.
    """
    earlier = pc.greater(missing.column("file_base_offset"), missing.column("start"))
    another = pc.not_equal(missing.column("topic_id"), missing.column("topic_id_now"))
    # bytes that were landed before the segment was decoded do not tell which topic is there now
    is_later = pc.greater(missing.column("landed_at"), missing.column("decoded_at"))
    recreated = pc.and_(pc.fill_null(another, False), pc.fill_null(is_later, True))
    leaving = pc.or_(earlier, recreated)
    rows = _rows(missing.filter(leaving))
    emptied = _emptied(rows, listing, known)
    for row, flag in zip(rows, recreated.filter(leaving).to_pylist(), strict=True):
        yield Gone(row, flag, row.segment in emptied)


def rewritten(listing: Listing, known: pa.Table) -> list[Gone]:
    """Returns every known segment that is not listed, wherever it was."""
    listed = pc.is_in(known.column("segment"), listing.segments.column("segment").combine_chunks())
    rows = ledger.rows(known.filter(pc.invert(listed)))
    return [Gone(row, recreated=False, rewritten=True) for row in rows]


def overlapping(missing: pa.Table) -> Iterator[tuple[LedgerRow, int]]:
    """Yields known segments that are gone from a folder's front and reach past its start, with that start.

    missing: as ``missing_from`` returns them.
    """
    start = missing.column("start")
    before = pc.less(missing.column("file_base_offset"), start)
    both = pc.and_(before, pc.fill_null(pc.greater_equal(missing.column("end_offset"), start), False))
    yield from zip(_rows(missing.filter(both)), start.filter(both).to_pylist(), strict=True)


def missing_from(listing: Listing, known: pa.Table, places: np.ndarray) -> pa.Table:
    """Returns the known segments that are missing from folders whose files were all listed.

    places: int64[n], rows of the ledger that are known to be listed, or -1.
    Columns of the ledger, and of their folder now: start (lowest base offset), topic_id_now, landed_at.
    topic_id: where the row has none, that of another row of its folder.
    """
    folders = listing.segments.group_by("partition_dir").aggregate(
        [("file_base_offset", "min"), ("topic_id", "max"), ("landed_at", "max")]
    )
    partial = pa.array(sorted(listing.partial), pa.string())
    folders = folders.filter(pc.invert(pc.is_in(folders.column("partition_dir"), partial)))
    whole = folders.column("partition_dir").combine_chunks()
    may_miss = pc.is_in(known.column("partition_dir"), whole).to_numpy()
    may_miss[places[places >= 0]] = False
    missing = known.filter(pa.array(may_miss))
    if missing.num_rows:  # else the names of all listed segments need not be compared again
        here = pc.is_in(missing.column("segment"), listing.segments.column("segment").combine_chunks())
        missing = missing.filter(pc.invert(here))
    place = pc.index_in(missing.column("partition_dir"), whole)
    now = {"start": "file_base_offset_min", "topic_id_now": "topic_id_max", "landed_at": "landed_at_max"}
    for name, column in now.items():
        missing = missing.append_column(name, folders.column(column).take(place))
    return ledger.with_topic_ids(missing, known) if missing.num_rows else missing


def _rows(missing: pa.Table) -> list[LedgerRow]:
    return list(ledger.rows(missing.select(ledger.NAMES)))


def _emptied(gone: list[LedgerRow], listing: Listing, known: pa.Table) -> set[str]:
    """Returns those gone segments that the log cleaner emptied, so that the one before has its old bytes.

    The cleaner gives what it makes of a group of segments the modification time of the last of them, in
    milliseconds (``LogCleaner.cleanSegments``). That one may have come and gone since the last run.
    Objects of a store or a tier have the time of their upload, which says nothing of the cleaner.
    """
    if not gone:
        return set()
    folders = pa.array(sorted({row.partition_dir for row in gone}), pa.string())
    listed = listing.segments.filter(pc.is_in(listing.segments.column("partition_dir"), folders))
    before = known.filter(pc.is_in(known.column("segment"), listed.column("segment").combine_chunks()))
    was = dict(zip(before.column("segment").to_pylist(), before.column("modified").to_pylist(), strict=True))
    there: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    names = ["partition_dir", "file_base_offset", "modified", "segment", "file"]
    for file in listed.select(names).to_pylist():
        uri = file["file"] or file["segment"]
        is_on_disk = path_of_uri(uri) is not None and uri.startswith(f"{file['partition_dir']}/")
        changed = is_on_disk and was.get(file["segment"], file["modified"]) != file["modified"]
        there[file["partition_dir"]].append((file["file_base_offset"], file["modified"], changed))
    emptied = set()
    for row in gone:
        segments = there[row.partition_dir]  # by base offset, as the listing is
        at = bisect_left(segments, (row.file_base_offset,))
        if at == 0 or not segments[at - 1][2]:
            continue
        modified, following = segments[at - 1][1], segments[at : at + 1]
        is_cleaners = modified % 1000 == 0 and modified % 1_000_000 != 0  # few file systems round to that
        is_between = row.modified <= modified and all(modified <= later[1] for later in following)
        if row.modified // 1000 == modified // 1000 or (is_cleaners and is_between):
            emptied.add(row.segment)
    return emptied


def twice_warnings(rows: Iterable[tuple[LedgerRow, int]]) -> list[str]:
    """Returns warnings of offsets that are in the tables twice.

    rows: of files that are gone, each with the offset from which on another file holds its offsets.
    """
    lines = [
        f"{row.topic}-{row.partition}: offsets {start:,} to {row.reach:,} are in the tables twice: "
        f"the rows of {row.segment}, which is gone, stay, as no other file has its offsets before {start:,}"
        for row, start in rows
    ]
    return first_lines(lines, "segments with offsets that are in the tables twice")


class Copies:
    """The folders of each topic-partition: replicas, disks of a broker, other snapshots.

    kept: the folders to decode. left_out: those that ``--one-copy`` leaves out. leaving: rows of folders that
    are left out, and of folders that are gone; these stay where no other folder holds their offsets.
    made_again: segments among them whose topic was deleted, and made again in another folder. warnings: what
    a person should know.
    """

    def __init__(
        self, wanted: pa.Table, known: pa.Table, is_gone: Callable[[str], bool], one_copy: bool
    ) -> None:
        self.leaving: list[LedgerRow] = []
        self.left_out: set[str] = set()
        self.warnings: list[str] = []
        listed = _folders(wanted)
        others = _others(listed, known)
        self.kept = {folder for folders in listed.values() for folder in folders}
        topic_ids = _topic_ids(wanted)
        several = []
        for partition in sorted(
            listed.keys() & (others.keys() | {p for p, f in listed.items() if len(f) > 1})
        ):
            known_folders = others.get(partition, {})
            gone = {folder for folder in known_folders if is_gone(folder)}
            there = listed[partition] | {f: r for f, r in known_folders.items() if f not in gone}
            leaving = set(gone)
            if len(there) > 1 and one_copy:
                best = max(there, key=lambda folder: (*there[folder], [-ord(c) for c in folder]))
                self.left_out |= there.keys() - {best}
                self.kept -= self.left_out
                leaving |= self.left_out
            elif len(there) > 1:
                several.append(f"{partition[0]}-{partition[1]} ({len(there)})")
            if leaving:
                mask = pc.is_in(known.column("partition_dir"), pa.array(sorted(leaving), pa.string()))
                self.leaving += ledger.rows(known.filter(mask))
        self.made_again = {
            row.segment
            for row in self.leaving
            if row.partition_dir not in self.left_out and _is_made_again(row, topic_ids[row.log[:2]])
        }
        if several:
            self.warnings.append(
                "these partitions are in several folders, and all copies are kept (--one-copy keeps one): "
                f"{first_names(several, 5)}"
            )


def _topic_ids(wanted: pa.Table) -> dict[Partition, dict[str | None, int | None]]:
    """Returns by topic-partition its topic ids, each with the time when bytes of it were landed last."""
    ids: dict[Partition, dict[str | None, int | None]] = defaultdict(dict)
    grouped = wanted.group_by(["topic", "partition", "topic_id"]).aggregate([("landed_at", "max")])
    for row in grouped.to_pylist():
        ids[row["topic"], row["partition"]][row["topic_id"]] = row["landed_at_max"]
    return ids


def _is_made_again(row: LedgerRow, topic_ids: dict[str | None, int | None]) -> bool:
    """Says whether a topic-partition is another topic's now, by what was listed or landed since."""
    is_later = any(landed_at is None or landed_at > row.decoded_at for landed_at in topic_ids.values())
    return is_later and row.topic_id is not None and not topic_ids.keys() & {None, row.topic_id}


_Extent = tuple[int, int, int]  # highest base offset, the length of that segment, bytes in all


def _folders(table: pa.Table) -> dict[Partition, dict[str, _Extent]]:
    """Returns by topic-partition its folders, each with how far it reaches."""
    last = table.select(["topic", "partition", "partition_dir", "file_base_offset", "length"])
    last = last.sort_by([("partition_dir", "ascending"), ("file_base_offset", "ascending")])
    grouped = last.group_by(["topic", "partition", "partition_dir"], use_threads=False).aggregate(
        [("file_base_offset", "last"), ("length", "last"), ("length", "sum")]
    )
    extents: dict[Partition, dict[str, _Extent]] = defaultdict(dict)
    for row in grouped.to_pylist():
        reach = (row["file_base_offset_last"], row["length_last"], row["length_sum"])
        extents[row["topic"], row["partition"]][row["partition_dir"]] = reach
    return extents


def _others(
    listed: dict[Partition, dict[str, _Extent]], known: pa.Table
) -> dict[Partition, dict[str, _Extent]]:
    """Returns the folders that the ledger knows of the listed topic-partitions, and that are not listed."""
    folders = pa.array([folder for of in listed.values() for folder in of], pa.string())
    elsewhere = known.filter(pc.invert(pc.is_in(known.column("partition_dir"), folders)))
    return {p: of for p, of in _folders(elsewhere).items() if p in listed}


class Obsolete:
    """Ledger rows whose segments' rows go, each with the run that puts others in their place.

    gone: segments that are gone from a folder in which an earlier one is there, or another topic of the name.
    copies: folders that are gone or left out. stay: ledger rows of segments that no run of this job touches.
    """

    def __init__(self, gone: list[Gone], copies: Copies, stay: Iterable[LedgerRow]) -> None:
        self._gone = {segment.row.segment: segment for segment in gone}
        self._leaving = {row.segment: row for row in copies.leaving}
        self._left_out, self._made_again = copies.left_out, copies.made_again
        self._committed = _Covered(stay)
        self._cut: list[LedgerRow] = []
        self._reported: Counter[tuple[str, int, str]] = Counter()

    def with_run(self, put: list[LedgerRow], cut: list[LedgerRow]) -> list[LedgerRow]:
        """Returns the ledger rows that go with a run that puts these rows.

        cut: those that were rewritten and reach no further than before. Such a segment was truncated, or
        cleaned: what came after it and is gone went with it.
        """
        covered, lowest_cut = _Covered(put), _lowest(cut)
        folders = {row.partition_dir for row in put}
        leaving = [
            segment.row
            for segment in self._gone.values()
            if segment.row.partition_dir in folders and segment.has_left(covered, lowest_cut)
        ]
        return leaving + [row for row in self._leaving.values() if self._is_held(row) or covered.holds(row)]

    def rest(self) -> list[LedgerRow]:
        """Returns the ledger rows that go though no run of this job puts others in their place."""
        lowest, gone = _lowest(self._cut), self._gone.values()
        left = [
            segment.row for segment in gone if segment.emptied or segment.has_left(self._committed, lowest)
        ]
        leaving = self._leaving.values()
        return left + [r for r in leaving if r.partition_dir in self._left_out or self._is_held(r)]

    def done(self, put: list[LedgerRow], cut: list[LedgerRow], drop: list[LedgerRow]) -> None:
        """Notes what a run has committed."""
        self._cut += cut
        self._committed.add(put)
        for row in drop:
            self._reported[row.topic, row.partition, self._why(row)] += 1
            self._gone.pop(row.segment, None)
            self._leaving.pop(row.segment, None)

    def warnings(self) -> list[str]:
        """Returns what a person should know of rows that went, or stay without a file.

        Merges are not reported.
        """
        removed = [
            f"{topic}-{partition}: the rows of {counted_noun(count, 'segment')} were removed: {why}"
            for (topic, partition, why), count in sorted(self._reported.items())
            if why
        ]
        missing = Counter(segment.row.log for segment in self._gone.values())
        stay = [
            f"{topic}-{partition}: {folder} no longer has the files of {counted_noun(count, 'segment')}, "
            "but still has that of an earlier one: the rows stay"
            for (topic, partition, folder), count in sorted(missing.items())
        ]
        starts = [(row, self._committed.next_start(row)) for row in self._leaving.values()]
        return [
            *first_lines(removed, "partitions with segments whose rows were removed"),
            *twice_warnings([(row, at) for row, at in starts if at is not None and at <= row.reach]),
            *first_lines(stay, "partitions with segments whose files are gone: the rows stay"),
        ]

    def _is_held(self, row: LedgerRow) -> bool:
        """Says whether another folder holds the segment's first offset, or another topic of its name."""
        return row.segment in self._made_again or self._committed.holds(row)

    def _why(self, row: LedgerRow) -> str:
        """Returns the reason why the rows of a segment go; "" for a merge, which changes no record."""
        if row.segment in self._leaving:
            if row.partition_dir in self._left_out:
                return f"--one-copy takes another copy than {row.partition_dir}"
            if row.segment not in self._made_again:
                return f"{row.partition_dir} is gone, and another folder holds their offsets"
        gone = self._gone.get(row.segment)
        if row.segment in self._made_again or (gone is not None and gone.recreated):
            return f"the topic was deleted and made again (topic id {row.topic_id} before)"
        if gone is not None and gone.rewritten:
            return "the true log does not have them any more"
        emptied = gone is not None and gone.emptied
        if emptied or self._committed.has_merged(row):
            return ""
        return f"they are gone from {row.partition_dir}, and the segment before them was cut or cleaned"


@dataclass(frozen=True)
class Gone:
    """A known segment without a file.

    recreated: its topic was deleted, and made again under its name. emptied: the log cleaner left none of its
    records. rewritten: the sources were written anew without it.
    """

    row: LedgerRow
    recreated: bool
    emptied: bool = False
    rewritten: bool = False

    def has_left(self, covered: _Covered, lowest_cut: Mapping[str, int]) -> bool:
        """Says whether its rows go: segments that cover it are there, or one before it was cut."""
        is_behind = lowest_cut.get(self.row.partition_dir, 1 << 63) < self.row.file_base_offset
        return self.recreated or self.rewritten or covered.has_merged(self.row) or is_behind


def _lowest(rows: Iterable[LedgerRow]) -> dict[str, int]:
    """Returns by folder the lowest base offset of these segments."""
    lowest: dict[str, int] = {}
    for row in rows:
        known = lowest.setdefault(row.partition_dir, row.file_base_offset)
        lowest[row.partition_dir] = min(row.file_base_offset, known)
    return lowest


class _Covered:
    """The offsets that segments cover, by folder and by topic-partition."""

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        self._reaches: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        self._sorted: dict[Hashable, tuple[list[int], list[int]]] = {}
        self.add(rows)

    def add(self, rows: Iterable[LedgerRow]) -> None:
        for row in rows:
            for key in (row.partition_dir, row.log[:2]):
                self._reaches[key].append((row.file_base_offset, row.reach))
                self._sorted.pop(key, None)

    def has_merged(self, row: LedgerRow) -> bool:
        """Says whether a row was merged: an earlier segment of its folder reaches past its base offset."""
        starts, reaches = self._of(row.partition_dir)
        place = bisect_left(starts, row.file_base_offset)
        return place > 0 and reaches[place - 1] >= row.file_base_offset

    def holds(self, row: LedgerRow) -> bool:
        """Says whether a segment of its topic-partition, in any folder, covers its first offset."""
        starts, reaches = self._of(row.log[:2])
        place = bisect_right(starts, row.file_base_offset)
        return place > 0 and reaches[place - 1] >= row.file_base_offset

    def next_start(self, row: LedgerRow) -> int | None:
        """Returns the lowest base offset above its own in its topic-partition; None if there is none."""
        starts, _ = self._of(row.log[:2])
        place = bisect_right(starts, row.file_base_offset)
        return starts[place] if place < len(starts) else None

    def _of(self, key: Hashable) -> tuple[list[int], list[int]]:
        """Returns base offsets in order, and how far the segments up to each of them reach."""
        if key not in self._sorted:
            listed = sorted(self._reaches.get(key, ()))
            starts = [start for start, _ in listed]
            self._sorted[key] = starts, list(accumulate((reach for _, reach in listed), max))
        return self._sorted[key]
