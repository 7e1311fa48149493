"""Keeps ``latest/<topic>`` (``--mode latest``), or ``cdc/<topic>`` and ``history/<topic>`` (``--mode cdc``).

Each is written again, in one commit, where the typed table has a version that it was not made of: the commit
says which (``typed_version``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import TableNotFoundError

from pipelines.kept import cdc
from pipelines.lake.address import table_path
from pipelines.source.delta import open_table
from pipelines.sql.database import open_database
from pipelines.sql.types import quoted
from pipelines.typed.tables import TypedTable, typed_tables
from udfs.source.store import deltalake_options
from udfs.values.typed_files import SIDES

LATEST, CDC = "latest", "cdc"
_MADE_OF = "typed_version"
# A row a record that READ_COMMITTED consumers get, once where several copies have it; raw_key: its bytes
_EVENTS = """
    SELECT t.*, {structs} r.key AS raw_key FROM typed.{table} t JOIN committed_records r
    ON r.topic = {topic} AND r.partition = t.partition AND r."offset" = t."offset" AND r.segment = t.segment
    QUALIFY row_number() OVER (PARTITION BY t.partition, t."offset" ORDER BY t.segment) = 1
"""
# Of a key in several partitions (their number changed) the newer record by its timestamp
_LATEST = """
    WITH newest AS (
      SELECT * FROM events WHERE raw_key IS NOT NULL
      QUALIFY row_number() OVER (
        PARTITION BY partition, key, CASE WHEN key IS NULL THEN raw_key END ORDER BY "offset" DESC) = 1
    )
    SELECT * EXCLUDE (raw_key, is_tombstone {structs}) FROM (
      SELECT * FROM newest QUALIFY row_number() OVER (
        PARTITION BY key, CASE WHEN key IS NULL THEN raw_key END
        ORDER BY timestamp DESC NULLS LAST, partition) = 1
    ) WHERE NOT is_tombstone ORDER BY partition, "offset"
"""


def keep(lake: str, mode: str, is_meant: Callable[[str], bool]) -> list[str]:
    """Brings the kept tables of some topics up to date. The paths of the tables that were written.

    mode: LATEST or CDC. is_meant: whether a topic is; others are left as they are.
    """
    written = []
    for table in typed_tables(lake):
        if table.folder == "typed" and is_meant(table.topic):
            written += _keep_one(lake, mode, table)
    return written


def _keep_one(lake: str, mode: str, table: TypedTable) -> list[str]:
    own = table.table.partition("/")[2]
    paths = [f"{name}/{own}" for name in ((LATEST,) if mode == LATEST else (CDC, "history"))]
    if all(_made_of(lake, path) == table.version for path in paths):
        return []
    database = open_database(lake, f'typed committed_records "{table.name}"')
    topic = "'" + table.topic.replace("'", "''") + "'"
    structs = dict(_structs(table))
    events = _EVENTS.format(
        table=quoted(table.name), topic=topic, structs="".join(f"{one}, " for one in structs.values())
    )
    database.execute(f"CREATE TEMP TABLE events AS {events}")
    if mode == LATEST:
        latest = _LATEST.format(structs="".join(f", {side}" for side in structs))
        _write(lake, paths[0], database, latest, table)
        return paths
    if not cdc.prepare(database):
        return []
    _write(lake, paths[1], database, cdc.HISTORY, table)
    _write(lake, paths[0], database, cdc.CURRENT, table)
    return paths


def _structs(table: TypedTable) -> Iterator[tuple[str, str]]:
    """Sides whose fields are columns of the table (``--value-columns flat``), and their structs in SQL."""
    for side in SIDES:
        names = [n for n in table.schema.names if n.startswith(f"{side}_") and n != f"{side}_schema_id"]
        if side in table.schema.names or not names:
            continue
        is_held = " OR ".join(f"t.{quoted(name)} IS NOT NULL" for name in names)
        fields = ", ".join(f"{quoted(name.removeprefix(f'{side}_'))} := t.{quoted(name)}" for name in names)
        yield side, f"CASE WHEN {is_held} THEN struct_pack({fields}) END AS {side}"


def _made_of(lake: str, path: str) -> int | None:
    """The version of the typed table that a kept table was made of; None where there is none."""
    try:
        commits = open_table(table_path(lake, path)).history()
    except TableNotFoundError:
        return None
    return next((int(commit[_MADE_OF]) for commit in commits if _MADE_OF in commit), None)


def _write(
    lake: str, path: str, database: duckdb.DuckDBPyConnection, statement: str, table: TypedTable
) -> None:
    rows = database.sql(statement).to_arrow_reader(65_536)
    full = table_path(lake, path)
    write_deltalake(
        full,
        pa.RecordBatchReader.from_batches(rows.schema, rows),
        mode="overwrite",
        schema_mode="overwrite",
        configuration={"delta.enableDeletionVectors": "false"},
        description=f"{path}: made of the typed table of the topic {table.topic}",
        storage_options=deltalake_options(full),
        commit_properties=CommitProperties(custom_metadata={_MADE_OF: str(table.version)}),
    )
