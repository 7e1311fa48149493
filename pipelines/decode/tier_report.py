"""Stores ``tier_report``: what objects, metadata and disks of tiered storage do not agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.udfs.format.recovery_tables import TIER_REPORT


def store_tier_report(lake: LakeWriter, rows: Sequence[dict[str, Any]]) -> None:
    """Replaces all rows of the table, where they have changed."""
    schema = TIER_REPORT.arrow_schema()
    now = pa.Table.from_pylist(list(rows), schema)
    stored = lake.read(TIER_REPORT, schema.names) if lake.has(TIER_REPORT) else schema.empty_table()
    if sorted(map(repr, stored.to_pylist())) != sorted(map(repr, now.to_pylist())):
        lake.replace_report_rows(TIER_REPORT, now, "kind IS NOT NULL")
