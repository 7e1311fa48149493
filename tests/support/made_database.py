"""Made logs as a DuckDB database with views: the tables are Arrow, nothing is decoded, no file is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.rules.files import files_of
from kafka_log_lake.pipelines.rules.offsets import PLACE_COLUMNS
from kafka_log_lake.pipelines.rules.transactions import BATCH_COLUMNS, transactions_of
from kafka_log_lake.pipelines.sql.database import macros
from kafka_log_lake.pipelines.sql.functions import create_functions
from kafka_log_lake.pipelines.sql.statements import creations
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, needed_names
from kafka_log_lake.udfs.format.schema import RECORDS, TRANSACTIONS
from tests.support.made_tables import tables
from tests.support.random_logs import Log


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
    return {"records": RECORDS.arrow_schema().empty_table(), **made, "transactions": rows}


def database_of(logs: Iterable[Log], *views: str) -> duckdb.DuckDBPyConnection:
    """A database with these views, and those that they read, over the tables of made logs."""
    made = with_transactions(tables(logs))
    database = duckdb.connect(config={"threads": "1"})
    database.execute("SET TimeZone = 'UTC'")
    for name, rows in made.items():
        database.register(name, rows)
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
