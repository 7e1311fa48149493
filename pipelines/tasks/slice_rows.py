"""Turns slices into the input rows of the stage that runs on the workers (``udfs.spark.tasks``).

The bytes reach a worker in one of three ways: it opens the file itself, or the Parquet files of landed bytes
(``direct``), Spark's readers bring them (``binary``), or Spark reads the table of landed bytes that a catalog
manages (``raw``). The rows differ in nothing else. Workers are Spark's; or processes of this machine, where
they read files themselves and write the tables, and the Spark would be one that the command starts for
itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import CATALOG, Settings
from kafka_log_lake.pipelines.engine.driver import driver_of
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.plan.slices import LITTLE, Segment, Slice, make_slices, pack, to_arrow, whole
from kafka_log_lake.pipelines.tasks.file_rows import FileRows, distributed, planned
from kafka_log_lake.udfs.calls import run_stage
from kafka_log_lake.udfs.spark.protocol import REPORT_DDL, Stage, StageOptions
from kafka_log_lake.udfs.spark.stages import StageName, stage
from kafka_log_lake.udfs.storage.store import is_of_fsspec, worker_opens

DIRECT, BINARY, RAW = "direct", "binary", "raw"
# Metrics that a listener of Spark's queries gets -> the field of Totals that they are the sum of
OBSERVED = {
    "records": "records",
    "batches": "batches",
    "sound_bytes": "sound_bytes",
    "damaged_ranges": "damaged",
    "damaged_bytes": "quarantined_bytes",
}
ReportRow = tuple[int, str, str]  # group_id, kind, payload: a data file, or the report of a slice


@dataclass(frozen=True)
class SliceReader:
    """Brings the bytes of a run's slices to the workers.

    The workers are Spark's. mode: DIRECT, BINARY or RAW. raw: the table raw_segments if mode is RAW.
    slice_bytes: see ``pipelines.plan.slices``. max_content: see ``FileRows``.
    """

    on_demand: SparkOnDemand
    mode: str
    slice_bytes: int
    max_content: int
    raw: DataFrame | None = None

    @property
    def spark(self) -> SparkSession:
        return self.on_demand.spark

    @property
    def reads_files(self) -> bool:
        """Says whether Spark reads files, so that a file that is gone has no row."""
        return self.mode == BINARY

    def reports(self, name: StageName, options: StageOptions, slices: Sequence[Slice]) -> list[ReportRow]:
        """Runs a stage that gives reports on these slices; not on all of them where it ``was_stopped``."""
        done = self.observed(slices, stage(name, options), REPORT_DDL)
        return [tuple(row) for row in done.collect()]

    @property
    def was_stopped(self) -> bool:
        """Says whether Ctrl-C ended the last stage early. Spark gives nothing of a stage that it ended."""
        return False

    def observed(self, slices: Sequence[Slice], work: Stage, ddl: str) -> DataFrame:
        """Returns the rows that a stage of Spark gives for these slices, among them reports.

        A listener of queries gets the sums of the reports as the observed metrics ``kafka_log_lake``.
        """
        sums = (
            F.coalesce(F.sum(F.get_json_object("payload", f"$.totals.{name}").cast("bigint")), F.lit(0))
            for name in OBSERVED.values()
        )
        named = [sum_column.alias(name) for sum_column, name in zip(sums, OBSERVED, strict=True)]
        return self.rows(slices).mapInArrow(work, ddl).observe("kafka_log_lake", *named)

    def finished_share(self) -> AbstractContextManager[Callable[[], float]]:
        """Gives a function for the share of finished tasks of the stage that runs in the block, 0 to 1."""
        return driver_of(self.spark).finished_share()

    def slices(self, segments: Iterable[Segment], first_group: int = 0, split: bool = True) -> list[Slice]:
        """Cuts segments into slices that tasks can read. split: see ``make_slices``."""
        if self.mode != BINARY:
            split = split and self.mode == DIRECT
            return make_slices(segments, self.slice_bytes, first_group, split)
        segments = list(segments)
        large = [s for s in segments if s.length > self.max_content]
        slices = make_slices(filter(_is_opened, large), self.slice_bytes, first_group, split)
        slices += whole((s for s in large if not _is_opened(s)), first_group + len(slices))
        small = (s for s in segments if s.length <= self.max_content)
        return slices + make_slices(small, self.slice_bytes, first_group + len(slices), split=False)

    def rows(self, slices: Sequence[Slice]) -> DataFrame:
        """Returns the input of a stage of Spark, columns of SLICE_SCHEMA.

        The rows of a group are in one task, in order. Raises a UserError as ``FileRows.rows`` does.
        """
        if self.mode == BINARY:
            return FileRows(self.spark, self.slice_bytes, self.max_content).rows(slices)
        frame, tasks = planned(self.spark, slices, self.slice_bytes)
        return distributed(self._with_chunks(frame) if self.mode == RAW else frame, tasks)

    def _with_chunks(self, plan: DataFrame) -> DataFrame:
        """Returns the input for RAW: one row for each chunk that overlaps a slice."""
        assert self.raw is not None
        chunks = self.raw.select(
            F.col("segment").alias("owner"),
            F.col("chunk_position").alias("at"),
            F.col("chunk_bytes").alias("size"),
            F.col("content").alias("bytes"),
        )
        holds = (F.col("at") < F.col("length")) & (F.col("at") + F.col("size") > F.col("start"))
        overlap = (F.col("owner") == F.col("segment")) & (holds | (F.col("length") == 0))
        return (
            chunks.join(F.broadcast(plan.drop("content", "chunk_position")), overlap)
            .withColumnsRenamed({"at": "chunk_position", "bytes": "content"})
            .drop("owner", "size")
        )


class ProcessReader(SliceReader):
    """A SliceReader whose workers are processes of this machine: they open the files themselves."""

    def reports(self, name: StageName, options: StageOptions, slices: Sequence[Slice]) -> list[ReportRow]:
        processes = self.on_demand.processes
        is_little = sum(slice_.stop - slice_.start for slice_ in slices) < LITTLE
        tasks = pack(slices, 1 if is_little else processes.number, self.slice_bytes)
        work = partial(run_stage, partial(stage, name, options))
        answers = processes.map(work, map(to_arrow, tasks), may_stop=True)
        return [tuple(row.values()) for answer in answers for row in answer.to_pylist()]

    @property
    def was_stopped(self) -> bool:
        return self.on_demand.processes.was_stopped

    def finished_share(self) -> AbstractContextManager[Callable[[], float]]:
        return nullcontext(self.on_demand.processes.finished_share)


def _is_opened(segment: Segment) -> bool:
    return worker_opens(segment.uri)


def choose_mode(settings: Settings, uris: Sequence[str]) -> str:
    """Chooses DIRECT, BINARY or RAW for a run over these segments.

    Landed bytes are in files that workers can read, but for those of a table that a catalog manages. Raises
    a UserError where Spark is to read what it does not open.
    """
    if settings.from_raw:
        return RAW if settings.sink == CATALOG else DIRECT
    if settings.read == BINARY:
        refused = next(filter(is_of_fsspec, uris), None)
        if refused is not None:
            raise UserError(f"--read binary: Spark does not open {refused}, fsspec does: leave --read away")
    if settings.read != "auto":
        return settings.read
    return DIRECT if all(map(worker_opens, uris)) else BINARY


def stage_options(settings: Settings, address: str, run_id: str = "", began_us: int = 0) -> StageOptions:
    """Returns the options of a stage's tasks. address: of the lake. began_us: see ``StageOptions``."""
    values: dict[str, Any] = {f.name: getattr(settings, f.name, None) for f in fields(StageOptions)}
    return StageOptions(**values | {"run_id": run_id, "began_us": began_us, "lake": address})
