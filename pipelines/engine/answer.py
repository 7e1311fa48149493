"""Answers a statement in this process: checks its names, translates it, opens its tables, asks DuckDB."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from pipelines.command.errors import UserError, one_line
from pipelines.engine.arrow_rows import arrow_type, typed
from pipelines.engine.duck import Database
from pipelines.engine.names import check_names
from pipelines.engine.rows import Column, printed
from pipelines.engine.text import Statement, parse
from pipelines.engine.translate import Translated, translate
from pipelines.engine.types import is_number
from pipelines.lake.address import open_lake, tables_of
from pipelines.sql.errors import Unsupported
from pipelines.sql.snapshot import OpenTable, open_tables
from pipelines.views.declared import SESSION_VIEWS
from udfs.format.report_tables import READ_BY_VIEWS
from udfs.format.schema import Table

# What can fail in the middle: bytes that are no UTF-8, overflow, division by zero, a cast
_MAY_FAIL = re.compile(r"decode\(|error\(|spark_|unhex\(|trunc\(|sum\(| [+*-] ")
# Arrow passes on what fails while rows are read as errors of its own
_FAILURES = (duckdb.Error, pa.ArrowException, OSError)
_HELD_BYTES = 16 << 20


def translated(statement: Statement, tables: Iterable[Table]) -> Translated:
    """The statement for DuckDB, over tables of a lake. Raises as ``translate``."""
    columns = {table.name: [(c.name, c.arrow_type) for c in table.columns] for table in tables}
    return translate(statement, columns, {view.name: view for view in SESSION_VIEWS})


def answer(
    lake: str,
    statement: str,
    output: str,
    cores: int | None = None,
    is_asked: bool = True,
    room: int | None = None,
) -> Iterator[str]:
    """Lines that print the result of one statement over a lake in a local folder or an object store.

    output: table, json or csv. is_asked: whether DuckDB is to answer; else names are checked alone. room: see
    ``rows.printed``. Raises a UserError if the statement is wrong, and Unsupported before the first line if
    Spark must answer.
    """
    database = _database(lake, statement, cores, is_asked)
    columns = [Column(f.name or "", pa.types.is_binary(f.type), is_number(f.type)) for f in database.fields]
    yield from printed(output, columns, _lines(database), room)


def arrow(
    lake: str, statement: str, cores: int | None = None, is_asked: bool = True
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the rows of ``answer`` as Arrow, in Spark's types; raises as it does.

    Where a row cannot be given, Unsupported is raised at that row: what came before is not to be kept.
    """
    database = _database(lake, statement, cores, is_asked)
    schema = pa.schema([pa.field(one.name or "", arrow_type(one.type)) for one in database.fields])
    return schema, _batches(database, schema)


def _database(lake: str, statement: str, cores: int | None, is_asked: bool) -> Database:
    """A database in which the statement can be asked. Raises as ``answer``."""
    address = open_lake(lake)
    there = {table.name: table for table in tables_of(address)}
    tables = {table.name: table for table in READ_BY_VIEWS} | there
    parsed = parse(statement)
    check_names(parsed, tables)
    found = translated(parsed, tables.values())
    if not is_asked:
        raise Unsupported("nothing: Spark was asked")
    opened = open_tables(address, [there[name] for name in sorted(found.tables) if name in there])
    opened |= {name: OpenTable(tables[name], {}) for name in found.tables - there.keys()}
    return Database(address, opened, found, cores)


def _batches(database: Database, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        for batch in database.batches():
            yield typed(batch, schema)
    except _FAILURES as error:
        raise Unsupported(f"it failed: {one_line(error)}") from None


def _lines(database: Database) -> Iterator[str]:
    """The rows as JSON. Those of a statement that may fail in the middle are held back until it has not."""
    lines = database.json_lines()
    try:
        if _MAY_FAIL.search(database.translated.query.sql):
            yield from _held(lines)
            return
        first = next(lines, None)
    except _FAILURES as error:
        raise Unsupported(f"it failed: {one_line(error)}") from None
    if first is None:
        return
    yield first
    try:
        yield from lines
    except _FAILURES as error:
        raise UserError(f"the rows end here: {one_line(error)}; use --engine spark") from None


def _held(lines: Iterable[str]) -> Iterator[str]:
    with tempfile.SpooledTemporaryFile(
        max_size=_HELD_BYTES, mode="w+", newline="\n", encoding="utf-8"
    ) as held:
        held.writelines(line + "\n" for line in lines)
        held.seek(0)
        for line in held:
            yield line.removesuffix("\n")
