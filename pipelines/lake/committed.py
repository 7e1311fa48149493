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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from pipelines.command.errors import RunFailed, one_line
from pipelines.lake.address import MissingTable, lake_table, table_path
from pipelines.lake.create import add_rows, replace_rows
from pipelines.lake.features import check_features
from pipelines.lake.intents import Intent, Intents
from pipelines.lake.published import DECODE_APP, INGEST_APP, Commit, history, mark
from pipelines.source.delta import commit, patiently
from udfs.format import schema
from udfs.format.schema import Table

DECODED = (schema.RECORDS, schema.BATCHES, schema.QUARANTINE)
_RUNS_PER_LEASE = 1_000_000
_ATTEMPTS = 15


class CommittedTables:
    """The tables of one lake, and what one app (DECODE_APP or INGEST_APP) has committed to them."""

    def __init__(self, address: str, intents: Intents, app_id: str) -> None:
        self.address, self.intents, self.app_id = address, intents, app_id
        self._lease = intents.lease
        self._opened: dict[str, DeltaTable] = {}

    def path(self, table: str) -> str:
        return table_path(self.address, table)

    @property
    def _publishing(self) -> Table:
        """The table whose commit makes a run's rows valid."""
        return schema.RAW_SEGMENTS if self.app_id == INGEST_APP else schema.SEGMENTS

    def _open(self, table: str) -> DeltaTable:
        """A table. Opened once: a log of a million data files takes seconds to read.

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
        """Takes in what others, such as Spark, have committed to a table that is open."""
        patiently(self._opened[table.name].update_incremental)

    def has(self, table: Table) -> bool:
        """Whether a table is there: those of reports appear with their first rows."""
        try:
            self._open(table.name)
        except MissingTable:
            return False
        return True

    def add_rows(self, table: Table, rows: pa.Table) -> None:
        """Appends rows to a table of reports, such as ``runs``, which is made where it is missing."""
        add_rows(self.address, table, rows)

    def replace_report_rows(self, table: Table, rows: pa.Table, where: str) -> None:
        """Replaces the rows of a table of reports that meet a condition, which the new ones meet, too."""
        replace_rows(self.address, table, rows, where)

    def pin(self) -> None:
        """Opens the table that publishes: what is planned after it is published onto this version of it."""
        if self._lease is not None:
            self._opened.clear()
            self._open(self._publishing.name)

    def committed(self, table: str) -> int:
        """The version of this app's last commit to a table; 0 for none."""
        return self._open(table).transaction_version(self.app_id) or 0

    def next_version(self) -> int:
        """The version of the next run. Raises a RunFailed if another job runs."""
        version = self.free_version()
        self._check_alone()
        return version

    def free_version(self) -> int:
        """A version above those of all tables."""
        decoded = (*DECODED, schema.TRANSACTIONS, schema.SEGMENTS)
        tables = (schema.RAW_SEGMENTS,) if self.app_id == INGEST_APP else decoded
        version = 1 + max(self.committed(table.name) for table in tables)
        return version if self._lease is None else max(version, self._lease.number * _RUNS_PER_LEASE + 1)

    def fenced(self, intent: Intent) -> Intent:
        """The intent, with the version it will be published onto. Raises a RunFailed if another job runs."""
        if self._lease is None:
            return intent
        self._check_alone()
        return replace(intent, after=self._open(self._publishing.name).version())

    def is_outrun(self, intent: Intent) -> bool:
        """Whether a run can't be published any more: another has published or committed since its plan."""
        if intent.after < 0 or self.committed(self._publishing.name) == intent.version:
            return False
        tables = (*DECODED, schema.TRANSACTIONS) if intent.app_id == DECODE_APP else ()
        version = self._open(self._publishing.name).version()
        return version != intent.after or any(self.committed(t.name) > intent.version for t in tables)

    def is_done(self, table: Table, intent: Intent) -> bool:
        """Whether a table has the run's commit. Raises a RunFailed where a later run has committed to it."""
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
        commit. prepare: called before, may make commits that change no row. Where somebody else was first,
        both are called again with what is there now: what ``write`` removes may have been written again.
        """
        if self._lease is not None:
            self._commit_or_fail(table, intent, write, prepare)
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                delta = self._open(table.name)
                prepare(delta)
                write(delta)
                return
            except CommitFailedError:
                if self.committed(table.name) == intent.version:
                    return
                if attempt == _ATTEMPTS:
                    raise

    def _commit_or_fail(
        self,
        table: Table,
        intent: Intent,
        write: Callable[[DeltaTable], bool],
        prepare: Callable[[DeltaTable], object],
    ) -> None:
        delta = self._open(table.name)
        version, made = delta.version() + 1, True

        def once(opened: DeltaTable) -> None:
            nonlocal made
            made = write(opened)

        try:
            prepare(delta)
            version = delta.version() + 1
            commit(delta, once)
            if made and delta.version() != version:
                patiently(lambda: delta.load_as_version(version))
        except (DeltaError, OSError) as error:
            self.catch_up(table)
            # The answer to a commit that succeeded may be lost, so that its second attempt meets the first
            if self.committed(table.name) != intent.version:
                raise self._not_alone(error) from error
            assert self._lease is not None
            self._lease.check()  # or another job has made it, which found the intent

    def properties(self, intent: Intent, **more: Any) -> CommitProperties:
        """Properties of a run's commits, by which it is known. more: see ``mark``."""
        return CommitProperties(
            custom_metadata=mark(intent.run_id, intent.app_id, intent.version, source=intent.source, **more),
            app_transactions=[Transaction(intent.app_id, intent.version)],
            max_commit_retries=0,
        )

    def commits(self, table: str) -> Iterator[Commit]:
        """The commits of a table, newest first, as far as its log still has them."""
        return history(self.address, table, self._open(table).version())

    def named_versions(self) -> dict[str, int]:
        """Table -> version, of all that belong to the ledger's next commit."""
        return {t.name: self._open(t.name).version() for t in schema.TABLES if t is not schema.SEGMENTS}

    def _check_alone(self) -> None:
        if self._lease is None:
            return
        self._lease.check()
        published = f"{self._publishing.name}/_delta_log"
        following = f"{published}/{self._open(self._publishing.name).version() + 1:020d}.json"
        if self.intents.holds([following]) or self.intents.paths():
            raise self._not_alone()

    def _not_alone(self, error: Exception | None = None) -> RunFailed:
        reason = f" ({one_line(error)})" if error else ""
        return RunFailed(
            f"another run is writing to {self.address} at the same time: "
            f"start again once it has ended{reason}"
        )
