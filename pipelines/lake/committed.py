"""The tables of a lake as one job commits to them, alone or not at all.

On a local lake the operating system keeps a second job out. On another the lock is a lease
(``pipelines.lake.lease``), and a job that paused may wake up while its successor runs. There it holds that

* a version, which names a run, is of one job alone: it begins with the number of the lease;
* every commit is made onto the version of the table that this job opened or wrote, by a conditional put, or
  not at all. So of two jobs one comes first at each table, and the other fails there and says so;
* before a run writes its intent nobody has a later lease, nobody has published since the plan was made, and
  no other intent is there;
* the commit that publishes a run is one of these. The intent of the job that came second is not finished by
  the next one but taken back: another run has published since it was planned.

One commit of a run to a table adds the run's files and removes those with rows that the run replaces, so that
every version of a table is right by itself. A file that holds other rows too is written again without the
replaced ones (``udfs.arrow.rewriting``), in the driver where few bytes are concerned, else in tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from kafka_log_lake.pipelines.cli.errors import RunFailed, one_line
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.delta import (
    add_action,
    commit,
    commit_once,
    log_entry,
    patiently,
    remove_action,
)
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake.address import MissingTable, lake_table, table_path
from kafka_log_lake.pipelines.lake.create import add_rows, create_table, replace_rows
from kafka_log_lake.pipelines.lake.features import (
    apply_deletion_vectors,
    check_features,
    with_deletion_vectors,
)
from kafka_log_lake.pipelines.lake.intents import Intent, Intents, RowRange
from kafka_log_lake.pipelines.lake.published import DECODE_APP, INGEST_APP, Commit, history, run_metadata
from kafka_log_lake.pipelines.lake.superseded import OldFile, files_with
from kafka_log_lake.pipelines.rules.files import group_begins
from kafka_log_lake.pipelines.tasks.slice_rows import stage_options
from kafka_log_lake.udfs.arrow.parquet_sink import Codec, DataFile, Folders
from kafka_log_lake.udfs.arrow.rewriting import SAME, Rewrite, rewrite, write_rows
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.format.schema import Table
from kafka_log_lake.udfs.spark.protocol import FILE, REWRITE_SCHEMA
from kafka_log_lake.udfs.spark.stages import stage

DECODED = (schema.RECORDS, schema.BATCHES, schema.QUARANTINE)
_RUNS_PER_LEASE = 1_000_000
_IN_DRIVER = 64 << 20  # bytes of files that are not worth a task
_THREADS = 4


class CommittedTables:
    """The tables of one lake, and how one app (DECODE_APP or INGEST_APP) commits to each of them."""

    def __init__(self, on_demand: SparkOnDemand, address: str, intents: Intents, app_id: str) -> None:
        self.address, self.intents, self.app_id = address, intents, app_id
        self._on_demand = on_demand
        given = on_demand.settings
        self._settings = settings = given if isinstance(given, Settings) else Settings()
        self._codec = Codec.of(settings.parquet_compression, settings.parquet_compression_level)
        self._lease = intents.lease
        self._opened: dict[str, DeltaTable] = {}

    def path(self, table: str) -> str:
        return table_path(self.address, table)

    @property
    def _publishing(self) -> Table:
        """Returns the table whose commit makes a run's rows valid."""
        return schema.RAW_SEGMENTS if self.app_id == INGEST_APP else schema.SEGMENTS

    def _open(self, table: str) -> DeltaTable:
        """Returns a table, which is opened once: a log of a million data files takes seconds to read.

        At its latest version; where the lock is a lease, at the version after this job's last commit.
        """
        opened = self._opened.get(table)
        if opened is None:
            opened = self._opened[table] = lake_table(self.address, table)
            check_features(opened, self.path(table))
        elif self._lease is None:
            patiently(opened.update_incremental)
        return opened

    def catch_up(self, table: Table) -> None:
        """Updates a table that is open to what others, such as Spark, have committed."""
        patiently(self._opened[table.name].update_incremental)

    def has(self, table: Table) -> bool:
        """Returns whether a table is there: those of reports appear with their first rows."""
        try:
            self._open(table.name)
        except MissingTable:
            return False
        return True

    @property
    def decoded_tables(self) -> tuple[Table, ...]:
        """Returns the tables that a run commits before the ledger, of those that are there.

        A lake of an earlier release has no ``offset_findings`` until a job has opened it.
        """
        return (*DECODED, *(table for table in schema.COMPUTED if self.has(table)))

    def create(self, table: Table) -> None:
        """Creates a table if it is missing."""
        create_table(self.address, table)

    def add_rows(self, table: Table, rows: pa.Table) -> None:
        """Appends rows to a table of reports, such as ``runs``, which is made where it is missing."""
        add_rows(self.address, table, rows)

    def replace_report_rows(self, table: Table, rows: pa.Table, where: str) -> None:
        """Replaces the rows of a table of reports that meet a condition, which the new ones meet, too."""
        replace_rows(self.address, table, rows, where)

    def pin(self) -> None:
        """Opens the table that publishes: what is planned from now on is published onto this version."""
        if self._lease is not None:
            self._opened.clear()
            self._open(self._publishing.name)

    def committed(self, table: str) -> int:
        """Returns the number of the last run of this app that committed to a table; 0 for none."""
        return self._open(table).transaction_version(self.app_id) or 0

    def next_version(self) -> int:
        """Returns the number (``Intent.version``) of the next run. Raises a RunFailed if another job runs."""
        version = self.free_version()
        self._check_alone()
        return version

    def free_version(self) -> int:
        """Returns a run number above those in all tables."""
        decoded = (*self.decoded_tables, schema.SEGMENTS)
        tables = (schema.RAW_SEGMENTS,) if self.app_id == INGEST_APP else decoded
        version = 1 + max(self.committed(table.name) for table in tables)
        return version if self._lease is None else max(version, self._lease.number * _RUNS_PER_LEASE + 1)

    def fenced(self, intent: Intent) -> Intent:
        """Returns the intent with the version to publish it onto. Raises a RunFailed if another job runs."""
        if self._lease is None:
            return intent
        self._check_alone()
        return replace(intent, after=self._open(self._publishing.name).version())

    def is_outrun(self, intent: Intent) -> bool:
        """Returns whether a run can't be published any more: another has published since its plan."""
        if intent.after < 0 or self.committed(self._publishing.name) == intent.version:
            return False
        tables = self.decoded_tables if intent.app_id == DECODE_APP else ()
        version = self._open(self._publishing.name).version()
        return version != intent.after or any(self.committed(t.name) > intent.version for t in tables)

    def is_done(self, table: Table, intent: Intent) -> bool:
        """Returns whether a table has the run's commit. Raises a RunFailed where a later run's is there."""
        version = self.committed(table.name)
        if version > intent.version and self._lease is not None:
            raise self._not_alone()
        return version >= intent.version

    def commit_once(
        self,
        table: Table,
        intent: Intent,
        write: Callable[[DeltaTable], bool],
        prepare: Callable[[DeltaTable], object] = lambda delta: None,
    ) -> None:
        """Makes one commit of a run. Raises a RunFailed where another job's is in its place.

        write: commits onto the version that it gets, and no later one; returns whether there was anything to
        commit. prepare: called before, may make commits that change no row. Where somebody else was first on
        a local lake, both are called again with what is there now: what ``write`` removes may have been
        written again.
        """

        def attempt() -> None:
            delta = self._open(table.name)
            prepare(delta)
            version = delta.version() + 1
            has_committed = commit(delta, write)
            if self._lease is not None and has_committed is not False and delta.version() != version:
                patiently(partial(delta.load_as_version, version))

        if self._lease is None:
            commit_once(attempt, lambda: self.committed(table.name) == intent.version)
            return
        try:
            attempt()
        except (DeltaError, OSError) as error:
            self._check_made(table, intent, error)

    def _check_made(self, table: Table, intent: Intent, error: Exception) -> None:
        """Raises a RunFailed unless the run's commit is there, after an attempt at it that ended in an error.

        The answer to a commit that succeeded may be lost, so that its second attempt meets the first.
        """
        self.catch_up(table)
        if self.committed(table.name) != intent.version:
            raise self._not_alone(error) from error
        assert self._lease is not None
        self._lease.check()  # or another job has made it, which found the intent

    def properties(self, intent: Intent, **more: object) -> CommitProperties:
        """Returns the properties of a run's commits. more: see ``run_metadata``."""
        return CommitProperties(
            custom_metadata=intent_metadata(intent, **more),
            app_transactions=[Transaction(intent.app_id, intent.version)],
            max_commit_retries=0,
        )

    def commits(self, table: str) -> Iterator[Commit]:
        """Yields the commits of a table, newest first, as far as its log still has them."""
        return history(self.address, table, self._open(table).version())

    def _check_alone(self) -> None:
        if self._lease is None:
            return
        self._lease.check()
        name = self._publishing.name
        following = log_entry(name, self._open(name).version() + 1)
        if self.intents.holds([following]) or self.intents.paths():
            raise self._not_alone()

    def _not_alone(self, error: Exception | None = None) -> RunFailed:
        reason = f" ({one_line(error)})" if error else ""
        return RunFailed(
            f"another run is writing to {self.address} at the same time: "
            f"start again once it has ended{reason}"
        )

    # Replacing rows

    def replace(
        self, table: Table, intent: Intent, files: Sequence[DataFile], ranges: Collection[RowRange]
    ) -> None:
        """Makes a run's commit to a table, if it is missing: rows in ``ranges`` go, ``files`` come."""
        if self.is_done(table, intent):
            return

        def write(delta: DeltaTable) -> bool:
            removed, rewritten = self._without(delta, table, ranges)
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

        self.commit_once(table, intent, write, partial(apply_deletion_vectors, table=table, ranges=ranges))

    def _without(
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
        folders = Folders(self.address)
        with ThreadPoolExecutor(_THREADS) as threads:
            done = list(threads.map(partial(rewrite, folders, codec=self._codec), tasks))
        folders.flush()
        return done

    def _rewrite_in_tasks(self, tasks: Sequence[Rewrite]) -> list[DataFile | str]:
        options = stage_options(self._settings, self.address)
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
        folders, keys = Folders(self.address), list(table.partitioned_by)
        ordered, files = rows.sort_by([(name, "ascending") for name in keys]), []
        begins = group_begins(ordered.select(keys))
        for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
            some = ordered.slice(begin, end - begin).combine_chunks()
            texts: dict[str, str | None] = {name: str(some.column(name)[0]) for name in keys}
            rest = some.drop_columns(keys)
            files.append(write_rows(folders, table, texts, rest.schema, rest.to_batches(), self._codec))
        folders.flush()
        return files


def intent_metadata(intent: Intent, **more: object) -> dict[str, str]:
    """Returns the metadata of the commits of an intent's run. more: see ``run_metadata``."""
    return run_metadata(intent.run_id, intent.app_id, intent.version, source=intent.source, **more)


def _metrics(added: Sequence[DataFile], removed: Sequence[OldFile]) -> dict[str, int]:
    """Counts what a commit adds and removes. deltalake writes no ``operationMetrics`` of such a commit."""
    return {
        "rows_added": sum(file.stats["numRecords"] for file in added),
        "files_added": len(added),
        "bytes_added": sum(file.size for file in added),
        "files_removed": len(removed),
    }
