"""Plans a synthetic listing of very many segments, half of them known to the ledger, as the job does.

``python -m benchmarks.plan_job SEGMENTS``: prints seconds as JSON. ``benchmarks.planning`` runs it and looks
at the memory of its Java; nothing is decoded.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.session import session
from pipelines.command.settings import Settings
from pipelines.plan.slices import Segment, ledger
from pipelines.source.listing import LISTING_DDL
from udfs.format.schema import SEGMENTS

_PER_PARTITION = 100
_SEGMENT_BYTES = 1 << 30
_RUNS = 3  # bounded runs taken off the plan


def _typed(frame: DataFrame, columns: list[tuple[str, str]]) -> DataFrame:
    """The frame's columns as asked for; null where it has none of that name."""
    here = set(frame.columns)
    return frame.select(*(F.expr(n if n in here else "NULL").cast(kind).alias(n) for n, kind in columns))


def _segments(spark: SparkSession, count: int) -> DataFrame:
    number = F.col("id")
    partition = F.floor(number / _PER_PARTITION)
    log_dir = F.concat(F.lit("file:///kafka/logs/topic-"), partition.cast("string"))
    base = (number % _PER_PARTITION) * 1_000_000
    return spark.range(count).select(
        F.lit("topic").alias("topic"),
        partition.cast("int").alias("partition"),
        log_dir.alias("log_dir"),
        F.concat(log_dir, F.lit("/"), F.lpad(base.cast("string"), 20, "0"), F.lit(".log")).alias("segment"),
        base.alias("file_base_offset"),
        F.lit(_SEGMENT_BYTES).alias("length"),
        F.timestamp_seconds(F.lit(1_714_000_000)).alias("modified"),
        (number % _PER_PARTITION < _PER_PARTITION - 1).alias("has_successor"),
        F.lit(_SEGMENT_BYTES).alias("decoded_bytes"),
        F.lit("none").alias("tail"),
        F.concat(F.lit("0:"), F.md5(number.cast("string"))).alias("fingerprint"),
    )


def main(count: int) -> None:
    settings = Settings(driver_memory="1g")
    with session(settings) as spark:
        listing_columns = [(name, kind) for name, kind in (c.split() for c in LISTING_DDL.split(", "))]
        listing = _typed(_segments(spark, count), listing_columns)
        known = _typed(_segments(spark, count // 2), [(c.name, c.sql_type) for c in SEGMENTS.columns])
        holds = known.select("segment", F.lit(True).alias("unchanged"))
        began = time.perf_counter()
        plan = ledger.plan(listing, known, holds).persist(StorageLevel.DISK_ONLY)
        planned = ledger.count(plan).planned
        counted = time.perf_counter() - began
        after: Segment | None = None
        for _ in range(_RUNS):
            segments = ledger.next_segments(plan, after, settings.max_files_per_run)
            after = segments[-1] if segments else after
        each = (time.perf_counter() - began - counted) / _RUNS
        print(json.dumps({"planned": planned, "seconds": counted, "seconds_a_run": each}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
