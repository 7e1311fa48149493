"""The peer of the job: rows that are in memory already, written as Parquet by pyarrow and nothing else.

As many processes as the job had, each with the rows of some of its files. They read the rows before the
clock starts, and write with the options of the job's own files.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

_REPEATING = ["segment", "control_type", "timestampType"]
_FALSE_POSITIVES = 0.1
_STATISTICS = ["offset", "timestamp", "timestamp_ms", "batch_position"]


class ParquetWriters:
    """Processes that hold the rows of ``files`` (Parquet) and write them to ``folder`` on request."""

    def __init__(self, files: list[Path], folder: Path, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(processes):
            here, there = context.Pipe()
            mine = [str(path) for path in files[number::processes]]
            process = context.Process(target=_serve, args=(there, mine, str(folder / f"{number}")))
            process.start()
            self._pipes.append(here)
            self._processes.append(process)
        self._wait()

    def write(self) -> float:
        """Seconds until the last process has written all its rows."""
        began = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(True)
        self._wait()
        return time.perf_counter() - began

    def written_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.parquet"))

    def _wait(self) -> None:
        for pipe in self._pipes:
            pipe.recv()

    def __enter__(self) -> ParquetWriters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(False)
            process.join()


def _serve(pipe: Connection, files: list[str], target: str) -> None:
    held = [_row_groups(path) for path in files]
    pipe.send(True)
    while pipe.recv():
        for number, groups in enumerate(held):
            _write(groups, f"{target}-{number}.parquet")
        pipe.send(True)


def _row_groups(path: str) -> list[pa.Table]:
    file = pq.ParquetFile(path, read_dictionary=["segment"])
    return [file.read_row_group(number) for number in range(file.num_row_groups)]


def _write(groups: list[pa.Table], path: str) -> None:
    schema = groups[0].schema
    numbers = [
        field.name
        for field in schema
        if field.name not in _REPEATING
        and (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type))
    ]
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_REPEATING,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_statistics=_STATISTICS,
        store_schema=False,
        write_page_index=True,
        bloom_filter_options={"key": {"ndv": groups[0].num_rows, "fpp": _FALSE_POSITIVES}},
    ) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
