"""Turns slices into the input rows of the stage that runs on the workers (``udfs.spark.tasks``).

The bytes reach a worker in one of three ways: it opens the URI itself (``direct``), Spark reads the file into
the column ``content`` (``binary``), or ``content`` holds chunks that ``ingest_raw`` landed (``raw``). The
rows differ in nothing else. Workers are Spark's; or processes of this machine, where they open the files
themselves and write the tables, and the Spark would be one that the command starts for itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.driver import driver_of
from pipelines.command.errors import UserError
from pipelines.command.on_demand import SparkOnDemand
from pipelines.plan.slices import LITTLE, Slice, pack, to_arrow
from pipelines.source.hadoop import exists, open_to_spark
from pipelines.source.uris import escape
from udfs.source.store import worker_opens
from udfs.spark.protocol import REPORT_DDL, SLICE_SCHEMA, Stage, StageName, StageOptions, stage

DIRECT, BINARY, RAW = "direct", "binary", "raw"
_MAX_CONTENT = 2**31 - 1
# Metrics that a listener of Spark's queries gets -> the field of Totals that they are the sum of
OBSERVED = {
    "records": "records",
    "batches": "batches",
    "sound_bytes": "sound_bytes",
    "damaged_ranges": "damaged",
    "damaged_bytes": "quarantined_bytes",
}
_ROW_ORDER = ("group_id", "partition_dir", "file_base_offset", "segment", "start", "chunk_position")


ReportRow = tuple[int, str, str]  # group_id, kind, payload: a data file, or the report of a slice


@dataclass(frozen=True)
class Reader:
    """How the bytes of a run's slices reach the workers.

    mode: DIRECT, BINARY or RAW. raw: the table raw_segments if mode is RAW. in_processes: whether the workers
    are processes of this machine; else they are Spark's. slice_bytes: see ``pipelines.plan.slices``.
    """

    on_demand: SparkOnDemand
    mode: str
    slice_bytes: int
    raw: DataFrame | None = None
    in_processes: bool = False

    @property
    def spark(self) -> SparkSession:
        return self.on_demand.spark

    @property
    def reads_files(self) -> bool:
        """Whether Spark reads files whole: a segment is a group, and a file that is gone has no row."""
        return self.mode == BINARY

    def reports(self, name: StageName, options: StageOptions, slices: Sequence[Slice]) -> list[ReportRow]:
        """Runs a stage that gives reports on these slices; not on all of them where it ``was_stopped``."""
        if not self.in_processes:
            done = self.observed(slices, stage(name, options), REPORT_DDL)
            return [tuple(row) for row in done.collect()]
        processes = self.on_demand.processes
        is_little = sum(one.stop - one.start for one in slices) < LITTLE
        tasks = pack(slices, 1 if is_little else processes.number, self.slice_bytes)
        answers = processes.run(partial(stage, name, options), list(map(to_arrow, tasks)), may_stop=True)
        return [tuple(row.values()) for answer in answers for row in answer.to_pylist()]

    @property
    def was_stopped(self) -> bool:
        """Whether Ctrl-C ended the last stage early. Spark gives nothing of a stage that it ended."""
        return self.in_processes and self.on_demand.processes.was_stopped

    def observed(self, slices: Sequence[Slice], work: Stage, ddl: str) -> DataFrame:
        """What a stage of Spark gives for these slices, among it reports.

        A listener of queries gets the sums of the reports as the observed metrics ``kafka_log_lake``.
        """
        sums = (
            F.coalesce(F.sum(F.get_json_object("payload", f"$.totals.{name}").cast("bigint")), F.lit(0))
            for name in OBSERVED.values()
        )
        named = [one.alias(name) for one, name in zip(sums, OBSERVED, strict=True)]
        return self.rows(slices).mapInArrow(work, ddl).observe("kafka_log_lake", *named)

    def finished_share(self) -> AbstractContextManager[Callable[[], float]]:
        """Gives a function for the share of finished tasks of the stage that runs in the block, 0 to 1."""
        if self.in_processes:
            return nullcontext(self.on_demand.processes.finished_share)
        return driver_of(self.spark).finished_share()

    def rows(self, slices: Sequence[Slice]) -> DataFrame:
        """The input of a stage of Spark, columns of SLICE_SCHEMA; a group's rows are in one task, in order.

        Raises a UserError for a file that is too large for BINARY, or that Spark can't open.
        """
        if self.mode == BINARY:
            return self._with_content(slices)
        tasks = pack(slices, driver_of(self.spark).parallelism(), self.slice_bytes)
        table = to_arrow([slice_ for task in tasks for slice_ in task])
        ids = pa.array([number for number, task in enumerate(tasks) for _ in task], pa.int32())
        frame = self.spark.createDataFrame(table.append_column("task", ids))
        if self.mode == RAW:
            frame = self._with_chunks(frame)
        distributed = frame.repartitionById(len(tasks), "task").drop("task")
        return distributed.sortWithinPartitions(*_ROW_ORDER).select(*SLICE_SCHEMA.names)

    def _with_content(self, slices: Sequence[Slice]) -> DataFrame:
        """The input for BINARY: one row per segment, with the content of its file."""
        for slice_ in slices:
            if slice_.segment.length > _MAX_CONTENT:
                raise UserError(
                    "--read binary loads a file whole and can't read more than 2 GiB: "
                    f"{slice_.segment.uri} has {slice_.segment.length} bytes; use --read direct"
                )
        for bucket in {"/".join(s.segment.uri.split("/")[:3]) for s in slices}:
            open_to_spark(self.spark, bucket)
        plan = self.spark.createDataFrame(to_arrow(slices)).drop("content")
        contents = self._files([s.segment.uri for s in slices]).select(
            F.regexp_replace("path", r"\Afile:/+", "file:///").alias("read_file"), "content"
        )
        joined = contents.join(F.broadcast(plan), F.col("read_file") == F.coalesce("file", "segment"))
        # Spark gives no row for an empty file
        empty = plan.where("length = 0").withColumn("content", F.lit(b""))
        return joined.where("length > 0").select(*SLICE_SCHEMA.names).union(empty.select(*SLICE_SCHEMA.names))

    def _files(self, uris: Sequence[str]) -> DataFrame:
        """Spark's binaryFile rows of these files. A file that no longer exists gives no row."""
        reader = self.spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
        try:
            files = reader.load([escape(uri) for uri in uris])
            _ = files.schema  # Spark Connect says now, and not later, what is wrong
            return files
        except AnalysisException as error:
            existing = [uri for uri in uris if exists(self.spark, uri)]
            if error.getCondition() != "PATH_NOT_FOUND" or len(existing) == len(uris):
                raise
            if existing:
                return self._files(existing)
            return self.spark.createDataFrame([], "path string, content binary")

    def _with_chunks(self, plan: DataFrame) -> DataFrame:
        """The input for RAW: one row for each chunk that overlaps a slice."""
        assert self.raw is not None
        chunks = self.raw.select(
            F.col("segment").alias("landed"),
            F.col("chunk_position").alias("at"),
            F.col("chunk_bytes").alias("size"),
            F.col("content").alias("bytes"),
        )
        holds = (F.col("at") < F.col("length")) & (F.col("at") + F.col("size") > F.col("start"))
        overlap = (F.col("landed") == F.col("segment")) & (holds | (F.col("length") == 0))
        return (
            chunks.join(F.broadcast(plan.drop("content", "chunk_position")), overlap)
            .withColumnsRenamed({"at": "chunk_position", "bytes": "content"})
            .drop("landed", "size")
        )


def choose_mode(read: str, from_raw: bool, uris: Sequence[str]) -> str:
    """DIRECT, BINARY or RAW for a run over these segments. read: the setting ``--read``."""
    if from_raw:
        return RAW
    if read != "auto":
        return read
    return DIRECT if all(map(worker_opens, uris)) else BINARY
