"""A lake whose tables a catalog manages (``--sink catalog``): Spark reads and writes them, all by name.

Unity Catalog lets nobody write a managed table by its path, so deltalake and the workers can't. The order of
the commits is the same as of ``pipelines.lake.commit``. A run that was killed differs: its appends carry no
transaction id that could be queried. If the ledger has its rows, what is obsolete is deleted; if not, the
rows that it appended are deleted, and its segments are decoded again.

Intents are rows of ``unfinished_runs``, staged rows are tables. Nothing keeps two jobs apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.errors import UserError
from pipelines.command.on_demand import SparkOnDemand
from pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    refuse_commits_by_spark,
    sql_name,
    sql_string,
)
from pipelines.lake.commit import LakeWriter, Outcome, first_table
from pipelines.lake.committed import DECODED
from pipelines.lake.create import LEDGER_LAST, properties
from pipelines.lake.intents import Intent, Intents
from pipelines.lake.published import INGEST_APP
from pipelines.plan import ledger
from pipelines.plan.ledger import NAMES, LedgerRow, Partition
from pipelines.source.delta import sql_in, sql_literal
from udfs.format.report_tables import READ_BY_VIEWS
from udfs.format.schema import RAW_SEGMENTS, SEGMENTS, TRANSACTIONS, Table, columns
from udfs.source.store import scheme_of

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
_CHANGES = "kafka_log_lake_ledger_changes"
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
            f"{schema}.{SEGMENTS.name} is no ledger of schema version {SCHEMA_VERSION}: name another schema"
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

    def pending(self) -> list[Intent]:
        rows = self._spark.table(self._table).select("intent").collect()
        return sorted((Intent.from_json(row["intent"].encode()) for row in rows), key=_order)

    def write(self, intent: Intent) -> None:
        row = {"app_id": [intent.app_id], "version": [intent.version], "intent": [intent.to_json().decode()]}
        made = self._spark.createDataFrame(pa.table(row, UNFINISHED.arrow_schema()))
        made.writeTo(self._table).append()

    def remove(self, intent: Intent) -> None:
        if intent.staged:
            self.remove_folder(intent.staged)
        self._spark.sql(
            f"DELETE FROM {self._table} WHERE app_id = {sql_string(intent.app_id)} "
            f"AND version = {int(intent.version)}"
        )

    def staged_table(self, name: str) -> str:
        """The table of a folder of staged rows."""
        return f"{quoted(self._schema)}.{sql_name(_STAGED + re.sub(r'[^a-z0-9]', '_', name))}"

    def remove_folder(self, name: str) -> None:
        self._spark.sql(f"DROP TABLE IF EXISTS {self.staged_table(name)}")

    def staged_folders(self) -> list[str]:
        found = self._spark.sql(f"SHOW TABLES IN {quoted(self._schema)} LIKE '{_STAGED}*'").collect()
        return [row["tableName"].removeprefix(_STAGED) for row in found]

    def flush_commits(self, intent: Intent) -> None:
        """Nothing: the storage behind a catalog has what it has acknowledged."""


class CatalogLake(LakeWriter):
    """The tables of a lake in a schema of a catalog; ``address`` is the schema's name."""

    intents: CatalogIntents

    def __init__(self, on_demand: SparkOnDemand, schema: str, intents: Intents, app_id: str) -> None:
        super().__init__(on_demand, schema, intents, app_id)

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

    def ledger(self, where: str = "") -> pa.Table:
        return ledger.numbered(self.read(SEGMENTS, NAMES, where))

    def with_transactions(self) -> set[Partition]:
        rows = self.table(TRANSACTIONS.name).select("topic", "partition").distinct().collect()
        return {(row["topic"], row["partition"]) for row in rows}

    def add_rows(self, table: Table, rows: pa.Table) -> None:
        create_table(self._spark, self.address, table)
        self._append_to(table, self._spark.createDataFrame(rows))

    def replace_rows(self, table: Table, rows: pa.Table, where: str) -> None:
        create_table(self._spark, self.address, table)
        self._spark.sql(f"DELETE FROM {self.path(table.name)} WHERE {spark_condition(where)}")
        self._append_to(table, self._spark.createDataFrame(rows))

    def has(self, table: Table) -> bool:
        return self._spark.catalog.tableExists(f"{quoted(self.address)}.{sql_name(table.name)}")

    def stage(self, rows: DataFrame, name: str) -> None:
        rows.write.format("delta").mode("append").saveAsTable(self.intents.staged_table(name))

    def staged(self, name: str) -> DataFrame:
        return self._spark.table(self.intents.staged_table(name))

    def committed(self, table: str) -> int:
        """0: what a killed run has committed is not queried from a table, but taken back (``recover``)."""
        return 0

    def next_version(self) -> int:
        """The version of the next run: above every generation that counts. No other rows are left."""
        if self.app_id == INGEST_APP:
            return 1
        highest = F.greatest(F.max("generation"), F.max("transactions_generation"))
        (row,) = self.table(SEGMENTS.name).select(highest.alias("version")).collect()
        return 1 + (row["version"] or 0)

    # Runs that were killed

    def _of_app(self, app_id: str) -> CatalogLake:
        return CatalogLake(self._on_demand, self.address, self.intents, app_id)

    def _recover(self, intent: Intent) -> bool:
        if not self._is_published(intent):
            self._take_back(intent)
            if intent.put or intent.app_id == INGEST_APP:
                return False
            self.commit(intent)  # drops rows alone
            return True
        if intent.app_id == INGEST_APP:
            self._delete_landed(intent)
        else:
            self._delete_obsolete(intent)
        self.intents.remove(intent)
        return True

    def _is_published(self, intent: Intent) -> bool:
        """Whether the commit of a run that counts was made: of the ledger, or of the landed bytes."""
        landed = intent.app_id == INGEST_APP
        segments = [place.segment for place in intent.landed] if landed else [r.segment for r in intent.put]
        if not segments:
            return False
        where = f"{sql_in('segment', segments)} AND run_id = {sql_literal(intent.run_id)}"
        return self.read(RAW_SEGMENTS if landed else SEGMENTS, ["segment"], where).num_rows > 0

    def _take_back(self, intent: Intent) -> None:
        places = self._places(intent)
        for table in DECODED if places else ():
            self._delete(table, places)
        if intent.partitions:
            self._delete_transactions(intent.partitions)
        self.intents.remove(intent)

    # A run

    def commit(self, intent: Intent, rows: DataFrame | None = None) -> Outcome:
        self.intents.write(intent)
        if rows is not None:
            try:
                self._append(first_table(intent), rows, intent)
            except Exception:
                with suppress(Exception):  # the next job tries again
                    self._take_back(intent)
                raise
        return self.finish(intent)

    def _append(self, table: Table, rows: DataFrame, intent: Intent) -> None:
        self._append_to(table, rows)

    def _write(
        self, table: Table, rows: pa.Table, intent: Intent, tables: Mapping[str, int] | None = None
    ) -> None:
        self._append_to(table, self._spark.createDataFrame(rows))

    def _append_to(self, table: Table, rows: DataFrame) -> None:
        rows.writeTo(self.path(table.name)).append()

    def _update_ledger(self, put: Collection[LedgerRow], intent: Intent) -> None:
        if intent.only_new and len(put) == len(intent.put):
            self._write(SEGMENTS, ledger.to_arrow(put), intent)  # a MERGE takes seconds
            return
        self._spark.createDataFrame(ledger.changes(put, intent.drop)).createOrReplaceTempView(_CHANGES)
        names = [sql_name(column.name) for column in SEGMENTS.columns]
        self._spark.sql(
            f"MERGE INTO {self.path(SEGMENTS.name)} old USING {_CHANGES} new ON old.segment = new.segment "
            "WHEN MATCHED AND new.dropped THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'old.{name} = new.{name}' for name in names)} "
            f"WHEN NOT MATCHED AND NOT new.dropped THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f'new.{name}' for name in names)})"
        )
        self._spark.catalog.dropTempView(_CHANGES)

    def delete_where(self, table: Table, condition: str) -> None:
        self._spark.sql(f"DELETE FROM {self.path(table.name)} WHERE {spark_condition(condition)}")


def _order(intent: Intent) -> tuple[str, int]:
    return intent.app_id, intent.version
