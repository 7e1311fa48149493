"""Stores ``tier_report`` and ``segment_places``: what lies in tiered storage and on the disks, and what
objects, metadata and disks do not agree on.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.udfs.format.recovery_tables import SEGMENT_PLACES, TIER_REPORT
from kafka_log_lake.udfs.format.schema import Table


def store_tier(lake: LakeWriter, listing: Listing) -> None:
    """Replaces all rows of both tables, where they have changed."""
    _store(lake, TIER_REPORT, listing.tier_report or (), "kind IS NOT NULL")
    _store(lake, SEGMENT_PLACES, listing.segment_places, "place IS NOT NULL")


def _store(lake: LakeWriter, table: Table, rows: Sequence[dict[str, object]], every: str) -> None:
    schema = table.arrow_schema()
    now = pa.Table.from_pylist(list(rows), schema)
    stored = lake.read(table, schema.names) if lake.has(table) else schema.empty_table()
    if sorted(map(repr, stored.to_pylist())) != sorted(map(repr, now.to_pylist())):
        lake.replace_report_rows(table, now, every)
