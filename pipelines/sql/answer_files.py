"""Writes the rows of an answer to one file, CSV or Parquet, which is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.streams import replaced_file
from kafka_log_lake.pipelines.listing.uris import local_path

CSV, PARQUET = ".csv", ".parquet"
_GROUP_BYTES, _GROUP_ROWS = 64 << 20, 1 << 20


def check_output(path: str, lake: str) -> str:
    """Returns ``.csv`` or ``.parquet``, by a file's name. Raises a UserError for what can't be written."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (CSV, PARQUET):
        raise UserError(f"--output {path} must end in {CSV} or {PARQUET}")
    check_place(path, lake)
    return suffix


def check_place(path: str, lake: str) -> None:
    """Raises a UserError for a file that can't be written: a folder, or a place in the lake."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise UserError(f"--output {path}: there is no folder {folder}")
    if os.path.isdir(path):
        raise UserError(f"--output {path} is a folder")
    place = local_path(lake)
    if place is not None and os.path.commonpath([os.path.realpath(place), folder]) == os.path.realpath(place):
        raise UserError(f"--output {path} lies in the lake: choose a folder outside it")


def write_csv(path: str, lines: Iterable[str]) -> int:
    """Writes lines of CSV, of which the first has the names. Returns the number of rows."""
    count = -1  # the line of names is no row
    with replaced_file(path, "--output") as file:
        for line in lines:
            file.write(f"{line}\n".encode(errors="replace"))
            count += 1
    return max(0, count)


def write_parquet(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Writes record batches of a schema. Returns the number of rows.

    Raises a UserError for two columns of one name, which Parquet does not take.
    """
    names = schema.names
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two columns are named {name}, which Parquet does not take: rename one with AS")
    count = 0
    with (
        replaced_file(path, "--output") as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for group in _groups(batches):
            writer.write_table(pa.Table.from_batches(group, schema))
            count += sum(batch.num_rows for batch in group)
    return count


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yields lists of batches that make a row group together."""
    group: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        group.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
            yield group
            group, size, rows = [], 0, 0
    if group:
        yield group
