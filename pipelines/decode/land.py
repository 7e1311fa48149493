"""Runs one bounded run of ``ingest_raw``: copies the bytes of its segments into ``raw_segments``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_log_lake.pipelines.decode.decode import ARROW, Decoded, Runner, StageLoop
from kafka_log_lake.pipelines.engine.delta import sql_in
from kafka_log_lake.pipelines.lake.catalog_lake import staging_name
from kafka_log_lake.pipelines.lake.intents import Intent, RowRange
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.landed import Landed
from kafka_log_lake.pipelines.plan.slices import Segment, Slice
from kafka_log_lake.pipelines.tasks.slice_rows import ReportRow
from kafka_log_lake.pipelines.tasks.verdicts import SegmentVerdict, shortened
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.spark import stages
from kafka_log_lake.udfs.spark.protocol import Problem, SliceReport

_ATTEMPTS = 3


class Lander(Runner):
    """Lands segments: rows of ``raw_segments``."""

    def run(self, segments: Sequence[Segment]) -> Decoded:
        """Lands the new bytes of these segments and commits them, all or none."""
        version = self.lake.next_version()
        if self.sink != ARROW:
            return self._through_spark(segments, version)

        def execute(slices: Sequence[Slice]) -> list[ReportRow]:
            return self.reader.reports("land_raw", self.options, slices)

        landed = StageLoop(self.reader, self.progress, execute, _landed, "landing", split=False).run(segments)
        if landed.verdicts:
            put, cut = [v.row for v in landed.verdicts if v.row is not None], shortened(landed.verdicts)
            intent = replace(
                self._intent([v.segment for v in landed.verdicts], version),
                files=landed.files,
                drop=self.obsolete.with_run(put, cut),
            )
            with self.progress.phase("committing"):
                self.lake.commit(intent)
            self.obsolete.done(put, cut, intent.drop)
        return landed

    def _intent(self, segments: Sequence[Segment], version: int) -> Intent:
        """Makes the intent without the new rows."""
        cut = [RowRange(s.topic, s.partition, s.segment, s.start) for s in segments]
        return Intent(self.lake.app_id, version, self.options.run_id, cut=cut)

    def _through_spark(self, segments: Sequence[Segment], version: int) -> Decoded:
        """Has Spark write the rows. If it fails because files changed, the others are landed without them."""
        landed = Decoded()
        for attempt in range(1, _ATTEMPTS + 1):
            if not segments:
                return landed
            rows = self.reader.rows(self._slices(segments))
            chunks = rows.mapInArrow(stages.stage("read_raw", self.options), schema.RAW_SEGMENTS.ddl())
            intent = replace(self._intent(segments, version), staged=staging_name(self.lake.app_id, version))
            try:
                with self.progress.stage("landing", segments, self.reader.finished_share()):
                    self.catalog.commit_frames(intent, {schema.RAW_SEGMENTS: chunks})
                landed.verdicts = self._read_back(segments)
                put = [v.row for v in landed.verdicts if v.row is not None]
                self.obsolete.done(put, shortened(landed.verdicts), [])
                return landed
            except Exception:
                unchanged = self._unchanged(segments, landed)
                if len(unchanged) == len(segments) or attempt == _ATTEMPTS:
                    raise
                segments = unchanged
        raise AssertionError("unreachable")

    def _read_back(self, segments: Sequence[Segment]) -> list[SegmentVerdict]:
        """Returns verdicts on segments whose rows Spark wrote: the table says how far each was landed."""
        where = sql_in("segment", (s.segment for s in segments))
        landed = Landed(self.lake.read).known(where)
        rows = {row.segment: row for row in ledger.rows(landed)}
        return [SegmentVerdict(s, (), row=rows[s.segment], changes_ledger=True) for s in segments]

    def _slices(self, segments: Sequence[Segment]) -> list[Slice]:
        return self.reader.slices(segments, split=False)

    def _unchanged(self, segments: Sequence[Segment], landed: Decoded) -> list[Segment]:
        """Returns segments whose files did not change since their listing. ``landed`` gets the others."""
        done = self.reader.reports("check_files", self.options, self._slices(segments))
        reports = {r.segment: r for r in (SliceReport.from_json(payload) for _, _, payload in done)}
        unchanged = []
        for segment in segments:
            report = reports.get(segment.segment)
            if report is not None and report.problem is None:
                unchanged.append(segment)
            else:
                problem = report.problem if report and report.problem else Problem.CHANGED
                landed.leave(segment, problem, report.detail if report else "it is gone")
        return unchanged


def _landed(segment: Segment, reports: Sequence[SliceReport]) -> SegmentVerdict:
    """Returns the verdict on a landed segment. It always changes the table: nothing is decoded."""
    (report,) = reports
    row = segment.new_row(end_offset=report.totals.end_offset, fingerprint=report.fingerprint)
    return SegmentVerdict(segment, (report,), row=row, changes_ledger=True)
