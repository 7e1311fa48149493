"""Logs decoded into a lake without Spark, and what the quality report says of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_log_lake.pipelines.lake import transactions
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.quality_report import metrics
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.udfs.format.schema import TRANSACTIONS
from tests.support import fast
from tests.support.lake_rows import compute_findings, insert, reader
from tests.support.segment_maker import segment_name

NOW = 1_700_000_000_000  # ms: the base timestamp of batches that tests make
LATER = NOW + 86_400_000


def add_log(
    lake: str,
    topic: str,
    segments: Mapping[int, bytes],
    *,
    partition: int = 0,
    modified: int = LATER,
    starts: Mapping[int, int] | None = None,
) -> None:
    """Decodes the segments of a log, by base offset, into the tables of a lake as one run would leave them.

    modified: modification time of the files, ms. starts: log_start_offset by base offset, if it is not the
    first base offset for all.
    """
    add_logs(lake, {topic: segments}, partition=partition, modified=modified, starts=starts)


def add_logs(
    lake: str,
    logs: Mapping[str, Mapping[int, bytes]],
    *,
    partition: int = 0,
    modified: int = LATER,
    starts: Mapping[int, int] | None = None,
) -> None:
    """``add_log`` of several topics in one run."""
    ledger_rows: list[LedgerRow] = []
    batches: list[dict[str, Any]] = []
    quarantine: list[dict[str, Any]] = []
    for topic, segments in logs.items():
        folder = f"file:///logs/{topic}-{partition}"
        for base, data in segments.items():
            of_segment: dict[str, Any] = {
                "topic": topic,
                "partition": partition,
                "segment": f"{folder}/{segment_name(base)}",
            }
            decoded = fast.decode(data, has_successor=base != max(segments))
            batches += [row | of_segment for row in decoded.batches]
            quarantine += [row | of_segment for row in decoded.quarantine]
            sound = [row for row in decoded.batches if row["status"] in ("ok", "suspect")]
            ends = [row["last_offset"] for row in sound]
            ledger_rows.append(
                LedgerRow(
                    partition_dir=folder,
                    file_base_offset=base,
                    length=len(data),
                    modified=modified * 1000,
                    decoded_bytes=len(data) - decoded.tail_bytes,
                    batches=len(decoded.batches),
                    records=len(decoded.records),
                    first_offset=min((row["base_offset"] for row in sound), default=None),
                    offset_regressions=sum(b["base_offset"] <= a["last_offset"] for a, b in pairwise(sound)),
                    damaged=len(decoded.quarantine),
                    tail=decoded.tail,
                    tail_bytes=decoded.tail_bytes,
                    end_offset=ends[-1] if ends else None,
                    log_start_offset=min(segments) if starts is None else starts[base],
                    **of_segment,
                )
            )
    insert(lake, "batches", batches)
    insert(lake, "quarantine", quarantine)
    table = ledger.to_arrow(ledger_rows)
    write_deltalake(table_path(lake, "segments"), table, mode="append")
    places = {(topic, partition) for topic in logs}
    before = transactions.stored(reader(lake), places)
    found = transactions.compute(reader(lake), places, table.cast(ledger.SCHEMA), before)[0].to_pylist()
    insert(lake, TRANSACTIONS.name, found)
    compute_findings(lake)


def measured(lake: str, *names: str) -> list[dict[str, Any]]:
    """The rows of these checks."""
    checks = [check for check in CHECKS if check.name in names]
    with metrics.opened(published_tables(lake)) as database:
        table: pa.Table = metrics.measure(database, checks, "run", datetime.now(UTC))
    return table.to_pylist()


def over_partitions(lake: str, name: str) -> dict[tuple[str, int | None], float | None]:
    """The values of one check over whole partitions, or topics (partition None)."""
    return {
        (row["topic"], row["partition"]): row["value"]
        for row in measured(lake, name)
        if row["segment"] is None
    }
