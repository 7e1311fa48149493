"""What both jobs that read segments share: sources listed, planned once, taken in bounded runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from pipelines.command.errors import UserError
from pipelines.command.settings import Settings
from pipelines.command.summary import Summary
from pipelines.execute.slice_rows import BINARY, DIRECT
from pipelines.lake.address import lake_address
from pipelines.lake.commit import Lake, configured
from pipelines.lake.create import check_place, create_tables
from pipelines.lake.intents import Runs
from pipelines.lake.transactions import refresh
from pipelines.plan import ledger
from pipelines.plan.slices import Segment, take
from pipelines.source.listing import (
    OFFSET_TOO_BIG,
    PARTITION_TOO_BIG,
    TOPIC_TOO_LONG,
    checked_regex,
    list_segments,
    nothing_in,
)
from udfs.spark.protocol import StageOptions

log = logging.getLogger(__name__)

# A listing's files are not read, so their length must not decide about its tasks
_LISTING_CONF = {"spark.sql.files.maxPartitionBytes": str(2**62)}
# deltalake reads Spark's default, INT96, as nanoseconds: years past 2262 would not survive
_WRITING_CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_BIG_CONTENT = 2**26
_REPLICAS_SHOWN = 5

Marks = Callable[[DataFrame], DataFrame]


def list_sources(spark: SparkSession, settings: Settings) -> DataFrame:
    """The listing of ``--source``; a UserError where a source can't be opened."""
    if not settings.source:
        raise UserError("--source is missing: name a log directory, partition folder, .log file or glob")
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
    there = check_place(spark, address)
    runs = Runs(address)
    with runs.lock(), configured(spark, _WRITING_CONF):
        if settings.catalog_schema or not there:
            create_tables(spark, address, settings.catalog_schema)
        lake = Lake(spark, address, runs, app_id, partial(refresh, spark, address))
        for intent in lake.recover():
            log.info("finished the commits of run %s, which had been cut short", intent.run_id)
        yield lake


@contextmanager
def planned(
    spark: SparkSession, settings: Settings, listing: DataFrame, known: DataFrame | None, marks: Marks
) -> Iterator[tuple[DataFrame, ledger.Counts]]:
    """The plan of the whole job and what it holds, reckoned once and kept on the executors' disks.

    known: the ledger, None where it is empty; marks: makes (segment, unchanged) of ``ledger.to_check``.
    """
    redecode = settings.redecode and checked_regex(spark, settings.redecode, "--redecode")
    kept = []
    try:
        if known is not None or settings.one_copy:  # else the plan alone reads it
            kept.append(listing.persist(StorageLevel.DISK_ONLY))
        with configured(spark, _LISTING_CONF):
            if settings.one_copy:
                listing = ledger.furthest_copies(listing)
            holds = None if known is None else marks(ledger.to_check(listing, known))
            plan = ledger.plan(listing, known, holds, redecode=redecode)
            kept.append(plan.persist(StorageLevel.DISK_ONLY))
            counts = ledger.count(plan)
        if not counts.found:
            raise _nothing_found(settings, counts)
        yield plan, counts
    finally:
        for frame in kept:
            frame.unpersist()


def _nothing_found(settings: Settings, counts: ledger.Counts) -> UserError:
    if settings.from_raw:
        return UserError("nothing was landed in the lake: run pipelines.ingest_raw first, or name --source")
    error = nothing_in(settings.source)
    passed = [f"{n} x {reason}" for reason, n in counts.skipped.items()]
    if settings.topics or settings.exclude_topics:
        passed.append("topics that were not asked for")
    return UserError(f"{error}; passed over: {', '.join(passed)}" if passed else str(error))


def warnings_of_listing(settings: Settings, plan: DataFrame, counts: ledger.Counts) -> list[str]:
    """What a person should know before the first byte is read."""
    reasons = (TOPIC_TOO_LONG, PARTITION_TOO_BIG, OFFSET_TOO_BIG)
    warnings = [f"{counts.skipped[r]} files passed over: {r}" for r in reasons if r in counts.skipped]
    several = []
    if counts.planned and counts.copies and not settings.one_copy:
        several = ledger.replicas(plan.where("skip IS NULL"), _REPLICAS_SHOWN + 1)
    if several:
        named = ", ".join(f"{r.topic}-{r.partition} ({r.folders})" for r in several[:_REPLICAS_SHOWN])
        more = " and more" if len(several) > _REPLICAS_SHOWN else ""
        warnings.append(
            f"every copy of what stands in several folders is decoded (--one-copy takes one): {named}{more}"
        )
    return warnings


def bounded(settings: Settings, plan: DataFrame, counts: ledger.Counts) -> Iterator[list[Segment]]:
    """The plan's segments, a bounded run at a time, until it is used up."""
    after: Segment | None = None
    done = 0
    while done < counts.planned:
        rows = ledger.next_segments(plan, after, settings.max_files_per_run)
        segments = take(rows, settings.max_files_per_run, settings.max_bytes_per_run)
        if not segments:
            return
        yield segments
        after = segments[-1]
        done += len(segments)


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
    if mode != DIRECT:
        big = mode == BINARY and any(s.length > _BIG_CONTENT for s in segments)
        conf["spark.sql.execution.arrow.maxRecordsPerBatch"] = "1" if big else "1000"
        conf["spark.sql.execution.arrow.maxBytesPerBatch"] = str(_BIG_CONTENT)
    return conf


def tell(summary: Summary, as_json: bool) -> None:
    """The warnings on standard error, then the summary as the last thing on standard output."""
    for text in summary.warnings:
        log.warning("%s", text)
    print(summary.to_json() if as_json else summary.to_text(), flush=True)
