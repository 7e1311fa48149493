"""Data files that Spark writes (``--sink spark``): into a folder next to the tables, then moved into place.

Spark names the Hive folders as ``udfs.format.hive`` does. Until a commit names a file, readers of Delta do
not see it, and VACUUM takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame

from pipelines.lake.address import table_path
from pipelines.lake.intents import FOLDER
from udfs.arrow.parquet_sink import DataFile, flush, statistics
from udfs.format.hive import partition_values
from udfs.format.schema import Table
from udfs.source.store import open_store

_THREADS = 8


def write_by_spark(lake: str, folder: str, frames: Mapping[Table, DataFrame]) -> list[DataFile]:
    """Writes rows of tables to files in the tables' folders. folder: in ``_runs``, where they lie before."""
    made: list[DataFile] = []
    for table, rows in frames.items():
        staged = f"{FOLDER}/{folder}/{table.name}"
        rows.write.mode("overwrite").partitionBy(*table.partitioned_by).parquet(table_path(lake, staged))
        system, root = open_store(lake)
        found = system.get_file_info(fs.FileSelector(f"{root}/{staged}", recursive=True))
        paths = [f.path.removeprefix(f"{root}/{staged}/") for f in found if f.base_name.endswith(".parquet")]
        with ThreadPoolExecutor(_THREADS) as threads:
            made += threads.map(partial(_moved, system, root, staged, table), paths)
    return made


def _moved(system: Any, root: str, staged: str, table: Table, path: str) -> DataFile:
    """A file of a table, moved to where it belongs. path: below the table's folder."""
    place, folder = f"{root}/{table.name}/{path}", path.rpartition("/")[0]
    system.create_dir(f"{root}/{table.name}/{folder}", recursive=True)
    system.move(f"{root}/{staged}/{path}", place)
    if isinstance(system, fs.LocalFileSystem):
        parts = folder.split("/")
        for one in (place, *(f"{root}/{table.name}/{'/'.join(parts[:n])}" for n in range(len(parts) + 1))):
            flush(one)
    with system.open_input_file(place) as file:
        metadata = pq.read_metadata(file)
    leaves = [metadata.schema.column(j).path for j in range(len(metadata.schema))]
    stats = statistics([metadata], [(j, name) for j, name in enumerate(leaves) if name in table.bounded])
    size = system.get_file_info(place).size
    return DataFile(table.name, path, partition_values(folder), size, stats)
