"""A lake whose tables a catalog manages (``--sink catalog``): Spark reads and writes them, all by name.

Unity Catalog lets nobody write a managed table by its path, so deltalake and the workers can't. The order of
the commits is that of ``pipelines.lake.commit``, and each replaces rows and adds others at once (``INSERT ...
REPLACE WHERE``). What differs is a run that was killed: the history of a table tells whether it has the run's
commit. If the first table does not, nothing was committed; else the others get theirs of staged rows.

The intent of a run is a row of a table that goes with the run, and that has its staged rows, too. Nothing
keeps two jobs apart.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.pipelines.lake.address import sql_name, sql_string
from kafka_log_lake.pipelines.lake.catalog_schema import CatalogSchema
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.intents import Intent, Intents, RowRange
from kafka_log_lake.pipelines.lake.published import INGEST_APP, USER_METADATA, Commit, commit_of_entry
from kafka_log_lake.pipelines.lake.superseded import delete_predicate
from kafka_log_lake.pipelines.lake.tables import intent_metadata
from kafka_log_lake.pipelines.lake.transactions import Outcome
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS, RUNS
from kafka_log_lake.udfs.format.schema import (
    BATCHES,
    OFFSET_FINDINGS,
    QUARANTINE,
    RAW_SEGMENTS,
    RECORDS,
    SEGMENTS,
    Table,
)
from kafka_log_lake.udfs.spark.protocol import BATCH_ROW, DAMAGE_ROW, STAGED_SCHEMA

_STAGED, _INTENT = "staged_rows_", "intent"
# Small tables of which a job reads all rows; but for the ledger, several times
_KEPT = (SEGMENTS, CHECKPOINTS, OFFSET_FINDINGS, RUNS)
# Column of the ledger that counts a segment's rows in a table
_COUNTS = {RECORDS: "records", BATCHES: "batches", QUARANTINE: "damaged"}
_NUMBER = "number_of_row"
_STAGED_ROWS = ((BATCHES, BATCH_ROW), (QUARANTINE, DAMAGE_ROW))
# Hadoop's names of the levels 1 to 9 of gzip
_GZIP_LEVELS = "BEST_SPEED TWO THREE FOUR FIVE SIX SEVEN EIGHT BEST_COMPRESSION"
_CHANGES = "kafka_log_lake_ledger_changes"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def spark_condition(where: str) -> str:
    """Translates a condition of deltalake's SQL to Spark's: names in backticks, strings with escapes."""

    def token(match: re.Match[str]) -> str:
        inside = match[0][1:-1]
        return sql_name(inside) if match[0][0] == '"' else sql_string(inside.replace("''", "'"))

    return re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"", token, where)


def writing_conf(settings: Settings) -> dict[str, str]:
    """Returns Spark's settings for its Parquet writer."""
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


def staging_name(app_id: str, version: int) -> str:
    """Returns the name under which Spark stages a run's rows before the commit."""
    return f"{app_id}-{version:010d}.staged"


def _staged_table(name: str) -> str:
    return _STAGED + re.sub(r"[^a-z0-9]", "_", name)


def _row_numbers(rows: pa.Table, where: str) -> pa.Array:
    """Returns the indices of the rows (int64) that meet a condition of deltalake's SQL."""
    numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    return duckdb.from_arrow(numbered).filter(where).project(_NUMBER).to_arrow_table().column(0)


class CatalogIntents(Intents):
    """Intents kept as rows in tables of staged rows. Only a run that has not ended has such a table."""

    def __init__(self, schema: CatalogSchema) -> None:
        self.schema = schema
        self.lease = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def pending(self) -> list[Intent]:
        intents: list[Intent] = []
        for table in sorted(self._tables()):
            rows = self.schema.spark.table(self.schema.path(table)).where(F.col("kind") == _INTENT)
            texts = [row["payload"].encode() for row in rows.select("payload").collect()]
            # an intent that is taken back has two rows; without any nothing was committed
            intents += sorted(map(Intent.from_json, texts), key=lambda intent: intent.taken_back)[-1:]
        return sorted(intents, key=lambda intent: (intent.app_id, intent.version))

    def write(self, intent: Intent) -> None:
        row = {"group_id": -1, "kind": _INTENT, "payload": intent.to_json().decode()}
        rows = pa.Table.from_pylist([row], schema=STAGED_SCHEMA)
        self.stage(self.schema.spark.createDataFrame(rows), staging_name(intent.app_id, intent.version))

    def remove(self, intent: Intent) -> None:
        self.remove_staged(staging_name(intent.app_id, intent.version))

    def stage(self, rows: DataFrame, name: str) -> None:
        """Adds rows of STAGED_DDL to a table of staged rows."""
        table = _staged_table(name)
        rows.write.format("delta").mode("append").saveAsTable(self.schema.path(table))
        self.schema.names.add(table)

    def staged(self, name: str) -> DataFrame:
        """Returns the staged rows of a run, columns of STAGED_DDL."""
        return self.schema.spark.table(self.schema.path(_staged_table(name)))

    def remove_staged(self, name: str) -> None:
        """Drops a table of staged rows, if it is there."""
        self._drop(_staged_table(name))

    def remove_all_staged(self) -> None:
        """Drops the tables of staged rows that are there."""
        for table in self._tables():
            self._drop(table)

    def _tables(self) -> list[str]:
        return [name for name in self.schema.names if name.startswith(_STAGED)]

    def _drop(self, table: str) -> None:
        if table in self.schema.names:
            self.schema.spark.sql(f"DROP TABLE IF EXISTS {self.schema.path(table)}")
            self.schema.names.discard(table)

    def holds(self, paths: Sequence[str]) -> bool:
        """Returns True for no paths: intents of a catalog name no files, which are Spark's."""
        return not paths

    def flush_commits(self, intent: Intent) -> None:
        """Does nothing: the storage of a catalog has what it has acknowledged."""


class CatalogLake(LakeWriter):
    """The tables of a lake in a schema of a catalog; ``address`` is the schema's name."""

    intents: CatalogIntents

    def __init__(self, on_demand: SparkOnDemand, address: str, intents: Intents, app_id: str) -> None:
        super().__init__(on_demand, address, intents, app_id)
        self._frames: Mapping[Table, DataFrame] = {}
        self._kept: dict[str, pa.Table] = {}  # table of _KEPT -> all its rows
        self._is_recovering = False

    @property
    def _spark(self) -> SparkSession:
        return self._on_demand.spark

    def path(self, table: str) -> str:
        return self.intents.schema.path(table)

    def table(self, name: str) -> DataFrame:
        return self._spark.table(self.path(name))

    def read(self, table: Table, columns: Iterable[str], where: str = "") -> pa.Table:
        names = list(columns)
        if table not in _KEPT:
            return self._read(table, names, where)
        rows = self._all_rows(table)
        return rows.take(_row_numbers(rows, where)).select(names) if where else rows.select(names)

    def _all_rows(self, table: Table) -> pa.Table:
        """Returns all rows of a table of _KEPT; what is not kept yet of these is read in one statement."""
        if table.name not in self._kept:
            known = {*self._kept} if self._ledger is None else {*self._kept, SEGMENTS.name} - {table.name}
            wanted = [kept for kept in _KEPT if kept.name not in known and self.has(kept)]
            frames = [self.table(kept.name).select(F.struct("*").alias(kept.name)) for kept in wanted]
            rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames).toArrow()
            for kept in wanted:
                column = rows.column(kept.name)
                stored = pa.Table.from_struct_array(column.filter(column.is_valid()))
                fields = [field for field in kept.arrow_schema() if field.name in stored.schema.names]
                names = [field.name for field in fields]
                self._kept[kept.name] = stored.select(names).cast(pa.schema(fields))
        return self._kept[table.name]

    def _read(self, table: Table, names: Collection[str], where: str) -> pa.Table:
        rows = self.table(table.name)
        rows = rows.where(spark_condition(where)) if where else rows
        schema, there = table.arrow_schema(), {*rows.columns}
        # An earlier release may have made the table without a column
        selected = [sql_name(name) if name in there else F.lit(None).alias(name) for name in names]
        return rows.select(*selected).toArrow().cast(pa.schema([schema.field(n) for n in names]))

    def add_rows(self, table: Table, rows: pa.Table) -> None:
        self.intents.schema.create_table(table)
        writer = self._spark.createDataFrame(rows).writeTo(self.path(table.name))
        writer.option("mergeSchema", "true").append()
        self._kept.pop(table.name, None)

    def replace_report_rows(self, table: Table, rows: pa.Table, where: str) -> None:
        self.intents.schema.create_table(table)
        writer = self._spark.createDataFrame(rows).writeTo(self.path(table.name))
        writer.overwrite(F.expr(spark_condition(where)))

    def has(self, table: Table) -> bool:
        return table.name in self.intents.schema.names

    def create(self, table: Table) -> None:
        self.intents.schema.create_table(table)

    def _staged_frames(self, intent: Intent) -> dict[Table, DataFrame]:
        """Returns the staged rows that an intent commits, by table."""
        if not intent.staged or intent.app_id == INGEST_APP:
            return {}
        rows = self.intents.staged(intent.staged).where(~F.col("group_id").isin(intent.dropped_groups))
        return {table: rows.where(F.col("kind") == kind).select(f"{kind}.*") for table, kind in _STAGED_ROWS}

    def commits(self, table: str) -> Iterator[Commit]:
        rows = self._spark.sql(f"DESCRIBE HISTORY {self.path(table)}").collect()
        return (commit_of_entry(row["version"], 0, row[USER_METADATA]) for row in rows)

    def committed(self, table: str) -> int:
        """Returns the number of the last run of this app that committed to a table; 0 for none.

        It is read after killed runs alone.
        """
        metadata = (commit.metadata for commit in self.commits(table))
        return next((run["run"] for run in metadata if run.get("app") == self.app_id), 0)

    def is_done(self, table: Table, intent: Intent) -> bool:
        return self._is_recovering and super().is_done(table, intent)

    def free_version(self) -> int:
        """Returns the time in ms since 1970, which is above the number of every run before."""
        return time.time_ns() // 1_000_000

    # Runs that were killed

    def recover(self) -> None:
        super().recover()
        self.intents.remove_all_staged()

    def _recover(self, intent: Intent) -> None:
        self._is_recovering = True
        first = RAW_SEGMENTS if intent.app_id == INGEST_APP else RECORDS
        if (intent.rows_by_spark or intent.app_id == INGEST_APP) and not self.is_done(first, intent):
            self.intents.remove(intent)  # nothing was committed
        else:
            super()._recover(intent)
        self._is_recovering = False
        self._kept.clear()

    def restore(self, table: Table, version: int, intent: Intent) -> None:
        metadata = intent_metadata(intent, undone=True)[USER_METADATA]
        with configured(self._spark, {_METADATA: metadata}):
            self._spark.sql(f"RESTORE TABLE {self.path(table.name)} TO VERSION AS OF {int(version)}")

    # A run

    def commit_frames(self, intent: Intent, frames: Mapping[Table, DataFrame]) -> Outcome:
        """Commits an intent, with rows of tables that Spark makes while it writes them."""
        self._frames = frames
        try:
            with configured(self._spark, writing_conf(self._settings)):
                return self.commit(intent)
        except Exception:
            with suppress(Exception):  # the next job tries again
                self._recover(intent)
            raise

    def replace_rows(self, table: Table, intent: Intent) -> None:
        if not self._changes(table, intent):
            return
        frames = {**self._frames, **self._staged_frames(intent)}
        self._overwrite(table, frames.get(table), intent.ranges, intent)

    def _changes(self, table: Table, intent: Intent) -> bool:
        """Returns whether a run adds rows to a table or removes some, by the ledger before and after it."""
        count = _COUNTS.get(table)
        if count is None or intent.cut:
            return True
        was = ledger.among(self.ledger(), "segment", (row.segment for row in intent.put))
        now = any(getattr(row, count) for row in (*intent.put, *intent.drop))
        return now or bool(pc.sum(was.column(count)).as_py())

    def replace_computed(self, table: Table, rows: pa.Table, ranges: list[RowRange], intent: Intent) -> None:
        self._overwrite(table, self._spark.createDataFrame(rows), ranges, intent)
        self._kept.pop(table.name, None)

    def _overwrite(
        self, table: Table, rows: DataFrame | None, ranges: list[RowRange], intent: Intent
    ) -> None:
        """Replaces the rows in some ranges by others (None: none) in one commit, unless it is there."""
        if not ranges or self.is_done(table, intent):
            return
        if rows is None:
            rows = self._spark.createDataFrame(table.arrow_schema().empty_table())
        writer = rows.writeTo(self.path(table.name)).option(
            USER_METADATA, intent_metadata(intent)[USER_METADATA]
        )
        writer.overwrite(F.expr(spark_condition(delete_predicate(table.name, ranges))))

    def replace_ledger(self, intent: Intent) -> None:
        changes = ledger.changes(intent.put, intent.drop)
        self._spark.createDataFrame(changes).createOrReplaceTempView(_CHANGES)
        names = [sql_name(column.name) for column in SEGMENTS.columns]
        with configured(self._spark, {_METADATA: intent_metadata(intent)[USER_METADATA]}):
            self._spark.sql(
                f"MERGE INTO {self.path(SEGMENTS.name)} old USING {_CHANGES} new "
                "ON old.segment = new.segment WHEN MATCHED AND new.dropped THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f'old.{name} = new.{name}' for name in names)} "
                f"WHEN NOT MATCHED AND NOT new.dropped THEN INSERT ({', '.join(names)}) "
                f"VALUES ({', '.join(f'new.{name}' for name in names)})"
            )
        self._spark.catalog.dropTempView(_CHANGES)
        self._kept.pop(SEGMENTS.name, None)
