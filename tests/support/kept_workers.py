"""Worker processes that stay for the next job of the tests, as those of Spark do.

Each starts for most of a second, and a test has a few jobs of a few kilobytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kafka_log_lake.pipelines.engine import pool
from kafka_log_lake.pipelines.engine.pool import StartedWorker, WorkerPool

Place = tuple[dict[str, str], list[str], str]


def _place() -> Place:
    """What a worker has from the process that starts it: environment, path of modules and folder."""
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return own, list(sys.path), os.getcwd()


class KeptWorkers:
    """The idle workers that jobs have left."""

    def __init__(self) -> None:
        self._kept: list[StartedWorker] = []
        self._places: dict[StartedWorker, Place] = {}
        self._start = StartedWorker

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within the block a job leaves its idle workers to the next job that would start the same."""
        close = WorkerPool.close

        def leave(job: WorkerPool) -> None:
            with job._lock:
                idle = [one for one in job._idle if isinstance(one, StartedWorker)]
                self._kept += idle
                job._all = [one for one in job._all if one not in idle]
                job._idle = [one for one in job._idle if one not in idle]
            close(job)

        with patch.object(pool, "StartedWorker", self._take), patch.object(WorkerPool, "close", leave):
            yield

    def end(self) -> None:
        while self._kept:
            self._kept.pop().end()

    def _take(self) -> StartedWorker:
        place = _place()
        for one in self._kept:
            if self._places[one] == place and one.is_alive:
                self._kept.remove(one)
                return one
        started = self._start()
        self._places[started] = place
        return started
