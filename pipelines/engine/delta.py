"""Reads rows of Delta tables in this process, with deltalake's own SQL engine: no Spark, no Java.

pyarrow's dataset does not work here: after deltalake has rewritten a file, the bounds of its string columns
have a type that pyarrow cannot compare with strings.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.storage.store import deltalake_options, open_store

_ATTEMPTS = 15
_BATCHES = 8  # copied together
_LISTINGS = 10  # attempts, as of every other request; the last one after half a minute in all
_BROKEN_LISTING = "Error getting list response body"

T = TypeVar("T")


def patiently(call: Callable[[], T]) -> T:
    """Returns the result of a call to deltalake; calls again where the answer to a listing broke off.

    deltalake makes every other request again by itself. The call may have made its commit before.
    """
    for attempt in range(_LISTINGS - 1):
        try:
            return call()
        except (DeltaError, OSError) as error:
            if _BROKEN_LISTING not in str(error):
                raise
            time.sleep(min(0.1 * 2**attempt, 8))
    return call()


def open_table(path: str) -> DeltaTable:
    """Opens a table at its latest version, by its local path or URI."""
    return patiently(lambda: DeltaTable(path, storage_options=deltalake_options(path)))


def open_if_there(path: str) -> DeltaTable | None:
    """Opens a table at its latest version; returns None where there is no table."""
    with suppress(TableNotFoundError):
        return open_table(path)
    return None


def commit(table: DeltaTable, write: Callable[[DeltaTable], T]) -> T | None:
    """Makes one commit to an open table. write: makes it onto the version that the table has, or fails.

    Its result; None where an attempt that broke off has made the commit.
    """
    version = table.version()
    return patiently(lambda: write(table) if table.version() == version else None)


def add_action(
    path: str, size: int, values: Mapping[str, str | None], stats: Mapping[str, object]
) -> AddAction:
    """Adds a data file in a transaction. values: of its partition. stats: Delta's statistics of it."""
    return AddAction(path, size, dict(values), int(time.time() * 1000), True, json.dumps(stats))


def remove_action(path: str, size: int, values: Mapping[str, str | None]) -> RemoveAction:
    """Removes a data file in a transaction. values: of its partition."""
    now = int(time.time() * 1000)
    return RemoveAction(
        path, data_change=True, deletion_timestamp=now, size=size, partition_values=dict(values)
    )


def commit_once(attempt: Callable[[], object], is_there: Callable[[], bool]) -> None:
    """Makes a commit once, with further attempts where others come first.

    attempt: opens the table and makes the commit, without retries of deltalake, which would make it twice
    where a store carries one out and loses its answer. is_there: returns whether that happened. Raises the
    CommitFailedError of the last attempt.
    """
    for number in range(1, _ATTEMPTS + 1):
        try:
            attempt()
            return
        except CommitFailedError:
            if is_there():
                return
            if number == _ATTEMPTS:
                raise


def append_rows(path: str, rows: pa.Table) -> None:
    """Appends rows to a table in one commit, once (``commit_once``)."""
    append_id, version = uuid.uuid4().hex, 0
    once = CommitProperties(custom_metadata={"append": append_id}, max_commit_retries=0)

    def write(delta: DeltaTable) -> None:
        write_deltalake(delta, rows, mode="append", schema_mode="merge", commit_properties=once)

    def attempt() -> None:
        nonlocal version
        table = open_table(path)
        version = table.version() + 1
        commit(table, write)

    def is_there() -> bool:
        system, folder = open_store(path)
        # Without an entry no other commit came first, and what the table refuses is reported
        with suppress(FileNotFoundError), system.open_input_stream(log_entry(folder, version)) as log:
            return append_id.encode() in log.read()
        return False

    commit_once(attempt, is_there)


def log_entry(folder: str, version: int) -> str:
    """Returns the path of a commit in the log of a table."""
    return f"{folder}/_delta_log/{version:020d}.json"


def read_rows(
    table: str | DeltaTable, schema: pa.Schema, columns: Iterable[str], where: str = "", ordered: str = ""
) -> pa.Table:
    """Reads columns of a Delta table, in the types of ``schema``.

    table: its path, or one that is open, at its version. A column that is not there yet, as an earlier
    release made the table, is null. where: a condition on rows in deltalake's SQL; "" for all rows. ordered:
    ORDER BY and LIMIT, after it.
    """
    names = list(columns)
    opened = open_table(table) if isinstance(table, str) else table
    there = {field.name for field in opened.schema().fields}
    selected = ", ".join(f'"{name}"' if name in there else f'NULL AS "{name}"' for name in names)
    condition = f" WHERE {where}" if where else ""
    query = QueryBuilder().register("rows", opened)
    reader = pa.RecordBatchReader.from_stream(
        query.execute(f'SELECT {selected} FROM "rows"{condition} {ordered}')
    )
    wanted = pa.schema([schema.field(name) for name in names])
    # deltalake's batches keep what they were decoded from: each is copied before the next ones come
    batches: list[pa.RecordBatch] = []
    while some := list(itertools.islice(reader, _BATCHES)):
        batches += pa.Table.from_batches(some).cast(wanted).combine_chunks().to_batches()
    return pa.Table.from_batches(batches, wanted)


def read_declared(table: DeltaTable, schema: pa.Schema) -> pa.Table:
    """Returns all rows of a table in a schema, as ``read_rows`` reads them."""
    return read_rows(table, schema, schema.names)


def data_files(table: DeltaTable) -> pa.Table:
    """Returns the data files of a table, a row each.

    Columns: path (below the table's folder), size_bytes, num_records, partition.<column>, min.<column>,
    max.<column>. In the log a path is percent-encoded, and deltalake encodes those of new actions: here none
    is.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    paths = files.column("path").cast(pa.string()).combine_chunks()
    encoded = pc.match_substring(paths, "%")
    plain = pa.array(map(unquote, paths.filter(encoded).to_pylist()), pa.string())
    place = files.schema.get_field_index("path")
    return files.set_column(place, "path", pc.replace_with_mask(paths, encoded, plain))


def is_plain(table: DeltaTable) -> bool:
    """Says whether all readers of Delta's first protocol read a table alike.

    Such a table has no deletion vectors and no column mapping.
    """
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return table.protocol().min_reader_version == 1 and mapping == "none"


def few_rows(table: DeltaTable, most: int) -> pa.Table | None:
    """Returns all rows and columns of a table at its version; None if they are more than ``most``.

    None too if the files' statistics do not say how many they are, or if they can't be read like that
    (``is_plain``, VACUUM).
    """
    counts = data_files(table).column("num_records").to_pylist()
    if not is_plain(table) or None in counts or sum(counts) > most:
        return None
    schema = pa.schema(table.schema().to_arrow())
    with suppress(DeltaError, OSError):
        return read_rows(table, schema, schema.names)
    return None


def sql_literal(text: str) -> str:
    """Returns a string literal of deltalake's SQL and DuckDB's, in which only the quote is special."""
    return "'" + text.replace("'", "''") + "'"


def sql_in(column: str, texts: Iterable[str]) -> str:
    """Returns the SQL condition that a column equals one of these strings."""
    return f'"{column}" IN ({", ".join(map(sql_literal, sorted(set(texts))))})'
