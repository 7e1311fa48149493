"""One bounded run: slices staged until all fit together, then made into the intent that is committed.

What the stage finds wrong costs no more than it must: a file that changed since it was listed is left for the
next run, a segment whose slices do not fit together is decoded again in one piece, and what shared a group
with either is staged again.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.errors import RunFailed
from pipelines.command.progress import Progress
from pipelines.execute.slice_rows import Reader
from pipelines.execute.verdicts import Report, Verdict, begun, first_byte, judge
from pipelines.lake.commit import Lake
from pipelines.lake.intents import Intent, Replaced
from pipelines.plan.ledger import rows_between
from pipelines.plan.slices import GO_ON, REWRITTEN, Segment, Slice, make_slices, second_pass, whole
from udfs.format import schema as columns
from udfs.spark import protocol as stages
from udfs.spark.protocol import StageOptions

log = logging.getLogger(__name__)
ARROW, SPARK = "arrow", "spark"
RECORDS_DDL = ", ".join(f"`{c.name}` {c.sql_type}" for c in columns.RECORDS.columns)
CHANGED = "changed during the run"  # in what a worker says of a file that is not what it was
_ATTEMPTS = 3


@dataclass
class Staged:
    """What the stage gave for the segments of one run, judged.

    files: table -> data files of groups in which all is well (arrow sink).
    dropped_groups: groups whose rows must not be committed (spark sink: they lie among the facts).
    magics: formats of the entries found.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    files: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    dropped_groups: list[int] = field(default_factory=list)
    magics: set[int] = field(default_factory=set)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def news(self) -> list[Verdict]:
        """Segments that change the ledger."""
        return [v for v in self.verdicts if v.news]


@dataclass(frozen=True)
class Decoder:
    """Stages and commits bounded runs of one job.

    is_gone: whether a segment, by its URI, is there no more.
    """

    spark: SparkSession
    lake: Lake
    reader: Reader
    sink: str
    options: StageOptions
    progress: Progress
    is_gone: Callable[[str], bool]

    def run(self, segments: Sequence[Segment]) -> Staged:
        """Decodes these segments and commits what is new of them, in every table or in none."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._attempt(segments)
            except Exception as error:
                if CHANGED not in str(error):
                    raise
                log.info("a segment changed between two looks at it; this run starts again")
                segments = self._still_there(segments)
        return self._attempt(segments)

    def _attempt(self, segments: Sequence[Segment]) -> Staged:
        version = self.lake.next_version()
        facts = f"{self.lake.app_id}-{version:010d}.facts" if self.sink == SPARK else ""
        if facts:
            self.lake.runs.remove_folder(facts)
        staged = self.stage(segments, facts)
        if staged.news:
            intent = self.intent(staged, version, facts)
            records = self._records(staged.news) if intent.records_first else None
            with self.progress.shown("writing records", segments) if records else nullcontext():
                self.lake.commit(intent, records)
        elif facts:
            self.lake.runs.remove_folder(facts)
        return staged

    def _still_there(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """What to try again: all of it, as staging sorts out what changed."""
        return segments

    def stage(self, segments: Sequence[Segment], facts: str = "") -> Staged:
        """Runs the stage until every segment has a verdict that stands."""
        staged = Staged()
        slices = self._slices(segments, 0)
        while slices:
            output = self._execute(slices, facts)
            again = self._sort_out(slices, output, staged)
            first = max(s.group_id for s in slices) + 1
            broken, others = [s for s, b in again if b], [s for s, b in again if not b]
            slices = whole(broken, first)
            slices += self._slices(others, first + len(slices))
        staged.magics = self._magics(staged, facts)
        return staged

    def _slices(self, segments: Iterable[Segment], first: int) -> list[Slice]:
        if self.reader.one_group_a_segment:
            return whole(segments, first)
        return make_slices(segments, self.reader.slice_bytes, first, split=self.reader.splits)

    def _execute(self, slices: Sequence[Slice], facts: str) -> list[tuple[int, str, dict[str, Any]]]:
        """(group_id, kind, payload) of what the stage reports of these slices."""
        rows = self.reader.rows(slices)
        with self.progress.shown(self.doing, [s.segment for s in slices if s.exact_start]):
            if not facts:
                done = rows.mapInArrow(self._write(), stages.REPORT_DDL).collect()
            else:
                path = self.lake.facts_path(facts)
                found = rows.mapInArrow(stages.stage("read_facts", self.options), stages.FACTS_DDL)
                found.write.mode("append").parquet(path)
                reports = self.lake.facts(facts).where(F.col("group_id") >= min(s.group_id for s in slices))
                done = reports.where("kind = 'slice'").select("group_id", "kind", "payload").collect()
        return [(r.group_id, r.kind, json.loads(r.payload)) for r in done]

    @property
    def doing(self) -> str:
        return "decoding"

    def _write(self) -> stages.Stage:
        return stages.stage("write_tables", self.options)

    def _magics(self, staged: Staged, facts: str) -> set[int]:
        if facts:
            entries = self.lake.facts(facts).where("kind = 'batch'")
            return {r.magic for r in entries.select("batch.magic").distinct().collect()}
        return {int(f["partition_values"]["magic"]) for f in staged.files.get(columns.BATCHES.name, [])}

    def _sort_out(
        self, slices: Sequence[Slice], output: Iterable[tuple[int, str, dict[str, Any]]], staged: Staged
    ) -> list[tuple[Segment, bool]]:
        """Adds what is well to ``staged``; returns what has to be staged again, True where in one piece."""
        files, reports = defaultdict(list), defaultdict(list)
        for group, kind, payload in output:
            if kind == "file":
                files[group].append(payload)
            else:
                reports[payload["segment"]].append(payload | {"group_id": group})
        by_segment: dict[str, list[Slice]] = defaultdict(list)
        for piece in slices:
            by_segment[piece.segment.segment].append(piece)
        verdicts = [self._judge(pieces, reports[name]) for name, pieces in by_segment.items()]
        bad = {
            piece.group_id
            for verdict in verdicts
            if verdict.row is None
            for piece in by_segment[verdict.segment.segment]
        }
        again = []
        for verdict in verdicts:
            groups = {piece.group_id for piece in by_segment[verdict.segment.segment]}
            if verdict.changed:
                name, why = verdict.segment.segment, verdict.changed
                staged.warnings[f"{name} changed while it was read, left for the next run: {why}"] += 1
            elif groups & bad:
                again.append((verdict.segment, verdict.broken is not None))
            else:
                staged.verdicts.append(verdict)
                staged.warnings.update(w for r in verdict.reports for w in r.get("warnings", ()))
        for group, listed in files.items():
            for file in listed if group not in bad else []:
                staged.files[file["table"]].append(file)
        staged.dropped_groups += sorted(bad)
        return again

    def _judge(self, slices: Sequence[Slice], reports: Sequence[Report]) -> Verdict:
        segment = slices[0].segment
        missing = {s.start for s in slices} - {r["start"] for r in reports}
        if missing or len(reports) != len(slices):
            if self.reader.may_lose_files and not reports:
                return Verdict(segment, (), changed="it is gone")
            raise RunFailed(f"no report of {segment.segment} from {sorted(missing)}; nothing was committed")
        return self._verdict(segment, reports)

    def _verdict(self, segment: Segment, reports: Sequence[Report]) -> Verdict:
        return judge(segment, reports, self.options.run_id, self.options.decoded_at_us)

    def intent(self, staged: Staged, version: int, facts: str) -> Intent:
        """Everything that this run commits."""
        news = staged.news
        gone = self._merged_away(news)
        rows = [Replaced(r["topic"], r["partition"], r["segment"], 0) for r in gone]
        rows += [making_way(v.segment) for v in news if v.segment.action == REWRITTEN]
        rows += self._left_over([v.segment for v in news if v.segment.action == GO_ON])
        partitions = {(v.segment.topic, v.segment.partition) for v in news}
        partitions |= {(r.topic, r.partition) for r in rows}
        return Intent(
            app_id=self.lake.app_id,
            version=version,
            run_id=self.options.run_id,
            files=dict(staged.files),
            facts=facts,
            dropped_groups=staged.dropped_groups,
            records_first=bool(facts) and (bool(rows) or any(v.total("records") for v in news)),
            replaced=rows,
            put=[v.row for v in news if v.row is not None],
            drop=[r["segment"] for r in gone],
            only_new=not gone and all(v.segment.was is None for v in news),
            partitions=sorted(partitions),
            transactional=sorted(
                {(v.segment.topic, v.segment.partition) for v in news if v.total("transactional")}
            ),
        )

    def _merged_away(self, news: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Ledger rows of segments that the cleaner merged into a rewritten one before them, and deleted."""
        reaches = [
            (v.segment.log_dir, v.segment.file_base_offset, v.row["end_offset"])
            for v in news
            if v.segment.action == REWRITTEN and v.row is not None and v.row["end_offset"] is not None
        ]
        ledger = self.lake.ledger() if reaches else None
        if ledger is None:
            return []
        here = {v.segment.segment for v in news}
        rows = rows_between(self.spark, ledger, reaches)
        return [r for r in rows if r["segment"] not in here and self.is_gone(r["segment"])]

    def _left_over(self, going_on: Sequence[Segment]) -> list[Replaced]:
        """Where the tables hold rows past the ledger's decoded_bytes, which no run of ours leaves there."""
        if not going_on:
            return []
        known = [(s.segment, s.start) for s in going_on]
        starts = self.spark.createDataFrame(known, "known string, start bigint")
        topics, partitions = {s.topic for s in going_on}, {s.partition for s in going_on}
        batches = self.lake.table(columns.BATCHES.name).where(
            F.col("topic").isin(list(topics))
            & F.col("partition").isin(list(partitions))
            & (F.col("position") >= min(s.start for s in going_on))
        )
        past = (F.col("segment") == F.col("known")) & (F.col("position") >= F.col("start"))
        rows = batches.join(F.broadcast(starts), past).select("known").distinct()
        found = {r.known for r in rows.collect()}
        return [making_way(s) for s in going_on if s.segment in found]

    def _records(self, news: Sequence[Verdict]) -> DataFrame:
        """The rows of ``records`` of these segments, read once more: the spark sink's second pass."""
        slices = [
            second_pass(
                Slice(r["group_id"], v.segment, r["start"], r["end"], exact_start=True),
                first_byte(r, i == 0),
                r["end"],
                r["content_crc32c"],
            )
            for v in news
            for i, r in enumerate(begun(v.reports))
            if r["records"]
        ]
        if not slices:
            return self.spark.createDataFrame(columns.RECORDS.arrow_schema().empty_table())
        return self.reader.rows(slices).mapInArrow(stages.stage("read_records", self.options), RECORDS_DDL)


def making_way(segment: Segment) -> Replaced:
    """What the tables hold of a segment from where this run begins in it."""
    return Replaced(segment.topic, segment.partition, segment.segment, segment.start)
