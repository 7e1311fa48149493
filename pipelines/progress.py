"""How far the stage is, on standard error, for as long as it takes and only where it takes long."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_FIRST_AFTER_SECONDS = 2.0
_EVERY_SECONDS = 5.0
MB = 1_000_000

log = logging.getLogger(__name__)


@contextmanager
def shown(spark: SparkSession, segments: int, size: int, done_before: int, planned: int) -> Iterator[None]:
    """Logs a line every few seconds while the block runs its Spark jobs.

    segments, size: of this run, the size in bytes; done_before, planned: segments of the whole job.
    What is done is reckoned from Spark's finished tasks, which hold about as many bytes each.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_report, args=(spark, stop, segments, size, done_before, planned), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _report(
    spark: SparkSession, stop: threading.Event, segments: int, size: int, done_before: int, planned: int
) -> None:
    began = time.monotonic()
    wait = _FIRST_AFTER_SECONDS
    while not stop.wait(wait):
        wait = _EVERY_SECONDS
        done = _finished_share(spark)
        if done is None:
            continue
        rate = done * size / MB / (time.monotonic() - began)
        log.info(
            "decoding: %d of %d segments, %d %% of this run's %d MB, %.0f MB/s",
            done_before + int(done * segments),
            planned,
            int(done * 100),
            size // MB,
            rate,
        )


def _finished_share(spark: SparkSession) -> float | None:
    """Finished tasks of the stage at work, 0 to 1; None where none is at work."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    counts = [(i.numCompletedTasks, i.numTasks) for i in infos if i is not None]
    if not counts:
        return None
    finished, tasks = max(counts, key=lambda pair: pair[1])
    return finished / max(1, tasks)
