"""Lands the bytes of segments in ``raw_segments``, for those whose broker deletes them.

The same listing, plan, stage and commits as ``decode_batches``; what was landed before stands in for the
ledger. Only new bytes land: a file that grew goes on behind its last whole entry, a rewritten one makes way.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence

if __package__ in (None, ""):  # spark-submit puts this folder first, not its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pyspark.sql import DataFrame, SparkSession

from pipelines.command.options import main as run_job
from pipelines.command.progress import Progress
from pipelines.command.settings import SETTING_NAMES, Settings
from pipelines.command.summary import Summary, counted
from pipelines.execute.land import Lander
from pipelines.execute.slice_rows import Reader, choose_mode
from pipelines.lake.commit import INGEST_APP, Lake, configured
from pipelines.plan import jobs
from pipelines.plan.slices import Segment
from pipelines.source.landed import landed
from pipelines.source.uris import exists
from udfs.format import schema as columns
from udfs.source import fingerprint

_ONLY_FOR_DECODING = (
    "from_raw",
    "redecode",
    "verify_content",
    "max_batch_uncompressed",
    "quarantine_content_bytes",
    "fail_on_damage",
)
FIELDS = tuple(name for name in SETTING_NAMES if name not in _ONLY_FOR_DECODING)


def run(spark: SparkSession, settings: Settings) -> Summary:
    """Lands what is new in the sources. Raises a JobError where it can't."""
    began = time.monotonic()
    listing = jobs.list_sources(spark, settings)
    with jobs.open_for_writing(spark, settings, INGEST_APP) as lake:
        summary = Summary(run_id=uuid.uuid4().hex, lake=lake.address, chunks=0)
        raw = columns.RAW_SEGMENTS.name
        known = None if lake.is_empty(raw) else landed(lake.table(raw))
        with jobs.planned(spark, settings, listing, known, _marks) as (plan, counts):
            summary.unchanged, summary.skipped = counts.unchanged, counts.skipped
            warnings = Counter(jobs.warnings_of_listing(settings, plan, counts))
            shown = Progress(spark, counts.planned)
            for segments in jobs.bounded(settings, plan, counts):
                lander = _lander(spark, settings, lake, segments, summary.run_id, shown)
                conf = jobs.stage_conf(lander.reader.mode, segments)
                with configured(spark, conf):
                    staged = lander.run(segments)
                warnings.update(staged.warnings)
                for verdict in staged.news:
                    summary.segments += 1
                    summary.bytes += verdict.segment.planned_bytes
                    summary.partitions.add((verdict.segment.topic, verdict.segment.partition))
        summary.chunks = lake.rows_of_run(raw, summary.run_id) if summary.segments else 0
        summary.warnings = counted(warnings)
    summary.seconds = time.monotonic() - began
    return summary


def _marks(known: DataFrame) -> DataFrame:
    return known.mapInArrow(fingerprint.read_marks(), fingerprint.MARKS_DDL)


def _lander(
    spark: SparkSession,
    settings: Settings,
    lake: Lake,
    segments: Sequence[Segment],
    run_id: str,
    shown: Progress,
) -> Lander:
    mode = choose_mode(settings.read, False, [s.segment for s in segments])
    return Lander(
        spark,
        lake,
        Reader(spark, mode, settings.slice_bytes),
        settings.sink,
        jobs.stage_options(settings, lake.address, run_id),
        shown,
        lambda uri: not exists(spark, uri),
    )


def _job(spark: SparkSession, settings: Settings) -> None:
    jobs.tell(run(spark, settings), settings.json)


def main(argv: Sequence[str] | None = None) -> int:
    return run_job(_job, "Land the bytes of Kafka log segments in a Delta table.", FIELDS, argv)


if __name__ == "__main__":
    sys.exit(main())
