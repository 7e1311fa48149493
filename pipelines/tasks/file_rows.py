"""Makes rows of slices whose bytes Spark's own readers bring (``--read binary``): ``binaryFile``, ``text``.

A file of at most ``max_content`` bytes comes as the column ``content`` of ``binaryFile``. A larger one is not
read there: its tasks open it and read their slices of it. Where only Spark can open it, ``text`` reads it in
lines, so that no process holds it whole.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.engine.driver import driver_of
from kafka_log_lake.pipelines.listing.hadoop import canonical_path, exists, open_to_spark
from kafka_log_lake.pipelines.listing.uris import escape
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, pack, to_arrow
from kafka_log_lake.udfs.spark.lines import SEPARATOR, join_lines
from kafka_log_lake.udfs.spark.protocol import SLICE_DDL, SLICE_SCHEMA
from kafka_log_lake.udfs.storage.store import spark_uri, worker_opens

_COPIES = 12  # of one value in Spark's heap, as measured
_SMALL = 64 << 20  # of which the heap that Spark has by default holds these copies
_ROW_ORDER = ("group_id", "partition_dir", "file_base_offset", "segment", "start", "chunk_position")
_CODEC = "org.apache.hadoop.io.compress.PassthroughCodec"
# The second is the name that Hadoop's own client has, whose libraries are renamed, and with them this setting
_CODEC_SUFFIX = (
    "io.compress.passthrough.extension",
    "org.apache.hadoop.shaded.io.compress.passthrough.extension",
)
_LINE = 1 << 20  # bytes that a line may always have: more than end a file unseen


@dataclass(frozen=True)
class FileRows:
    """Reads files by Spark. max_content: bytes of a file that may be one value of Spark's."""

    spark: SparkSession
    slice_bytes: int
    max_content: int

    def rows(self, slices: Sequence[Slice]) -> DataFrame:
        """Returns rows of SLICE_SCHEMA, with the bytes of the slices or for tasks that read them.

        Raises a UserError for a file that Spark can't open, or whose content its heap can't hold.
        """
        for bucket in {"/".join(s.segment.uri.split("/")[:3]) for s in slices}:
            open_to_spark(self.spark, bucket)
        small = [slice_ for slice_ in slices if slice_.segment.length <= self.max_content]
        large = [slice_ for slice_ in slices if slice_.segment.length > self.max_content]
        opened = [slice_ for slice_ in large if worker_opens(slice_.segment.uri)]
        others = [slice_ for slice_ in large if not worker_opens(slice_.segment.uri)]
        self._check_heap([slice_.segment for slice_ in (*small, *others)])
        frames = [self._with_content(small)] if small else []
        frames += [self._opened_by_tasks(opened)] if opened else []
        frames += self._in_lines(others)
        return reduce(DataFrame.union, frames or [self._none()])

    def _none(self) -> DataFrame:
        return self.spark.createDataFrame([], SLICE_DDL)

    def _with_content(self, slices: Sequence[Slice]) -> DataFrame:
        """Returns one row a slice, with the content of its file unless that has grown past the bound."""
        files = self._files(slices)
        plan = self.spark.createDataFrame(to_arrow(slices)).drop("content")
        rows = self._none()
        if files is not None:
            files = files.where(F.col("length") <= self.max_content)  # Spark looks before it reads
            joined = files.select(_read_file(), "content").join(F.broadcast(plan), _is_its_file())
            rows = joined.where("length > 0").select(*SLICE_SCHEMA.names)
        # Spark gives no row for an empty file
        empty = plan.where("length = 0").withColumn("content", F.lit(b""))
        return rows.union(empty.select(*SLICE_SCHEMA.names))

    def _check_heap(self, segments: Sequence[Segment]) -> None:
        """Raises a UserError for files of which Spark can't hold a value: a whole file, or a line of one."""
        largest = max(segments, key=lambda segment: segment.length, default=None)
        size = min(largest.length, self.max_content) if largest else 0
        heap, needed = driver_of(self.spark).heap_of_tasks(), size * _COPIES
        if largest and size > _SMALL and heap is not None and needed > heap:
            raise UserError(
                f"--max-content {self.max_content}: {size} bytes of {largest.uri} may be one value in Spark, "
                f"which needs a heap of {-(-needed >> 30)}g: set --driver-memory (on a cluster "
                "spark.executor.memory), or leave --max-content away"
            )

    def _opened_by_tasks(self, slices: Sequence[Slice]) -> DataFrame:
        """Returns one row a slice without content, which its task reads.

        ``binaryFile`` only lists paths and lengths of the files.
        """
        files = self._files(slices)
        if files is None:
            return self._none()
        plan, tasks = planned(self.spark, slices, self.slice_bytes)
        return distributed(files.select(_read_file()).join(F.broadcast(plan), _is_its_file()), tasks)

    def _files(self, slices: Sequence[Slice]) -> DataFrame | None:
        """Returns Spark's binaryFile rows of the slices' files; None if none of them is there any more."""
        return self._load(self.spark.read.format("binaryFile"), slices)

    def _load(self, reader: DataFrameReader, slices: Sequence[Slice]) -> DataFrame | None:
        """Returns a reader's rows of those files of the slices that are there; None if none is."""
        uris = list(dict.fromkeys(slice_.segment.uri for slice_ in slices))
        while uris:
            try:
                files = reader.option("ignoreMissingFiles", "true").load(
                    [escape(spark_uri(uri)) for uri in uris]
                )
                _ = files.schema  # Spark Connect says now, and not later, what is wrong
                return files
            except AnalysisException as error:
                existing = [uri for uri in uris if exists(self.spark, uri)]
                if error.getCondition() != "PATH_NOT_FOUND" or len(existing) == len(uris):
                    raise
                uris = existing
        return None

    def _in_lines(self, slices: Sequence[Slice]) -> list[DataFrame]:
        """Returns rows with the bytes of files, one a chunk.

        ``text`` changes no byte of a line. Each file is read by one task, in order: ``text`` does not split
        what is compressed, so the files are declared as compressed, by a codec that changes nothing. A file
        that Spark splits all the same has no size, so that it is left.
        """
        by_suffix: dict[str, list[Slice]] = defaultdict(list)
        for slice_ in slices:
            by_suffix[os.path.splitext(slice_.segment.uri)[1]].append(slice_)
        frames = []
        for suffix, some in by_suffix.items():
            reader = (
                self.spark.read.format("text")
                .schema("value string")
                .options(
                    **{
                        "lineSep": SEPARATOR.decode(),
                        "io.compression.codecs": _CODEC,
                        "mapreduce.input.linerecordreader.line.maxlength": str(max(self.max_content, _LINE)),
                        **dict.fromkeys(_CODEC_SUFFIX, suffix),
                    }
                )
            )
            lines = self._load(reader, some)
            if lines is not None:
                size = F.col("_metadata.file_size")
                whole = F.when(F.col("_metadata.file_block_length") == size, size)
                value = F.col("value").cast("binary")
                values = lines.select("_metadata.file_path", whole.alias("file_size"), value)
                frames.append(values.mapInArrow(partial(join_lines, to_arrow(some)), SLICE_DDL))
        return frames


def planned(spark: SparkSession, slices: Sequence[Slice], slice_bytes: int) -> tuple[DataFrame, int]:
    """Returns rows of slices with the number of the task of each, and how many tasks there are."""
    tasks = pack(slices, driver_of(spark).parallelism(), slice_bytes)
    table = to_arrow([slice_ for task in tasks for slice_ in task])
    ids = pa.array([number for number, task in enumerate(tasks) for _ in task], pa.int32())
    return spark.createDataFrame(table.append_column("task", ids)), len(tasks)


def distributed(rows: DataFrame, tasks: int) -> DataFrame:
    """Brings rows of slices into their numbered tasks, each in order; returns columns of SLICE_SCHEMA."""
    in_tasks = rows.repartitionById(tasks, "task").drop("task")
    return in_tasks.sortWithinPartitions(*_ROW_ORDER).select(*SLICE_SCHEMA.names)


def _read_file() -> Column:
    """Returns the column of binaryFile's paths as canonical URIs, named ``read_file``."""
    return canonical_path(F.col("path")).alias("read_file")


def _is_its_file() -> Column:
    return F.col("read_file") == F.coalesce("file", "segment")
