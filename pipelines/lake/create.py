"""Creates the tables of a lake from the declarations in ``udfs.format.schema``.

Only this module creates tables. The ledger is created last: a lake without a ledger is incomplete, and the
missing tables are created. A report creates its own table in a complete lake.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector

from kafka_log_lake.pipelines.cli.errors import UserError, one_line, with_next_step
from kafka_log_lake.pipelines.engine.delta import append_rows, commit, open_table, patiently
from kafka_log_lake.pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    lake_table,
    opened_ledger,
    table_path,
    table_version,
)
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS, SEGMENTS, TABLES, Table
from kafka_log_lake.udfs.storage.store import deltalake_options, open_store

_AMBIGUOUS = re.compile(r"[][\\|^\x00-\x1f]|%[0-9A-Fa-f]{2}")

LEDGER_LAST = (*(table for table in TABLES if table is not SEGMENTS), SEGMENTS)


def create_tables(address: str, is_complete: bool = False) -> None:
    """Creates the missing tables of a new lake. Raises a MissingTable where a complete one has lost one.

    ``offset_findings`` is computed again where it is missing (``LakeWriter.fill_findings``).
    is_complete: whether ``check_place`` has just found a complete lake there.
    """
    if is_complete or check_place(address):
        system, folder = open_store(address)  # one listing: a job may run every second
        there = {info.base_name for info in system.get_file_info(FileSelector(folder))}
        for table in TABLES:
            if table.name not in there and table is not OFFSET_FINDINGS:
                lake_table(address, table.name)
        return
    # On a store each takes some ten requests, one after the other
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda table: create_table(address, table), LEDGER_LAST[:-1]))
    create_table(address, LEDGER_LAST[-1])


def check_path(address: str, named: str) -> None:
    """Raises a UserError for an address at which deltalake finds no table. named: what it is of."""
    ambiguous = _AMBIGUOUS.search(address)
    if ambiguous:
        raise UserError(
            f"{named} {address!r} contains {ambiguous.group()!r}, "
            "which deltalake does not read as it is: choose another path"
        )


def check_place(address: str) -> DeltaTable | None:
    """Returns the ledger of a complete lake; None where there is none.

    Raises a UserError if none can be created. Changes nothing.
    """
    check_path(address, "the lake's path")
    local = Path(address) if "://" not in address else None
    if local is not None:
        _check_folder(local)
    elif "#" in address or "?" in address:
        raise UserError(f"the lake's URI {address!r} contains '#' or '?': choose another")
    ledger = opened_ledger(address)
    if local is not None and ledger is None:
        _check_nothing_else(local)
    return ledger


def create_table(address: str, table: Table) -> None:
    """Creates one empty table if it is missing, with deltalake: Delta DDL in a fresh JVM takes seconds."""
    if table_version(address, table.name) is not None:
        return
    schema = pa.schema(
        [pa.field(c.name, c.arrow_type, metadata={"comment": c.comment}) for c in table.columns]
    )
    path = table_path(address, table.name)
    try:
        patiently(
            lambda: DeltaTable.create(
                path,
                schema,
                partition_by=list(table.partitioned_by),
                description=table.comment,
                configuration={**properties(table)},
                storage_options=deltalake_options(path),
                raise_if_key_not_exists=False,
            )
        )
    except (DeltaError, OSError) as error:
        if table_version(address, table.name) == SCHEMA_VERSION:
            return  # the answer of a store was lost, and the second attempt met the first
        raise UserError(
            f"cannot create the table {path}: "
            + with_next_step(one_line(error), "; name a lake that you may write to")
        ) from None


def add_rows(address: str, table: Table, rows: pa.Table) -> None:
    """Appends rows to a table of reports in one commit; the first rows create it."""
    path = table_path(address, table.name)
    if "://" not in path:  # deltalake panics where it may not write, and prints the stack of its threads
        _check_folder(Path(path))
    try:
        append_rows(path, rows)
    except TableNotFoundError:
        create_table(address, table)
        append_rows(path, rows)


def replace_rows(address: str, table: Table, rows: pa.Table, where: str) -> None:
    """Replaces the rows that meet a condition in one commit; the first rows create the table.

    where: in deltalake's SQL; the new rows meet it, too.
    """
    create_table(address, table)

    def write(delta: DeltaTable) -> None:
        if rows.num_rows:
            write_deltalake(delta, rows, mode="overwrite", predicate=where, schema_mode="merge")
        else:
            delta.delete(where)

    commit(open_table(table_path(address, table.name)), write)


def properties(table: Table) -> dict[str, str]:
    """Returns the Delta properties with which this project creates a table."""
    return {
        "delta.enableDeletionVectors": "false",  # pyarrow and DuckDB cannot read them
        "delta.dataSkippingStatsColumns": ",".join(table.bounded),
        VERSION_PROPERTY: str(SCHEMA_VERSION),
    }


def _check_folder(folder: Path) -> None:
    """Raises a UserError if the folder, or the first existing folder above it, cannot be written."""
    existing = folder
    try:
        while not existing.exists():
            existing = existing.parent
    except OSError as error:
        why = f"{error.strerror}; name another folder"
        raise UserError(f"the lake {folder} cannot be written: {why}") from None
    if not existing.is_dir():
        raise UserError(f"the lake cannot be {folder}: {existing} is a file; name a folder")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        why = f"{existing} is not writable for this user"
        raise UserError(f"the lake {folder} cannot be written: {why}; name another folder")


def _check_nothing_else(folder: Path) -> None:
    """Raises a UserError if the folder of a new lake holds anything but tables of an incomplete lake."""
    ours = {table.name for table in (*TABLES, *REPORT_TABLES)}
    if folder.is_dir():
        for entry in sorted(folder.iterdir()):
            if entry.name not in ours and not entry.name.startswith(("_", ".")):
                raise UserError(
                    f"{folder} is not empty (it holds {entry.name}) and is not a lake: "
                    "name a new or empty folder"
                )
