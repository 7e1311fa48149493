"""Opens tables of a lake without Spark: the versions that one run published, or those of an earlier state.

Only what every reader of Delta's first protocol reads alike is opened here: no deletion vectors, no column
mapping. Columns that a user added are left out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.command.errors import UserError, one_line
from pipelines.lake.published import published_tables
from pipelines.source.delta import is_plain, read_declared
from udfs.format.hive import NULL
from udfs.format.report_tables import REPORT_TABLES
from udfs.format.schema import Table


@dataclass(frozen=True)
class OpenTable:
    """One version of a table.

    files: path -> a data file below the table's folder. The path is one with folders of partition values, as
    DuckDB reads them: the values are those of the log, wherever the file lies. rows: those of a small table
    instead; a column that is not there yet, because an earlier release made the table, is null.
    """

    declared: Table
    files: dict[str, str]
    rows: pa.Table | None = None


def snapshot(
    address: str, at: str | None = None, reports: Container[str] | None = None
) -> dict[str, DeltaTable]:
    """The tables of one state of a lake, by name. at, reports: see ``published_tables``.

    Raises a UserError for a state that is not there.
    """
    with _lake_errors(address):
        return published_tables(address, at, reports)


def open_tables(
    address: str, tables: Iterable[Table], published: Mapping[str, DeltaTable]
) -> dict[str, OpenTable]:
    """Opens those of some tables that are in a snapshot, by name.

    Raises a UserError for a table that only Spark reads.
    """
    with _lake_errors(address):
        return {one.name: _opened(published[one.name], one) for one in tables if one.name in published}


@contextmanager
def _lake_errors(address: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        raise UserError(f"cannot read the lake {address}: {one_line(error)}") from None


def _opened(table: DeltaTable, declared: Table) -> OpenTable:
    if not is_plain(table):
        raise UserError(
            f"the table {declared.name} has features of a newer Delta protocol: use --engine spark"
        )
    if declared in REPORT_TABLES:
        return OpenTable(declared, {}, read_declared(table, declared.arrow_schema()))
    actions = pa.table(table.get_add_actions(flatten=True))
    files = [unquote(path) for path in actions.column("path").to_pylist()]  # as Delta escapes them
    values = [actions.column(f"partition.{name}").to_pylist() for name in declared.partitioned_by]
    paths = {}
    for number, (file, *own) in enumerate(zip(files, *values, strict=True)):
        folders = "".join(
            f"{name}={NULL if value is None else _escaped(value)}/"
            for name, value in zip(declared.partitioned_by, own, strict=True)
        )
        paths[f"{folders}{number}.parquet"] = file
    return OpenTable(declared, paths)


def _escaped(value: object) -> str:
    """A value in the name of a folder as DuckDB reads it; a text like ``NULL`` stays a text."""
    return quote(str(value), safe="").replace("_", "%5F")
