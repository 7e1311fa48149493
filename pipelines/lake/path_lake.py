"""A lake in a folder or an object store: deltalake commits to its tables, in one job alone or not at all.

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
every version of a table is right by itself (``pipelines.lake.rewrites``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame

from kafka_log_lake.pipelines.cli.errors import RunFailed, one_line
from kafka_log_lake.pipelines.engine.delta import (
    add_action,
    commit,
    commit_once,
    data_files,
    log_entry,
    patiently,
    read_rows,
    remove_action,
)
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake import transactions
from kafka_log_lake.pipelines.lake.address import MissingTable, lake_table, table_path
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.create import add_rows, create_table, replace_rows
from kafka_log_lake.pipelines.lake.features import apply_deletion_vectors, check_features
from kafka_log_lake.pipelines.lake.intents import Intent, Intents, RowRange
from kafka_log_lake.pipelines.lake.published import DECODE_APP, INGEST_APP, Commit, history
from kafka_log_lake.pipelines.lake.rewrites import TableFiles
from kafka_log_lake.pipelines.lake.superseded import OldFile
from kafka_log_lake.pipelines.lake.tables import intent_metadata
from kafka_log_lake.pipelines.listing.hadoop import open_to_spark
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.landed import located
from kafka_log_lake.pipelines.plan.ledger import Partition
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.udfs.arrow.parquet_sink import DataFile
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.format.schema import Table

_RUNS_PER_LEASE = 1_000_000


class PathLake(LakeWriter):
    """The tables of a lake at an address, as one app commits to each of them."""

    def __init__(
        self,
        on_demand: SparkOnDemand,
        address: str,
        intents: Intents,
        app_id: str,
        opened: DeltaTable | None = None,
    ) -> None:
        """Opens a lake by path. opened: the ledger, where it is open already."""
        super().__init__(on_demand, address, intents, app_id)
        self._files = TableFiles(on_demand, address, self._settings)
        self._lease = intents.lease
        self._opened: dict[str, DeltaTable] = {}
        if opened is not None:
            self._keep(schema.SEGMENTS.name, opened)

    def path(self, table: str) -> str:
        return table_path(self.address, table)

    def table(self, name: str) -> DataFrame:
        open_to_spark(self._on_demand.spark, self.address)
        return self._on_demand.spark.read.format("delta").load(self.path(name))

    def read(self, table: Table, columns: Iterable[str], where: str = "") -> pa.Table:
        """Reads columns of a table in this process. where: a condition on rows, "" for all."""
        return read_rows(self._latest(table.name), table.arrow_schema(), columns, where)

    def transactions_of(self, partitions: Collection[Partition]) -> pa.Table:
        """Returns the rows of ``transactions`` of some topic-partitions. Most logs have none."""
        files = data_files(self._latest(schema.TRANSACTIONS.name))
        columns = (files.column(f"partition.{name}").to_pylist() for name in ("topic", "partition"))
        return transactions.stored(self.read, {*zip(*columns, strict=True)}.intersection(partitions))

    def located(self, segments: Sequence[Segment]) -> list[Segment]:
        """Returns landed segments, each with the files of ``raw_segments`` that hold its bytes, for tasks."""
        table = schema.RAW_SEGMENTS
        ranges = [RowRange(s.topic, s.partition, s.segment) for s in segments]
        delta = self._latest(table.name)
        apply_deletion_vectors(delta, table, ranges)  # tasks read whole files
        return located(segments, data_files(delta), self.path(table.name))

    @property
    def _publishing(self) -> Table:
        """Returns the table whose commit makes a run's rows valid."""
        return schema.RAW_SEGMENTS if self.app_id == INGEST_APP else schema.SEGMENTS

    def _open(self, table: str) -> DeltaTable:
        """Returns a table, which is opened once: a log of a million data files takes seconds to read.

        At the version after this job's last commit, or a later one. What this app has committed stands in it.
        """
        return self._opened.get(table) or self._keep(table, lake_table(self.address, table))

    def _keep(self, table: str, opened: DeltaTable) -> DeltaTable:
        check_features(opened, self.path(table))
        self._opened[table] = opened
        return opened

    def _latest(self, table: str) -> DeltaTable:
        """Returns a table at its latest version; where the lock is a lease, see ``_open``."""
        is_open = table in self._opened
        opened = self._open(table)
        if is_open and self._lease is None:
            patiently(opened.update_incremental)
        return opened

    def has(self, table: Table) -> bool:
        """Returns whether a table is there: those of reports appear with their first rows."""
        try:
            self._open(table.name)
        except MissingTable:
            return False
        return True

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
        self._latest(self._publishing.name)

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

    def commits(self, table: str) -> Iterator[Commit]:
        """Yields the commits of a table, newest first, as far as its log still has them."""
        return history(self.address, table, self._latest(table).version())

    def restore(self, table: Table, version: int, intent: Intent) -> None:
        properties = CommitProperties(custom_metadata=intent_metadata(intent, undone=True))
        self._latest(table.name).restore(version, commit_properties=properties)

    # One commit

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
            delta = self._latest(table.name)
            prepare(delta)
            version = delta.version() + 1
            has_committed = commit(delta, write)
            if self._lease is not None and has_committed is not False and delta.version() != version:
                patiently(partial(delta.load_as_version, version))

        if self._lease is None:
            commit_once(attempt, lambda: self._has_commit(table, intent))
            return
        try:
            attempt()
        except (DeltaError, OSError) as error:
            self._check_made(table, intent, error)

    def _check_made(self, table: Table, intent: Intent, error: Exception) -> None:
        """Raises a RunFailed unless the run's commit is there, after an attempt at it that ended in an error.

        The answer to a commit that succeeded may be lost, so that its second attempt meets the first.
        """
        if not self._has_commit(table, intent):
            raise self._not_alone(error) from error
        assert self._lease is not None
        self._lease.check()  # or another job has made it, which found the intent

    def _has_commit(self, table: Table, intent: Intent) -> bool:
        """Returns whether the latest version of a table has a run's commit."""
        patiently(self._open(table.name).update_incremental)
        return self.committed(table.name) == intent.version

    def properties(self, intent: Intent, **more: object) -> CommitProperties:
        """Returns the properties of a run's commits. more: see ``run_metadata``."""
        return CommitProperties(
            custom_metadata=intent_metadata(intent, **more),
            app_transactions=[Transaction(intent.app_id, intent.version)],
            max_commit_retries=0,
        )

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

    def replace(
        self, table: Table, intent: Intent, files: Sequence[DataFile], ranges: Collection[RowRange]
    ) -> None:
        """Makes a run's commit to a table, if it is missing: rows in ``ranges`` go, ``files`` come."""
        if self.is_done(table, intent):
            return

        def write(delta: DeltaTable) -> bool:
            removed, rewritten = self._files.without(delta, table, ranges)
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

    def replace_rows(self, table: Table, intent: Intent) -> None:
        """Makes the run's commit to a table of ``DECODED``, or to ``raw_segments``."""
        self.replace(table, intent, [f for f in intent.files if f.table == table.name], intent.ranges)

    def replace_computed(self, table: Table, rows: pa.Table, ranges: list[RowRange], intent: Intent) -> None:
        """Makes the run's commit to a table that is computed from others."""
        if not self.is_done(table, intent):
            self.replace(table, intent, self._files.write_by_partition(table, rows), ranges)

    def replace_ledger(self, intent: Intent) -> None:
        """Makes the run's commit to the ledger, which names the versions of the other tables."""
        decoded = sum(not row.is_left_out for row in intent.put)
        metrics = {"segments": decoded, "bytes": intent.new_bytes, "dropped": len(intent.drop)}
        named = (*self.decoded_tables, schema.RAW_SEGMENTS)
        versions = {table.name: self._latest(table.name).version() for table in named}
        properties = self.properties(intent, tables=versions, metrics=metrics)
        rows = ledger.to_arrow(intent.put)
        changes, names = ledger.changes(intent.put, intent.drop), schema.SEGMENTS.arrow_schema().names
        values = {f'"{name}"': f'new."{name}"' for name in names}

        def commit(delta: DeltaTable) -> bool:
            if not changes.num_rows:
                delta.create_write_transaction(
                    [], mode="append", schema=delta.schema(), commit_properties=properties
                )
            elif intent.only_new:
                # Without columns that others have added
                write_deltalake(delta, rows, mode="append", schema_mode="merge", commit_properties=properties)
            else:
                merger = delta.merge(
                    changes,
                    "old.segment = new.segment",
                    source_alias="new",
                    target_alias="old",
                    commit_properties=properties,
                )
                merger = merger.when_matched_delete("new.dropped").when_matched_update(values)
                merger.when_not_matched_insert(values, "NOT new.dropped").execute()
            return True

        self.commit_once(schema.SEGMENTS, intent, commit)


def _metrics(added: Sequence[DataFile], removed: Sequence[OldFile]) -> dict[str, int]:
    """Counts what a commit adds and removes. deltalake writes no ``operationMetrics`` of such a commit."""
    return {
        "rows_added": sum(file.stats["numRecords"] for file in added),
        "files_added": len(added),
        "bytes_added": sum(file.size for file in added),
        "files_removed": len(removed),
    }
