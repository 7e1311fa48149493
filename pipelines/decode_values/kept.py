"""Keeps ``latest/<topic>`` (``--mode latest``), or ``cdc/<topic>`` and ``history/<topic>`` (``--mode cdc``).

Each is written again, in one commit, once the typed table has another version than it was made from: the
commit names that version (``typed_version``), and for ``latest`` also the records in it (``seen``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from kafka_log_lake.pipelines.decode_values import cdc
from kafka_log_lake.pipelines.decode_values.events import create_events
from kafka_log_lake.pipelines.decode_values.latest import select_latest
from kafka_log_lake.pipelines.engine.delta import open_if_there, open_table
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.sql.database import one_database
from kafka_log_lake.pipelines.typed.tables import TypedTable, typed_tables
from kafka_log_lake.udfs.storage.store import deltalake_options

LATEST, CDC = "latest", "cdc"
_MADE_OF = "typed_version"
_RULE, _KEY_BYTES = "keys", "bytes"  # what says that keys are one; tables of another rule are made anew
# Operations of others that leave the rows as they are
_KEEPS_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "FSCK")


def keep(lake: str, mode: str, is_meant: Callable[[str], bool]) -> list[str]:
    """Brings the kept tables of some topics up to date. Returns the paths of the tables it wrote.

    mode: LATEST or CDC. is_meant: whether a topic is; others are left as they are.
    """
    written = []
    for table in typed_tables(lake):
        if table.folder == "typed" and is_meant(table.topic):
            written += _keep_one(lake, mode, table)
    return written


def _keep_one(lake: str, mode: str, table: TypedTable) -> list[str]:
    topic_name = table.table.partition("/")[2]
    paths = [f"{name}/{topic_name}" for name in ((LATEST,) if mode == LATEST else (CDC, "history"))]
    made = [_made_of(lake, path) for path in paths]
    if all(properties.get(_MADE_OF) == str(table.version) for properties in made):
        return []
    with one_database(lake, f'typed committed_records "{table.name}"') as database:
        if mode == LATEST:
            statement, made_of = select_latest(database, lake, paths[0], table, made[0])
            _write(lake, paths[0], _rows(database, statement), table, made_of)
            return paths
        create_events(database, table)
        if not cdc.prepare(database):  # none, or none is left: compaction took the events of deleted rows
            paths = [path for path, properties in zip(paths, made, strict=True) if properties]
            for path in paths:
                schema = pa.schema(open_table(table_path(lake, path)).schema().to_arrow())
                _write(lake, path, schema.empty_table().to_reader(), table)
            return paths
        _write(lake, paths[1], _rows(database, cdc.HISTORY), table)
        _write(lake, paths[0], _rows(database, cdc.CURRENT), table)
        return paths


def _rows(database: duckdb.DuckDBPyConnection, statement: str) -> pa.RecordBatchReader:
    rows = database.sql(statement).to_arrow_reader(65_536)
    return pa.RecordBatchReader.from_batches(rows.schema, rows)


def _made_of(lake: str, path: str) -> Mapping[str, str]:
    """Returns what the commit that made a kept table says of its inputs; {} where there is no table.

    Where other tools have changed rows since, only the version of the typed table.
    """
    table = open_if_there(table_path(lake, path))
    rows_are_ours = True
    for commit in table.history() if table is not None else ():
        if _MADE_OF in commit and commit.get(_RULE) != _KEY_BYTES:
            return {_MADE_OF: ""}
        if _MADE_OF in commit:
            return commit if rows_are_ours else {_MADE_OF: commit[_MADE_OF]}
        rows_are_ours &= commit["operation"] in _KEEPS_ROWS
    return {}


def _write(
    lake: str,
    path: str,
    rows: pa.RecordBatchReader,
    table: TypedTable,
    made: Mapping[str, str] | None = None,
) -> None:
    full = table_path(lake, path)
    metadata = {_MADE_OF: str(table.version), _RULE: _KEY_BYTES, **(made or {})}
    write_deltalake(
        full,
        rows,
        mode="overwrite",
        schema_mode="overwrite",
        configuration={"delta.enableDeletionVectors": "false"},
        description=f"{path}: made of the typed table of the topic {table.topic}",
        storage_options=deltalake_options(full),
        commit_properties=CommitProperties(custom_metadata=metadata),
    )
