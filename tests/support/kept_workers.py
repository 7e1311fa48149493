"""Worker processes that stay for the next job of the tests, as those of Spark do.

Each starts for most of a second, and a test has a few jobs of a few kilobytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kafka_log_lake.pipelines.engine import processes
from kafka_log_lake.pipelines.engine.processes import Processes

Place = tuple[dict[str, str], list[str], str]


def _place() -> Place:
    """What a worker has from the process that starts it: environment, path of modules and folder."""
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return own, list(sys.path), os.getcwd()


class KeptWorkers:
    """The idle workers that jobs have left."""

    def __init__(self) -> None:
        self._kept: list[processes._Worker] = []
        self._places: dict[processes._Worker, Place] = {}
        self._start = processes._Worker

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within the block a job leaves its idle workers to the next job that would start the same."""
        close = Processes.close

        def leave(job: Processes) -> None:
            with job._lock:
                self._kept += job._idle
                job._all = [one for one in job._all if one not in job._idle]
                job._idle = []
            close(job)

        with patch.object(processes, "_Worker", self._take), patch.object(Processes, "close", leave):
            yield

    def end(self) -> None:
        while self._kept:
            self._kept.pop().end()

    def _take(self) -> processes._Worker:
        place = _place()
        for one in self._kept:
            if self._places[one] == place and one.is_alive:
                self._kept.remove(one)
                return one
        started = self._start()
        self._places[started] = place
        return started
