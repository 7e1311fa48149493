"""Replaces rows of a table's files: which files go, and what is written in their place.

A file that holds other rows too is written again without the replaced ones (``udfs.arrow.rewriting``), in the
driver where few bytes are concerned, else in tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake.features import with_deletion_vectors
from kafka_log_lake.pipelines.lake.intents import RowRange
from kafka_log_lake.pipelines.lake.superseded import OldFile, files_with
from kafka_log_lake.pipelines.rules.files import group_begins
from kafka_log_lake.pipelines.tasks.slice_rows import stage_options
from kafka_log_lake.udfs.arrow.parquet_sink import Codec, DataFile, Folders
from kafka_log_lake.udfs.arrow.rewriting import SAME, Rewrite, rewrite, write_rows
from kafka_log_lake.udfs.format.schema import Table
from kafka_log_lake.udfs.spark.protocol import FILE, REWRITE_SCHEMA
from kafka_log_lake.udfs.spark.stages import stage

_IN_DRIVER = 64 << 20  # bytes of files that are not worth a task
_THREADS = 4


class TableFiles:
    """Writes data files of the tables of a lake at an address, which no commit has added yet."""

    def __init__(self, on_demand: SparkOnDemand, address: str, settings: Settings) -> None:
        self._on_demand, self._address, self._settings = on_demand, address, settings
        self._codec = Codec.of(settings.parquet_compression, settings.parquet_compression_level)

    def without(
        self, delta: DeltaTable, table: Table, ranges: Iterable[RowRange]
    ) -> tuple[list[OldFile], list[DataFile]]:
        """Returns files to remove so that no row in these ranges is left, and rewritten ones to add."""
        old = list(files_with(delta, table, ranges))
        if old:
            deleted = with_deletion_vectors(delta)  # none of their rows is in these ranges any more
            old = [file for file in old if file.path not in deleted]
        removed = [file for file in old if file.is_all]
        others = [file for file in old if not file.is_all]
        rewritten = []
        for file, result in zip(others, self._rewrite(table, others), strict=True):
            if result != SAME:
                removed.append(file)
            if isinstance(result, DataFile):
                rewritten.append(result)
        return removed, rewritten

    def _rewrite(self, table: Table, files: Sequence[OldFile]) -> list[DataFile | str]:
        """Rewrites files without the superseded rows; a result a file (``udfs.arrow.rewriting.rewrite``)."""
        tasks = [Rewrite(table.name, f.path, f.partition_values, f.starts) for f in files]
        if sum(file.size for file in files) > _IN_DRIVER and len(files) > 1:
            return self._rewrite_in_tasks(tasks)
        folders = Folders(self._address)
        with ThreadPoolExecutor(_THREADS) as threads:
            done = list(threads.map(partial(rewrite, folders, codec=self._codec), tasks))
        folders.flush()
        return done

    def _rewrite_in_tasks(self, tasks: Sequence[Rewrite]) -> list[DataFile | str]:
        options = stage_options(self._settings, self._address)
        columns = [list(range(len(tasks))), [task.to_json() for task in tasks]]
        rows = pa.table(columns, schema=REWRITE_SCHEMA)
        parts = [rows.slice(at, 1) for at in range(rows.num_rows)]
        done = self._on_demand.run_stage(partial(stage, "rewrite_files", options), parts)
        by_number = {number: rest for number, *rest in zip(*done.to_pydict().values(), strict=True)}
        results = [by_number[number] for number in range(len(tasks))]
        return [DataFile.from_json(payload) if kind == FILE else kind for kind, payload in results]

    def write_by_partition(self, table: Table, rows: pa.Table) -> list[DataFile]:
        """Writes rows to new files, one a partition, in this process. Returns the files."""
        if not rows.num_rows:
            return []
        folders, keys = Folders(self._address), list(table.partitioned_by)
        ordered, files = rows.sort_by([(name, "ascending") for name in keys]), []
        begins = group_begins(ordered.select(keys))
        for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
            some = ordered.slice(begin, end - begin).combine_chunks()
            texts: dict[str, str | None] = {name: str(some.column(name)[0]) for name in keys}
            rest = some.drop_columns(keys)
            files.append(write_rows(folders, table, texts, rest.schema, rest.to_batches(), self._codec))
        folders.flush()
        return files
