"""A lake whose tables a catalog manages (``--sink catalog``): Spark reads and writes them, all by name.

Unity Catalog lets nobody write a managed table by its path, so deltalake and the workers can't. The order of
the commits is that of ``pipelines.lake.commit``, and each replaces rows and adds others at once (``INSERT ...
REPLACE WHERE``). What differs is a run that was killed: the history of a table tells whether it has the run's
commit. If the first table does not, nothing was committed; else the others get theirs of staged rows.

Intents are rows of ``unfinished_runs``, staged rows are tables. Nothing keeps two jobs apart.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.errors import UserError
from pipelines.command.on_demand import SparkOnDemand
from pipelines.command.session import configured
from pipelines.command.settings import Settings
from pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    refuse_commits_by_spark,
    sql_name,
    sql_string,
)
from pipelines.lake.commit import LakeWriter
from pipelines.lake.committed import marked
from pipelines.lake.create import LEDGER_LAST, properties
from pipelines.lake.intents import Intent, Intents, Place
from pipelines.lake.published import INGEST_APP, USER_METADATA, Commit, of_entry
from pipelines.lake.superseded import delete_predicate
from pipelines.lake.transactions import Outcome
from pipelines.plan import ledger
from pipelines.plan.ledger import Partition
from pipelines.plan.slices import Segment
from udfs.format.report_tables import READ_BY_VIEWS
from udfs.format.schema import (
    BATCHES,
    QUARANTINE,
    RAW_SEGMENTS,
    RECORDS,
    SEGMENTS,
    TRANSACTIONS,
    Table,
    columns,
)
from udfs.source.store import scheme_of
from udfs.spark.protocol import BATCH_ROW, DAMAGE_ROW

UNFINISHED = Table(
    "unfinished_runs",
    "What runs that have not ended are going to commit",
    (),
    columns(
        ("app_id", "string", "Who writes: the job that decodes, or the one that lands bytes"),
        ("version", "bigint", "Number of the run"),
        ("intent", "string", "All that it commits, as JSON"),
    ),
)
_STAGED = "staged_rows_"
_STAGED_ROWS = ((BATCHES, BATCH_ROW), (QUARANTINE, DAMAGE_ROW))
# Hadoop's names of the levels 1 to 9 of gzip
_GZIP_LEVELS = "BEST_SPEED TWO THREE FOUR FIVE SIX SEVEN EIGHT BEST_COMPRESSION"
_CHANGES = "kafka_log_lake_ledger_changes"
_SAID = "spark.databricks.delta.commitInfo.userMetadata"
# The catalog of Delta for Spark as it is published; that of Databricks is another one
_PUBLISHED_DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def quoted(schema: str) -> str:
    """A schema, or catalog.schema, as SQL names it."""
    return ".".join(map(sql_name, schema.split(".")))


def spark_condition(where: str) -> str:
    """A condition of deltalake's SQL as Spark writes it: names in backticks, strings with escapes."""

    def token(found: re.Match[str]) -> str:
        inside = found[0][1:-1]
        return sql_name(inside) if found[0][0] == '"' else sql_string(inside.replace("''", "'"))

    return re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"", token, where)


def lake_exists(spark: SparkSession, schema: str) -> bool:
    """Whether the schema holds a complete lake. Raises a UserError for another version, or one on S3."""
    name = f"{quoted(schema)}.{SEGMENTS.name}"
    if not spark.catalog.tableExists(name):
        return False
    found = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    if found.get(VERSION_PROPERTY) != str(SCHEMA_VERSION):
        raise UserError(
            f"{schema}.{SEGMENTS.name} is not a ledger of schema version {SCHEMA_VERSION}: "
            "name another schema"
        )
    _refuse_s3(spark, schema)
    return True


def _refuse_s3(spark: SparkSession, schema: str) -> None:
    """Raises a UserError for a schema on S3 where Delta's own log store would make the commits.

    One that is configured, such as ``io.delta.storage.S3DynamoDBLogStore``, is the user's choice.
    """
    catalog = schema.rpartition(".")[0] or spark.catalog.currentCatalog()
    if spark.conf.get(f"spark.sql.catalog.{catalog}", None) != _PUBLISHED_DELTA:
        return
    location = spark.catalog.getDatabase(quoted(schema)).locationUri or ""
    stores = ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme_of(location)}.impl")
    if not any(spark.conf.get(name, None) for name in stores):
        instead = "use --sink arrow with --catalog-schema, or set spark.delta.logStore.s3a.impl to a safe one"
        refuse_commits_by_spark(location, "--sink catalog", instead)


def create_lake(spark: SparkSession, schema: str) -> None:
    """Creates the schema and the tables of a lake where they are missing; the ledger last."""
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    _refuse_s3(spark, schema)
    for table in (UNFINISHED, *READ_BY_VIEWS, *LEDGER_LAST):
        create_table(spark, schema, table)


def create_table(spark: SparkSession, schema: str, table: Table) -> None:
    declared = ", ".join(
        f"{sql_name(c.name)} {c.sql_type} COMMENT {sql_string(c.comment)}" for c in table.columns
    )
    partitions = ", ".join(map(sql_name, table.partitioned_by))
    values = ", ".join(f"{sql_string(k)} = {sql_string(v)}" for k, v in properties(table).items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{sql_name(table.name)} ({declared}) USING delta "
        + (f"PARTITIONED BY ({partitions}) " if partitions else "")
        + f"COMMENT {sql_string(table.comment)} TBLPROPERTIES ({values})"
    )


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


class CatalogIntents(Intents):
    """Intents as rows of the table ``unfinished_runs``, staged rows as tables of the schema."""

    def __init__(self, on_demand: SparkOnDemand, schema: str) -> None:
        self._on_demand, self._schema = on_demand, schema
        self.lease = None

    @property
    def _spark(self) -> SparkSession:
        return self._on_demand.spark

    @property
    def _table(self) -> str:
        return f"{quoted(self._schema)}.{UNFINISHED.name}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def _texts(self) -> Iterator[bytes]:
        return (row["intent"].encode() for row in self._spark.table(self._table).select("intent").collect())

    def write(self, intent: Intent) -> None:
        row = {"app_id": [intent.app_id], "version": [intent.version], "intent": [intent.to_json().decode()]}
        made = self._spark.createDataFrame(pa.table(row, UNFINISHED.arrow_schema()))
        made.writeTo(self._table).append()

    def remove(self, intent: Intent) -> None:
        if intent.staged:
            self.remove_staged(intent.staged)
        self._spark.sql(
            f"DELETE FROM {self._table} WHERE app_id = {sql_string(intent.app_id)} "
            f"AND version = {int(intent.version)}"
        )

    def staged_table(self, name: str) -> str:
        """The table of staged rows."""
        return f"{quoted(self._schema)}.{sql_name(_STAGED + re.sub(r'[^a-z0-9]', '_', name))}"

    def remove_staged(self, name: str) -> None:
        """Drops the table of staged rows, if it is there."""
        self._spark.sql(f"DROP TABLE IF EXISTS {self.staged_table(name)}")

    def staged_names(self) -> list[str]:
        """The names of the tables of staged rows that are there."""
        found = self._spark.sql(f"SHOW TABLES IN {quoted(self._schema)} LIKE '{_STAGED}*'").collect()
        return [row["tableName"].removeprefix(_STAGED) for row in found]

    def holds(self, paths: Sequence[str]) -> bool:
        """True: intents of a catalog name no files, which are Spark's."""
        return not paths

    def flush_commits(self, intent: Intent) -> None:
        """Nothing: the storage behind a catalog has what it has acknowledged."""


class CatalogLake(LakeWriter):
    """The tables of a lake in a schema of a catalog; ``address`` is the schema's name."""

    intents: CatalogIntents

    def __init__(self, on_demand: SparkOnDemand, schema: str, intents: Intents, app_id: str) -> None:
        super().__init__(on_demand, schema, intents, app_id)
        self._frames: Mapping[Table, DataFrame] = {}
        self._is_recovering = False

    @property
    def _spark(self) -> SparkSession:
        return self._on_demand.spark

    def path(self, table: str) -> str:
        return f"{quoted(self.address)}.{sql_name(table)}"

    def table(self, name: str) -> DataFrame:
        return self._spark.table(self.path(name))

    def read(self, table: Table, columns: Iterable[str], where: str = "") -> pa.Table:
        names = list(columns)
        rows = self.table(table.name)
        rows = rows.where(spark_condition(where)) if where else rows
        schema = table.arrow_schema()
        return rows.select(*map(sql_name, names)).toArrow().cast(pa.schema([schema.field(n) for n in names]))

    def located(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments as they are: only Spark can read the files of a catalog's table."""
        return list(segments)

    def with_transactions(self) -> set[Partition]:
        rows = self.table(TRANSACTIONS.name).select("topic", "partition").distinct().collect()
        return {(row["topic"], row["partition"]) for row in rows}

    def add_rows(self, table: Table, rows: pa.Table) -> None:
        create_table(self._spark, self.address, table)
        writer = self._spark.createDataFrame(rows).writeTo(self.path(table.name))
        writer.option("mergeSchema", "true").append()

    def replace_report_rows(self, table: Table, rows: pa.Table, where: str) -> None:
        create_table(self._spark, self.address, table)
        writer = self._spark.createDataFrame(rows).writeTo(self.path(table.name))
        writer.overwrite(F.expr(spark_condition(where)))

    def has(self, table: Table) -> bool:
        return self._spark.catalog.tableExists(self.path(table.name))

    def stage(self, rows: DataFrame, name: str) -> None:
        """Adds rows of STAGED_DDL to a table of staged rows."""
        rows.write.format("delta").mode("append").saveAsTable(self.intents.staged_table(name))

    def staged(self, name: str) -> DataFrame:
        """Staged rows, columns of STAGED_DDL."""
        return self._spark.table(self.intents.staged_table(name))

    def _staged_frames(self, intent: Intent) -> dict[Table, DataFrame]:
        """The staged rows that an intent commits."""
        if not intent.staged or intent.app_id == INGEST_APP:
            return {}
        rows = self.staged(intent.staged).where(~F.col("group_id").isin(intent.dropped_groups))
        return {table: rows.where(F.col("kind") == kind).select(f"{kind}.*") for table, kind in _STAGED_ROWS}

    def catch_up(self, table: Table) -> None:
        """Nothing: Spark reads the newest version."""

    def commits(self, table: str) -> Iterator[Commit]:
        rows = self._spark.sql(f"DESCRIBE HISTORY {self.path(table)}").collect()
        return (of_entry(row["version"], 0, row[USER_METADATA]) for row in rows)

    def committed(self, table: str) -> int:
        """The version of this app's last commit to a table; 0 for none. Read after killed runs alone."""
        own = (commit.said for commit in self.commits(table))
        return next((said["run"] for said in own if said.get("app") == self.app_id), 0)

    def is_done(self, table: Table, intent: Intent) -> bool:
        return self._is_recovering and self.committed(table.name) >= intent.version

    def free_version(self) -> int:
        """The time: above the version of every run before."""
        return time.time_ns() // 1_000_000

    # Runs that were killed

    def recover(self) -> None:
        super().recover()
        for name in self.intents.staged_names():
            self.intents.remove_staged(name)

    def _recover(self, intent: Intent) -> None:
        self._is_recovering = True
        first = RAW_SEGMENTS if intent.app_id == INGEST_APP else RECORDS
        if (intent.rows_by_spark or intent.app_id == INGEST_APP) and not self.is_done(first, intent):
            self.intents.remove(intent)  # nothing was committed
        else:
            super()._recover(intent)
        self._is_recovering = False

    def restore(self, table: Table, version: int, intent: Intent) -> None:
        said = marked(intent, undone=True)[USER_METADATA]
        with configured(self._spark, {_SAID: said}):
            self._spark.sql(f"RESTORE TABLE {self.path(table.name)} TO VERSION AS OF {int(version)}")

    # A run

    def commit_frames(self, intent: Intent, frames: Mapping[Table, DataFrame]) -> Outcome:
        """Carries out an intent, with rows of tables that Spark makes while it writes them."""
        self._frames = frames
        try:
            with configured(self._spark, writing_conf(self._settings)):
                return self.commit(intent)
        except Exception:
            with suppress(Exception):  # the next job tries again
                self._recover(intent)
            raise

    def replace_rows(self, table: Table, intent: Intent) -> None:
        frames = {**self._frames, **self._staged_frames(intent)}
        self._overwrite(table, frames.get(table), intent.places, intent)

    def replace_logs(self, rows: pa.Table, logs: list[Place], intent: Intent) -> None:
        self._overwrite(TRANSACTIONS, self._spark.createDataFrame(rows), logs, intent)

    def _overwrite(self, table: Table, rows: DataFrame | None, places: list[Place], intent: Intent) -> None:
        """Rows (None: none) take the place of those at some places, in one commit, unless it is there."""
        if not places or self.is_done(table, intent):
            return
        if rows is None:
            rows = self._spark.createDataFrame(table.arrow_schema().empty_table())
        writer = rows.writeTo(self.path(table.name)).option(USER_METADATA, marked(intent)[USER_METADATA])
        writer.overwrite(F.expr(spark_condition(delete_predicate(table.name, places))))

    def replace_ledger(self, intent: Intent) -> None:
        changes = ledger.changes(intent.put, intent.drop)
        self._spark.createDataFrame(changes).createOrReplaceTempView(_CHANGES)
        names = [sql_name(column.name) for column in SEGMENTS.columns]
        with configured(self._spark, {_SAID: marked(intent)[USER_METADATA]}):
            self._spark.sql(
                f"MERGE INTO {self.path(SEGMENTS.name)} old USING {_CHANGES} new "
                "ON old.segment = new.segment WHEN MATCHED AND new.dropped THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f'old.{name} = new.{name}' for name in names)} "
                f"WHEN NOT MATCHED AND NOT new.dropped THEN INSERT ({', '.join(names)}) "
                f"VALUES ({', '.join(f'new.{name}' for name in names)})"
            )
        self._spark.catalog.dropTempView(_CHANGES)
