"""The schema of a catalog that holds a lake (``--sink catalog``): lists and creates its tables.

A statement takes Spark a second where it is busy, so what is there is asked once a job.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.values import pairs
from kafka_log_lake.pipelines.engine.driver import spark_errors
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    refuse_commits_by_spark,
    sql_name,
    sql_string,
)
from kafka_log_lake.pipelines.lake.create import LEDGER_LAST, properties
from kafka_log_lake.udfs.format.schema import (
    BATCHES,
    OFFSET_FINDINGS,
    QUARANTINE,
    RAW_SEGMENTS,
    RECORDS,
    SEGMENTS,
    TRANSACTIONS,
    Table,
)
from kafka_log_lake.udfs.storage.store import scheme_of

# The catalog of Delta for Spark as it is published; that of Databricks is another one
_PUBLISHED_DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_AT_ONCE = 4
# What follows topic and partition where tables are clustered
_OFFSETS = {
    RECORDS: "offset",
    BATCHES: "base_offset",
    QUARANTINE: "base_offset",
    TRANSACTIONS: "first_offset",
    OFFSET_FINDINGS: "first_offset",
    RAW_SEGMENTS: "file_base_offset",
}


class CatalogSchema:
    """The place of a lake in a catalog. For one job: what others change meanwhile is not seen.

    name: schema, catalog.schema, or catalog.schema.prefix, with which several lakes share a schema.
    quoted: the schema, as SQL names it. begin: what tables and views begin with in SQL. ending: of the names
    of the schema's properties about this lake.
    """

    def __init__(self, on_demand: SparkOnDemand, name: str) -> None:
        self._on_demand, self.name = on_demand, name
        parts = name.split(".")
        self._catalog = parts[0] if len(parts) > 1 else None
        self._prefix = f"{parts[2]}_".lower() if len(parts) > 2 else ""
        self.quoted = ".".join(map(sql_name, parts[:2]))
        self.begin, self.ending = f"{self.quoted}.{self._prefix}", f".{self._prefix}" if self._prefix else ""

    @property
    def spark(self) -> SparkSession:
        return self._on_demand.spark

    def path(self, table: str) -> str:
        """Returns the name of a table or view in SQL."""
        return f"{self.quoted}.{sql_name(self._prefix + table)}"

    @cached_property
    def names(self) -> set[str]:
        """Returns the names of the tables and views that are there, in lower case and without the prefix."""
        try:
            rows = self.spark.sql(f"SHOW TABLES IN {self.quoted}").collect()
        except spark_errors():
            if self.spark.catalog.databaseExists(self.quoted):
                raise
            return set()
        names = (row["tableName"].lower() for row in rows if not row["isTemporary"])
        return {name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)}

    @cached_property
    def described(self) -> dict[str, str]:
        """Returns what the catalog says of the schema: name -> value, such as Location and Properties."""
        return dict(map(tuple, self.spark.sql(f"DESCRIBE SCHEMA EXTENDED {self.quoted}").collect()))

    def has_lake(self) -> bool:
        """Returns whether the schema holds a complete lake. Raises a UserError for another version or S3."""
        if SEGMENTS.name not in self.names:
            return False
        # ``PermanentViews`` notes the version in the schema, too
        if f"({VERSION_PROPERTY}{self.ending},{SCHEMA_VERSION})" not in self.described.get("Properties", ""):
            ledger = self.path(SEGMENTS.name)
            properties = {
                row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {ledger}").collect()
            }
            if properties.get(VERSION_PROPERTY) != str(SCHEMA_VERSION):
                raise UserError(
                    f"{self.name}.{SEGMENTS.name} is not a ledger of schema version {SCHEMA_VERSION}: "
                    "name another schema"
                )
        self._refuse_s3()
        return True

    def _refuse_s3(self) -> None:
        """Raises a UserError for a schema on S3 where Delta's own log store would make the commits.

        One that is configured, such as ``io.delta.storage.S3DynamoDBLogStore``, is the user's choice.
        """
        catalog = self._catalog or self.spark.catalog.currentCatalog()
        if self.spark.conf.get(f"spark.sql.catalog.{catalog}", None) != _PUBLISHED_DELTA:
            return
        location = self.described.get("Location", "")
        stores = ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme_of(location)}.impl")
        if not any(self.spark.conf.get(name, None) for name in stores):
            safe = "set spark.delta.logStore.s3a.impl to a safe one"
            instead = f"use --sink arrow with --catalog-schema, or {safe}"
            refuse_commits_by_spark(location, "--sink catalog", instead)

    def create_lake(self) -> None:
        """Creates the schema and the tables that are missing, several at once; the ledger last."""
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.quoted}")
        self._refuse_s3()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(self.create_table, LEDGER_LAST[:-1]))
        self.create_table(LEDGER_LAST[-1])

    def create_table(self, table: Table) -> None:
        """Creates a table if it is missing."""
        if table.name in self.names:
            return
        declared = ", ".join(
            f"{sql_name(c.name)} {c.sql_type} COMMENT {sql_string(c.comment)}" for c in table.columns
        )
        given = self._on_demand.settings
        settings = given if isinstance(given, Settings) else Settings()
        made, by, keys = properties(table), "PARTITIONED BY", table.partitioned_by
        if settings.clustered and table in _OFFSETS:
            by, keys = "CLUSTER BY", ("topic", "partition", _OFFSETS[table])
            made["delta.dataSkippingStatsColumns"] = ",".join(dict.fromkeys([*keys, *table.bounded]))
        made |= pairs(settings.table_properties)
        values = ", ".join(f"{sql_string(k)} = {sql_string(v)}" for k, v in made.items())
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.path(table.name)} ({declared}) USING delta "
            + (f"{by} ({', '.join(map(sql_name, keys))}) " if keys else "")
            + f"COMMENT {sql_string(table.comment)} TBLPROPERTIES ({values})"
        )
        self.names.add(table.name)
