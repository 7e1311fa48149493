"""Runs one bounded run: decodes its segments until the slices of each fit together, then commits them.

A problem affects few segments: a file that changed since it was listed is left for the next run; a segment
whose slices do not fit together is decoded again as one slice; the other segments of their groups are decoded
again.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_log_lake.pipelines.cli.errors import RunFailed
from kafka_log_lake.pipelines.decode.progress import Progress
from kafka_log_lake.pipelines.lake.catalog_lake import CatalogLake, staging_name
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.intents import Intent
from kafka_log_lake.pipelines.lake.transactions import Outcome
from kafka_log_lake.pipelines.plan.obsolete import Obsolete
from kafka_log_lake.pipelines.plan.segment_actions import Action
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, whole
from kafka_log_lake.pipelines.tasks.slice_rows import ReportRow, SliceReader
from kafka_log_lake.pipelines.tasks.verdicts import SegmentVerdict, first_byte, judge, shortened, with_batches
from kafka_log_lake.udfs.arrow.parquet_sink import DataFile
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.spark import stages
from kafka_log_lake.udfs.spark.protocol import FILE, SLICE, STAGED_DDL, Problem, SliceReport, StageOptions

log = logging.getLogger(__name__)
ARROW = "arrow"
_ATTEMPTS = 3

# Runs slices on the workers; returns data files and slice reports
Execute = Callable[[Sequence[Slice]], list[ReportRow]]


@dataclass
class Decoded:
    """The results of one bounded run.

    files: data files of groups without a problem (arrow sink).
    dropped_groups: groups with a problem, whose staged rows must not be committed (lake in a catalog).
    changed, unreadable: URI of a segment that this run left -> how it changed, or why it can't be read.
    was_stopped: whether Ctrl-C ended the stage early: the results are of segments that are decoded whole, the
    first ones of each log.
    """

    verdicts: list[SegmentVerdict] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    dropped_groups: list[int] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    was_stopped: bool = False

    @property
    def changes(self) -> list[SegmentVerdict]:
        """Returns the verdicts on segments that change the ledger."""
        return [v for v in self.verdicts if v.changes_ledger]

    def leave(self, segment: Segment, problem: Problem, why: str) -> None:
        """Notes the reason why this run skips a segment."""
        left = self.unreadable if problem is Problem.UNREADABLE else self.changed
        left[segment.segment] = why


@dataclass(frozen=True)
class StageLoop:
    """Runs slices on the workers until each segment has a final verdict.

    execute: runs slices on the workers. judge: gives the verdict on a segment from the reports of its slices.
    doing: a word for the progress lines. split: whether a segment may be cut into several slices.
    """

    reader: SliceReader
    progress: Progress
    execute: Execute
    judge: Callable[[Segment, Sequence[SliceReport]], SegmentVerdict]
    doing: str
    split: bool

    def run(self, segments: Sequence[Segment]) -> Decoded:
        decoded = Decoded()
        slices = self._slices(segments, 0)
        while slices:
            planned = [s.segment for s in slices if s.exact_start]
            with self.progress.stage(self.doing, planned, self.reader.finished_share()):
                output = self.execute(slices)
            again = self._add_results(slices, output, decoded)
            if self.reader.was_stopped:
                decoded.was_stopped = True
                return decoded
            first = max(s.group_id for s in slices) + 1
            broken = [segment for segment, is_broken in again if is_broken]
            others = [segment for segment, is_broken in again if not is_broken]
            slices = whole(broken, first)
            slices += self._slices(others, first + len(slices))
        return decoded

    def _slices(self, segments: Iterable[Segment], first: int) -> list[Slice]:
        return self.reader.slices(segments, first, self.split)

    def _add_results(
        self, slices: Sequence[Slice], output: Iterable[ReportRow], decoded: Decoded
    ) -> list[tuple[Segment, bool]]:
        """Adds final results to ``decoded``. Returns the segments to decode again, True: as one slice."""
        files: dict[int, list[DataFile]] = defaultdict(list)
        reports: dict[str, list[SliceReport]] = defaultdict(list)
        for group, kind, payload in output:
            if kind == FILE:
                files[group].append(DataFile.from_json(payload))
            else:
                report = SliceReport.from_json(payload)
                reports[report.segment].append(report)
        by_segment: dict[str, list[Slice]] = defaultdict(list)
        for slice_ in slices:
            by_segment[slice_.segment.segment].append(slice_)
        is_stopped = self.reader.was_stopped
        verdicts = {
            name: self._verdict(parts, reports[name])
            for name, parts in by_segment.items()
            if not is_stopped or len(reports[name]) == len(parts)
        }
        final = {name for name, verdict in verdicts.items() if verdict.row is not None or verdict.problem}
        left = _not_first(by_segment, final) if is_stopped else set()
        without_row = left | {name for name, verdict in verdicts.items() if verdict.row is None}
        failed_groups = {s.group_id for name in without_row for s in by_segment[name]}
        again = []
        for verdict in (verdict_ for name, verdict_ in verdicts.items() if name not in left):
            if verdict.problem:
                decoded.leave(verdict.segment, verdict.problem, verdict.detail)
            elif failed_groups.intersection(s.group_id for s in by_segment[verdict.segment.segment]):
                again.append((verdict.segment, verdict.broken is not None))
            else:
                decoded.verdicts.append(verdict)
        for group, listed in files.items():
            decoded.files += listed if group not in failed_groups else []
        decoded.dropped_groups += sorted(failed_groups)
        return again

    def _verdict(self, slices: Sequence[Slice], reports: Sequence[SliceReport]) -> SegmentVerdict:
        segment = slices[0].segment
        failed = next((report for report in reports if report.problem), None)
        if failed is not None:
            return SegmentVerdict(segment, tuple(reports), problem=failed.problem, detail=failed.detail)
        missing = {s.start for s in slices} - {r.start for r in reports}
        if missing or len(reports) != len(slices):
            if self.reader.reads_files and not reports:
                return SegmentVerdict(segment, (), problem=Problem.CHANGED, detail="it is gone")
            raise RunFailed(
                f"no report on {segment.segment} for the slices at {sorted(missing)}; nothing was committed"
            )
        return self.judge(segment, reports)


def _not_first(by_segment: Mapping[str, Sequence[Slice]], final: set[str]) -> set[str]:
    """Returns the segments that are not ``final``, and those that follow one in their folder.

    A log without a segment in its middle would look as if that were lost. by_segment: in the order of logs.
    """
    later: set[str] = set()
    ended: set[str] = set()
    for name, slices in by_segment.items():
        folder = slices[0].segment.partition_dir
        if folder in ended or name not in final:
            ended.add(folder)
            later.add(name)
    return later


@dataclass(frozen=True)
class Runner(ABC):
    """Executes the bounded runs of one job.

    sink: ARROW, or CATALOG where Spark writes. obsolete: ledger rows to drop when a run replaces them.
    """

    lake: LakeWriter
    reader: SliceReader
    sink: str
    options: StageOptions
    progress: Progress
    obsolete: Obsolete

    @property
    def catalog(self) -> CatalogLake:
        """Returns the lake, where Spark writes."""
        assert isinstance(self.lake, CatalogLake)
        return self.lake

    @abstractmethod
    def run(self, segments: Sequence[Segment]) -> Decoded:
        """Reads these segments and commits their new rows."""


class Decoder(Runner):
    """Decodes segments: rows of ``records``, ``batches`` and ``quarantine``."""

    def run(self, segments: Sequence[Segment]) -> Decoded:
        """Decodes these segments and commits their new rows: in every table, or in none."""
        for attempt in range(1, _ATTEMPTS + 1):
            version = self.lake.next_version()
            decoded, staged = self._decode(segments, version)
            if not decoded.changes:
                if staged:
                    self.catalog.intents.remove_staged(staged)
                return decoded
            intent = self._intent(decoded, version, staged)
            try:
                decoded.outcome = self._commit(intent, decoded, segments)
                self.obsolete.done(intent.put, shortened(decoded.changes), intent.drop)
                return decoded
            except Exception:
                # Where Spark writes, each file is read twice: has one changed in between?
                if not (intent.rows_by_spark and self._changed(decoded)) or attempt == _ATTEMPTS:
                    raise
                log.info("a segment changed between its two reads; this run starts again")
        raise AssertionError("unreachable")

    def _decode(self, segments: Sequence[Segment], version: int) -> tuple[Decoded, str]:
        """Runs the stage. Returns its results, and the name of staged rows ("" for the arrow sink)."""
        staged = "" if self.sink == ARROW else staging_name(self.lake.app_id, version)
        if staged:
            self.catalog.intents.remove_staged(staged)

        def execute(slices: Sequence[Slice]) -> list[ReportRow]:
            if not staged:
                return self.reader.reports("write_tables", self.options, slices)
            stage = stages.stage("stage_rows", self.options)
            self.catalog.intents.stage(self.reader.observed(slices, stage, STAGED_DDL), staged)
            is_new = F.col("group_id") >= min(s.group_id for s in slices)
            reports = self.catalog.intents.staged(staged).where(is_new & (F.col("kind") == SLICE))
            return [tuple(row) for row in reports.select("group_id", "kind", "payload").collect()]

        verdict = partial(judge, run=self.options)
        loop = StageLoop(self.reader, self.progress, execute, verdict, "decoding", split=True)
        return loop.run(segments), staged

    def _intent(self, decoded: Decoded, version: int, staged: str) -> Intent:
        """Makes the intent: everything that this run commits."""
        changes = decoded.changes
        put = [v.row for v in changes if v.row is not None]
        drop = self.obsolete.with_run(put, shortened(changes))
        going_on = (v.segment for v in changes if v.segment.action is Action.GO_ON)
        transactional = {(v.segment.topic, v.segment.partition) for v in changes if v.totals.transactional}
        return Intent(
            app_id=self.lake.app_id,
            version=version,
            run_id=self.options.run_id,
            files=decoded.files,
            put=put,
            only_new=not drop and all(v.segment.was is None for v in changes),
            drop=drop,
            goes_on={segment.segment: segment.start for segment in going_on},
            transactional=sorted(transactional),
            staged=staged,
            dropped_groups=decoded.dropped_groups,
            rows_by_spark=bool(staged) and any(v.totals.records for v in changes),
        )

    def _commit(self, intent: Intent, decoded: Decoded, segments: Sequence[Segment]) -> Outcome:
        if not intent.staged:
            with self.progress.phase("committing"):
                return self.lake.commit(intent)
        with self.progress.stage("writing rows", segments, self.reader.finished_share()):
            records = {schema.RECORDS: self._records(decoded.changes)} if intent.rows_by_spark else {}
            return self.catalog.commit_frames(intent, records)

    # The second pass, where Spark writes

    def _second_pass(self, changes: Sequence[SegmentVerdict]) -> list[Slice]:
        """Returns the slices with records, to be read again."""
        return [
            Slice(r.group_id, v.segment, first_byte(r, i == 0), r.totals.end, True, r.totals.content_crc32c)
            for v in changes
            for i, r in enumerate(with_batches(v.reports))
            if r.totals.records
        ]

    def _records(self, changes: Sequence[SegmentVerdict]) -> DataFrame:
        """Returns the rows of ``records`` of these segments, which are read again."""
        rows = self.reader.rows(self._second_pass(changes))
        return rows.mapInArrow(stages.stage("read_records", self.options), schema.RECORDS.ddl())

    def _changed(self, decoded: Decoded) -> bool:
        """Returns whether the bytes of a segment differ now from those that were decoded."""
        slices = self._second_pass(decoded.changes)
        done = self.reader.reports("verify", self.options, slices)
        reports = [SliceReport.from_json(payload) for _, _, payload in done]
        return len(reports) < len(slices) or any(report.problem for report in reports)
