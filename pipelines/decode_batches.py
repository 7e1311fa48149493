"""The main job: segments in, the tables ``records``, ``batches``, ``quarantine`` and ``segments`` out.

``run`` is the way from sources to committed tables, one bounded run after the other until nothing is left;
``decode_segments`` is the same decoder as a lazy DataFrame that writes nothing.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

if __package__ in (None, ""):  # spark-submit puts this folder first, not its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.errors import DamageFound
from pipelines.command.options import main as run_job
from pipelines.command.progress import Progress
from pipelines.command.settings import SETTING_NAMES, Settings, make_settings
from pipelines.command.summary import Summary, counted
from pipelines.execute.decode import RECORDS_DDL, Decoder, Staged
from pipelines.execute.slice_rows import Reader, choose_mode
from pipelines.lake.address import open_lake
from pipelines.lake.commit import DECODE_APP, Lake, configured
from pipelines.plan import jobs, ledger
from pipelines.plan.slices import Segment
from pipelines.source.landed import list_raw, marks_in_raw
from pipelines.source.listing import topic_filter
from pipelines.source.uris import exists
from udfs.format import schema as columns
from udfs.source import fingerprint
from udfs.spark import protocol as stages


def run(spark: SparkSession, settings: Settings) -> Summary:
    """Decodes what is new in the sources into the lake. Raises a JobError where it can't."""
    began = time.monotonic()
    listing = None
    if settings.from_raw:
        open_lake(spark, settings.require_lake())
    else:
        listing = jobs.list_sources(spark, settings)
    with jobs.open_for_writing(spark, settings, DECODE_APP) as lake:
        summary = Summary(run_id=uuid.uuid4().hex, lake=lake.address)
        if listing is None:
            asked = topic_filter(spark, settings.topics, settings.exclude_topics)
            listing = list_raw(lake.table(columns.RAW_SEGMENTS.name)).where(asked)
        known = lake.ledger()

        def marks(known: DataFrame) -> DataFrame:
            return _marks(settings, lake, known)

        with jobs.planned(spark, settings, listing, known, marks) as (plan, counts):
            summary.unchanged, summary.skipped = counts.unchanged, counts.skipped
            warnings = Counter(jobs.warnings_of_listing(settings, plan, counts))
            shown = Progress(spark, counts.planned)
            for segments in jobs.bounded(settings, plan, counts):
                decoder = _decoder(spark, settings, lake, segments, summary.run_id, shown)
                conf = jobs.stage_conf(decoder.reader.mode, segments)
                with configured(spark, conf):
                    _add(summary, decoder.run(segments), warnings)
        for log_dir in sorted(lake.uncertain):
            warnings[
                f"what holds the last stable offset of {log_dir} is a transaction of uncertain outcome: "
                "its marker may lie in damaged bytes"
            ] = 1
        summary.warnings = counted(warnings)
    summary.seconds = time.monotonic() - began
    return summary


def _marks(settings: Settings, lake: Lake, known: DataFrame) -> DataFrame:
    """(segment, unchanged) of the known segments."""
    if settings.from_raw:
        return marks_in_raw(known, lake.table(columns.RAW_SEGMENTS.name))
    if settings.verify_content:
        return known.mapInArrow(fingerprint.read_content_marks(), fingerprint.MARKS_DDL)
    return known.mapInArrow(fingerprint.read_marks(), fingerprint.MARKS_DDL)


def _decoder(
    spark: SparkSession,
    settings: Settings,
    lake: Lake,
    segments: Sequence[Segment],
    run_id: str,
    shown: Progress,
) -> Decoder:
    mode = choose_mode(settings.read, settings.from_raw, [s.segment for s in segments])
    raw = lake.table(columns.RAW_SEGMENTS.name) if settings.from_raw else None

    def is_gone(uri: str) -> bool:
        return raw.where(F.col("segment") == uri).isEmpty() if raw is not None else not exists(spark, uri)

    return Decoder(
        spark,
        lake,
        Reader(spark, mode, settings.slice_bytes, raw),
        settings.sink,
        jobs.stage_options(settings, lake.address, run_id),
        shown,
        is_gone,
    )


def _add(summary: Summary, staged: Staged, warnings: Counter[str]) -> None:
    for verdict in staged.news:
        summary.segments += 1
        summary.batches += verdict.total("entries")
        summary.records += verdict.total("records")
        summary.damaged += verdict.total("damaged")
        summary.bytes += verdict.segment.planned_bytes
        summary.partitions.add((verdict.segment.topic, verdict.segment.partition))
        if verdict.total("offset_regressions"):
            warnings["a segment's offsets do not rise everywhere (segments.offset_regressions)"] += 1
    summary.magics |= staged.magics
    warnings.update(staged.warnings)


def decode_segments(spark: SparkSession, source: str | Sequence[str], **settings: Any) -> DataFrame:
    """The columns of ``records`` of all segments of a source: lazy, nothing written, no ledger.

    settings: as ``Settings`` has them (topics, max_batch_uncompressed, ...). Every segment is one slice.
    """
    made = make_settings({**settings, "source": source})
    segments = jobs.list_sources(spark, made).where("skip IS NULL")
    if made.one_copy:
        segments = ledger.furthest_copies(segments)
    values = {
        "group_id": F.spark_partition_id(),
        "uri": F.col("segment"),
        "start": F.lit(0),
        "stop": F.col("length"),
        "exact_start": F.lit(True),
        "chunk_position": F.lit(0),
    }
    kinds = (field.split(" ", 1) for field in stages.SLICE_DDL.split(", "))
    rows = segments.select(
        *(
            values.get(name, F.col(name) if name in segments.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in kinds
        )
    )
    options = jobs.stage_options(made, "", uuid.uuid4().hex)
    return rows.mapInArrow(stages.stage("read_records", options), RECORDS_DDL)


def _job(spark: SparkSession, settings: Settings) -> None:
    summary = run(spark, settings)
    jobs.tell(summary, settings.json)
    if settings.fail_on_damage and summary.damaged:
        raise DamageFound(f"{summary.damaged} damaged ranges: see the table quarantine")


def main(argv: Sequence[str] | None = None) -> int:
    return run_job(_job, "Decode Kafka log segments into Delta tables.", SETTING_NAMES, argv)


if __name__ == "__main__":
    sys.exit(main())
