"""Made logs as a DuckDB database with views: the tables are Arrow, nothing is decoded, no file is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.lake import offset_findings
from kafka_log_lake.pipelines.lake.offset_findings import Change
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.rules.files import files_of
from kafka_log_lake.pipelines.rules.offset_findings import PLACE_COLUMNS
from kafka_log_lake.pipelines.rules.transactions import BATCH_COLUMNS, transactions_of
from kafka_log_lake.pipelines.sql.database import macros
from kafka_log_lake.pipelines.sql.functions import create_functions
from kafka_log_lake.pipelines.sql.statements import creations, table_creations
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, needed_names
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS, RECORDS, TABLES, TRANSACTIONS, Table
from tests.support.log_model import Log
from tests.support.made_tables import tables


def with_transactions(made: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables, and ``transactions`` as a run computes it."""
    batches = made["batches"]
    sound = pc.and_(batches["is_transactional"], pc.is_in(batches["status"], pa.array(["ok", "suspect"])))
    found = transactions_of(
        files_of(made["segments"]),
        batches.filter(sound).select(BATCH_COLUMNS),
        made["quarantine"].select(PLACE_COLUMNS),
    )
    missing = {
        name: pa.array([1] * len(found), pa.int64())
        for name in TRANSACTIONS.arrow_schema().names
        if name not in found.column_names
    }
    whole = pa.table({**dict(zip(found.column_names, found.columns, strict=True)), **missing})
    rows = whole.select(TRANSACTIONS.arrow_schema().names).cast(TRANSACTIONS.arrow_schema())
    found = {"records": RECORDS.arrow_schema().empty_table(), **made, "transactions": rows}
    return {**found, "offset_findings": findings_of(found)}


def findings_of(made: Mapping[str, pa.Table]) -> pa.Table:
    """The table ``offset_findings``, as a run that writes all of these tables computes it."""
    after = made["segments"].cast(ledger.SCHEMA)
    change = Change(after.slice(0, 0), after, dict.fromkeys(after.column("segment").to_pylist(), 0), None, {})
    return changed_findings(made, OFFSET_FINDINGS.arrow_schema().empty_table(), change)


def changed_findings(made: Mapping[str, pa.Table], before: pa.Table, change: Change) -> pa.Table:
    """The table ``offset_findings`` after a run that leaves these tables. before: its rows before the run."""
    stored = {**made, "offset_findings": before}

    def read(table: Table, columns: Iterable[str], where: str) -> pa.Table:
        rows = duckdb.from_arrow(stored[table.name]).filter(where)
        schema = pa.schema([table.arrow_schema().field(name) for name in columns])
        return rows.project(", ".join(f'"{name}"' for name in columns)).to_arrow_table().cast(schema)

    places = {*zip(*(change.after.column(name).to_pylist() for name in ("topic", "partition")), strict=True)}
    rows, changed = offset_findings.compute(read, places, change)
    names = pa.array([segment for _, _, segment in changed], pa.string())
    kept = before.filter(pc.invert(pc.is_in(before.column("segment"), names)))
    return pa.concat_tables([kept, rows])


def database_of(logs: Iterable[Log], *views: str) -> duckdb.DuckDBPyConnection:
    """A database with these views, and those that they read, over the tables of made logs."""
    made = with_transactions(tables(logs))
    database = duckdb.connect(config={"threads": "1"})
    database.execute("SET TimeZone = 'UTC'")
    known = {table.name: table for table in (*TABLES, *REPORT_TABLES)}
    for name, rows in made.items():
        database.register(f"{name}_rows", rows)
        for creation in table_creations(known[name], f"FROM {name}_rows"):
            database.execute(creation)
    for macro in macros():
        database.execute(macro)
    create_functions(database)
    needed = needed_names(" ".join(views), made)
    for statement in creations([view for view in SESSION_VIEWS if view.name in needed]):
        database.execute(statement)
    return database


def by_log(database: duckdb.DuckDBPyConnection, statement: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a statement by their first column, the partition_dir."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for folder, *row in database.sql(statement).fetchall():
        found[folder].append(tuple(row))
    return found
