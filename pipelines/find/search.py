"""Searches the segments of all logs: yields matches as they are found, then notes what was not searched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.find.conditions import OneOf
from kafka_log_lake.pipelines.find.context import Context
from kafka_log_lake.pipelines.find.logs import (
    LakeLog,
    SegmentLog,
    Workers,
    begin_with,
    home_first,
    logs_of,
    tasks_of,
    workers,
)
from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.find.searching import Searching
from kafka_log_lake.pipelines.find.slice_search import (
    DECIDING,
    NO_TRANSACTIONS,
    LastOffsets,
    ReadHeaders,
    SliceResult,
    SliceSearch,
    Transactions,
    distinct_keys,
)
from kafka_log_lake.pipelines.find.unsearched import (
    Judged,
    Scans,
    Unsearched,
    covered_by,
    damages_in,
    has_gap,
    has_wrong_base,
    held_text,
    judged,
    not_covered,
    not_listed,
    not_selected,
    unsearched_asides,
    unseen_at_edges,
    unseen_within,
)
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import left_state
from kafka_log_lake.pipelines.listing.witnesses import ListedLog
from kafka_log_lake.pipelines.plan.slices import Segment, Slice
from kafka_log_lake.pipelines.tasks.scan_segments import ALONE_BYTES
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange, SliceScan
from kafka_log_lake.udfs.batches.account import NO_WITNESSES, WRONG_BASE, Unseen, Witnesses
from kafka_log_lake.udfs.batches.committed import Outcomes
from kafka_log_lake.udfs.batches.log_start import LogStart
from kafka_log_lake.udfs.batches.transactions import OPEN, of_one_log

if TYPE_CHECKING:
    from kafka_log_lake.udfs.values.schemas.registry import Registry

_NO_MARKER = "a transaction has no marker in this file, so that its outcome is not known"


@dataclass(kw_only=True)
class LogSearch(Searching):
    """A search over the segments of all logs.

    roots: local folders that the sources name. without: says of each log without a segment to search why.
    """

    listing: Listing
    topics: TopicFilter = field(default_factory=TopicFilter)
    roots: Sequence[str] = ()
    without: list[str] = field(default_factory=list)
    processes: int
    max_batch_uncompressed: int

    def __post_init__(self) -> None:
        self._headers: dict[str, tuple[Transactions, dict[Segment, list[SliceScan]]]] = {}
        self._last_offsets: dict[str, LastOffsets] = {}
        self._done: set[str] = set()
        # folder -> the offsets that were searched in its .log.deleted files; and what else of it was not
        self._covered: dict[str, list[tuple[int, int]]] = {}
        self._held: list[tuple[SegmentLog | LakeLog, Unseen]] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields matches, with the columns of ``schema``; none if they are only counted."""
        every = logs_of(self.listing, self.request)
        self._covered = {_folder_of(log): [] for log in every if left_state(log.partition_dir) == "deleted"}
        logs, self.passed_over = home_first(every, self.request)
        self.unsearched += not_listed(self.listing, self.request, self.roots, self.topics)
        for log in every:
            if not log.segments and self.request.takes(log.partition):
                self._note_unseen(log, self._others(log, {}, {}, is_past=True))
                self.unsearched += unsearched_asides(log.name, self._witnesses(log), self.request)
                self.without.append(f"{log.name} begins at offset {log.all_segments[0].file_base_offset}")
        size = sum(segment.length for log in logs for segment in log.segments)
        with workers(1 if size < ALONE_BYTES else self.processes) as pool:
            for log, results in self._by_log(pool, logs):
                yield from self._of_log(pool, log, results)
                if self._is_enough:
                    break
        for of_log, covered in self._held:
            super()._note_unseen(of_log, not_covered(covered, self._covered[of_log.partition_dir]))

    def _note_unseen(self, log: SegmentLog | LakeLog, missing: Iterable[Unseen]) -> None:
        """Notes unsearched offsets; for a log with ``.log.deleted`` files later, without what those hold."""
        if log.partition_dir in self._covered:
            self._held += [(log, range_) for range_ in missing]
        else:
            super()._note_unseen(log, missing)

    def _others(
        self,
        log: SegmentLog,
        scans: Scans,
        passed: Mapping[Segment, int],
        is_past: bool,
        together: Judged | None = None,
    ) -> list[Unseen]:
        """Returns offsets not searched at a log's edges, in zeros, and in segments that no source names."""
        edges = unseen_at_edges(log.all_segments, self._witnesses(log), scans, passed, self.request, is_past)
        return [*edges, *unseen_within(scans, passed, together), *not_selected(log.others, self.request)]

    def _witnesses(self, log: SegmentLog) -> Witnesses:
        """Returns what files next to a log's segments say of it; NO_WITNESSES if it is searched in part."""
        noted = self._noted.get(log.partition_dir)
        return NO_WITNESSES if noted is None else noted.witnesses

    @cached_property
    def _noted(self) -> dict[str, ListedLog]:
        return self.listing.noted_logs()

    @cached_property
    def _log_starts(self) -> dict[str, LogStart]:
        return self.listing.log_starts() if self.request.committed else {}

    def schemas(self) -> Registry:
        """Returns the schemas among the segments, or next to their folders."""
        from kafka_log_lake.udfs.values.typed.records import (  # decoders, which few searches need
            registry_of,
            schema_segments,
        )

        return registry_of(schema_segments(self.listing.segments))

    def sample(self, topic: str) -> pa.Table:
        """Returns the sample of a topic."""
        from kafka_log_lake.udfs.values.typed.sample import sample_of_segments, segments_by_topic

        return sample_of_segments(segments_by_topic(self.listing.segments)[topic])

    def _by_log(
        self, pool: Workers, logs: Sequence[SegmentLog]
    ) -> Iterator[tuple[SegmentLog, Iterator[SliceResult]]]:
        """Yields each log with the results of its slices, in the order of the search."""

        def tasks() -> Iterator[tuple[SliceSearch, tuple[Slice, ...]]]:
            # Bytes of the first task, which this process runs itself
            alone = 0 if self.request.is_bounded else ALONE_BYTES
            for log in logs:
                work = self._work(pool, log)
                parts = [log.segments]
                if self.request.only == "last":
                    parts = [[segment] for segment in reversed(log.segments)]
                for segments in parts:
                    for task in tasks_of(segments, self.request.is_bounded):
                        yield from ((work, slice_) for slice_ in begin_with(alone, task))
                        alone = 0

        by_folder = {log.partition_dir: log for log in logs}
        results = pool.in_order(tasks(), self._done)
        for folder, of_log in groupby(results, lambda result: result.slice_.segment.partition_dir):
            yield by_folder[folder], of_log

    def _work(self, pool: Workers, log: SegmentLog) -> SliceSearch:
        transactions = self._read_headers(pool, log)[0] if self.request.needs_transactions else None
        most = None if self.request.only == "last" else self.request.limit_of_a_log
        request = self._request_of(log.topic)
        return SliceSearch(request, self.max_batch_uncompressed, transactions, most)

    def _of_log(
        self, pool: Workers, log: SegmentLog, results: Iterator[SliceResult]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the matches of a log, as many as are wanted, with all columns of ``schema``."""
        matches = self._matches(pool, log, results)
        if not self.request.context:
            for segment, batch in matches:
                self.found += batch.num_rows
                yield self._placed(pool, log, segment, batch)
        else:
            context = Context(log.all_segments, self.max_batch_uncompressed)
            for segment, batch, is_match in context.around(matches, self.request.context):
                self.found += is_match.true_count
                yield self._placed(pool, log, segment, batch.append_column("is_match", is_match))
        self._headers.pop(log.partition_dir, None)
        self._last_offsets.pop(log.partition_dir, None)

    def _matches(
        self, pool: Workers, log: SegmentLog, results: Iterator[SliceResult]
    ) -> Iterator[tuple[Segment, pa.RecordBatch]]:
        """Yields the matches of a log, as many as are wanted of it; none if they are only counted."""
        request, is_last = self.request, self.request.only == "last"
        left = request.left_of_a_log(self.found)
        scans: dict[Segment, list[SliceScan]] = defaultdict(list)
        passed: dict[Segment, int] = {}  # segments that were passed over -> their last offsets
        held: list[tuple[Segment, pa.RecordBatch]] = []  # with ``--last``
        count, before, is_enough, is_past = 0, None, False, False
        for result in results:
            segment = result.slice_.segment
            is_full = sum(batch.num_rows for _, batch in held) >= (left or 1)
            is_enough = is_last and is_full and before != segment
            if is_enough:
                break
            before = segment
            scans[segment].append(result.scan)
            if result.passed_until is not None:
                passed[segment] = result.passed_until
            count += result.count if request.count else 0
            for batch in result.batches:
                if is_last:
                    held = _last([*held, (segment, batch)], left or 1)
                    continue
                rows = batch.num_rows if left is None else min(batch.num_rows, left - count)
                count += rows
                if rows:
                    yield segment, batch[:rows]
            is_enough = not is_last and left is not None and count >= left
            is_past = result.is_past and not is_last
            if is_enough or is_past:
                break
        self._done.add(log.partition_dir)
        is_whole = not (is_enough or request.is_bounded) and len(scans) == len(log.all_segments)
        together = None if is_enough else self._judged_together(pool, log, scans, passed, is_whole)
        self._note_damage(log, scans, None if together is None else together.damages)
        if not is_enough:
            missing = [] if together is None else together.missing
            missing = [range_ for range_ in missing if range_.cause in (*request.causes, WRONG_BASE)]
            if request.needs_transactions:  # its headers are read to the end
                scans, is_past = {**scans, **self._headers[log.partition_dir][1]}, False
            self._note_unseen(log, missing)
            self._note_unseen(log, self._others(log, scans, passed, is_past, together))
            if left_state(log.partition_dir) == "deleted":
                self._covered[_folder_of(log)] += covered_by(scans, passed)
            self.unsearched += unsearched_asides(log.name, self._witnesses(log), request)
        if request.count:
            self.found += count if left is None else min(count, left)
        yield from held

    def _placed(
        self, pool: Workers, log: SegmentLog, segment: Segment, records: pa.RecordBatch
    ) -> pa.RecordBatch:
        records = records.append_column("segment", pa.repeat(pa.scalar(segment.segment), records.num_rows))
        last = self._read_last_offsets(pool, log) if self.request.superseded else None
        return self._whole(log, records, self._outcomes(pool, log, records), last)

    def _outcomes(self, pool: Workers, log: SegmentLog, batch: pa.RecordBatch) -> Outcomes:
        """Returns the outcomes of a log's transactions; none if no record of the batch is transactional."""
        has_any = batch.column("is_transactional").true_count > 0
        return (self._read_headers(pool, log)[0] if has_any else NO_TRANSACTIONS).outcomes

    def _read_last_offsets(self, pool: Workers, log: SegmentLog) -> LastOffsets:
        """Returns the last offsets of the matches' keys; reads the log, twice if no key is requested."""
        known = self._last_offsets.get(log.partition_dir)
        if known is None:
            columns = ("key", *DECIDING)
            keys = pa.array(self.request.keys, pa.binary())
            if not self.request.keys:
                work = replace(self._work(pool, log), most=None, columns=columns)
                results = self._read(pool, log.segments, work)
                keys = distinct_keys(batch for result in results for batch in result.batches)
            known = LastOffsets(keys.to_pylist())
            scans: dict[Segment, list[SliceScan]] = defaultdict(list)
            later = Request([OneOf("key", keys)], keys=tuple(keys.to_pylist()))
            work = SliceSearch(later, self.max_batch_uncompressed, columns=columns)
            for result in self._read(pool, log.all_segments, work):
                scans[result.slice_.segment].append(result.scan)
                for batch in result.batches:
                    known.add(batch, self._outcomes(pool, log, batch))
            for damage in damages_in(scans):
                known.note(damage)
            for missing in judged(scans, self._witnesses(log)).missing:
                if missing.cause in later.causes:
                    known.unknown_until(missing.last)
            if any(scan.report.problem for of_segment in scans.values() for scan in of_segment):
                known.unknown_until(None)  # what a file that can't be read holds is not known
            self._last_offsets[log.partition_dir] = known
        return known

    def _read(
        self, pool: Workers, segments: Sequence[Segment], work: Callable[[Slice], SliceResult]
    ) -> Iterator[SliceResult]:
        """Yields the results of work on the slices of one log's segments, in their order."""
        return pool.in_order((work, task) for task in tasks_of(segments, is_bounded=False))

    def _read_headers(
        self, pool: Workers, log: SegmentLog
    ) -> tuple[Transactions, dict[Segment, list[SliceScan]]]:
        """Returns the transactions and the scans of a whole log, read from the headers of its batches."""
        if log.partition_dir not in self._headers:
            read = [*self._read(pool, log.all_segments, ReadHeaders(self.max_batch_uncompressed))]
            transactions = of_one_log(np.concatenate([result.scan.transactional for result in read]))
            scans: dict[Segment, list[SliceScan]] = defaultdict(list)
            for result in read:
                scans[result.slice_.segment].append(result.scan)
            # what a .log.deleted file has no marker of may have it in another file
            open_as = OPEN if left_state(log.partition_dir) != "deleted" else None
            start = self._log_starts.get(log.partition_dir)
            self._headers[log.partition_dir] = Transactions.of(transactions, open_as, start), scans
        return self._headers[log.partition_dir]

    def _note_damage(
        self, log: SegmentLog, scans: dict[Segment, list[SliceScan]], damages: list[DamagedRange] | None
    ) -> None:
        """Notes what could not be read of a log. damages: of the whole log; None: as its segments tell."""
        self.segments += len(scans)
        if self.request.needs_transactions:  # a bounded search does not read the segments of later markers
            transactions, of_all = self._headers[log.partition_dir]
            scans = {**of_all, **scans}
            is_held = transactions.delivery.last_stable_offset is not None
            if is_held and left_state(log.partition_dir) == "deleted":
                self.unsearched.append(Unsearched(log.partition_dir, _NO_MARKER))
        for segment, of_segment in scans.items():
            problem = next((scan.report.detail for scan in of_segment if scan.report.problem), None)
            if problem is not None:
                self.unsearched.append(Unsearched(segment.uri, problem))
        before = len(self.unsearched)
        self._note_damages(log, damages_in(scans) if damages is None else damages)
        for at in range(before, len(self.unsearched)):
            if damage := self.unsearched[at].damage:
                held = held_text(damage.segment, damage.position, damage.size, self.request)
                self.unsearched[at] = replace(self.unsearched[at], held=held)

    def _judged_together(
        self, pool: Workers, log: SegmentLog, scans: Scans, passed: Mapping[Segment, int], is_whole: bool
    ) -> Judged | None:
        """Judges a whole log where offsets between its segments may hide a match; returns None elsewhere.

        scans: of the segments searched; is_whole: they are the whole log. passed: the last offsets of those
        that were passed over.
        """
        request = self.request
        if not is_whole:
            has_wrong = WRONG_BASE in request.causes and has_wrong_base(scans)
            if not (has_gap(scans, request, passed) or has_wrong):
                return None
            scans = self._read_headers(pool, log)[1]  # other segments may show that the log cleaner ran
        return judged(scans, self._witnesses(log))


def _folder_of(log: SegmentLog) -> str:
    """Returns the folder of a ``.log.deleted`` file that is a log of its own."""
    return log.partition_dir.rpartition("/")[0]


def _last(held: Sequence[tuple[Segment, pa.RecordBatch]], most: int) -> list[tuple[Segment, pa.RecordBatch]]:
    """Returns the last ``most`` matches, in the order of the log. held: of each segment in its order."""
    ordered = sorted(held, key=lambda part: part[0].file_base_offset)
    kept: list[tuple[Segment, pa.RecordBatch]] = []
    for segment, batch in reversed(ordered):
        left = min(most, batch.num_rows)
        if left:
            kept.append((segment, batch[batch.num_rows - left :]))
        most -= left
    return kept[::-1]
