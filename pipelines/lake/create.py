"""The tables of a lake, made from the declarations in ``udfs.format.schema``, and their names in a catalog.

Everyone writes to these tables; only this module makes them. The ledger is made last: a lake without it is
one whose making was cut short, and is completed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.command.errors import UserError, one_line
from pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    is_lake,
    lake_address,
    sql_name,
    sql_string,
    table_path,
    table_version,
)
from pipelines.source.uris import local_path
from pipelines.views.register import VIEWS
from udfs.format.schema import (
    BATCHES,
    QUARANTINE,
    RAW_SEGMENTS,
    RECORDS,
    SEGMENTS,
    TABLES,
    TRANSACTIONS,
    Table,
)

# What queries and the removal of a segment's rows look for. Binary columns have no statistics, and Delta's
# default, the first 32 columns, would leave out some of these and spend bytes on others.
STATISTICS = {
    RECORDS.name: ("offset", "timestamp", "timestamp_ms", "segment", "batch_position", "producer_id"),
    BATCHES.name: ("segment", "position", "base_offset", "last_offset", "max_timestamp", "producer_id"),
    QUARANTINE.name: ("segment", "position", "base_offset"),
    SEGMENTS.name: ("topic", "partition", "log_dir", "segment", "file_base_offset"),
    RAW_SEGMENTS.name: ("segment", "chunk_position"),
    TRANSACTIONS.name: ("log_dir", "producer_id", "first_offset", "marker_offset"),
}

_AMBIGUOUS = re.compile(r"[][\\\x00-\x1f]|%[0-9A-Fa-f]{2}")

_LEDGER_LAST = (*(table for table in TABLES if table is not SEGMENTS), SEGMENTS)


def create_tables(spark: SparkSession, lake: str, catalog_schema: str | None = None) -> str:
    """Makes what is missing of a lake and returns its address; commits nothing where all is there."""
    address = lake_address(spark, lake)
    if not check_place(spark, lake):
        for table in _LEDGER_LAST:
            _create(address, table)
    if catalog_schema is not None:
        register_in_catalog(spark, address, catalog_schema)
    return address


def check_place(spark: SparkSession, lake: str) -> bool:
    """Whether a complete lake is there; a UserError where none is and none can be made. Changes nothing."""
    address = lake_address(spark, lake)
    _check_address(address)
    local = local_path(spark, lake)
    if local is not None:
        _check_folder(Path(local))
    there = is_lake(address)
    if local is not None and not there:
        _check_nothing_else(Path(local))
    return there


def _create(address: str, table: Table) -> None:
    """One empty table. The first one by SQL would cost a young Java some seconds, this costs none."""
    if table_version(address, table.name) is not None:
        return
    schema = pa.schema(
        [pa.field(c.name, c.arrow_type, metadata={"comment": c.comment}) for c in table.columns]
    )
    properties: dict[str, str | None] = {
        "delta.enableDeletionVectors": "false",  # deltalake cannot read them
        "delta.dataSkippingStatsColumns": ",".join(STATISTICS[table.name]),
        VERSION_PROPERTY: str(SCHEMA_VERSION),
    }
    path = table_path(address, table.name)
    try:
        DeltaTable.create(
            path,
            schema,
            partition_by=list(table.partitioned_by),
            description=table.comment,
            configuration=properties,
            raise_if_key_not_exists=False,
        )
    except (DeltaError, OSError) as error:
        raise UserError(
            f"cannot make the table {path}: {one_line(error)}; "
            "name a folder that is new or empty, and that may be written"
        ) from None


def _check_address(address: str) -> None:
    """Refuses the few names that Spark and deltalake take for different places."""
    found = _AMBIGUOUS.search(address)
    if found:
        raise UserError(
            f"the lake's path {address!r} holds {found.group()!r}, which deltalake reads otherwise"
        )


def _check_folder(folder: Path) -> None:
    """The folder, or the first one above it that exists, can be written."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"the lake cannot be {folder}: {existing} is a file; name a folder")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise UserError(f"the lake {folder} cannot be written: {existing} is not writable for this user")


def _check_nothing_else(folder: Path) -> None:
    """A folder where a lake is to be made holds nothing but what a lake whose making was cut short holds."""
    ours = {table.name for table in TABLES}
    if folder.is_dir():
        for entry in sorted(folder.iterdir()):
            if entry.name not in ours and not entry.name.startswith(("_", ".")):
                raise UserError(
                    f"{folder} is not empty (it holds {entry.name}) and is no lake: "
                    "name a folder that is new or empty"
                )


def register_in_catalog(spark: SparkSession, address: str, schema: str) -> None:
    """The tables and views under a schema of a catalog that remembers them."""
    catalog = schema.rpartition(".")[0] or spark.catalog.currentCatalog()
    implementation = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    if catalog == "spark_catalog" and implementation == "in-memory":
        raise UserError(
            "--catalog-schema needs a catalog that outlives this process, and this Spark's is in memory: "
            "use spark-submit with --conf spark.sql.catalogImplementation=hive, or leave the option out"
        )
    prefix = ".".join(sql_name(part) for part in schema.split("."))
    try:
        if not spark.catalog.databaseExists(prefix):
            spark.sql(f"CREATE SCHEMA {prefix}")
        for table in TABLES:
            _register_table(spark, f"{prefix}.{sql_name(table.name)}", table_path(address, table.name))
        names = {table.name: f"{prefix}.{sql_name(table.name)}" for table in TABLES}
        for view in VIEWS:
            names[view.name] = f"{prefix}.{sql_name(view.name)}"
            comment = sql_string(view.comment)
            spark.sql(f"CREATE OR REPLACE VIEW {names[view.name]} COMMENT {comment} AS {view.sql(names)}")
    except (PySparkException, Py4JJavaError) as error:
        raise UserError(f"--catalog-schema: cannot register in {schema}: {one_line(error)}") from None


def _register_table(spark: SparkSession, name: str, path: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {sql_string(path)}")
    found = spark.sql(f"DESCRIBE DETAIL {name}").first()
    wanted = spark.sql(f"DESCRIBE DETAIL delta.{sql_name(path)}").first()
    # Not the id: a copied lake keeps it.
    if found is None or wanted is None or found["location"] != wanted["location"]:
        raise UserError(f"--catalog-schema: {name} is there already and belongs to another lake")
