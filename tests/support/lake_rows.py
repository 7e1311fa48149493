"""Rows of a lake's tables from what a test cares about: all other columns are null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from kafka_log_lake.pipelines.engine.delta import read_rows
from kafka_log_lake.pipelines.lake import offset_findings
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.offset_findings import Change
from kafka_log_lake.pipelines.lake.published import DECODE_APP, run_metadata
from kafka_log_lake.pipelines.lake.transactions import Read
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import TABLES


def insert(lake: str, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends the rows, given by column name, to a table of the lake."""
    declared = next(t for t in (*TABLES, *REPORT_TABLES) if t.name == table)
    arrow = pa.Table.from_pylist([dict(row) for row in rows], schema=declared.arrow_schema())
    write_deltalake(table_path(lake, table), arrow, mode="append")


def compute_findings(lake: str) -> None:
    """Stores what a run finds of the offsets of all logs, from the rows that the tables have."""
    after = ledger.read(table_path(lake, "segments"))
    places = {*zip(*(after.column(name).to_pylist() for name in ("topic", "partition")), strict=True)}
    change = Change(after.slice(0, 0), after, dict.fromkeys(after.column("segment").to_pylist(), 0), None, {})
    rows, _ = offset_findings.compute(reader(lake), places, change)
    write_deltalake(table_path(lake, "offset_findings"), rows, mode="overwrite")


def add_unpublished(lake: str) -> None:
    """Adds rows that no view may show: those of a run that is committing, or of one that was killed."""
    said = CommitProperties(custom_metadata=run_metadata("a run", DECODE_APP, 1 << 40))
    for table in ("records", "batches", "quarantine", "transactions", "offset_findings"):
        rows = DeltaTable(table_path(lake, table)).to_pyarrow_table()
        write_deltalake(table_path(lake, table), rows, mode="append", commit_properties=said)


def reader(lake: str) -> Read:
    """Reads columns of a table of the lake, as ``LakeWriter.read`` does."""
    return lambda table, columns, where: read_rows(
        table_path(lake, table.name), table.arrow_schema(), columns, where
    )
