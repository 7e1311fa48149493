"""Opens a lake in DuckDB: every table, view and function by its plain name, at one moment of the lake.

The database is in memory. It reaches no file but the data files of the lake's tables, loads no extension, and
its configuration is locked. Only what every reader of Delta's first protocol reads alike is opened here: no
deletion vectors, no column mapping. Columns that a user added are left out.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.engine.delta import data_files, is_plain, open_table, read_declared, sql_literal
from kafka_log_lake.pipelines.lake.address import open_lake, open_log, reading, table_path
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.sql.connection import as_lake
from kafka_log_lake.pipelines.sql.functions import create_functions, create_typed_functions
from kafka_log_lake.pipelines.sql.kept import MOST_ROWS, KeptViews
from kafka_log_lake.pipelines.sql.listed import list_tables
from kafka_log_lake.pipelines.sql.statements import KEPT, creations, table_creations
from kafka_log_lake.pipelines.sql.types import duckdb_type, quoted
from kafka_log_lake.pipelines.typed.schemas import registry_reader
from kafka_log_lake.pipelines.typed.tables import TypedTable, typed_tables
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, needed_names, no_rows
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format.hive import NULL
from kafka_log_lake.udfs.format.report_tables import READ_BY_VIEWS, REPORT_TABLES, SCHEMAS
from kafka_log_lake.udfs.format.schema import TABLES, Table
from kafka_log_lake.udfs.storage.store import canonical_uri, is_object_store, open_store

if TYPE_CHECKING:
    import pyarrow.dataset as ds

# Statements about names of which none need be in them
_LISTS = re.compile(r"\b(show|(duckdb|pg|sqlite)_\w+|information_schema)\b", re.IGNORECASE)


def connect(
    lake: str | os.PathLike[str], at: str | None = None, log: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Opens a lake in DuckDB: its tables, views and functions have their plain names::

        from kafka_log_lake import connect
        connect("lake").sql("SELECT topic, records FROM topics").df()

    All answers are of one state of the lake: ``connect`` again to see what later runs wrote. Only the lake's
    files can be reached, and the configuration is locked: take results as ``.df()`` (pandas), ``.pl()``
    (Polars) or ``.to_arrow_table()``. ``offset`` and ``group`` need no quotes.

    Parameters
    ----------
    lake: its folder, or its URI in an object store.
    at: the id of a run (table ``runs``) for the state that it left, or a time (ISO 8601, UTC where it has no
        zone; or ms since 1970); None: now.
    log: the name of one of several copies, where ``--with-copies`` decoded it; None or "healed": the lake's
        own tables, which hold the healed log.

    Returns
    -------
    duckdb.DuckDBPyConnection, in memory: a ``LakeConnection``, whose ``connection`` is DuckDB's own object.

    Raises
    ------
    UserError: the folder is not a lake, there is no such state or copy, or a table needs Spark to be read.
    """
    folder = os.fspath(lake)
    return as_lake(open_database(open_log(folder, log) if log is not None else folder, at=at))


def duckdb_reads(lake: str) -> bool:
    """Returns whether DuckDB opens lakes there: in local folders and object stores."""
    return local_path(lake) is not None or is_object_store(canonical_uri(lake))


def open_database(
    lake: str,
    statement: str = "",
    threads: int | None = None,
    at: str | None = None,
    tables: Mapping[str, DeltaTable] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Opens a lake as ``connect`` does, for one statement: the tables and views that it names; "" for all.

    tables: the ``published_tables`` to open, where another part of an answer came from it.
    """
    address = open_lake(lake)
    known = {table.name: table for table in (*TABLES, *REPORT_TABLES)}
    lists = not statement or _LISTS.search(statement) is not None
    needed = needed_names("" if lists else statement, known)
    published = published_tables(address, at, {*needed, SCHEMAS.name}) if tables is None else tables
    with reading(f"the lake {address}"):
        opened = {
            name: _opened(published[name], table)
            for name, table in known.items()
            if name in needed & published.keys()
        }
    opened |= {
        table.name: OpenTable(table, {}) for table in READ_BY_VIEWS if table.name in needed - opened.keys()
    }
    typed = list(typed_tables(address, "" if needed >= known.keys() else statement, at))
    database = _database(address, opened, typed, threads)
    for macro in macros():
        database.execute(macro)
    create_functions(database)
    create_typed_functions(database, registry_reader(address, published))
    views = creations([view for view in SESSION_VIEWS if view.name in needed], lists)
    database.execute(";\n".join(["BEGIN", *views, "COMMIT"]))  # at once: half a millisecond less a view
    if lists:
        list_tables(database, [table for name, table in known.items() if name in published], typed)
    if all(opened[name].row_count <= MOST_ROWS[name] for name in opened.keys() & MOST_ROWS.keys()):
        database.execute(f"CREATE SCHEMA {KEPT}")
        KeptViews(database, is_apart=False).before(statement)
    database.execute("SET lock_configuration = true")
    return database


@contextmanager
def one_database(
    lake: str, statement: str, tables: Mapping[str, DeltaTable] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a database (``open_database``) for a ``with`` block; its end removes the database's folder."""
    database = open_database(lake, statement, tables=tables)
    (spill,) = database.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    try:
        yield database
    finally:
        database.close()
        shutil.rmtree(os.path.dirname(spill), ignore_errors=True)


def macros() -> Iterable[str]:
    """Returns statements that create the functions of Spark that the views call."""
    text = resources.files("kafka_log_lake.pipelines.sql").joinpath("macros.sql").read_text()
    return [line for line in text.splitlines() if line.startswith("CREATE")]


def _database(
    address: str, tables: Mapping[str, OpenTable], typed: Sequence[TypedTable], threads: int | None
) -> duckdb.DuckDBPyConnection:
    """Creates a database with the tables. Its folder of links and spilled data lasts until exit."""
    folder = tempfile.mkdtemp(prefix="kafka-log-lake-")
    # a relation may outlive the connection that made it, and reads through the folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "temp_directory": f"{folder}/spill",
            "preserve_insertion_order": "false",
            "python_enable_replacements": "false",
            **({"threads": str(threads)} if threads else {}),
        }
    )
    paths = [table_path(address, name) for name in (*tables, *(typed_table.table for typed_table in typed))]
    folders = [folder, *map(os.path.realpath, paths)]
    database.execute("SET allowed_directories = [" + ", ".join(map(sql_literal, folders)) + "]")
    database.execute("SET enable_external_access = false")
    database.execute("SET TimeZone = 'UTC'")
    for name, table in tables.items():
        if table.rows is not None:
            database.register("rows", table.rows)
            for creation in table_creations(table.declared, "FROM rows", "TABLE"):
                database.execute(creation)
            database.unregister("rows")
            continue
        if not table.files:
            rows = no_rows(table.declared.columns, quoted, duckdb_type)
        elif is_object_store(address):
            database.register(f"rows_of_{name}", _dataset(table_path(address, name), table))
            rows = _columns(table.declared, f"rows_of_{name}")
        else:
            # A path of the lake may hold what DuckDB takes for a pattern, and may not name partitions
            _link_files(Path(folder, name), table_path(address, name), table.files)
            rows = _columns(table.declared, _parquet(folder, table))
        for creation in table_creations(table.declared, rows):
            database.execute(creation)
    for typed_table in typed:
        _create_typed(database, address, folder, typed_table)
    return database


def _create_typed(database: duckdb.DuckDBPyConnection, address: str, folder: str, table: TypedTable) -> None:
    """Creates the view of a typed table in the schema of its folder."""
    database.execute(f'CREATE SCHEMA IF NOT EXISTS "{table.folder}"')
    columns = ", ".join(map(quoted, table.schema.names))
    if is_object_store(address) or not table.files:
        held = f"rows of {table.table}"
        delta = open_table(table_path(address, table.table))
        database.register(held, delta.to_pyarrow_dataset() if table.files else table.schema.empty_table())
        rows = f"SELECT {columns} FROM {quoted(held)}"
    else:
        links = {
            (f"partition={value}/" if value is not None else "") + f"{number}.parquet": file
            for number, (file, value) in enumerate(zip(table.files, table.partitions, strict=True))
        }
        _link_files(Path(folder, table.table), table_path(address, table.table), links)
        hive = "true, hive_types = {'partition': INTEGER}" if table.is_partitioned else "false"
        files = ", ".join(sql_literal(f"{folder}/{table.table}/{path}") for path in links)
        rows = (
            f"SELECT {columns} FROM read_parquet([{files}], hive_partitioning = {hive}, union_by_name = true)"
        )
    database.execute(f"CREATE VIEW {quoted(table.folder)}.{quoted(table.name)} AS {rows}")


def _link_files(folder: Path, table: str, files: Mapping[str, str]) -> None:
    """Makes a link for each data file of a table. Raises a UserError for one that is not there."""
    for parent in {os.path.dirname(path) for path in files}:
        os.makedirs(folder / parent)
    for path, file in files.items():
        if not os.path.isfile(f"{table}/{file}"):
            name = os.path.basename(table)
            raise UserError(
                f"the file {file}, which the log of the table {name} names, is not there: restore it, or "
                "decode into a new --lake"
            )
        os.symlink(os.path.realpath(f"{table}/{file}"), folder / path)


def _dataset(path: str, table: OpenTable) -> ds.Dataset:
    """Returns the data files of a table in an object store, as DuckDB reads them through pyarrow."""
    import pyarrow.dataset as ds  # takes 0.1 s to load, and local lakes do not need it

    system, folder = open_store(path)
    schema = table.declared.arrow_schema()
    partition_columns = pa.schema([schema.field(name) for name in table.declared.partitioned_by])
    folders, form = ds.partitioning(partition_columns, flavor="hive"), ds.ParquetFileFormat()
    fragments = [
        form.make_fragment(f"{folder}/{file}", system, folders.parse(named))
        for named, file in table.files.items()
    ]
    return ds.FileSystemDataset(fragments, schema, form, system)


def _columns(table: Table, rows: str) -> str:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    return f"SELECT {names} FROM {rows}"


def _parquet(folder: str, table: OpenTable) -> str:
    """Returns SQL for the rows of a table's files, linked below a folder as ``table.files`` names them."""
    declared = table.declared
    files = ", ".join(sql_literal(f"{folder}/{declared.name}/{path}") for path in table.files)
    types = ", ".join(
        f"'{column.name}': {duckdb_type(column.sql_type)}"
        for column in declared.columns
        if column.name in declared.partitioned_by
    )
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if types else ", hive_partitioning = false"
    return f"read_parquet([{files}]{hive})"


@dataclass(frozen=True)
class OpenTable:
    """The files or rows of one version of a table, for DuckDB to read.

    files: path -> a data file below the table's folder. The path is one with folders of partition values, as
    DuckDB reads them: the values are those of the log, wherever the file lies. rows: those of a small table
    instead; a column that is not there yet, because an earlier release made the table, is null. row_count: of
    files, by the table's log; the largest number where it does not say.
    """

    declared: Table
    files: dict[str, str]
    rows: pa.Table | None = None
    row_count: int = 0


def _opened(table: DeltaTable, declared: Table) -> OpenTable:
    """Lists the files of a table, or reads its rows. Raises a UserError for a table that only Spark reads."""
    if not is_plain(table):
        raise UserError(
            f"the table {declared.name} has features of a newer Delta protocol: use --engine spark"
        )
    if declared in REPORT_TABLES:
        return OpenTable(declared, {}, read_declared(table, declared.arrow_schema()))
    names = ("path", *(f"partition.{name}" for name in declared.partitioned_by))
    listed = data_files(table)
    columns = (column.to_pylist() for column in listed.select(names).columns)
    paths = {}
    for number, (file, *partition_values) in enumerate(zip(*columns, strict=True)):
        folders = "".join(
            f"{name}={NULL if value is None else _escaped(value)}/"
            for name, value in zip(declared.partitioned_by, partition_values, strict=True)
        )
        paths[f"{folders}{number}.parquet"] = file
    counts = listed.column("num_records")
    rows = sys.maxsize if counts.null_count else pc.sum(counts).as_py() or 0
    return OpenTable(declared, paths, row_count=rows)


def _escaped(value: object) -> str:
    """Escapes a value for the name of a folder as DuckDB reads it; a text like ``NULL`` stays a text."""
    return quote(str(value), safe="").replace("_", "%5F")
