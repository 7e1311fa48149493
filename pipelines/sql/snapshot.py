"""Opens tables of a lake without Spark: one version of each, all of the same moment.

Only what every reader of Delta's first protocol reads alike is opened here: no deletion vectors,
no column mapping, and the columns that are declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.lake.address import table_path
from pipelines.source.delta import open_table
from pipelines.sql.errors import Unsupported
from udfs.format.schema import SEGMENTS, Table

_OPENINGS = 5
_NULL = "__HIVE_DEFAULT_PARTITION__"  # a null in the name of a folder, for DuckDB too


@dataclass(frozen=True)
class OpenTable:
    """One version of a table.

    files: path -> a data file below the table's folder. The path is one with folders of partition values, as
    DuckDB reads them: the values are those of the log, wherever the file lies.
    """

    declared: Table
    files: dict[str, str]


def open_tables(address: str, tables: Iterable[Table]) -> dict[str, OpenTable]:
    """Opens tables, by name. Raises Unsupported for one that only Spark reads.

    The ledger says which rows of the other tables count. A run that commits between two openings deletes rows
    of before after its commit to the ledger: then all are opened again.
    """
    by_name: Mapping[str, Table] = {table.name: table for table in tables}
    for _ in range(_OPENINGS):
        try:
            ledger = open_table(table_path(address, SEGMENTS.name))
            found = {
                name: _opened(
                    ledger if name == SEGMENTS.name else open_table(table_path(address, name)), table
                )
                for name, table in by_name.items()
            }
            if len(found) < 2 or open_table(table_path(address, SEGMENTS.name)).version() == ledger.version():
                return found
        except (DeltaError, OSError):
            raise Unsupported("a table that deltalake cannot open") from None
    return found


def _opened(table: DeltaTable, declared: Table) -> OpenTable:
    protocol, metadata = table.protocol(), table.metadata()
    if (
        protocol.min_reader_version != 1
        or metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    ):
        raise Unsupported(f"the table {declared.name} of a newer Delta protocol")
    fields = {field.name: pa.field(field) for field in pa.schema(table.schema().to_arrow())}
    wanted = {field.name: field.type for field in declared.arrow_schema()}
    if {name: _plain(field.type) for name, field in fields.items()} != {
        n: _plain(of) for n, of in wanted.items()
    }:
        raise Unsupported(f"the table {declared.name} with other columns")
    actions = pa.table(table.get_add_actions(flatten=True))
    files = actions.column("path").to_pylist()
    values = [actions.column(f"partition.{name}").to_pylist() for name in declared.partitioned_by]
    paths = {}
    for number, (file, *own) in enumerate(zip(files, *values, strict=True)):
        if any(re.fullmatch(r"[\w.-]+", str(value), re.ASCII) is None or value == _NULL for value in own):
            raise Unsupported(f"values of partitions of the table {declared.name} that no folder is named by")
        folders = "".join(
            f"{name}={_NULL if value is None else value}/"
            for name, value in zip(declared.partitioned_by, own, strict=True)
        )
        paths[f"{folders}{number}.parquet"] = file
    return OpenTable(declared, paths)


def _plain(of: pa.DataType) -> str:
    """A type's name, with the same for the variants of one type in Arrow."""
    return re.sub(r"large_|_view|: | not null|item|element", "", str(of)).replace("<", " ").strip()
