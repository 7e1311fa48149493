"""Writes ``--metrics FILE``: what the runs of a process did, as OpenMetrics text for monitoring.

Counters count since the process began: a run that ends writes the file once, ``--watch`` after every run. The
file is there whole or not at all; a pipe or a device gets the text as it is.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.streams import replaced_file
from kafka_log_lake.pipelines.decode.summary import Summary

log = logging.getLogger(__name__)

# Name after "kafka_log_lake_" -> field of a Summary, and what it counts
_COUNTERS = {
    "segments": ("segments", "Segments decoded or landed"),
    "batches": ("batches", "Record batches decoded"),
    "records": ("records", "Records decoded"),
    "bytes": ("bytes", "Bytes decoded or landed, as stored on disk"),
    "damaged_ranges": ("damaged", "Damaged ranges found"),
    "damaged_bytes": ("damaged_bytes", "Bytes in damaged ranges"),
}
_GAUGES = {
    "missing_offsets": "Offsets that no segment has, at the last run",
    "unreadable_paths": "Files and folders that the last run could not read",
    "lag_bytes": "New bytes that the last run found and did not decode yet",
    "lag_segments": "Segments with such bytes",
    "lag_seconds": "Seconds since the oldest of these bytes were found",
    "last_success_timestamp_seconds": "When the last run ended without an error, seconds since 1970 UTC",
}


class Metrics:
    """The metrics of one process. path: of the file; None writes none."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path).absolute()
        if self._path is None:
            return
        if not os.access(self._path.parent, os.W_OK) or os.path.isdir(self._path):
            raise UserError(f"--metrics {path}: name a file in a folder that exists and can be written")
        from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

        disable_created_metrics()
        self._registry = CollectorRegistry()

        def made(kind: Any, name: str, text: str, *labels: str) -> Any:
            return kind(f"kafka_log_lake_{name}", text, labels, registry=self._registry)

        self._counters = {name: made(Counter, name, text) for name, (_, text) in _COUNTERS.items()}
        self._gauges = {name: made(Gauge, name, text) for name, text in _GAUGES.items()}
        self._runs = made(Counter, "runs", "Runs, by how they ended: done or failed", "outcome")
        self._seconds = made(Counter, "phase_seconds", "Seconds that runs took, by phase", "phase")
        for outcome in ("done", "failed"):
            self._runs.labels(outcome)

    def done(self, summary: Summary, lag: tuple[int, int, float] = (0, 0, 0.0)) -> None:
        """Adds a run, and writes the file. lag: segments, bytes and seconds that wait for a later run."""
        if self._path is None:
            return
        for name, (field, _) in _COUNTERS.items():
            self._counters[name].inc(getattr(summary, field))
        for phase, seconds in summary.phases.items():
            self._seconds.labels(phase).inc(seconds)
        self._runs.labels("done").inc()
        segments, size, seconds = lag
        now = {
            "missing_offsets": summary.missing_offsets,
            "unreadable_paths": len(summary.unread),
            "lag_bytes": size,
            "lag_segments": segments,
            "lag_seconds": seconds,
            "last_success_timestamp_seconds": time.time(),
        }
        for name, value in now.items():
            self._gauges[name].set(value)
        self._write(self._path)

    @contextmanager
    def counting_failures(self) -> Iterator[None]:
        """Counts a run that fails within the block, and writes the file."""
        try:
            yield
        except Exception:
            if self._path is not None:
                self._runs.labels("failed").inc()
                self._write(self._path)
            raise

    def _write(self, path: Path) -> None:
        """Writes the file; a run does not fail where that can't be done."""
        from prometheus_client.openmetrics.exposition import generate_latest

        try:
            with replaced_file(str(path), "--metrics") as file:
                file.write(generate_latest(self._registry))
        except UserError as error:
            log.warning("%s", str(error).partition("; ")[0])  # without its next step: the job goes on
