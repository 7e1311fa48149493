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
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.commit import Lake
from pipelines.errors import RunFailed
from pipelines.ledger import rows_between
from pipelines.plan import GO_ON, REWRITTEN, Segment, Slice, make_slices, second_pass, whole
from pipelines.reports import Report, Verdict, begun, first_byte, judge
from pipelines.runs import Intent, Replaced
from pipelines.stage import Reader
from udfs import columns, spark_stage
from udfs.spark_stage import StageOptions

log = logging.getLogger(__name__)
ARROW, SPARK = "arrow", "spark"


@dataclass
class Staged:
    """What the stage gave for the segments of one run, judged.

    files: table -> data files of groups in which all is well (arrow sink).
    dropped_groups: groups whose rows must not be committed (spark sink: they lie among the facts).
    """

    verdicts: list[Verdict] = field(default_factory=list)
    files: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    dropped_groups: list[int] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def news(self) -> list[Verdict]:
        """Segments that change the ledger."""
        return [v for v in self.verdicts if v.gives_something]


@dataclass(frozen=True)
class Decoder:
    """Stages and commits bounded runs of one job. is_gone: whether a segment, by its URI, is there no more."""

    spark: SparkSession
    lake: Lake
    reader: Reader
    sink: str
    options: StageOptions
    is_gone: Callable[[str], bool]

    def run(self, segments: Sequence[Segment]) -> Staged:
        """Decodes these segments and commits what is new of them, in every table or in none."""
        version = self.lake.next_version()
        facts = f"{self.lake.app_id}-{version:010d}.facts" if self.sink == SPARK else ""
        staged = self.stage(segments, facts)
        if not staged.news:
            self.lake.runs.remove_folder(facts) if facts else None
            return staged
        intent = self.intent(staged, version, facts)
        self.lake.commit(intent, self._records(staged.news) if intent.records_first else None)
        return staged

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
        return staged

    def _slices(self, segments: Iterable[Segment], first: int) -> list[Slice]:
        if self.reader.one_group_a_segment:
            return whole(segments, first)
        return make_slices(segments, self.reader.slice_bytes, first, split=self.reader.splits)

    def _execute(self, slices: Sequence[Slice], facts: str) -> list[tuple[int, str, dict[str, Any]]]:
        """(group_id, kind, payload) of what the stage reports of these slices."""
        rows = self.reader.rows(slices)
        if self.sink == ARROW:
            done = rows.mapInArrow(spark_stage.write_tables(self.options), spark_stage.REPORT_DDL)
        else:
            path = self.lake.facts_path(facts)
            found = rows.mapInArrow(spark_stage.read_facts(self.options), spark_stage.FACTS_DDL)
            found.write.mode("append").parquet(path)
            first = min(s.group_id for s in slices)
            done = self.spark.read.schema(spark_stage.FACTS_DDL).parquet(path)
            done = done.where((F.col("kind") == "slice") & (F.col("group_id") >= first))
        collected = done.select("group_id", "kind", "payload").collect()
        return [(r.group_id, r.kind, json.loads(r.payload)) for r in collected]

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
                staged.warnings[f"{verdict.segment.segment} changed while it was read, left for the next run: "
                                f"{verdict.changed}"] += 1  # fmt: skip
            elif groups & bad:
                again.append((verdict.segment, verdict.broken is not None))
            else:
                staged.verdicts.append(verdict)
                staged.warnings.update(w for r in verdict.reports for w in r["warnings"])
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
        return judge(segment, reports, self.options.run_id, self.options.decoded_at_us)

    def intent(self, staged: Staged, version: int, facts: str) -> Intent:
        """Everything that this run commits."""
        news = staged.news
        gone = self._merged_away(news)
        replaced = [Replaced(r["topic"], r["partition"], r["segment"], 0) for r in gone]
        replaced += [_replaced(v.segment) for v in news if v.segment.action == REWRITTEN]
        replaced += self._left_over([v.segment for v in news if v.segment.action == GO_ON])
        partitions = {(v.segment.topic, v.segment.partition) for v in news}
        partitions |= {(r.topic, r.partition) for r in replaced}
        return Intent(
            app_id=self.lake.app_id,
            version=version,
            run_id=self.options.run_id,
            files=dict(staged.files),
            facts=facts,
            dropped_groups=staged.dropped_groups,
            records_first=bool(facts) and (bool(replaced) or any(v.total("records") for v in news)),
            replaced=replaced,
            put=[v.row for v in news if v.row is not None],
            drop=[r["segment"] for r in gone],
            only_new=not gone and all(v.segment.was is None for v in news),
            partitions=sorted(partitions),
        )

    def _merged_away(self, news: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Ledger rows of segments that the cleaner merged into a rewritten one before them, and deleted."""
        reaches = [
            (v.segment.log_dir, v.segment.file_base_offset, v.row["end_offset"])
            for v in news
            if v.segment.action == REWRITTEN and v.row is not None and v.row["end_offset"] is not None
        ]
        if not reaches:
            return []
        ledger = self.lake.table(columns.SEGMENTS.name)
        here = {v.segment.segment for v in news}
        rows = rows_between(self.spark, ledger, reaches)
        return [r for r in rows if r["segment"] not in here and self.is_gone(r["segment"])]

    def _left_over(self, going_on: Sequence[Segment]) -> list[Replaced]:
        """Where the tables hold rows past the ledger's decoded_bytes, which no run of ours leaves there."""
        if not going_on:
            return []
        starts = self.spark.createDataFrame([(s.segment, s.start) for s in going_on], "known string, start bigint")
        topics, partitions = {s.topic for s in going_on}, {s.partition for s in going_on}
        batches = self.lake.table(columns.BATCHES.name).where(
            F.col("topic").isin(list(topics))
            & F.col("partition").isin(list(partitions))
            & (F.col("position") >= min(s.start for s in going_on))
        )
        past = (F.col("segment") == F.col("known")) & (F.col("position") >= F.col("start"))
        found = {r.known for r in batches.join(F.broadcast(starts), past).select("known").distinct().collect()}
        return [_replaced(s) for s in going_on if s.segment in found]

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
        schema = columns.RECORDS.arrow_schema()
        ddl = ", ".join(f"`{c.name}` {c.sql_type}" for c in columns.RECORDS.columns)
        if not slices:
            return self.spark.createDataFrame(schema.empty_table())
        return self.reader.rows(slices).mapInArrow(spark_stage.read_records(self.options), ddl)


def _replaced(segment: Segment) -> Replaced:
    return Replaced(segment.topic, segment.partition, segment.segment, segment.start)
