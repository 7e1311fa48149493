"""One commit of a run to a table: adds the run's files, removes those with rows that the run replaces.

So every version of a table is right by itself. A file that holds other rows too is written again without the
replaced ones (``udfs.arrow.rewriting``), in the driver where few bytes are concerned, else in tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from pipelines.command.on_demand import SparkOnDemand
from pipelines.command.settings import Settings
from pipelines.lake.committed import CommittedTables
from pipelines.lake.deletion_vectors import apply_deletion_vectors, with_deletion_vectors
from pipelines.lake.intents import Intent, Intents, Place
from pipelines.lake.stages import stage_options
from pipelines.lake.superseded import OldFile, files_with
from pipelines.rules.files import group_begins
from pipelines.source.delta import add_action, remove_action
from udfs.arrow.parquet_sink import Codec, DataFile, Folders
from udfs.arrow.rewriting import SAME, Rewrite, rewrite, write_rows
from udfs.format.schema import Table
from udfs.spark.protocol import FILE, REPORT_DDL, REWRITE_SCHEMA, stage

_IN_DRIVER = 64 << 20  # bytes of files that are not worth a task
_THREADS = 4


class ReplacingTables(CommittedTables):
    """The tables of one lake, and commits to them that replace rows."""

    def __init__(self, on_demand: SparkOnDemand, address: str, intents: Intents, app_id: str) -> None:
        super().__init__(address, intents, app_id)
        self._on_demand = on_demand
        given = on_demand.settings
        self._settings = settings = given if isinstance(given, Settings) else Settings()
        self._codec = Codec.of(settings.parquet_compression, settings.parquet_compression_level)

    def replace(
        self, table: Table, intent: Intent, files: Sequence[DataFile], places: Collection[Place]
    ) -> None:
        """The commit of a run to a table, if it is missing: rows at ``places`` go, ``files`` come."""
        if self.is_done(table, intent):
            return

        def commit(delta: DeltaTable) -> bool:
            removed, rewritten = self._without(delta, table, places)
            added = [*files, *rewritten]
            actions: list[AddAction | RemoveAction] = [
                *(remove_action(old.path, old.size, old.partition_values) for old in removed),
                *(add_action(new.path, new.size, new.partition_values, new.stats) for new in added),
            ]
            if actions:
                delta.create_write_transaction(
                    actions,
                    mode="append",
                    schema=delta.schema(),
                    partition_by=list(table.partitioned_by),
                    commit_properties=self.properties(intent, metrics=_metrics(added, removed)),
                )
            return bool(actions)

        self.commit_once(table, intent, commit, partial(apply_deletion_vectors, table=table, places=places))

    def _without(
        self, delta: DeltaTable, table: Table, places: Iterable[Place]
    ) -> tuple[list[OldFile], list[DataFile]]:
        """The files that go so that no row at these places is left, and those written in place of some."""
        found = list(files_with(delta, table, places))
        if found:
            marked = with_deletion_vectors(delta)  # none of their rows is at these places any more
            found = [file for file in found if file.path not in marked]
        removed = [file for file in found if file.is_all]
        others = [file for file in found if not file.is_all]
        rewritten = []
        for file, made in zip(others, self._rewrite(table, others), strict=True):
            if made != SAME:
                removed.append(file)
            if isinstance(made, DataFile):
                rewritten.append(made)
        return removed, rewritten

    def _rewrite(self, table: Table, files: Sequence[OldFile]) -> list[DataFile | str]:
        """What becomes of each file: see ``udfs.arrow.rewriting.rewrite``."""
        tasks = [Rewrite(table.name, f.path, f.partition_values, f.starts) for f in files]
        if sum(file.size for file in files) > _IN_DRIVER and len(files) > 1:
            return self._rewrite_in_tasks(tasks)
        folders = Folders(self.address)
        with ThreadPoolExecutor(_THREADS) as threads:
            done = list(threads.map(partial(rewrite, folders, codec=self._codec), tasks))
        folders.flush()
        return done

    def _rewrite_in_tasks(self, tasks: Sequence[Rewrite]) -> list[DataFile | str]:
        options = stage_options(self._settings, self.address, "", 0)
        columns = [list(range(len(tasks))), [task.to_json() for task in tasks]]
        rows = pa.table(columns, schema=REWRITE_SCHEMA)
        parts = [rows.slice(at, 1) for at in range(rows.num_rows)]
        done = self._on_demand.run_stage(partial(stage, "rewrite_files", options), parts, REPORT_DDL)
        by_number = {number: rest for number, *rest in zip(*done.to_pydict().values(), strict=True)}
        made = [by_number[number] for number in range(len(tasks))]
        return [DataFile.from_json(payload) if kind == FILE else kind for kind, payload in made]

    def write_by_partition(self, table: Table, rows: pa.Table) -> list[DataFile]:
        """Writes rows to new files, one a partition, in this process."""
        if not rows.num_rows:
            return []
        folders, own = Folders(self.address), list(table.partitioned_by)
        ordered, made = rows.sort_by([(name, "ascending") for name in own]), []
        begins = group_begins(ordered.select(own))
        for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
            some = ordered.slice(begin, end - begin).combine_chunks()
            texts: dict[str, str | None] = {name: str(some.column(name)[0]) for name in own}
            rest = some.drop_columns(own)
            made.append(write_rows(folders, table, texts, rest.schema, rest.to_batches(), self._codec))
        folders.flush()
        return made


def _metrics(added: Sequence[DataFile], removed: Sequence[OldFile]) -> dict[str, int]:
    """What a commit adds and removes. deltalake writes no ``operationMetrics`` of such a commit."""
    return {
        "rows_added": sum(file.stats["numRecords"] for file in added),
        "files_added": len(added),
        "bytes_added": sum(file.size for file in added),
        "files_removed": len(removed),
    }
