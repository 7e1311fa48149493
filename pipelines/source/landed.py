"""Landed bytes seen as segments: what ``raw_segments`` offers to decode, and how far each file was landed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.source.listing import LISTING_COLUMNS
from udfs.format import schema as columns
from udfs.source import fingerprint
from udfs.source.byte_source import ChunkSource, SourceChanged

_SEGMENT_KEY = ("topic", "partition", "log_dir", "segment", "file_base_offset")
# Of bytes behind the last whole entry it is not known here whether they are torn or zeros
UNKNOWN_TAIL = "unknown"


def list_raw(raw: DataFrame) -> DataFrame:
    """The listing (``pipelines.source.listing.LISTING_DDL``) of the segments whose bytes were landed."""
    end = F.col("chunk_position") + F.col("chunk_bytes")
    segments = raw.groupBy(*_SEGMENT_KEY).agg(
        F.max(end).alias("length"), F.max_by("modified", "chunk_position").alias("modified")
    )
    last = F.max("file_base_offset").over(Window.partitionBy("log_dir"))
    return (
        segments.withColumn("has_successor", last > F.col("file_base_offset"))
        .withColumn("skip", F.lit(None).cast("string"))
        .select(*LISTING_COLUMNS)
    )


def landed(raw: DataFrame) -> DataFrame:
    """How far each file was landed, in the columns of the ledger, so that ``ledger.plan`` can go on from it.

    decoded_bytes: the end of the last whole entry; what follows it is landed again once the file changes.
    """
    end = F.col("chunk_position") + F.col("chunk_bytes")
    last_entry = _mark_position(F.col("fingerprint"), -1)
    sound = F.when(last_entry < F.col("chunk_position"), F.col("chunk_position")).otherwise(end)
    last = F.max_by(
        F.struct(end.alias("length"), "modified", sound.alias("decoded_bytes"), "fingerprint", "run_id"),
        "chunk_position",
    )
    known = raw.groupBy(*_SEGMENT_KEY).agg(last.alias("last")).select(*_SEGMENT_KEY, "last.*")
    known = known.withColumn("tail_bytes", F.col("length") - F.col("decoded_bytes")).withColumn(
        "tail", F.when(F.col("tail_bytes") > 0, UNKNOWN_TAIL).otherwise("none")
    )
    return known.select(
        *(
            F.col(c.name) if c.name in known.columns else F.lit(None).cast(c.sql_type).alias(c.name)
            for c in columns.SEGMENTS.columns
        )
    )


def marks_in_raw(known: DataFrame, raw: DataFrame) -> DataFrame:
    """(segment, unchanged) as ``fingerprint.read_marks`` gives it, from landed chunks.

    known: columns segment, length, decoded_bytes, fingerprint. Only chunks that hold a mark are read.
    """
    marks = known.select(
        "segment",
        (F.col("length") >= F.col("decoded_bytes")).alias("long_enough"),
        F.explode(F.array_distinct(F.split("fingerprint", "/"))).alias("mark"),
    )
    parts = F.split("mark", ":")
    marks = marks.withColumn("at", parts[0].cast("bigint")).withColumn("size", parts[1].cast("bigint"))
    chunks = raw.select(F.col("segment").alias("landed"), "chunk_position", "chunk_bytes", "content")
    overlap = (
        (F.col("segment") == F.col("landed"))
        & (F.col("chunk_position") < F.col("at") + F.col("size"))
        & (F.col("chunk_position") + F.col("chunk_bytes") > F.col("at"))
    )
    begin = F.greatest(F.col("at"), F.col("chunk_position"))
    offset = (begin - F.col("chunk_position") + 1).cast("int")
    piece = F.substring(F.col("content"), offset, (F.col("at") + F.col("size") - begin).cast("int"))
    # The side with the contents must not be shuffled
    pieces = (
        chunks.join(F.broadcast(marks), overlap)
        .select(
            "segment",
            "long_enough",
            "mark",
            F.struct(begin.alias("position"), piece.alias("bytes")).alias("piece"),
        )
        .groupBy("segment", "long_enough", "mark")
        .agg(F.array_sort(F.collect_list("piece")).alias("pieces"))
    )
    held = (
        pieces.mapInArrow(_read_marks(), "held string, holds boolean")
        .groupBy("held")
        .agg(F.sum(F.col("holds").cast("int")).alias("marks"))
    )
    wanted = F.size(F.array_distinct(F.split("fingerprint", "/")))
    return known.join(held, F.col("segment") == F.col("held"), "left").select(
        "segment", F.coalesce(F.col("marks") == wanted, F.lit(False)).alias("unchanged")
    )


def _mark_position(mark: Column, which: int) -> Column:
    """Position of the first (0) or last (-1) mark of a fingerprint: ``position:size:hash/...``."""
    one = F.element_at(F.split(mark, "/"), 1 if which == 0 else -1)
    return F.element_at(F.split(one, ":"), 1).cast("bigint")


def _read_marks() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def holds(row: dict[str, Any]) -> bool:
        if not row["long_enough"]:
            return False
        source = ChunkSource((p["position"], p["bytes"]) for p in row["pieces"])
        position, size, _ = row["mark"].split(":")
        try:
            return bool(fingerprint.mark(source, int(position), int(position) + int(size)) == row["mark"])
        except SourceChanged:
            return False

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [holds(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_arrays(
                [batch.column("segment"), pa.array(found, pa.bool_())], names=["held", "holds"]
            )

    return read
