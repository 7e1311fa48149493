"""Commits a run: each table once, the ledger before any row is deleted, and so that a crash does no harm.

A run's intent is written atomically before its first commit and removed after its last
(``pipelines.lake.intents``). A job first finishes the intents that it finds. The order of the commits:

1. records, batches and quarantine: new rows are appended, under a generation that no ledger row names yet;
2. transactions: the same, for logs whose transactions changed;
3. the ledger: one commit names the generations that are valid now, and removes the rows of dropped segments;
4. rows that no ledger row names any more are deleted.

A reader who joins the ledger, as every view does, sees the state before step 3 or the state after it: when
rows are replaced, none is missing and none is doubled. Why this holds if the process is killed:

* before the intent is written, no table has changed. Data files of a failed stage are in no Delta log; VACUUM
  deletes them.
* after that, the intent names every file and row, so ``finish`` can start again. An append carries a Delta
  transaction id (app, version), and a table that has this version is skipped: nothing is appended twice. Step
  4 can be repeated, because it deletes only rows that no ledger row names.
* a power cut is a kill that also takes what the disk had not got yet. So what the ledger is going to name is
  flushed before the ledger's commit, and everything is before the intent is removed.
* spark sink: rows of ``batches`` and ``quarantine`` are kept as Parquet beside the intent, and can be
  committed again. Rows of ``records`` cannot (the source may have changed), but are committed first: if they
  are missing, nothing of the run was committed, and its intent is removed.
* a VACUUM without retention may delete data files that a killed run has not committed yet: the rows that the
  run appended are deleted, and its segments are decoded again.
* of two jobs at once, the lock admits one. It is held until the job ends. Where the lock is a lease, which a
  job may lose, ``pipelines.lake.committed`` keeps two jobs apart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.command.on_demand import SparkOnDemand
from pipelines.command.session import configured
from pipelines.command.settings import Settings
from pipelines.lake import transactions
from pipelines.lake.address import table_path
from pipelines.lake.committed import DECODED, CommittedTables
from pipelines.lake.conditions import delete_predicate
from pipelines.lake.intents import FOLDER, Intent, Intents, Place
from pipelines.lake.published import INGEST_APP
from pipelines.plan import ledger
from pipelines.plan.ledger import LedgerRow, Log, Partition
from pipelines.source.delta import read_rows, sql_in, sql_literal
from pipelines.source.hadoop import open_to_spark
from pipelines.source.uris import escape
from udfs.arrow.parquet_sink import DataFile
from udfs.format import schema
from udfs.format.schema import Table
from udfs.spark.protocol import BATCH_ROW, DAMAGE_ROW, STAGED_DDL

_LEDGER = schema.SEGMENTS.name
# Hadoop's names of the levels 1 to 9 of gzip
_GZIP_LEVELS = "BEST_SPEED TWO THREE FOUR FIVE SIX SEVEN EIGHT BEST_COMPRESSION"


@dataclass(frozen=True)
class Outcome:
    """Transactions with an uncertain outcome, in the logs that a run changed.

    uncertain: partition_dir of each log whose last stable offset is held by such a transaction.
    unknown: number of transactions whose outcome can't be known, because their markers were never seen.
    """

    uncertain: list[str] = field(default_factory=list)
    unknown: int = 0


class LakeWriter(CommittedTables):
    """The tables of one lake, and the commits of one app (DECODE_APP or INGEST_APP) to them."""

    def __init__(self, on_demand: SparkOnDemand, address: str, intents: Intents, app_id: str) -> None:
        super().__init__(address, intents, app_id)
        self._on_demand = on_demand

    def table(self, name: str) -> DataFrame:
        open_to_spark(self._on_demand.spark, self.address)
        return self._on_demand.spark.read.format("delta").load(self.path(name))

    def ledger(self, where: str = "") -> pa.Table:
        """The ledger (``pipelines.plan.ledger.read``). where: a condition on rows, "" for all."""
        return ledger.read(self._open(_LEDGER), where)

    def _ledger_rows(self, partitions: set[Partition]) -> list[LedgerRow]:
        """The ledger rows of some topic-partitions."""
        topics = sql_in("topic", (topic for topic, _ in partitions))
        return [r for r in ledger.rows(self.ledger(topics)) if (r.topic, r.partition) in partitions]

    def read(self, table: Table, columns: Iterable[str], where: str = "") -> pa.Table:
        """Columns of a table, read in this process. where: a condition on rows, "" for all."""
        return read_rows(self._open(table.name), table.arrow_schema(), columns, where)

    def with_transactions(self) -> set[Partition]:
        """The topic-partitions that have rows in ``transactions``."""
        return transactions.with_rows(self._open(schema.TRANSACTIONS.name))

    def chunks_of_run(self, run_id: str) -> pa.Table:
        """The chunks that a run landed, without their content."""
        columns = ["segment", "chunk_position", "chunk_bytes", "crc32c"]
        return self.read(schema.RAW_SEGMENTS, columns, f"run_id = {sql_literal(run_id)}")

    def stage(self, rows: DataFrame, name: str) -> None:
        """Adds rows of STAGED_DDL to a folder of staged rows."""
        rows.write.mode("append").parquet(self._staged_path(name))

    def _staged_path(self, name: str) -> str:
        return table_path(self.path(FOLDER), name)

    def staged(self, name: str) -> DataFrame:
        """The rows of a folder of staged rows, columns of STAGED_DDL."""
        path = escape(self._staged_path(name))  # Spark reads a path as a glob
        return self._on_demand.spark.read.schema(STAGED_DDL).parquet(path)

    # Runs that were killed

    def recover(self) -> list[Intent]:
        """Finishes or takes back every run that was killed. Returns the intents that it finished."""
        finished = [
            intent for intent in self.intents.pending() if self._of_app(intent.app_id)._recover(intent)
        ]
        for folder in self.intents.staged_folders():
            self.intents.remove_folder(folder)
        self.pin()
        return finished

    def _of_app(self, app_id: str) -> LakeWriter:
        return LakeWriter(self._on_demand, self.address, self.intents, app_id)

    def _recover(self, intent: Intent) -> bool:
        """Finishes an intent, or takes it back. Returns whether it finished it."""
        if intent.rows_by_spark and self.committed(first_table(intent).name) < intent.version:
            self.intents.remove(intent)
            return False
        if self._is_lost(intent) or self.is_outrun(intent):
            self._take_back(intent)
            return False
        self.finish(intent)
        return True

    def _is_lost(self, intent: Intent) -> bool:
        """Whether a data file that is not committed yet no longer exists."""
        waiting = [f for f in intent.files if self.committed(f.table) < intent.version]
        return not self.intents.holds([f"{f.table}/{f.path}" for f in waiting])

    def _take_back(self, intent: Intent) -> None:
        """Deletes the rows of an intent that can't be finished. Its segments will be decoded again."""
        places = self._places(intent)
        for table in DECODED:
            if places and self.committed(table.name) >= intent.version:
                self._delete(table, places)
        self.intents.remove(intent)

    def _places(self, intent: Intent) -> list[Place]:
        """Where the new rows of an intent are that the ledger does not name yet.

        They are all rows of their generation, from the ledger's decoded_bytes on where the run continued a
        segment.
        """
        in_ledger = sql_in("segment", (row.segment for row in intent.put))
        known = {row.segment: row for row in ledger.rows(self.ledger(in_ledger))} if intent.put else {}
        places = []
        for row in intent.put:
            was = known.get(row.segment)
            goes_on = was is not None and was.generation == row.generation
            position = was.decoded_bytes if was and goes_on else 0
            places.append(Place(row.topic, row.partition, row.segment, position, row.generation))
        return places

    # A run

    def commit(self, intent: Intent, rows: DataFrame | None = None) -> Outcome:
        """Writes the intent and carries it out. rows: of the first table, if Spark writes them.

        If Spark fails before it commits these rows, the intent is removed: nothing of the run is left.
        """
        intent = self.fenced(intent)
        self.intents.write(intent)
        if rows is not None:
            try:
                self._append(first_table(intent), rows, intent)
            except Exception:  # not KeyboardInterrupt: Spark may still be writing, and the next job recovers
                if self.committed(first_table(intent).name) < intent.version:
                    self.intents.remove(intent)
                    raise
        return self.finish(intent)

    def finish(self, intent: Intent) -> Outcome:
        """Makes the commits of an intent that are missing, and removes it. Can be repeated."""
        outcome = Outcome()
        if intent.app_id == INGEST_APP:
            self._add_files(schema.RAW_SEGMENTS, intent)
            self._delete_landed(intent)
        else:
            if not self.is_done(schema.SEGMENTS, intent):
                self._append_rows(intent)
                self.intents.flush_commits(intent)
                outcome = self._publish(intent)
            self._delete_obsolete(intent)
        self.intents.flush_commits(intent)
        self.intents.remove(intent)
        return outcome

    def _append_rows(self, intent: Intent) -> None:
        if intent.staged:
            staged = self.staged(intent.staged)
            valid = staged.where(~F.col("group_id").isin(intent.dropped_groups))
            for table, kind in ((schema.BATCHES, BATCH_ROW), (schema.QUARANTINE, DAMAGE_ROW)):
                rows = valid.where(F.col("kind") == kind).select(f"{kind}.*")
                if self.committed(table.name) < intent.version and not rows.isEmpty():
                    self._append(table, rows, intent)
            return
        for table in DECODED:
            self._add_files(table, intent)

    def _add_files(self, table: Table, intent: Intent) -> None:
        """Adds data files that exist already to a table's Delta log, in one commit."""
        files = [f for f in intent.files if f.table == table.name]
        if not files or self.is_done(table, intent):
            return

        def add(delta: DeltaTable) -> None:
            delta.create_write_transaction(
                [_add_action(f) for f in files],
                mode="append",
                schema=delta.schema(),
                partition_by=list(table.partitioned_by),
                commit_properties=self.properties(intent),
            )

        self.commit_once(table, intent, add)

    def _append(self, table: Table, rows: DataFrame, intent: Intent) -> None:
        """Appends rows with Spark, unless the table has this version already."""
        if self.committed(table.name) < intent.version:
            writer = rows.write.format("delta").mode("append")
            writer = writer.option("txnAppId", intent.app_id).option("txnVersion", intent.version)
            with configured(self._on_demand.spark, writing_conf(self._on_demand.settings)):
                writer.save(self.path(table.name))
            self.catch_up(table)

    def _publish(self, intent: Intent) -> Outcome:
        """Commits ``transactions`` and then the ledger, which makes the run's rows valid."""
        put = {row.segment: row for row in intent.put}
        affected = intent.partitions & (self.with_transactions() | {*intent.transactional})
        if not affected:
            self._update_ledger(put.values(), intent)
            return Outcome()
        dropped = {row.segment for row in intent.drop}
        after = {row.segment: row for row in self._ledger_rows(affected) if row.segment not in dropped}
        after |= {row.segment: row for row in intent.put if row.log[:2] in affected}
        computed = transactions.compute(self.read, affected, ledger.to_arrow(after.values()))
        self._append_transactions(computed.rows, intent)
        for row in self._with_generation(computed, after, put, intent.version):
            put[row.segment] = row
        self._update_ledger(put.values(), intent)
        return Outcome(computed.uncertain, computed.unknown)

    def _with_generation(
        self,
        computed: transactions.Computed,
        after: dict[str, LedgerRow],
        put: dict[str, LedgerRow],
        version: int,
    ) -> list[LedgerRow]:
        """Ledger rows with the valid generation of their log's transactions, for each changed log."""
        before: dict[Log, int] = {}
        for row in after.values():
            before[row.log] = max(before.get(row.log, 0), row.transactions_generation)
        updated = [
            replace(row, transactions_generation=version if row.log in computed.changed else before[row.log])
            for row in after.values()
            if row.segment in put
        ]
        missing = computed.changed - {row.log for row in updated}
        for row in after.values():
            if row.log in missing:
                missing.remove(row.log)
                updated.append(replace(row, transactions_generation=version))
        return updated

    def _append_transactions(self, rows: pa.Table, intent: Intent) -> None:
        table = schema.TRANSACTIONS
        if not rows.num_rows or self.is_done(table, intent):
            return
        generation = pa.repeat(pa.scalar(intent.version, pa.int64()), rows.num_rows)
        columns = rows.append_column("generation", generation).select(table.arrow_schema().names)
        self._write(table, columns, intent)

    def _write(
        self, table: Table, rows: pa.Table, intent: Intent, tables: Mapping[str, int] | None = None
    ) -> None:
        """Appends an Arrow table in one commit. tables: see ``mark``."""
        properties = self.properties(intent, tables)
        self.commit_once(
            table,
            intent,
            lambda delta: write_deltalake(delta, rows, mode="append", commit_properties=properties),
        )

    def _update_ledger(self, put: Collection[LedgerRow], intent: Intent) -> None:
        if intent.only_new and len(put) == len(intent.put):
            self._write(schema.SEGMENTS, ledger.to_arrow(put), intent, self.named_versions())
            return
        changes, names = ledger.changes(put, intent.drop), schema.SEGMENTS.arrow_schema().names
        values = {f'"{name}"': f'new."{name}"' for name in names}
        properties = self.properties(intent, self.named_versions())

        def merge(delta: DeltaTable) -> None:
            merger = delta.merge(
                changes,
                "old.segment = new.segment",
                source_alias="new",
                target_alias="old",
                commit_properties=properties,
            )
            merger = merger.when_matched_delete("new.dropped").when_matched_update(values)
            merger.when_not_matched_insert(values, "NOT new.dropped").execute()

        self.commit_once(schema.SEGMENTS, intent, merge)

    # Rows that are not valid any more

    def _delete_obsolete(self, intent: Intent) -> None:
        """Deletes rows of dropped segments, and of generations that are not valid any more."""
        dropped = [Place(row.topic, row.partition, row.segment) for row in intent.drop]
        for table in DECODED:
            if dropped:
                self._delete(table, dropped)
            if intent.replaced:
                self._delete(table, intent.replaced, f"generation <> {int(intent.version)}")
        affected = intent.partitions & self.with_transactions()
        if affected:
            self._delete_transactions(affected)

    def _delete_transactions(self, affected: set[Partition]) -> None:
        for condition in transactions.obsolete(self.read, affected, self._ledger_rows(affected)):
            self.delete_where(schema.TRANSACTIONS, condition)

    def _delete_landed(self, intent: Intent) -> None:
        """Deletes chunks that this run replaced, and those of dropped segments."""
        dropped = [Place(row.topic, row.partition, row.segment) for row in intent.drop]
        places = [*intent.landed, *dropped]
        if places:
            self._delete(schema.RAW_SEGMENTS, places, f"run_id <> {sql_literal(intent.run_id)}")

    def delete_rows(self, places: list[Place]) -> None:
        """Deletes rows of the decoded tables that no ledger row names."""
        for table in DECODED:
            self._delete(table, places)

    def _delete(self, table: Table, places: list[Place], also: str = "") -> None:
        condition = delete_predicate(table.name, places)
        self.delete_where(table, f"{condition} AND {also}" if also else condition)


def writing_conf(settings: Settings) -> dict[str, str]:
    """Spark's settings for its Parquet writer."""
    codec, level = settings.parquet_compression, settings.parquet_compression_level
    conf = {
        # deltalake reads Spark's default type, INT96, as nanoseconds, which cannot hold years past 2262
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Parquet's codec LZ4 is Hadoop's own framing of lz4, which few readers know
        "spark.sql.parquet.compression.codec": "lz4_raw" if codec == "lz4" else codec,
    }
    if level is not None and codec == "zstd":
        conf["parquet.compression.codec.zstd.level"] = str(level)
    elif level is not None:
        conf["zlib.compress.level"] = _GZIP_LEVELS.split()[level - 1]
    return conf


def first_table(intent: Intent) -> Table:
    """The table whose rows the spark sink writes first; the intent does not hold these rows."""
    return schema.RAW_SEGMENTS if intent.app_id == INGEST_APP else schema.RECORDS


def _add_action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(file.stats),
    )
