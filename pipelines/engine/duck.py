"""DuckDB answers a translated statement, in this process.

The database is in memory and has no way to a file but to the data files of the tables that the statement
names. It loads no extension and writes nothing but what does not fit in memory, into a folder that goes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from duckdb.func import PythonUDFType

from pipelines.engine import types as t
from pipelines.engine.expressions import text_literal
from pipelines.engine.json_rows import json_lines
from pipelines.engine.scope import Field
from pipelines.engine.translate import Translated
from pipelines.lake.address import table_path
from pipelines.sql.errors import Unsupported
from pipelines.sql.snapshot import OpenTable
from udfs.source.store import is_object_store, open_store

_BATCH_ROWS = 2048
_DIGITS = Context(prec=700)  # of any double, with decimals behind
# A hint BROADCAST: the right side of each join is the small one, which is held in memory
_AS_WRITTEN = "join_order,build_side_probe_side"
_MACROS = (
    "floor_div(a, b) AS (a - ((a % b) + b) % b) // b",
    "spark_divide(a, b) AS CASE WHEN b = 0 THEN error('division by zero') ELSE a / b END",
    "spark_div(a, b) AS CASE WHEN b = 0 THEN error('division by zero') ELSE a // b END",
    "spark_mod(a, b) AS CASE WHEN b = 0 THEN error('division by zero') ELSE a % b END",
    "spark_pmod(a, b) AS CASE WHEN b = 0 THEN error('division by zero') "
    "WHEN a % b < 0 THEN (a % b + b) % b ELSE a % b END",
)


@dataclass(frozen=True)
class Database:
    """A translated statement and the opened tables that it names; cores: threads, None for all."""

    address: str
    tables: Mapping[str, OpenTable]
    translated: Translated
    cores: int | None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the result."""
        return self.translated.query.fields

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as DuckDB gives them. Fails where Spark's ANSI mode does: ``answer`` knows the errors."""
        with _database(self.address, self.tables, self.cores) as database:
            if self.translated.is_hinted:
                database.execute(f"SET disabled_optimizers = '{_AS_WRITTEN}'")
            database.execute("SET lock_configuration = true")
            yield from database.sql(self.translated.query.sql).to_arrow_reader(_BATCH_ROWS)

    def json_lines(self) -> Iterator[str]:
        """The rows as JSON objects."""
        names = [one.name or "" for one in self.fields]
        types = [one.type for one in self.fields]
        for batch in self.batches():
            yield from json_lines(names, types, batch)


@contextmanager
def _database(
    address: str, tables: Mapping[str, OpenTable], cores: int | None
) -> Iterator[duckdb.DuckDBPyConnection]:
    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as folder:
        is_local = not is_object_store(address)
        # A path of the lake may hold what DuckDB takes for a pattern, and does not name partitions
        for name, table in tables.items() if is_local else ():
            _link_files(Path(folder, name), table_path(address, name), table.files)
        database = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "temp_directory": f"{folder}/spill",
                "preserve_insertion_order": "false",
                "python_enable_replacements": "false",
                **({"threads": str(cores)} if cores else {}),
            }
        )
        try:
            folders = [folder, *(os.path.realpath(table_path(address, name)) for name in tables)]
            database.execute("SET allowed_directories = [" + ", ".join(map(text_literal, folders)) + "]")
            database.execute("SET enable_external_access = false")
            for macro in _MACROS:
                database.execute(f"CREATE MACRO {macro}")
            database.create_function("spark_round", rounded, ["DOUBLE", "INTEGER"], "DOUBLE")
            for name, function in _OF_BYTES.items():
                database.create_function(
                    name, function, ["BLOB", "BLOB"], "BOOLEAN", type=PythonUDFType.ARROW
                )
            for name, table in tables.items():
                if is_local:
                    rows = _parquet(folder, table)
                else:
                    rows = f"objects_{name}"
                    database.register(rows, _dataset(table_path(address, name), table))
                database.execute(f"CREATE VIEW lake_{name} AS {_select(table, rows)}")
            yield database
        finally:
            database.close()


def _link_files(folder: Path, table: str, files: Mapping[str, str]) -> None:
    """Makes a link for each data file of a table. Raises Unsupported for one that is not there."""
    for parent in {os.path.dirname(path) for path in files}:
        os.makedirs(folder / parent)
    for path, file in files.items():
        if not os.path.isfile(f"{table}/{file}"):
            raise Unsupported(
                f"the file {file}, which is not where the log of {os.path.basename(table)} says"
            )
        os.symlink(os.path.realpath(f"{table}/{file}"), folder / path)


def _of_bytes(compare: Callable[..., pa.Array]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """A condition on bytes and a constant."""

    def of_columns(column: pa.Array, part: pa.Array) -> pa.Array:
        return compare(column, part[0].as_py()) if len(part) else pa.array([], pa.bool_())

    return of_columns


_OF_BYTES = {
    "bytes_contain": _of_bytes(pc.match_substring),
    "bytes_start_with": _of_bytes(pc.starts_with),
    "bytes_end_with": _of_bytes(pc.ends_with),
}


def _dataset(path: str, table: OpenTable) -> ds.Dataset:
    """The data files of a table in an object store, as DuckDB reads them through pyarrow."""
    system, folder = open_store(path)
    schema = table.declared.arrow_schema()
    own = pa.schema([schema.field(name) for name in table.declared.partitioned_by])
    folders, form = ds.partitioning(own, flavor="hive"), ds.ParquetFileFormat()
    fragments = [
        form.make_fragment(f"{folder}/{file}", system, folders.parse(named))
        for named, file in table.files.items()
    ]
    return ds.FileSystemDataset(fragments, schema, form, system)


def _select(table: OpenTable, rows: str) -> str:
    """The SELECT of a table: its columns are c0, c1, ..., in the types of ``types``. rows: of its files."""
    declared = table.declared
    columns = [(f'"{column.name}"', column.arrow_type) for column in declared.columns]
    if not table.files:
        empty = ", ".join(f"CAST(NULL AS {t.duckdb_type(of)}) AS c{i}" for i, (_, of) in enumerate(columns))
        return f"SELECT {empty} WHERE false"
    listed = ", ".join(
        (f"make_timestamp(epoch_us({name}))" if of == t.TIMESTAMP else name) + f" AS c{i}"
        for i, (name, of) in enumerate(columns)
    )
    return f"SELECT {listed} FROM {rows}"


def _parquet(folder: str, table: OpenTable) -> str:
    """The rows of a table's files, which lie below a local folder as ``table.files`` names them."""
    declared = table.declared
    files = ", ".join(f"'{folder}/{declared.name}/{path}'" for path in table.files)
    types = ", ".join(
        f"'{column.name}': {t.duckdb_type(column.arrow_type)}"
        for column in declared.columns
        if column.name in declared.partitioned_by
    )
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if types else ", hive_partitioning = false"
    return f"read_parquet([{files}]{hive})"


def rounded(value: float, decimals: int) -> float:
    """Spark's round of a finite double: of its decimal digits, halves away from zero; never -0.0."""
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP, _DIGITS)) + 0.0
