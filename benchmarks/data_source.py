"""``spark.read.format("kafka_log")`` compared with ``decode_segments`` and the job, over the same segments.

    python -m benchmarks.data_source [rounds]

Prints seconds, median and range, and the speed of each; it takes turns, so the figures of one run compare.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import paired, say
from benchmarks.segments import MIB, PLAIN, WORK, partition_dir, size_of
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.session import session

_SEGMENT_BYTES = 128 * MIB


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _read(spark: SparkSession, source: Path, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("kafka_log")
    return (reader.schema(schema) if schema else reader).load(str(source))


def _job(spark: SparkSession, source: Path) -> None:
    lake = WORK / "lakes" / "data_source"
    shutil.rmtree(lake, ignore_errors=True)
    decode_batches.run(spark, Settings(source=(str(source),), lake=str(lake)))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    source = partition_dir("few", PLAIN, 2, _SEGMENT_BYTES)
    with session(Settings()) as spark:

        def values(frame: DataFrame) -> None:
            frame.selectExpr("sum(length(value))").collect()

        runs: dict[str, Callable[[], object]] = {
            "kafka_log, count(*)": lambda: _read(spark, source).count(),
            "kafka_log, .schema, count(*)": lambda: _read(spark, source, "offset bigint").count(),
            "kafka_log, sum(length(value))": lambda: values(_read(spark, source)),
            "kafka_log, .schema, sum(length(value))": lambda: values(_read(spark, source, "value binary")),
            "decode_segments, count(*)": lambda: decode_batches.decode_segments(spark, str(source)).count(),
            "decode_segments, sum(length(value))": lambda: values(
                decode_batches.decode_segments(spark, str(source))
            ),
            "job into a new lake": lambda: _job(spark, source),
        }
        for run in runs.values():
            run()
        say(f"{size_of(source) / 1e6:,.0f} MB, {rounds} rounds")
        pairs = paired(rounds, {name: lambda run=run: _timed(run) for name, run in runs.items()})  # type: ignore[misc]
        for name in runs:
            speed = size_of(source) / 1e6 / pairs.spread(name).median
            print(f"{name:40} {pairs.spread(name).text():>20} s {speed:>8,.0f} MB/s")
    shutil.rmtree(WORK / "lakes" / "data_source", ignore_errors=True)


if __name__ == "__main__":
    main()
