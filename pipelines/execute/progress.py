"""Progress lines of a job on standard error, if it takes longer than a few seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipelines.command.engine import Engine
from pipelines.plan.slices import Segment

_FIRST_AFTER_SECONDS = 3.0
_EVERY_SECONDS = 5.0
MB = 1_000_000

log = logging.getLogger(__name__)


class Progress:
    """Logs progress. planned: segments of the whole job, over all its bounded runs."""

    def __init__(self, engine: Engine, planned: int) -> None:
        self._engine, self._planned = engine, planned
        self._done: set[str] = set()

    @contextmanager
    def shown(self, doing: str, segments: Sequence[Segment]) -> Iterator[None]:
        """Logs progress every few seconds while the block runs one Spark stage over these segments.

        The share of finished tasks stands for the share of bytes: tasks hold about the same number of bytes.
        """
        size = sum(s.planned_bytes for s in segments)
        before = len(self._done - {s.segment for s in segments})
        stop = threading.Event()
        thread = threading.Thread(
            target=self._report, args=(stop, doing, before, len(segments), size), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._done |= {s.segment for s in segments}

    def _report(self, stop: threading.Event, doing: str, before: int, segments: int, size: int) -> None:
        began = time.monotonic()
        wait = _FIRST_AFTER_SECONDS
        while not stop.wait(wait):
            wait = _EVERY_SECONDS
            share = self._finished_share()
            if share is not None:
                rate = share * size / MB / (time.monotonic() - began)
                count = before + int(share * segments)
                log.info("%s: %d of %d segments, %.0f MB/s", doing, count, self._planned, rate)

    def _finished_share(self) -> float | None:
        """The share of finished tasks in the running stage, 0 to 1; None if no stage is running."""
        tracker = self._engine.spark.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        counts = [(i.numCompletedTasks, i.numTasks) for i in infos if i is not None]
        if not counts:
            return None
        finished, tasks = max(counts, key=lambda pair: pair[1])
        return finished / max(1, tasks)
