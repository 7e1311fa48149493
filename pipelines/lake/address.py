"""Where a lake lies and how its tables are named in SQL.

A lake is a folder with one Delta table a sub-folder. Its address is an absolute local path or a URI that
Spark knows; both may hold blanks, quotes and backticks, so every statement takes its names from here.
"""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import SparkSession

from pipelines.command.errors import UserError, one_line
from pipelines.source.uris import local_path
from udfs.format.schema import SEGMENTS

# Of every table: a lake of a higher version was made by a newer release, whose columns this one may not know.
SCHEMA_VERSION = 1
VERSION_PROPERTY = "kafkaLogLake.schemaVersion"


def lake_address(spark: SparkSession, lake: str) -> str:
    """Absolute local path, or the URI as given; without a slash at its end."""
    return (local_path(spark, lake) or lake).rstrip("/") or "/"


def table_path(address: str, table: str) -> str:
    return f"{address.rstrip('/')}/{table}"


def sql_table(address: str, table: str) -> str:
    """The table as a FROM clause names it."""
    return "delta." + sql_name(table_path(address, table))


def sql_name(name: str) -> str:
    """An identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def sql_string(text: str) -> str:
    """A string literal. The dollar is escaped too: Spark puts settings in place of ``${name}`` anywhere."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def log_dir_sql(segment: str) -> str:
    """The folder of a segment's URI, which ends in a slash, 20 digits and ``.log``."""
    return f"left({segment}, length({segment}) - 25)"


def table_version(address: str, table: str) -> int | None:
    """Schema version of a table of ours; None where there is no table, or one that is not ours."""
    try:
        found = DeltaTable(table_path(address, table)).metadata().configuration
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise UserError(f"cannot read the lake {address}: {one_line(error)}") from None
    return int(found[VERSION_PROPERTY]) if VERSION_PROPERTY in found else None


def is_lake(address: str) -> bool:
    """Whether a complete lake lies there: its ledger is made last. UserError for one newer than this code."""
    version = table_version(address, SEGMENTS.name)
    if version is not None and version > SCHEMA_VERSION:
        raise UserError(
            f"the lake {address} has schema version {version}, this release knows {SCHEMA_VERSION}: "
            "use a newer release, or another --lake"
        )
    return version is not None


def open_lake(spark: SparkSession, lake: str) -> str:
    """Address of a lake that has to be there."""
    address = lake_address(spark, lake)
    if not is_lake(address):
        raise UserError(f"there is no lake at {lake}: name a folder that decode_batches wrote")
    return address
