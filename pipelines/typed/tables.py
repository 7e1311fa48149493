"""Lists the typed tables of a lake: ``typed.orders`` in SQL is the table ``typed/orders``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs

from kafka_log_lake.pipelines.engine.delta import data_files, open_if_there, open_table
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.published import version_at
from kafka_log_lake.udfs.format.report_tables import VALUE_ERRORS
from kafka_log_lake.udfs.storage.store import open_store
from kafka_log_lake.udfs.values.schemas.merged_types import safe_names

# Folders of a lake with a table a topic, which are schemas in SQL
FOLDERS = ("typed", "latest", "cdc", "history")


@dataclass(frozen=True)
class TypedTable:
    """One version of a topic's table in one of FOLDERS.

    name: in SQL. table: its path below the lake. files: paths below the table; partitions: one for each file,
    None where the table is not partitioned.
    """

    folder: str
    name: str
    topic: str
    table: str
    version: int
    schema: pa.Schema
    files: list[str]
    partitions: list[str | None]

    @property
    def is_partitioned(self) -> bool:
        return any(partition is not None for partition in self.partitions)


def typed_tables(
    address: str, statement: str = "", at: str | None = None, topics: Collection[str] | None = None
) -> Iterator[TypedTable]:
    """Yields the tables that a statement names ("" for all). at: a state of the lake; None for now.

    topics: only tables of these. Names that differ only in case get a number, as SQL ignores case.
    """
    text = statement.casefold()
    for folder in (folder_ for folder_ in FOLDERS if not text or folder_ in text):
        folders = _tables_in(address, folder)
        names = safe_names([unquote(name) for name in folders])
        for name, encoded in zip(names, folders, strict=True):
            is_meant = topics is None or unquote(encoded) in topics
            if not is_meant or (name.casefold() not in text and text):
                continue
            with suppress(TableNotFoundError):
                table = f"{folder}/{encoded}"
                delta = open_table(table_path(address, table))
                version = version_at(address, table, delta, at)
                if version is not None:
                    yield _opened((folder, name, unquote(encoded), table), delta, version)


def typed_topics(address: str) -> list[str]:
    """Returns the names of the topics that have a folder for their typed table."""
    return [unquote(name) for name in _tables_in(address, "typed")]


def names_in_sql(address: str) -> dict[str, str]:
    """Returns by topic the name of its typed table in the schema ``typed``."""
    topics = typed_topics(address)
    return dict(zip(topics, safe_names(topics), strict=True))


def count_value_errors(address: str, is_meant: Callable[[str], bool]) -> int:
    """Returns how many keys and values of the topics that ``is_meant`` takes could not be decoded."""
    table = open_if_there(table_path(address, VALUE_ERRORS.name))
    if table is None:
        return 0
    files = data_files(table)
    topics, rows = (files.column(name).to_pylist() for name in ("partition.topic", "num_records"))
    return sum(count or 0 for topic, count in zip(topics, rows, strict=True) if is_meant(topic))


def _tables_in(address: str, folder: str) -> list[str]:
    """Lists the names of the folders in one of FOLDERS."""
    system, path = open_store(table_path(address, folder))
    listed = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted(entry.base_name for entry in listed if entry.type == fs.FileType.Directory)


def _opened(names: tuple[str, str, str, str], delta: DeltaTable, version: int) -> TypedTable:
    if version != delta.version():
        delta.load_as_version(version)
    actions = data_files(delta)
    files = actions.column("path").to_pylist()
    column = "partition.partition"
    held = actions.column(column).to_pylist() if column in actions.column_names else [None] * len(files)
    values = [None if value is None else str(value) for value in held]
    return TypedTable(*names, version, pa.schema(delta.schema().to_arrow()), files, values)
