"""Rows of a lake's tables from what a test cares about: all other columns are null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from kafka_log_lake.pipelines.engine.delta import read_rows
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.published import DECODE_APP, run_metadata
from kafka_log_lake.pipelines.lake.transactions import Read
from kafka_log_lake.udfs.format.schema import TABLES


def insert(lake: str, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends the rows, given by column name, to a table of the lake."""
    declared = next(t for t in TABLES if t.name == table)
    arrow = pa.Table.from_pylist([dict(row) for row in rows], schema=declared.arrow_schema())
    write_deltalake(table_path(lake, table), arrow, mode="append")


def add_unpublished(lake: str) -> None:
    """Adds rows that no view may show: those of a run that is committing, or of one that was killed."""
    said = CommitProperties(custom_metadata=run_metadata("a run", DECODE_APP, 1 << 40))
    for table in ("records", "batches", "quarantine", "transactions"):
        rows = DeltaTable(table_path(lake, table)).to_pyarrow_table()
        write_deltalake(table_path(lake, table), rows, mode="append", commit_properties=said)


def reader(lake: str) -> Read:
    """Reads columns of a table of the lake, as ``LakeWriter.read`` does."""
    return lambda table, columns, where: read_rows(
        table_path(lake, table.name), table.arrow_schema(), columns, where
    )
