"""Slices of a plan made into the rows that the stage of ``udfs.spark.tasks`` takes.

The bytes reach the worker in one of three ways: it opens the URI itself (``direct``), Spark brings the file's
``content`` (``binary``), or the chunks that ``ingest_raw`` landed (``raw``). The stage can't tell them apart
but for the column ``content``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.errors import UserError
from pipelines.plan.slices import Slice, pack
from pipelines.source.uris import escape, exists
from udfs.spark.protocol import SLICE_SCHEMA

DIRECT, BINARY, RAW = "direct", "binary", "raw"
# What pyarrow.fs opens in a worker; all else Spark has to bring
_WORKER_OPENS = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_MAX_CONTENT = 2**31 - 1
_ROW_ORDER = ("group_id", "log_dir", "file_base_offset", "segment", "start", "chunk_position")


@dataclass(frozen=True)
class Reader:
    """How the bytes of a run's slices reach the worker.

    mode: DIRECT, BINARY or RAW; raw: the table raw_segments, for RAW.
    slice_bytes: see ``pipelines.plan.slices``.
    """

    spark: SparkSession
    mode: str
    slice_bytes: int
    raw: DataFrame | None = None

    @property
    def splits(self) -> bool:
        """Whether a segment may be cut into slices: chunks come to one task."""
        return self.mode == DIRECT

    @property
    def one_group_a_segment(self) -> bool:
        """Whether Spark's own spread of files over tasks is kept, so that no content is shuffled."""
        return self.mode == BINARY

    @property
    def may_lose_files(self) -> bool:
        """Whether a file that is gone is simply not among the rows."""
        return self.mode == BINARY

    def rows(self, slices: Sequence[Slice]) -> DataFrame:
        """The stage's input, columns of SLICE_SCHEMA: a group's rows in one partition, in order."""
        if self.mode == BINARY:
            return self._with_content(slices)
        tasks = pack(slices, self.spark.sparkContext.defaultParallelism, self.slice_bytes)
        table = to_arrow([s for t in tasks for s in t.slices])
        ids = pa.array([t.task_id for t in tasks for _ in t.slices], pa.int32())
        frame = self.spark.createDataFrame(table.append_column("task", ids))
        if self.mode == RAW:
            frame = self._with_chunks(frame)
        spread = frame.repartitionById(len(tasks), "task").drop("task")
        return spread.sortWithinPartitions(*_ROW_ORDER).select(*SLICE_SCHEMA.names)

    def _with_content(self, slices: Sequence[Slice]) -> DataFrame:
        for piece in slices:
            if piece.segment.length > _MAX_CONTENT:
                raise UserError(
                    "--read binary holds a file in one piece and can't pass 2 GiB: "
                    f"{piece.segment.segment} has {piece.segment.length} bytes; use --read direct"
                )
        plan = self.spark.createDataFrame(to_arrow(slices)).drop("content")
        contents = self._files([s.segment.segment for s in slices]).select(
            F.regexp_replace("path", r"\Afile:/+", "file:///").alias("read_segment"), "content"
        )
        joined = contents.join(F.broadcast(plan), F.col("read_segment") == F.col("segment"))
        return joined.select(*SLICE_SCHEMA.names)

    def _files(self, uris: Sequence[str]) -> DataFrame:
        """binaryFile's rows of these files, of those that are still there."""
        reader = self.spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
        try:
            return reader.load([escape(uri) for uri in uris])
        except AnalysisException as error:
            left = [uri for uri in uris if exists(self.spark, uri)]
            if error.getCondition() != "PATH_NOT_FOUND" or len(left) == len(uris):
                raise
            if left:
                return self._files(left)
            return self.spark.createDataFrame([], "path string, content binary")

    def _with_chunks(self, plan: DataFrame) -> DataFrame:
        assert self.raw is not None
        chunks = self.raw.select(
            F.col("segment").alias("landed"),
            F.col("chunk_position").alias("at"),
            F.col("chunk_bytes").alias("size"),
            F.col("content").alias("bytes"),
        )
        overlap = (
            (F.col("landed") == F.col("segment"))
            & (F.col("at") < F.col("length"))
            & (F.col("at") + F.col("size") > F.col("start"))
        )
        return (
            chunks.join(F.broadcast(plan.drop("content", "chunk_position")), overlap)
            .withColumnsRenamed({"at": "chunk_position", "bytes": "content"})
            .drop("landed", "size")
        )


def choose_mode(read: str, from_raw: bool, uris: Sequence[str]) -> str:
    """DIRECT, BINARY or RAW for a run over these segments."""
    if from_raw:
        return RAW
    if read != "auto":
        return read
    schemes = {uri.partition("://")[0] for uri in uris}
    return DIRECT if schemes <= set(_WORKER_OPENS) else BINARY


def to_arrow(slices: Sequence[Slice]) -> pa.Table:
    """One row a slice, columns of SLICE_SCHEMA; no content."""
    return pa.Table.from_pylist([_row(s) for s in slices], schema=SLICE_SCHEMA)


def _row(piece: Slice) -> dict[str, Any]:
    at = piece.segment
    was = at.was if at.was and piece.start == at.start and at.start > 0 else {}
    return {
        "group_id": piece.group_id,
        "topic": at.topic,
        "partition": at.partition,
        "log_dir": at.log_dir,
        "segment": at.segment,
        "uri": at.segment,
        "file_base_offset": at.file_base_offset,
        "length": at.length,
        "modified_us": at.modified_us,
        "start": piece.start,
        "stop": piece.stop,
        "exact_start": piece.exact_start,
        "has_successor": at.has_successor,
        "previous_last_offset": was.get("end_offset"),
        "expected_crc32c": piece.expected_crc32c,
        "fingerprint": at.was["fingerprint"] if at.was and at.start > 0 else None,
        "chunk_position": 0,
    }
