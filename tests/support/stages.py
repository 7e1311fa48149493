"""Stages for worker processes that do what a task may do to its worker. Rows in and out: ``n``, int64."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def doubled(said: str = "") -> Stage:
    """said: what it prints before each answer, as a library may."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            print(said, flush=True)
            os.write(1, said.encode())
            yield pa.RecordBatch.from_pydict({"n": [2 * n for n in batch.column("n").to_pylist()]})

    return stage


def own_pid() -> Stage:
    """Takes so long that other workers get tasks too."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.2)
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [os.getpid()] * batch.num_rows})

    return stage


def refused() -> Stage:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            raise ValueError(f"nothing can be done with {batch.column('n').to_pylist()}")

    return stage


def killed(mark: str, times: int) -> Stage:
    """Kills its process a number of times, counted in the file ``mark``; then it is ``doubled``."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Path(mark).open("ab") as file:
            file.write(b"x")
        if Path(mark).stat().st_size <= times:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from doubled()(batches)

    return stage


def failing_or_stuck() -> Stage:
    """Fails for 1, and never ends for another number."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            while batch.column("n").to_pylist() != [1]:
                signal.pause()
            yield from refused()(iter([batch]))

    return stage
