"""Commits a run: each table once, the ledger last, and so that a crash does no harm.

A run's intent is written atomically before its first commit and removed after its last
(``pipelines.lake.intents``). A job first finishes the intents that it finds. The order of the commits:

1. records, batches and quarantine: one commit each adds the run's files and removes what they replace
   (``pipelines.lake.path_lake``), so that every version of a table is right by itself;
2. transactions and offset_findings, which are computed from these: the same, for logs of which they changed;
3. the ledger: its commit names the versions of the other tables that belong to it. Readers of several tables
   open these (``pipelines.lake.published``), and see the state before step 3 or the state after it.

Why this holds if the process is killed:

* before the intent is written, no table has changed. Data files of a failed stage are in no Delta log; VACUUM
  deletes them.
* after that, the intent names every file and row, so ``finish`` can start again. A commit carries a Delta
  transaction id (app, version), and a table that has this version is skipped: nothing is committed twice.
* a power cut is a kill that also takes what the disk had not got yet. So what the ledger is going to name is
  flushed before the ledger's commit, and everything is before the intent is removed.
* what can't be finished is taken back: a VACUUM without retention may delete data files that a killed run has
  not committed yet, and anybody may alter a table. Tables go back to the version before the run's commit;
  where others have committed since, or VACUUM took old files, what is new goes from all tables, and the run's
  segments are decoded again.
* of two jobs at once, the lock admits one. It is held until the job ends. Where the lock is a lease, which a
  job may lose, ``pipelines.lake.path_lake`` keeps two jobs apart.

``tests/support/protocol.py`` is this as a model; ``tests/unit/lake/test_protocol.py`` searches all of it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from kafka_log_lake.pipelines.cli.errors import JobError, one_line
from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.lake import offset_findings, transactions
from kafka_log_lake.pipelines.lake.intents import Intent, RowRange
from kafka_log_lake.pipelines.lake.offset_findings import Change
from kafka_log_lake.pipelines.lake.published import INGEST_APP, Commit
from kafka_log_lake.pipelines.lake.tables import DECODED, LakeTables
from kafka_log_lake.pipelines.lake.transactions import Outcome
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.format.report_tables import RUNS
from kafka_log_lake.udfs.format.schema import Table

log = logging.getLogger(__name__)
_NOWHERE = (1 << 63) - 1  # a byte after every segment


class LakeWriter(LakeTables):
    """Commits the runs of one app (DECODE_APP or INGEST_APP) to a lake, and finishes killed ones.

    The order of the commits is here; each of them is ``PathLake``'s or ``CatalogLake``'s.
    """

    _ledger: pa.Table | None = None

    def ledger(self) -> pa.Table:
        """Returns the ledger: columns NAMES of ``pipelines.plan.ledger``. It is read once.

        From then on it has what this job has published.
        """
        if self._ledger is None:
            self._ledger = ledger.numbered(self.read(schema.SEGMENTS, ledger.NAMES))
        return self._ledger

    def chunks_of_run(self, run_id: str) -> pa.Table:
        """Returns the chunks that a run landed, a row each, without their content."""
        columns = ["segment", "chunk_position", "chunk_bytes", "crc32c"]
        return self.read(schema.RAW_SEGMENTS, columns, f"run_id = {sql_literal(run_id)}")

    # Runs that were killed

    def recover(self) -> None:
        """Finishes every run that was killed, or takes it back; adds its row to ``runs``."""
        for intent in self.intents.pending():
            type(self)(self._on_demand, self.address, self.intents, intent.app_id)._recover(intent)
        self.pin()

    def _recover(self, intent: Intent) -> None:
        self._finish_or_take_back(intent)
        self._ledger = None
        row = self._row_of_run(intent)
        if row["segments"]:
            self.add_rows(RUNS, ledger.rows_to_arrow(RUNS, [row]))

    def _row_of_run(self, intent: Intent) -> dict[str, object]:
        """Makes the row of ``runs`` for a run that was killed, from its commits that were not undone.

        Other commits of the run count too. seconds, phases and what the process alone knew are null or empty.
        """
        row: dict[str, Any] = dict.fromkeys(("unchanged", "batches", "records", "damaged", "warnings"), 0)
        if intent.app_id == INGEST_APP:
            published = self._commits_of_run(schema.RAW_SEGMENTS, intent)
            chunks = self.chunks_of_run(intent.run_id)
            row["segments"] = pc.count_distinct(chunks.column("segment")).as_py()
            row["bytes"] = pc.sum(chunks.column("chunk_bytes")).as_py() or 0
        else:
            published = self._commits_of_run(schema.SEGMENTS, intent)
            row |= {name: _sum(published, name) for name in ("segments", "bytes")}
            for name, table in zip(("records", "batches", "damaged"), DECODED, strict=True):
                row[name] = _sum(self._commits_of_run(table, intent), "rows_added")
        began = [row.decoded_at for row in intent.put] or [1000 * commit.at for commit in published]
        job = "ingest" if intent.app_id == INGEST_APP else "decode"
        row |= {"run_id": intent.run_id, "job": job, "began_at": min(began, default=0)}
        return row | {"seconds": None, "phases": [], "unreadable": [], "cluster_id": intent.cluster_id}

    def _commits_of_run(self, table: Table, intent: Intent) -> list[Commit]:
        """Returns the run's commits to a table that are newer than any other run's and were not undone."""
        of_app = (c for c in self.commits(table.name) if c.metadata.get("app") == intent.app_id)
        of_run = list(itertools.takewhile(lambda c: c.metadata["run_id"] == intent.run_id, of_app))
        undone = {commit.metadata["run"] for commit in of_run if commit.metadata.get("undone")}
        return [commit for commit in of_run if commit.metadata["run"] not in undone]

    def _finish_or_take_back(self, intent: Intent) -> None:
        why = "it is being taken back" if intent.taken_back else self._obstacle(intent)
        if not why:
            try:
                self.finish(intent)
                log.info("finished the commits of run %s, which was interrupted", intent.run_id)
                return
            except JobError:
                raise
            except Exception as error:
                why = one_line(error)
        self._take_back(intent)
        log.warning(
            "rolled back run %s, which was interrupted and can't be finished (%s): its segments are "
            "decoded again",
            intent.run_id,
            why,
        )

    def _obstacle(self, intent: Intent) -> str:
        """Returns why an intent can't be finished; "" where nothing is known to hinder it."""
        waiting = [f for f in intent.files if self.committed(f.table) < intent.version]
        if not self.intents.holds([f"{f.table}/{f.path}" for f in waiting]):
            return "files that it wrote are gone"
        return "another run was published first" if self.is_outrun(intent) else ""

    def _take_back(self, intent: Intent) -> None:
        """Undoes the commits of an intent that can't be finished. Can be repeated."""
        if not intent.taken_back:
            intent = replace(intent, taken_back=True)
            self.intents.write(intent)
        done = [table for table in self.decoded_tables if self._commit_of(intent, table)]
        if done and not self._commit_of(intent, schema.SEGMENTS):
            if all(self._goes_back(table, intent) for table in done):
                self.replace_ledger(replace(intent, put=[], drop=[]))
            else:
                self._leave(intent)
        self.intents.remove(intent)
        if intent.fills_findings:
            self.commit(Intent(self.app_id, self.free_version(), intent.run_id, fills_findings=True))

    def _commit_of(self, intent: Intent, table: Table) -> Commit | None:
        """Returns an intent's newest commit to a table: of its rows, or the one that undid that; or None."""
        of_app = (c for c in self.commits(table.name) if c.metadata.get("app") == intent.app_id)
        newest = next((c for c in of_app if c.metadata["run"] <= intent.version), None)
        return newest if newest and newest.metadata["run"] == intent.version else None

    def _goes_back(self, table: Table, intent: Intent) -> bool:
        """Restores a table to the version before an intent's commit. Returns False if that can't be done."""
        commit, newest = self._commit_of(intent, table), next(self.commits(table.name))
        assert commit is not None
        if commit.metadata.get("undone"):
            return True
        if newest.version != commit.version:
            return False  # what others have committed since would go too
        try:
            self.restore(table, commit.version - 1, intent)
        except (DeltaError, OSError):
            return False
        return True

    def _leave(self, intent: Intent) -> None:
        """Removes what an intent added, where tables can't be restored to the version before it.

        Segments that it replaced keep the rows that are there, as their files may be gone; where they are
        not, a run decodes them again: it takes the file for a changed one that ended in damage.
        """
        there = ledger.among(self.ledger(), "segment", (row.segment for row in intent.put))
        known = {row.segment: row for row in ledger.rows(there)}
        whole = [row for row in intent.put if row.segment not in intent.goes_on]
        kept = [known[row.segment] for row in whole if row.segment in known]
        rest = Intent(
            intent.app_id,
            self.free_version(),
            intent.run_id,
            put=[replace(row, ends_in_damage=True, modified=0) for row in kept],
            goes_on={row.segment: _NOWHERE for row in kept},
            drop=[*(row for row in whole if row.segment not in known), *intent.drop],
            cut=[range_ for range_ in intent.ranges if range_.position > 0],
            transactional=sorted(intent.partitions),
            cluster_id=intent.cluster_id,
        )
        self.intents.write(rest)
        self.intents.remove(intent)
        self.finish(rest)

    # A run

    def commit(self, intent: Intent) -> Outcome:
        """Writes the intent and makes its commits. Returns what is uncertain in the logs it changes."""
        source = list(self._settings.source)
        intent = replace(self.fenced(intent), source=source, cluster_id=self.cluster_id)
        self.intents.write(intent)
        return self.finish(intent)

    def finish(self, intent: Intent) -> Outcome:
        """Makes the commits of an intent that are missing, and removes it. Can be repeated."""
        outcome = Outcome()
        if intent.app_id == INGEST_APP:
            self.replace_rows(schema.RAW_SEGMENTS, intent)
        elif not self.is_done(schema.SEGMENTS, intent):
            for table in DECODED:
                self.replace_rows(table, intent)
            after = self._ledger_after(intent)
            outcome = self._replace_transactions(intent, after)
            self._replace_findings(intent, after)
            self.intents.flush_commits(intent)
            self.replace_ledger(intent)
            self._ledger = after
        self.intents.flush_commits(intent)
        self.intents.remove(intent)
        return outcome

    def _ledger_after(self, intent: Intent) -> pa.Table:
        """Returns the ledger as a run leaves it."""
        names = [row.segment for row in (*intent.put, *intent.drop)]
        rest = ledger.among(self.ledger(), "segment", names, False)
        return pa.concat_tables([rest, ledger.numbered(ledger.to_arrow(intent.put))])

    def _replace_transactions(self, intent: Intent, after: pa.Table) -> Outcome:
        """Computes the transactions of the logs that a run changes, and commits those that differ.

        after: the ledger. Returns what is uncertain in these logs.
        """
        stored = self.transactions_of(intent.partitions)
        had = zip(*(stored.column(name).to_pylist() for name in transactions.OF_ROWS), strict=True)
        affected = intent.partitions & {*had, *intent.transactional}
        if not affected:
            return Outcome()
        of_logs = transactions.of_partitions(after, affected)
        rows, changed, outcome = transactions.compute(self.read, affected, of_logs, stored)
        if changed:
            ranges = [RowRange(*log) for log in sorted(changed)]
            self.replace_computed(schema.TRANSACTIONS, rows, ranges, intent)
        return outcome

    def _replace_findings(self, intent: Intent, after: pa.Table) -> None:
        """Computes ``offset_findings`` of the logs that the run changes, and commits what differs.

        after: the ledger.
        """
        table = schema.OFFSET_FINDINGS
        if intent.fills_findings:
            self.create(table)
        elif not self.has(table):
            return  # an earlier release made the lake, and has planned the run: ``fill_findings`` follows
        before, of_files = self.ledger(), {*intent.files_left, *intent.cleaned}
        if not intent.fills_findings:
            folders = {row.partition_dir for row in (*intent.put, *intent.drop)} | of_files
            before, after = (ledger.among(rows, "partition_dir", folders) for rows in (before, after))
        partitions = transactions.partitions_of(before) | transactions.partitions_of(after)
        is_anew = intent.fills_findings or _NOWHERE in intent.goes_on.values()
        put = {row.segment: intent.goes_on.get(row.segment, 0) for row in intent.put}
        change = Change(before, after, put, None if is_anew else of_files, intent.files_left, intent.cleaned)
        rows, changed = offset_findings.compute(self.read, partitions, change)
        if changed:
            self.replace_computed(table, rows, [RowRange(*range_) for range_ in sorted(changed)], intent)

    def fill_findings(self, run_id: str) -> None:
        """Creates and fills ``offset_findings`` where an earlier release made the lake."""
        if not self.has(schema.OFFSET_FINDINGS):
            self.commit(Intent(self.app_id, self.next_version(), run_id, fills_findings=True))


def _sum(commits: Iterable[Commit], name: str) -> int:
    return sum(commit.metadata.get("metrics", {}).get(name, 0) for commit in commits)
