"""Gives the mapInArrow callables by name: what they import is loaded in the task, not on the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kafka_log_lake.udfs.spark.protocol import ArrowBatches, FrameRead, Stage, StageOptions, TableRead
from kafka_log_lake.udfs.storage.tier_keys import use_key_files


def table_stage(read: TableRead) -> Stage:
    """Returns the mapInArrow callable of ``udfs.spark.table_rows``: slices in, rows of a table out."""

    def run(batches: ArrowBatches) -> ArrowBatches:
        from kafka_log_lake.udfs.spark import tasks
        from kafka_log_lake.udfs.spark.table_rows import read_table

        tasks.keep_modules()
        for batch in batches:
            yield from read_table(read, batch)

    return run


def frame_stage(read: FrameRead) -> Stage:
    """Returns the mapInArrow callable of ``udfs.spark.frame_rows``: rows of bytes in, rows of a table out."""

    def run(batches: ArrowBatches) -> ArrowBatches:
        from kafka_log_lake.udfs.spark import tasks
        from kafka_log_lake.udfs.spark.frame_rows import decode_rows

        tasks.keep_modules()
        yield from decode_rows(read)(batches)

    return run


StageName = Literal[
    "write_tables",
    "stage_rows",
    "read_records",
    "verify",
    "land_raw",
    "read_raw",
    "check_files",
    "rewrite_files",
]


def stage(name: StageName, options: StageOptions) -> Stage:
    """Returns the mapInArrow callable of ``udfs.spark.tasks`` with this name."""

    def run(batches: ArrowBatches) -> ArrowBatches:
        from kafka_log_lake.udfs.spark import tasks

        tasks.keep_modules()
        use_key_files(options.tier_key)
        makers: dict[str, Callable[[StageOptions], Stage]] = vars(tasks)
        yield from makers[name](options)(batches)

    return run
