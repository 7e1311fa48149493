"""Computes views of a few rows for another engine, which would plan them anew wherever they are read."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.sql.database import duckdb_reads, one_database
from kafka_log_lake.pipelines.sql.statements import KEPT
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, View

log = logging.getLogger(__name__)

# They read the ledger, the transactions and the checkpoints alone, stand in most other views, and have a row
# a log, a segment, a file, or a transaction that a consumer does not get
_NAMES = frozenset(
    (
        *("current_transactions", "undelivered_offsets", "last_stable_offsets", "log_starts"),
        *("log_clusters", "log_ends", "log_stretches", "current_checkpoints", "compacted_logs"),
    )
)
_MOST_ROWS = 10_000


def small_views(lake: str, tables: Mapping[str, DeltaTable], names: Collection[str]) -> dict[View, pa.Table]:
    """Returns the rows of those views that have few, at these versions of the tables.

    lake: its canonical URI. names: the views to choose from. None of a large lake, of one that DuckDB does
    not open, and where it fails, which is logged: the other engine gives the same rows, later.
    """
    chosen = [view for view in SESSION_VIEWS if view.name in _NAMES.intersection(names)]
    if not chosen or not duckdb_reads(lake):
        return {}
    try:
        with one_database(lake, ", ".join(view.name for view in chosen), tables) as database:
            kept = database.execute("SELECT 1 FROM duckdb_schemas() WHERE schema_name = ?", [KEPT])
            made = {view: _rows(database, view) for view in chosen} if kept.fetchall() else {}
    except (UserError, duckdb.Error) as error:
        log.warning(
            "views of %s take longer, as DuckDB can't compute the small ones: %s", lake, one_line(error)
        )
        return {}
    return {view: rows for view, rows in made.items() if rows.num_rows <= _MOST_ROWS}


def _rows(database: duckdb.DuckDBPyConnection, view: View) -> pa.Table:
    """Returns the first rows of a view, one more than are few."""
    rows = database.sql(f"FROM {view.name} LIMIT {_MOST_ROWS + 1}").to_arrow_table()
    return rows.cast(pa.schema([pa.field(column.name, column.arrow_type) for column in view.columns]))
