"""Landing: the run of ``pipelines.execute.decode`` for bytes that stay as they are."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.execute.decode import ARROW, Decoder, Staged, making_way
from pipelines.execute.verdicts import Report, Verdict
from pipelines.lake.intents import Intent, Replaced
from pipelines.plan.ledger import rows_between
from pipelines.plan.slices import REWRITTEN, Segment, Slice, make_slices, whole
from pipelines.source.landed import landed
from pipelines.source.uris import size
from udfs.format import schema as columns
from udfs.source import fingerprint
from udfs.spark import protocol as stages

log = logging.getLogger(__name__)

RAW_DDL = ", ".join(f"`{c.name}` {c.sql_type}" for c in columns.RAW_SEGMENTS.columns)
_NO_END = 2**63 - 1


@dataclass(frozen=True)
class Lander(Decoder):
    """The same for ``raw_segments``: bytes land as they are, so every segment that can be read gives news."""

    @property
    def doing(self) -> str:
        return "landing"

    def _attempt(self, segments: Sequence[Segment]) -> Staged:
        if self.sink == ARROW:
            return Decoder._attempt(self, segments)
        if not segments:
            return Staged()
        staged = Staged(verdicts=[Verdict(s, (), row={}, news=True) for s in segments])
        slices = self._slices(segments, 0)
        rows = self.reader.rows(slices).mapInArrow(stages.stage("read_raw", self.options), RAW_DDL)
        with self.progress.shown(self.doing, segments):
            self.lake.append(columns.RAW_SEGMENTS, rows, self.intent(staged, self.lake.next_version(), ""))
        return staged

    def _still_there(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        rewritten = self._rewritten([s for s in segments if s.start > 0])
        there = []
        for segment in segments:
            now = size(self.spark, segment.segment) or 0
            grown = now > segment.length and not segment.has_successor
            if (now == segment.length or grown) and segment.segment not in rewritten:
                there.append(segment)
            else:
                log.warning("%s changed while it was read, left for the next run", segment.segment)
        return there

    def _rewritten(self, going_on: Sequence[Segment]) -> set[str]:
        """Segments that do not begin any more as what was landed of them."""
        known = [(s.segment, s.segment, s.start, s.was["fingerprint"]) for s in going_on if s.was is not None]
        if not known:
            return set()
        rows = self.spark.createDataFrame(
            known, "segment string, uri string, decoded_bytes bigint, fingerprint string"
        )
        marks = rows.mapInArrow(fingerprint.read_marks(), fingerprint.MARKS_DDL)
        return {r["segment"] for r in marks.where("NOT unchanged").collect()}

    def _write(self) -> stages.Stage:
        return stages.stage("land_raw", self.options)

    def _magics(self, staged: Staged, facts: str) -> set[int]:
        return set()

    def _verdict(self, segment: Segment, reports: Sequence[Report]) -> Verdict:
        (report,) = reports
        if report["changed"]:
            return Verdict(segment, (report,), changed=report["changed"])
        return Verdict(segment, (report,), row={}, news=True)

    def _slices(self, segments: Iterable[Segment], first: int) -> list[Slice]:
        if self.reader.one_group_a_segment:
            return whole(segments, first)
        return make_slices(segments, self.reader.slice_bytes, first, split=False)

    def intent(self, staged: Staged, version: int, facts: str) -> Intent:
        gone = self._merged_away(staged.news)
        rows = [Replaced(r["topic"], r["partition"], r["segment"], 0) for r in gone]
        rows += [making_way(v.segment) for v in staged.news if v.segment.was is not None]
        return Intent(
            app_id=self.lake.app_id,
            version=version,
            run_id=self.options.run_id,
            files=dict(staged.files),
            replaced=rows,
        )

    def _merged_away(self, news: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Landed segments that the cleaner merged into a rewritten one before them, and deleted.

        How far a rewritten one reaches only its decoding tells; it is asked where a later one is gone.
        """
        rewritten = [v.segment for v in news if v.segment.action == REWRITTEN]
        if not rewritten:
            return []
        here = {v.segment.segment for v in news}
        known = landed(self.lake.table(columns.RAW_SEGMENTS.name))
        behind = [(s.log_dir, s.file_base_offset, _NO_END) for s in rewritten]
        later = [r for r in rows_between(self.spark, known, behind) if r["segment"] not in here]
        gone = [r for r in later if self.is_gone(r["segment"])]
        folders = {r["log_dir"] for r in gone}
        reaches = self._reaches([s for s in rewritten if s.log_dir in folders])
        return [
            r
            for r in gone
            if any(
                s.log_dir == r["log_dir"] and s.file_base_offset < r["file_base_offset"] <= end
                for s, end in reaches
            )
        ]

    def _reaches(self, segments: Sequence[Segment]) -> list[tuple[Segment, int]]:
        """Segments with the last offset that they hold; none where it can't be read."""
        if not segments:
            return []
        found = self.reader.rows(whole(segments, 0)).mapInArrow(
            stages.stage("read_facts", self.options), stages.FACTS_DDL
        )
        reports = [json.loads(r.payload) for r in found.where("kind = 'slice'").select("payload").collect()]
        ends = {r["segment"]: r["end_offset"] for r in reports if not r["changed"]}
        return [(s, ends[s.segment]) for s in segments if ends.get(s.segment) is not None]
