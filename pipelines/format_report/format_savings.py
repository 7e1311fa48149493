"""Fills the table ``format_savings``: bytes of the records in each format and codec, and their cost.

``pipelines.format_report.measure`` makes the sums; here they become rows with costs, in one commit. The rows
of earlier runs stay. If the latest run had the same ledger rows and settings, nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import CostSettings
from kafka_log_lake.pipelines.engine.delta import open_if_there, read_rows, sql_literal
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.format_report.measure import (
    Compressed,
    Key,
    Measured,
    measure,
    numbered,
    parts_of,
)
from kafka_log_lake.pipelines.format_report.stages import BATCHINGS
from kafka_log_lake.pipelines.format_report.statements import Statements
from kafka_log_lake.pipelines.lake.address import open_lake, table_path
from kafka_log_lake.pipelines.lake.create import add_rows
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.listing.hadoop import job_scheme
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.udfs.format.levels import parse_levels
from kafka_log_lake.udfs.format.report_tables import FORMAT_SAVINGS
from kafka_log_lake.udfs.format.schema import SEGMENTS
from kafka_log_lake.udfs.format.sizes import V0_OVERHEAD, V1_OVERHEAD, V2_OVERHEAD, Sizes

STORED, CONTROL, V0, V1, V2, V3 = "stored", "control", "v0", "v1", "v2", "v3_proposal"
GB = 1_000_000_000
DAYS_OF_A_MONTH = 30
_EDITION = 1  # goes up when the same inputs give other rows
_LEDGER_COLUMNS = ("topic", "partition", "segment", "run_id", "decoded_bytes")
_LEGACY = {V0: V0_OVERHEAD, V1: V1_OVERHEAD}


@dataclass(frozen=True)
class Row:
    """A row of the table without costs and the columns that a whole run shares; named as its columns."""

    topic: str
    partition: int
    magic: int
    layout: str
    basis: str
    records: int
    batches: int
    bytes: int
    batch_records: int | None = None
    codec: str | None = None
    level: int | None = None
    saved_bytes: int | None = None
    saved_ratio: float | None = None
    sample_batches: int | None = None
    sample_bytes_in: int | None = None
    sample_bytes_out: int | None = None
    sample_seconds: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class SavingsReport:
    """The result of a run. is_new: whether it was computed and written now. rows: with all columns."""

    lake: str
    run_id: str
    is_new: bool
    rows: pa.Table


def run(on_demand: SparkOnDemand, settings: CostSettings) -> SavingsReport:
    """Computes and commits the report, or reads the latest one if its inputs were the same.

    Raises a UserError if there is no lake, or nothing in it to report on.
    """
    address = open_lake(settings.require_lake(), job_scheme(on_demand))
    tables = published_tables(address)
    ledger = _ledger(tables[SEGMENTS.name], settings)
    if not ledger.num_rows:
        raise UserError(
            f"no segments to report on in {settings.lake}: decode some in full, or change --topics"
        )
    inputs = _inputs(ledger, settings)
    latest = _latest(address)
    if latest is not None and latest.column("inputs")[0].as_py() == inputs:
        return SavingsReport(address, latest.column("run_id")[0].as_py(), False, latest)
    began, run_id = datetime.now(UTC), uuid.uuid4().hex
    levels = parse_levels(settings.codec_levels)
    segments = numbered(ledger)
    measured = measure(
        Statements(address, tables, segments, parts_of(settings.sample_batches)), segments, levels
    )
    if not measured:
        raise UserError(f"no sound batches to report on in {settings.lake}")
    shared: dict[str, Any] = {"run_id": run_id, "created_at": began, "inputs": inputs}
    rows = [
        shared | _with_costs(row, settings) for key in sorted(measured) for row in rows_of(key, measured[key])
    ]
    table = pa.Table.from_pylist(rows, schema=FORMAT_SAVINGS.arrow_schema())
    add_rows(address, FORMAT_SAVINGS, table)
    return SavingsReport(address, run_id, True, table)


def _ledger(segments: DeltaTable, settings: CostSettings) -> pa.Table:
    """Returns the rows of ``segments`` of the requested topics, if nothing was left out, by segment."""
    rows = read_rows(segments, SEGMENTS.arrow_schema(), _LEDGER_COLUMNS, "left_out = 0").sort_by("segment")
    wanted = TopicFilter(settings.topics, settings.exclude_topics)
    return rows.filter(pa.array([wanted(topic) for topic in rows.column("topic").to_pylist()], pa.bool_()))


def _inputs(ledger: pa.Table, settings: CostSettings) -> str:
    """Returns the SHA-256, in hexadecimal, of everything that determines the rows."""
    requested = (
        _EDITION,
        settings.codec_levels,
        settings.sample_batches,
        settings.price_per_gb_month,
        settings.replication_factor,
        settings.retention_days,
    )
    digest = hashlib.sha256(json.dumps(requested).encode())
    for row in zip(*(column.to_pylist() for column in ledger.columns), strict=True):
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()


def _latest(address: str) -> pa.Table | None:
    """Returns the rows of the latest run; None without one."""
    table = open_if_there(table_path(address, FORMAT_SAVINGS.name))
    if table is None:
        return None
    schema = FORMAT_SAVINGS.arrow_schema()
    runs = read_rows(table, schema, ["run_id", "created_at"]).group_by(["run_id", "created_at"]).aggregate([])
    if not runs.num_rows:
        return None
    run_id = runs.sort_by([("created_at", "descending")]).column("run_id")[0].as_py()
    return read_rows(table, schema, schema.names, f"run_id = {sql_literal(run_id)}")


def rows_of(key: Key, measured: Measured) -> Iterator[Row]:
    """Yields the rows of one topic, partition and magic."""
    if measured.control_batches:
        yield Row(
            *key,
            CONTROL,
            "stored",
            measured.control_records,
            measured.control_batches,
            measured.control_bytes,
        )
    if not measured.batches:
        return
    stored = Row(*key, STORED, "stored", measured.records, measured.batches, measured.bytes)
    for row in (
        stored,
        *_exact(key, measured),
        *(_estimated(key, measured, tried) for tried in measured.compressed),
    ):
        saved = measured.bytes - row.bytes
        yield replace(row, saved_bytes=saved, saved_ratio=saved / measured.bytes)


def _note(layout: str, measured: Measured, magic: int) -> str | None:
    """Returns what a format cannot hold of these records, as text; None if it holds everything."""
    lost = [f"{measured.headers} bytes of headers"] if measured.headers and layout in _LEGACY else []
    if layout == V0 and magic > 0:
        lost.append("timestamps")
    return f"lost: {', '.join(lost)}" if lost else None


def _exact(key: Key, measured: Measured) -> Iterator[Row]:
    """Yields the exact sizes without a codec; those of V0 and V1 are the same for every batch size."""
    for batch_records in (None, *BATCHINGS):
        sizes = measured.sizes.get(batch_records, Sizes())
        legacy = {
            layout: (measured.records, overhead * measured.records + measured.content)
            for layout, overhead in _LEGACY.items()
        }
        sized = {**legacy, V2: (sizes.batches, sizes.v2), V3: (sizes.batches, sizes.v3)}
        for layout, (batches, size) in sized.items():
            note = _note(layout, measured, key[2])
            yield Row(
                *key, layout, "exact", measured.records, batches, size, batch_records, "none", note=note
            )


def _estimated(key: Key, measured: Measured, tried: Compressed) -> Row:
    """Estimates the size of all batches with a codec: headers, plus payload times the ratio of the sample."""
    sizes = measured.sizes[None]
    if tried.layout in _LEGACY:
        overhead = _LEGACY[tried.layout]
        batches, headers = measured.filled, overhead * measured.filled
        payload = measured.content + (overhead * measured.records)
    elif tried.layout == V2:
        batches, headers = measured.batches, V2_OVERHEAD * measured.batches
        payload = sizes.v2 - headers
    else:
        batches, headers = measured.batches, sizes.v3_headers
        payload = sizes.v3 - headers
    size = headers + round(payload * tried.bytes_out / tried.bytes_in)
    return Row(
        *key,
        tried.layout,
        "estimated",
        measured.records,
        batches,
        size,
        codec=tried.how.codec,
        level=tried.how.level,
        sample_batches=tried.batches,
        sample_bytes_in=tried.bytes_in,
        sample_bytes_out=tried.bytes_out,
        sample_seconds=tried.seconds,
        note=_note(tried.layout, measured, key[2]),
    )


def _with_costs(row: Row, settings: CostSettings) -> dict[str, object]:
    """Returns a row with its costs: monthly_cost of all replicas, retention_cost until their deletion."""
    monthly = row.bytes / GB * settings.price_per_gb_month * settings.replication_factor
    retention = monthly * settings.retention_days / DAYS_OF_A_MONTH
    return vars(row) | {"monthly_cost": monthly, "retention_cost": retention}
