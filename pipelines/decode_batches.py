"""The main job: segments in, the tables ``records``, ``batches``, ``quarantine`` and ``segments`` out.

``run`` is the way from sources to committed tables, one bounded run after the other until nothing is left;
``decode_segments`` is the same decoder as a lazy DataFrame that writes nothing.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

if __package__ in (None, ""):  # spark-submit puts this folder first, not its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from deltalake import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines import ledger, progress
from pipelines.cli import main as run_job
from pipelines.commit import DECODE_APP, Lake, configured
from pipelines.decoding import Decoder, Staged
from pipelines.errors import DamageFound, UserError
from pipelines.lake import lake_address, open_lake, table_path
from pipelines.listing import (
    OFFSET_TOO_BIG,
    PARTITION_TOO_BIG,
    TOPIC_TOO_LONG,
    checked_regex,
    list_segments,
    nothing_in,
    topic_filter,
)
from pipelines.plan import Segment, take
from pipelines.raw import list_raw, marks_in_raw
from pipelines.runs import Runs
from pipelines.settings import SETTING_NAMES, Settings, make_settings
from pipelines.sources import exists
from pipelines.stage import Reader, choose_mode
from pipelines.summary import Summary, counted
from pipelines.tables import create_tables
from pipelines.transactions import refresh
from udfs import columns, fingerprint, spark_stage
from udfs.spark_stage import StageOptions

log = logging.getLogger("pipelines.decode_batches")

# A listing's files are not read, so their length must not decide about its tasks
_LISTING_CONF = {"spark.sql.files.maxPartitionBytes": str(2**62)}
_REPLICAS_SHOWN = 5


def run(spark: SparkSession, settings: Settings) -> Summary:
    """Decodes what is new in the sources into the lake. Raises a JobError where it can't."""
    began = time.monotonic()
    listing = None if settings.from_raw else _list(spark, settings)
    if settings.from_raw:
        open_lake(spark, settings.require_lake())
    with open_for_writing(spark, settings, DECODE_APP) as lake:
        if listing is None:
            listing = list_raw(lake.table(columns.RAW_SEGMENTS.name)).where(
                topic_filter(spark, settings.topics, settings.exclude_topics)
            )
        summary = Summary(run_id=uuid.uuid4().hex, lake=lake.address)
        warnings: Counter[str] = Counter()
        with _planned(spark, settings, lake, listing) as (planned, counts):
            summary.unchanged, summary.skipped = counts.unchanged, counts.skipped
            if not counts.found:
                raise _nothing_found(settings, counts)
            _warn_of_listing(settings, planned, counts, warnings)
            _run_all(spark, settings, lake, planned, counts, summary, warnings)
    summary.warnings = counted(warnings)
    for text in summary.warnings:
        log.warning("%s", text)
    summary.seconds = time.monotonic() - began
    return summary


def _list(spark: SparkSession, settings: Settings) -> DataFrame:
    if not settings.source:
        raise UserError("--source is missing: name a log directory, a partition folder, a .log file or a glob")
    with configured(spark, _LISTING_CONF):
        return list_segments(
            spark,
            settings.source,
            follow_symlinks=settings.follow_symlinks,
            topics=settings.topics,
            exclude_topics=settings.exclude_topics,
        )


@contextmanager
def open_for_writing(spark: SparkSession, settings: Settings, app_id: str) -> Iterator[Lake]:
    """The lake, made where it is missing, locked, and with the runs finished that died in it."""
    address = lake_address(spark, settings.require_lake())
    runs = Runs(address)
    with runs.lock():
        create_tables(spark, settings.require_lake(), settings.catalog_schema)
        lake = Lake(spark, address, runs, app_id, lambda partitions: refresh(spark, address, partitions))
        for intent in lake.recover():
            log.info("finished the commits of run %s, which had been cut short", intent.run_id)
        yield lake


@contextmanager
def _planned(
    spark: SparkSession, settings: Settings, lake: Lake, listing: DataFrame
) -> Iterator[tuple[DataFrame, ledger.Counts]]:
    """The plan of the whole job and what it holds, reckoned once and kept on the executors' disks."""
    redecode = settings.redecode and checked_regex(spark, settings.redecode, "--redecode")
    kept = [listing.persist(StorageLevel.DISK_ONLY)]
    try:
        with configured(spark, _LISTING_CONF):
            if settings.one_copy:
                listing = ledger.furthest_copies(listing)
            known = lake.table(columns.SEGMENTS.name)
            holds = None
            if DeltaTable(table_path(lake.address, columns.SEGMENTS.name)).file_uris():
                holds = _marks(settings, lake, ledger.to_check(listing, known))
            planned = ledger.plan(listing, known, holds, redecode=redecode)
            kept.append(planned.persist(StorageLevel.DISK_ONLY))
            counts = ledger.count(planned)
        yield planned, counts
    finally:
        for frame in kept:
            frame.unpersist()


def _marks(settings: Settings, lake: Lake, known: DataFrame) -> DataFrame:
    """(segment, unchanged) of the known segments."""
    if settings.from_raw:
        return marks_in_raw(known, lake.table(columns.RAW_SEGMENTS.name))
    if settings.verify_content:
        return known.mapInArrow(fingerprint.read_content_marks(), fingerprint.MARKS_DDL)
    return known.drop("content_crc32c").mapInArrow(fingerprint.read_marks(), fingerprint.MARKS_DDL)


def _nothing_found(settings: Settings, counts: ledger.Counts) -> UserError:
    if settings.from_raw:
        return UserError("nothing was landed in the lake: run pipelines.ingest_raw first, or name --source")
    error = nothing_in(settings.source)
    passed = ", ".join(f"{n} x {reason}" for reason, n in counts.skipped.items())
    if settings.topics or settings.exclude_topics:
        passed = ", ".join(filter(None, [passed, "or the topics were not asked for"]))
    return UserError(f"{error}; passed over: {passed}" if passed else str(error))


def _warn_of_listing(
    settings: Settings, planned: DataFrame, counts: ledger.Counts, warnings: Counter[str]
) -> None:
    for reason in (TOPIC_TOO_LONG, PARTITION_TOO_BIG, OFFSET_TOO_BIG):
        if reason in counts.skipped:
            warnings[f"{counts.skipped[reason]} files passed over: {reason}"] += 1
    several = [] if settings.one_copy else ledger.replicas(planned.where("skip IS NULL"), _REPLICAS_SHOWN + 1)
    if several:
        named = ", ".join(f"{r.topic}-{r.partition} ({r.folders})" for r in several[:_REPLICAS_SHOWN])
        more = " and more" if len(several) > _REPLICAS_SHOWN else ""
        warnings[f"every copy of what stands in several folders is decoded (--one-copy takes one): {named}{more}"] += 1


def _run_all(
    spark: SparkSession,
    settings: Settings,
    lake: Lake,
    planned: DataFrame,
    counts: ledger.Counts,
    summary: Summary,
    warnings: Counter[str],
) -> None:
    """One bounded run after the other, until the plan is used up."""
    after: Segment | None = None
    done = 0
    while done < counts.planned:
        segments = ledger.next_segments(planned, after, settings.max_files_per_run)
        segments = take(segments, settings.max_files_per_run, settings.max_bytes_per_run)
        if not segments:
            break
        after = segments[-1]
        decoder = _decoder(spark, settings, lake, segments, summary.run_id)
        size = sum(s.planned_bytes for s in segments)
        with (
            progress.shown(spark, len(segments), size, done, counts.planned),
            configured(spark, stage_conf(decoder.reader.mode, segments)),
        ):
            staged = decoder.run(segments)
        done += len(segments)
        _add(summary, staged)
        warnings.update(staged.warnings)
        _warn_of_regressions(staged, warnings)


def _decoder(
    spark: SparkSession, settings: Settings, lake: Lake, segments: Sequence[Segment], run_id: str
) -> Decoder:
    mode = choose_mode(settings.read, settings.from_raw, [s.segment for s in segments])
    raw = lake.table(columns.RAW_SEGMENTS.name) if settings.from_raw else None
    return Decoder(
        spark,
        lake,
        Reader(spark, mode, settings.slice_bytes, raw),
        settings.sink,
        stage_options(settings, lake.address, run_id),
        (lambda uri: raw.where(F.col("segment") == uri).isEmpty())
        if raw is not None
        else (lambda uri: not exists(spark, uri)),
    )


def stage_options(settings: Settings, address: str, run_id: str) -> StageOptions:
    """What the workers have to know; decoded_at is now."""
    return StageOptions(
        run_id=run_id,
        decoded_at_us=time.time_ns() // 1000,
        window_bytes=settings.window_bytes,
        max_batch_uncompressed=settings.max_batch_uncompressed,
        quarantine_content_bytes=settings.quarantine_content_bytes,
        lake=address,
        parquet_compression=settings.parquet_compression,
    )


def stage_conf(mode: str, segments: Sequence[Segment]) -> dict[str, str]:
    """Settings of Spark for the stage: an Arrow batch of input holds one big content at most."""
    conf = {"spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true"}
    if mode != "direct":
        big = any(s.length > 2**26 for s in segments)
        conf["spark.sql.execution.arrow.maxRecordsPerBatch"] = "1" if big or mode == "raw" else "64"
        conf["spark.sql.execution.arrow.maxBytesPerBatch"] = str(2**26)
    return conf


def _add(summary: Summary, staged: Staged) -> None:
    for verdict in staged.news:
        summary.segments += 1
        summary.batches += verdict.total("entries")
        summary.records += verdict.total("records")
        summary.damaged += verdict.total("damaged")
        summary.bytes += verdict.segment.planned_bytes
        summary.partitions.add((verdict.segment.topic, verdict.segment.partition))
        summary.magics.update(m for r in verdict.reports for m in r.get("magics", ()))
    for file in staged.files.get(columns.BATCHES.name, []):
        summary.magics.add(int(file["partition_values"]["magic"]))


def _warn_of_regressions(staged: Staged, warnings: Counter[str]) -> None:
    for verdict in staged.news:
        if verdict.row is not None and verdict.total("offset_regressions"):
            warnings["offsets do not rise in some segments (segments.offset_regressions > 0)"] += 1


def decode_segments(spark: SparkSession, source: str | Sequence[str], **settings: Any) -> DataFrame:
    """The columns of ``records`` of all segments of a source: lazy, nothing written, no ledger.

    settings: as ``Settings`` has them (topics, max_batch_uncompressed, ...). Every segment is one slice.
    """
    made = make_settings({**settings, "source": source})
    segments = _list(spark, made).where("skip IS NULL")
    if made.one_copy:
        segments = ledger.furthest_copies(segments)
    empty = {"start": 0, "stop": F.col("length"), "exact_start": True, "uri": F.col("segment"), "chunk_position": 0}
    rows = segments.withColumn("group_id", F.spark_partition_id())
    for field in spark_stage.SLICE_SCHEMA.names:
        if field not in rows.columns:
            value = empty.get(field)
            rows = rows.withColumn(field, value if value is not None and not isinstance(value, int) else F.lit(value))
    typed = rows.select(*spark_stage.SLICE_SCHEMA.names).to(_spark_schema(spark))
    ddl = ", ".join(f"`{c.name}` {c.sql_type}" for c in columns.RECORDS.columns)
    options = stage_options(made, "", uuid.uuid4().hex)
    return typed.mapInArrow(spark_stage.read_records(options), ddl)


def _spark_schema(spark: SparkSession) -> Any:
    return spark.createDataFrame([], spark_stage.SLICE_DDL).schema


def _job(spark: SparkSession, settings: Settings) -> None:
    summary = run(spark, settings)
    print(summary.to_json() if settings.json else summary.to_text(), flush=True)
    if settings.fail_on_damage and summary.damaged:
        raise DamageFound(f"{summary.damaged} damaged ranges, see the table quarantine")


def main(argv: Sequence[str] | None = None) -> int:
    return run_job(_job, "Decode Kafka log segments into Delta tables.", SETTING_NAMES, argv)


if __name__ == "__main__":
    sys.exit(main())
