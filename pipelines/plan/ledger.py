"""Which segments of a listing a run has to decode: the listing joined with the ledger, all of it in Spark.

Every known segment's marks (the headers that its fingerprint covers) are read again in every run, by the
workers. A segment that still shows them goes on where it stopped; one that doesn't was rewritten and is
decoded anew. Nothing here collects the listing: the driver takes one bounded run's rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.plan.slices import GO_ON, NEW, REWRITTEN, Segment
from pipelines.source.listing import LISTING_COLUMNS
from udfs.format import schema as columns

UNCHANGED = "unchanged"
LEDGER_COLUMNS = [column.name for column in columns.SEGMENTS.columns]
_WAS_TYPE = "struct<" + ",".join(f"`{c.name}`:{c.sql_type}" for c in columns.SEGMENTS.columns) + ">"


@dataclass(frozen=True)
class Counts:
    """How many segments stand how. skipped: reason -> number of folders, or of files for reasons of files.

    copies: whether a topic-partition may stand in several folders.
    """

    planned: int
    planned_bytes: int
    unchanged: int
    copies: bool
    skipped: dict[str, int]

    @property
    def found(self) -> int:
        return self.planned + self.unchanged


def plan(
    listing: DataFrame, ledger: DataFrame | None, holds: DataFrame | None, *, redecode: str | None = None
) -> DataFrame:
    """The listing with what to do about each segment: columns of the listing, ``action`` and ``was``.

    ledger: the table ``segments``, None where it is empty; ``was`` is its row, null for a new segment.
    holds: (segment, unchanged) of the known segments, from the marks.
    redecode: a Java regular expression looked for in the segment's URI.
    """
    if ledger is None or holds is None:
        return listing.withColumn("action", F.lit(NEW)).withColumn("was", F.lit(None).cast(_WAS_TYPE))
    was = ledger.select(F.col("segment").alias("known"), F.struct(*LEDGER_COLUMNS).alias("was"))
    marks = holds.select(F.col("segment").alias("marked"), "unchanged")
    joined = listing.join(was, F.col("segment") == F.col("known"), "left").join(
        marks, F.col("segment") == F.col("marked"), "left"
    )
    return joined.withColumn("action", _action(redecode)).select(*LISTING_COLUMNS, "action", "was")


def _action(redecode: str | None) -> Column:
    length, was = F.col("length"), F.col("was")
    asked = F.lit(False) if redecode is None else F.col("segment").rlike(redecode)
    grown = length > was.length
    moved = (was.tail != "none") & ((length != was.length) | (F.col("modified") != was.modified))
    # A torn entry in a segment that got a successor will never be finished: it becomes damage
    closed = (was.tail == "torn") & F.col("has_successor")
    return (
        F.when(was.isNull(), NEW)
        .when(asked | ~F.coalesce("unchanged", F.lit(True)) | (length < was.decoded_bytes), REWRITTEN)
        .when(grown | moved | closed, GO_ON)
        .otherwise(UNCHANGED)
    )


def to_check(listing: DataFrame, ledger: DataFrame) -> DataFrame:
    """The known segments whose marks have to be read again, as ``udfs.source.fingerprint`` takes them."""
    known = ledger.where("decoded_bytes > 0 AND fingerprint IS NOT NULL").select(
        F.col("segment").alias("known"), "decoded_bytes", "fingerprint", "content_crc32c"
    )
    return listing.join(known, F.col("segment") == F.col("known")).select(
        "segment",
        F.col("segment").alias("uri"),
        "length",
        "decoded_bytes",
        "fingerprint",
        "content_crc32c",
    )


def furthest_copies(listing: DataFrame) -> DataFrame:
    """Of every topic-partition's folders only the one that reaches the highest offset.

    The rule, from the listing alone: the highest base offset of a segment, then the longest such segment,
    then the most bytes in all; a tie goes to the first folder by name.
    """
    copies = _copies(listing)
    best = Window.partitionBy("topic", "partition").orderBy(
        F.col("reach.file_base_offset").desc(), F.col("reach.length").desc(), F.col("bytes").desc(), "log_dir"
    )
    kept = copies.withColumn("nth", F.row_number().over(best)).where("nth = 1")
    return listing.join(kept.select("log_dir"), "log_dir", "left_semi").select(*listing.columns)


def replicas(listing: DataFrame, limit: int) -> list[Row]:
    """Topic-partitions that stand in several folders: topic, partition, folders; at most ``limit``."""
    folders = _copies(listing).groupBy("topic", "partition").agg(F.count("*").alias("folders"))
    return folders.where("folders > 1").orderBy("topic", "partition").limit(limit).collect()


def _copies(listing: DataFrame) -> DataFrame:
    return listing.groupBy("topic", "partition", "log_dir").agg(
        F.max(F.struct("file_base_offset", "length")).alias("reach"), F.sum("length").alias("bytes")
    )


def count(planned: DataFrame) -> Counts:
    """One pass over the plan (columns of ``plan``); what it counts is persisted by the caller."""
    key = F.coalesce("skip", "action").alias("key")
    start = F.when(F.col("action") == GO_ON, F.col("was.decoded_bytes")).otherwise(F.lit(0))
    folders = planned.groupBy(
        key, F.col("skip").isNotNull().alias("skipped"), "topic", "partition", "log_dir"
    ).agg(F.count("*").alias("files"), F.sum(F.col("length") - start).alias("bytes"))
    rows = (
        folders.groupBy("key", "skipped")
        .agg(
            F.sum("files").alias("files"),
            F.count("*").alias("folders"),
            F.count_distinct("topic", "partition").alias("partitions"),
            F.sum("bytes").alias("bytes"),
        )
        .collect()
    )
    listed = [r for r in rows if not r.skipped]
    todo = [r for r in listed if r.key != UNCHANGED]
    return Counts(
        planned=sum(r.files for r in todo),
        planned_bytes=sum(r.bytes for r in todo),
        unchanged=sum(r.files for r in listed if r.key == UNCHANGED),
        copies=len(listed) > 1 or any(r.folders > r.partitions for r in listed),
        skipped={
            r.key: r.folders if r.key.startswith("folder") else r.files
            for r in sorted(rows, key=lambda r: str(r.key))
            if r.skipped
        },
    )


def next_segments(planned: DataFrame, after: Segment | None, limit: int) -> list[Segment]:
    """The next rows that need work, at most ``limit``, in order of folder and base offset."""
    rows = planned.where((F.col("action") != UNCHANGED) & F.col("skip").isNull())
    order = ["log_dir", "file_base_offset", "segment"]
    if after is not None:
        last = F.struct(*(F.lit(getattr(after, name)).alias(name) for name in order))
        rows = rows.where(F.struct(*order) > last)
    micros = rows.withColumn("modified", F.unix_micros("modified")).withColumn("was", _plain(F.col("was")))
    return [to_segment(row) for row in micros.orderBy(*order).limit(limit).collect()]


def _plain(was: Column) -> Column:
    """The ledger's row with its timestamps as microseconds: years before 1 would not pass as datetimes."""
    times = [c.name for c in columns.SEGMENTS.columns if c.sql_type == "timestamp"]
    for name in times:
        was = was.withField(name, F.unix_micros(was[name]))
    return was


def to_segment(row: Row) -> Segment:
    """A collected row of the plan."""
    return Segment(
        topic=row.topic,
        partition=row.partition,
        log_dir=row.log_dir,
        segment=row.segment,
        file_base_offset=row.file_base_offset,
        length=row.length,
        modified_us=row.modified,
        has_successor=row.has_successor,
        action=row.action,
        was=None if row.was is None else row.was.asDict(),
    )


def rows_between(
    spark: SparkSession, ledger: DataFrame, reaches: Iterable[tuple[str, int, int]]
) -> list[dict[str, Any]]:
    """Rows of a ledger that stand in a folder at (file_base_offset, reach].

    They hold topic, partition, log_dir, segment, file_base_offset.
    reaches: (log_dir, file_base_offset of a rewritten segment, its new last offset).
    """
    wanted = spark.createDataFrame(list(reaches), "folder string, above bigint, reach bigint")
    in_reach = (
        (F.col("log_dir") == F.col("folder"))
        & (F.col("file_base_offset") > F.col("above"))
        & (F.col("file_base_offset") <= F.col("reach"))
    )
    rows = ledger.join(F.broadcast(wanted), in_reach).select(
        "topic", "partition", "log_dir", "segment", "file_base_offset"
    )
    rows = rows.distinct()
    return [row.asDict() for row in rows.collect()]
