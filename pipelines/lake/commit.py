"""The commits of a run: every table exactly once, the ledger last, whatever dies in between.

A run's intent is written in one piece before its first commit and removed after its last
(``pipelines.lake.intents``); a job first finishes the intents it finds. Why nothing is lost or doubled at any
kill point:

* before the intent: no table has changed. Data files of a dead stage are in no log (VACUUM takes them).
* after it: the intent names every file and row, so ``finish`` can be run again from its start. An append
  carries the transaction id (app, version); a table that has that version is skipped whole, so nothing comes
  twice. The DELETE of rows that make way comes before the append, and only where the append is still
  missing: it can be repeated, and it never sees new rows.
* the ledger comes last. Until then no next run is planned, as its job finishes the intent first.
* spark sink: rows of ``batches`` and ``quarantine`` lie as Parquet beside the intent, so they can be
  committed again. ``records`` can't (the source may have changed), but it comes first, and in one commit
  with the removal of what makes way: where it is missing, nothing of the run was committed, and its intent
  is dropped.
* a VACUUM that keeps nothing may take the data files of a run that died before it commits them: what was
  committed of such a run is taken back, and its segments are decoded again.
* after the ledger: only the intent's file is left, and finishing it again skips every table.
* two jobs at once: the lock, held to the end of the job, lets one in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.lake.address import sql_string, table_path
from pipelines.lake.intents import FOLDER, Intent, Replaced, Runs
from pipelines.source.uris import escape
from udfs.format import schema as columns
from udfs.spark.protocol import FACTS_DDL

DECODE_APP = "kafka-log-decode"
INGEST_APP = "kafka-log-ingest"
# Position of a row in its segment, by table
POSITIONS = {
    columns.RECORDS.name: "batch_position",
    columns.BATCHES.name: "position",
    columns.QUARANTINE.name: "position",
    columns.RAW_SEGMENTS.name: "chunk_position",
}
DECODED = (columns.RECORDS.name, columns.BATCHES.name, columns.QUARANTINE.name)
_LEDGER = columns.SEGMENTS.name
_SMALL_LEDGER = 1 << 20  # bytes of Parquet: some ten thousand segments

Refresh = Callable[[list[tuple[str, int]], list[tuple[str, int]]], list[str]]


class Lake:
    """One lake's tables, open for the commits of one app.

    refresh: brings the transactions of an intent's partitions up to date from what was committed, and gives
    the log_dirs whose last stable offset hangs on damaged bytes; uncertain gathers those.
    """

    def __init__(self, spark: SparkSession, address: str, runs: Runs, app_id: str, refresh: Refresh) -> None:
        self.spark, self.address, self.runs, self.app_id = spark, address, runs, app_id
        self._refresh = refresh
        self.uncertain: set[str] = set()

    def table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(table_path(self.address, name))

    def is_empty(self, table: str) -> bool:
        return not DeltaTable(table_path(self.address, table)).file_uris()

    def ledger(self) -> DataFrame | None:
        """The table ``segments``, None where it is empty. A small one comes through this process.

        Spark takes seconds, in a process that has just begun, to find the files of a Delta table.
        """
        delta = DeltaTable(table_path(self.address, _LEDGER))
        sizes = pa.table(delta.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
        if not sizes:
            return None
        if sum(sizes) > _SMALL_LEDGER:
            return self.table(_LEDGER)
        return self.spark.createDataFrame(delta.to_pyarrow_table())

    def rows_of_run(self, table: str, run_id: str) -> int:
        return self.table(table).where(F.col("run_id") == run_id).count()

    def facts_path(self, name: str) -> str:
        """Where Spark writes a folder of facts; escaped, it is what Spark reads."""
        return table_path(table_path(self.address, FOLDER), name)

    def facts(self, name: str) -> DataFrame:
        """The rows of a folder of facts, columns of the stage's FACTS_DDL."""
        return self.spark.read.schema(FACTS_DDL).parquet(escape(self.facts_path(name)))

    def committed(self, table: str) -> int:
        """The last version of this app that a table has; 0 for none."""
        return DeltaTable(table_path(self.address, table)).transaction_version(self.app_id) or 0

    def next_version(self) -> int:
        tables = (columns.RAW_SEGMENTS.name,) if self.app_id == INGEST_APP else (*DECODED, _LEDGER)
        return 1 + max(self.committed(table) for table in tables)

    def recover(self) -> list[Intent]:
        """Finishes, or drops, what runs of this app that died left behind; the intents it finished."""
        finished = []
        intents = [intent for intent in self.runs.pending() if intent.app_id == self.app_id]
        for intent in intents:
            if intent.records_first and self.committed(columns.RECORDS.name) < intent.version:
                self.runs.remove(intent)
            elif self._lost(intent):
                self._take_back(intent)
            else:
                self.finish(intent)
                finished.append(intent)
        for folder in self.runs.left_over_facts():
            if folder.startswith(self.app_id):
                self.runs.remove_folder(folder)
        return finished

    def _lost(self, intent: Intent) -> bool:
        """Whether a data file is gone that is still to be committed."""
        waiting = [table for table in intent.files if self.committed(table) < intent.version]
        return not self.runs.holds([f"{table}/{f['path']}" for table in waiting for f in intent.files[table]])

    def _take_back(self, intent: Intent) -> None:
        """Removes the rows of an intent that can't be finished; its segments will be decoded again.

        The ledger does not know of the run yet: past what it says was decoded before, all rows are the run's.
        """
        names = [row["segment"] for row in intent.put]
        ledger = self.table(_LEDGER).where(F.col("segment").isin(names)).select("segment", "decoded_bytes")
        known = {row.segment: row.decoded_bytes for row in ledger.collect()}
        begun = [
            Replaced(r["topic"], r["partition"], r["segment"], known.get(r["segment"], 0)) for r in intent.put
        ]
        for table in DECODED:
            if begun and self.committed(table) >= intent.version:
                path = table_path(self.address, table)
                SparkDeltaTable.forPath(self.spark, path).delete(making_way(table, begun))
        self.runs.remove(intent)

    def commit(self, intent: Intent, records: DataFrame | None = None) -> None:
        """Writes the intent and carries it out. records: their rows, where Spark is to write them.

        Where writing records fails before its commit the intent is taken back: the run never was.
        """
        self.runs.write(intent)
        if records is not None:
            try:
                self.append(columns.RECORDS, records, intent)
            except Exception:  # not an interrupt: Spark may still be at it then, and the next job looks again
                if self.committed(columns.RECORDS.name) < intent.version:
                    self.runs.remove(intent)
                    raise
        self.finish(intent)

    def finish(self, intent: Intent) -> None:
        """Everything of an intent that is not committed yet; may be repeated at will."""
        if intent.app_id == INGEST_APP:
            self._add_files(columns.RAW_SEGMENTS, intent)
            self.runs.remove(intent)
            return
        if intent.facts:
            self._add_facts(intent)
        else:
            for table in (columns.RECORDS, columns.BATCHES, columns.QUARANTINE):
                self._add_files(table, intent)
        if self.committed(_LEDGER) < intent.version:
            self.uncertain.update(self._refresh(intent.partitions, intent.transactional))
            self._update_ledger(intent)
        self.runs.remove(intent)

    def _add_files(self, table: columns.Table, intent: Intent) -> None:
        """Data files that are there already, added to a table's log in one commit."""
        if self.committed(table.name) >= intent.version:
            return
        path = table_path(self.address, table.name)
        if intent.replaced:
            SparkDeltaTable.forPath(self.spark, path).delete(making_way(table.name, intent.replaced))
        files = intent.files.get(table.name, [])
        if files:
            delta = DeltaTable(path)
            delta.create_write_transaction(
                [_add_action(f) for f in files],
                mode="append",
                schema=delta.schema(),
                partition_by=list(table.partitioned_by),
                commit_properties=self._properties(intent),
            )

    def _add_facts(self, intent: Intent) -> None:
        facts = self.facts(intent.facts)
        valid = facts.where(~F.col("group_id").isin(intent.dropped_groups))
        for table, kind in ((columns.BATCHES, "batch"), (columns.QUARANTINE, "damage")):
            rows = valid.where(F.col("kind") == kind).select(f"{kind}.*")
            if intent.replaced or not rows.isEmpty():
                self.append(table, rows, intent)

    def append(self, table: columns.Table, rows: DataFrame, intent: Intent) -> None:
        """Rows appended by Spark, what makes way removed in the same commit; nothing where that was done."""
        if self.committed(table.name) >= intent.version:
            return
        writer = (
            rows.write.format("delta")
            .option("txnAppId", intent.app_id)
            .option("txnVersion", intent.version)
            .option("compression", "zstd")
        )
        if intent.replaced and table is not columns.SEGMENTS:
            writer = writer.mode("overwrite").option("replaceWhere", making_way(table.name, intent.replaced))
        else:
            writer = writer.mode("append")
        # Rows of new segments come along with those that replace others
        with configured(self.spark, {"spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false"}):
            writer.save(table_path(self.address, table.name))

    def _update_ledger(self, intent: Intent) -> None:
        path = table_path(self.address, _LEDGER)
        rows = ledger_table(intent.put)
        if intent.only_new and intent.facts:
            self.append(columns.SEGMENTS, self.spark.createDataFrame(rows), intent)
            return
        if intent.only_new:
            write_deltalake(path, rows, mode="append", commit_properties=self._properties(intent))
            return
        changes = self._ledger_changes(rows, intent.drop)
        transaction = {
            "spark.databricks.delta.write.txnAppId": intent.app_id,
            "spark.databricks.delta.write.txnVersion": str(intent.version),
        }
        all_columns: dict[Any, Any] = {f"`{name}`": f"new.`{name}`" for name in rows.schema.names}
        with configured(self.spark, transaction):
            (
                SparkDeltaTable.forPath(self.spark, path)
                .alias("old")
                .merge(changes.alias("new"), "old.segment = new.segment")
                .whenMatchedDelete("new.dropped")
                .whenMatchedUpdate(set=all_columns)
                .whenNotMatchedInsert("NOT new.dropped", all_columns)
                .execute()
            )

    def _ledger_changes(self, rows: pa.Table, drop: Sequence[str]) -> DataFrame:
        put = rows.append_column("dropped", pa.array([False] * rows.num_rows, pa.bool_()))
        gone = pa.Table.from_pylist([{"segment": s, "dropped": True} for s in drop], schema=put.schema)
        return self.spark.createDataFrame(pa.concat_tables([put, gone]))

    def _properties(self, intent: Intent) -> CommitProperties:
        return CommitProperties(app_transactions=[Transaction(intent.app_id, intent.version)])


def making_way(table: str, replaced: Iterable[Replaced]) -> str:
    """The SQL condition of the rows that make way, its first part on the partition columns alone."""
    replaced = list(replaced)
    position = POSITIONS[table]
    whole = sorted({sql_string(r.segment) for r in replaced if r.position == 0})
    parts = [f"segment IN ({', '.join(whole)})"] if whole else []
    parts += [
        f"(segment = {sql_string(r.segment)} AND {position} >= {int(r.position)})"
        for r in replaced
        if r.position > 0
    ]
    topics = ", ".join(sorted({sql_string(r.topic) for r in replaced}))
    partitions = ", ".join(sorted({str(int(r.partition)) for r in replaced}))
    return f"topic IN ({topics}) AND `partition` IN ({partitions}) AND ({' OR '.join(parts)})"


def ledger_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of the ledger, timestamps given in microseconds."""
    arrays = []
    for column in columns.SEGMENTS.columns:
        values = [row[column.name] for row in rows]
        if column.sql_type == "timestamp":
            arrays.append(pa.array(values, pa.int64()).cast(column.arrow_type))
        else:
            arrays.append(pa.array(values, column.arrow_type))
    return pa.Table.from_arrays(arrays, schema=columns.SEGMENTS.arrow_schema())


def _add_action(file: dict[str, Any]) -> AddAction:
    return AddAction(
        path=file["path"],
        size=file["size"],
        partition_values=file["partition_values"],
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(file["stats"]),
    )


@contextmanager
def configured(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """Settings of the session for the time of a block."""
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
