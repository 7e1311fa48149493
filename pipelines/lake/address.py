"""Where a lake is, and how SQL names its tables.

A lake is a folder with one sub-folder per Delta table. Its address is an absolute local path or a URI that
Spark can open. Both may contain spaces, quotes and backticks, so every SQL statement takes its names from
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.cli.values import is_utf8
from kafka_log_lake.pipelines.engine.delta import open_table
from kafka_log_lake.pipelines.listing.uris import local_path, missing_mount
from kafka_log_lake.udfs.format.recovery_tables import HEALED_BATCHES, HEALED_LOG
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS, SEGMENTS, TABLES, Table
from kafka_log_lake.udfs.storage.store import canonical_uri, is_object_store, is_of_fsspec, is_s3

# A property of every table; the columns differ between versions
SCHEMA_VERSION = 4
VERSION_PROPERTY = "kafkaLogLake.schemaVersion"
COPIES = "_copies"  # the folder of a lake for each of the copies that recover compared


class MissingTable(UserError):
    """The error where a complete lake lacks a table that it was created with."""


def lake_address(lake: str, default_scheme: str = "file") -> str:
    """Returns the address of a lake: an absolute local path, or a canonical URI; no trailing slash.

    Raises a UserError for a name that can't be a lake's.
    """
    if not is_utf8(lake):
        raise UserError(f"--lake: {printable(lake)} is not UTF-8, as the names of files in a lake are")
    address = local_path(lake, default_scheme) or canonical_uri(lake)
    if problem := missing_mount(address):
        raise UserError(f"--lake: there is no {address}: {problem}")
    if is_object_store(address) and not address.partition("://")[2].partition("/")[0]:
        raise UserError(f"--lake: {lake} names no bucket")
    if is_of_fsspec(address):
        raise UserError(f"--lake: {lake} is opened by fsspec, which here reads sources alone")
    return address.rstrip("/") or "/"


def table_path(address: str, table: str) -> str:
    """Returns the folder or URI of a table of a lake."""
    return f"{address.rstrip('/')}/{table}"


def sql_table(address: str, table: str) -> str:
    """Returns the table's name in a FROM clause of Spark SQL."""
    return "delta." + sql_name(table_path(address, table))


def sql_name(name: str) -> str:
    """Returns an identifier of Spark SQL, in backticks."""
    return "`" + name.replace("`", "``") + "`"


def sql_string(text: str) -> str:
    """Returns a string literal of Spark SQL. It escapes ``$`` too: Spark replaces ``${name}`` anywhere."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turns errors of reading a place into a UserError; a TableNotFoundError passes as it is."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        raise UserError(f"cannot read {place}: {one_line(error)}") from None


def table_version(address: str, table: str) -> int | None:
    """Returns the schema version of a table; None if it is missing or this project did not create it."""
    return _with_version(address, table)[1]


def _with_version(address: str, table: str) -> tuple[DeltaTable | None, int | None]:
    """Opens a table; None if it is missing. Returns its schema version too, see ``table_version``."""
    path = table_path(address, table)
    try:
        with reading(f"the table {path}"):
            opened = open_table(path)
            configuration = opened.metadata().configuration
    except TableNotFoundError:
        return None, None
    version = int(configuration[VERSION_PROPERTY]) if VERSION_PROPERTY in configuration else None
    if version == SCHEMA_VERSION:
        _check_columns(path, table, opened)
    return opened, version


def _check_columns(path: str, name: str, table: DeltaTable) -> None:
    """Raises a UserError where a folder of the lake holds another table than the one that belongs there."""
    declared = next((known for known in (*TABLES, *REPORT_TABLES) if known.name == name), None)
    held = {field.name for field in table.schema().fields}
    names = [] if declared is None else [column.name for column in declared.columns]
    missing = [column for column in names if column not in held]
    # a later release adds columns of reports at the end
    is_older = declared in REPORT_TABLES and names[:1] != missing[:1] and names[-len(missing) :] == missing
    if missing and not is_older:
        raise UserError(
            f"{path} is not the table {name} of this lake, it has no column {missing[0]}: put the lake's own "
            "folder back there, or decode into a new --lake"
        )


def lake_table(address: str, table: str) -> DeltaTable:
    """Opens a table that every complete lake has. Raises a MissingTable where somebody removed it.

    Raises a UserError where another table is in its folder.
    """
    path = table_path(address, table)
    try:
        with reading(f"the table {path}"):
            opened = open_table(path)
    except TableNotFoundError:
        how = f"any more: restore the folder {path}, or decode into a new --lake"
        if table == OFFSET_FINDINGS.name:
            how = "yet, as an earlier release made the lake: the next decode computes it"
        raise MissingTable(f"the lake {address} has no table {table} {how}") from None
    _check_columns(path, table, opened)
    return opened


def tables_of(address: str) -> tuple[Table, ...]:
    """Returns the tables of a complete lake, and those of reports that have run on it."""
    reports = (table for table in REPORT_TABLES if table_version(address, table.name) is not None)
    return (*TABLES, *reports)


def is_lake(address: str) -> bool:
    """Returns whether the lake is complete. Raises a UserError for another version."""
    return opened_ledger(address) is not None


def opened_ledger(address: str) -> DeltaTable | None:
    """Opens the ledger of a complete lake, as it is made last; returns None of another folder.

    Raises a UserError for another version.
    """
    ledger, version = _with_version(address, SEGMENTS.name)
    if version is not None and version != SCHEMA_VERSION:
        newer = version > SCHEMA_VERSION
        how = "use a newer release or another --lake" if newer else "decode into a new --lake"
        raise UserError(
            f"the lake {address} has schema version {version}, this release writes {SCHEMA_VERSION}: {how}"
        )
    return None if version is None else ledger


def open_lake(lake: str, default_scheme: str = "file") -> str:
    """Returns the address of an existing lake. Raises a UserError if there is none."""
    address = lake_address(lake, default_scheme)
    if not is_lake(address):
        raise UserError(f"there is no lake at {lake}: name a folder that decode made")
    return address


def log_address(lake: str, log: str | None) -> str:
    """Returns where the tables of one of several copies are. log: its name; None or healed: the lake itself.

    Raises a UserError for what can't be a name.
    """
    if log in (None, HEALED_LOG):
        return lake
    if log in (".", "..") or "/" in str(log) or not is_utf8(str(log)):
        raise UserError(f"--log {log}: name a copy as in replica_report.copy, or {HEALED_LOG}")
    return f"{lake.rstrip('/')}/{COPIES}/{log}"


def open_log(lake: str, log: str | None, default_scheme: str = "file") -> str:
    """Opens a lake as ``open_lake`` does, for one log of several copies; returns the address of its tables.

    Raises a UserError where the lake does not have that log.
    """
    address = open_lake(lake, default_scheme)
    of_log = log_address(address, log)
    if not is_lake(of_log):
        raise UserError(
            f"--log {log}: the lake {address} has no tables of that copy: recover or decode with "
            "--source NAME=PATH and --with-copies writes them"
        )
    if log == HEALED_LOG and table_version(address, HEALED_BATCHES.name) is None:
        raise UserError(
            f"--log {log}: the lake {address} has no healed log: recover, or decode with --source NAME=PATH, "
            "makes one"
        )
    return of_log


def refuse_commits_by_spark(lake: str, who: str, instead: str) -> None:
    """Raises a UserError for a lake on S3: of two writers at once both succeed there.

    Delta's log store for S3 (``S3SingleDriverLogStore``) looks whether the file of a commit is there, then
    writes it. Its stores for Azure, Google and HDFS let one writer alone succeed.
    who: what would write. instead: what does the same safely.
    """
    address = lake_address(lake)
    if is_s3(address):
        raise UserError(
            f"{who} can't write to {address}: on S3 a commit of Spark overwrites another writer's; {instead}"
        )
