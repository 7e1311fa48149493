"""Opens what brings the bytes of a run's segments to the workers, with the Spark that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.decode import ARROW
from kafka_log_lake.pipelines.decode.progress import Progress
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.plan.slices import SEGMENT_COST, Segment
from kafka_log_lake.pipelines.tasks.slice_rows import (
    BINARY,
    DIRECT,
    RAW,
    ProcessReader,
    SliceReader,
    choose_mode,
)
from kafka_log_lake.udfs.format import schema

_BIG_CONTENT = 2**26


@contextmanager
def open_reader(
    on_demand: SparkOnDemand,
    settings: Settings,
    segments: Sequence[Segment],
    lake: LakeWriter,
    progress: Progress,
) -> Iterator[SliceReader]:
    """Yields the SliceReader for these segments, with the Spark that it needs."""
    mode = choose_mode(settings, [s.segment for s in segments])
    if mode == DIRECT and settings.sink == ARROW and on_demand.is_plain:
        yield ProcessReader(on_demand, mode, settings.slice_bytes, settings.max_content)
        return
    with progress.phase("starting Spark"):
        spark = on_demand.checked_spark
    raw = lake.table(schema.RAW_SEGMENTS.name) if mode == RAW else None
    with configured(spark, _stage_conf(settings, mode)):
        yield SliceReader(on_demand, mode, settings.slice_bytes, settings.max_content, raw)


def _stage_conf(settings: Settings, mode: str) -> dict[str, str]:
    """Returns Spark's settings for a stage, so that an Arrow batch of input holds at most one large file."""
    conf = {"spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true"}
    if mode != DIRECT:
        big = mode == BINARY and settings.max_content > _BIG_CONTENT
        conf["spark.sql.execution.arrow.maxRecordsPerBatch"] = "1" if big else "10000"
        conf["spark.sql.files.openCostInBytes"] = str(SEGMENT_COST)  # many small files a task, not 32
        conf["spark.sql.execution.arrow.maxBytesPerBatch"] = str(_BIG_CONTENT)
    return conf
