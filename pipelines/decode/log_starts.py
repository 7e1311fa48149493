"""Stores where logs begin for their consumers (``udfs.batches.log_start``), for the view ``log_starts``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan.ledger import rows_to_arrow
from kafka_log_lake.udfs.batches.log_start import BY_SEGMENTS, LogStart
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS
from kafka_log_lake.udfs.spark.protocol import StageOptions

_START = ("log_start_offset", "log_start_witness", "log_start_certainty")
_NAMES = (*_START, "recovery_point", "high_watermark", "named_end")
_NOTHING: Mapping[str, Any] = dict.fromkeys(_NAMES)


def store_log_starts(lake: LakeWriter, listing: Listing, options: StageOptions) -> None:
    """Adds a row to ``checkpoints`` for each log whose start cuts off something, or no longer does.

    So it is there before the records are. A log that begins with its first segment, or before it, has no
    row, unless it began later when it was read last. A second run writes nothing, and a log start that moved
    is stored though no segment has changed.
    """
    logs = listing.segments.group_by("partition_dir").aggregate(
        [("topic", "min"), ("partition", "min"), ("file_base_offset", "min"), ("wanted", "any")]
    )
    starts, stored = listing.log_starts(), stored_checkpoints(lake)
    rows = []
    for log in logs.filter(logs.column("wanted_any")).to_pylist():
        folder, first_file = log["partition_dir"], log["file_base_offset_min"]
        known = stored.get(folder, _NOTHING)
        found_now = {**known, **_start_columns(starts.get(folder), first_file, known)}
        cuts = [
            checkpoint["log_start_offset"]
            for checkpoint in (found_now, known)
            if checkpoint["log_start_offset"] is not None
        ]
        if found_now != known and max(cuts) > first_file:
            place = {"topic": log["topic_min"], "partition": log["partition_min"], "partition_dir": folder}
            rows.append({**place, **found_now, "read_at": options.began_us, "run_id": options.run_id})
    if rows:
        lake.add_rows(CHECKPOINTS, rows_to_arrow(CHECKPOINTS, rows))


def with_log_starts(lake: LakeWriter, listing: Listing, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows for ``checkpoints`` with the starts of their logs, as the last rows of these."""
    starts, stored, first_files = listing.log_starts(), stored_checkpoints(lake), _first_files(listing)
    return [
        {
            **row,
            **_start_columns(starts.get(folder), first_files[folder], stored.get(folder, _NOTHING)),
            "read_at": time.time_ns() // 1000,  # that of ``store_log_starts`` is when the run began
        }
        for row in rows
        for folder in [row["partition_dir"]]
    ]


def _first_files(listing: Listing) -> dict[str, int]:
    """Returns folder -> base offset of the first segment there."""
    first_files = listing.segments.group_by("partition_dir").aggregate([("file_base_offset", "min")])
    return dict(
        zip(*(first_files.column(name).to_pylist() for name in first_files.column_names), strict=True)
    )


def _start_columns(start: LogStart | None, first_file: int, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of ``checkpoints`` about the start of a log.

    first_file: base offset of the first segment in its folder. known: the columns of the last row about it,
    which hold where nothing but the segments tells the start.
    """
    if start is None or start.witness == BY_SEGMENTS:
        return {name: known.get(name) for name in _START}
    if start.offset == first_file:  # retention may have left that; a log start below it still cuts
        is_above = (known.get(_START[0]) or 0) > first_file
        return {name: None if is_above else known.get(name) for name in _START}
    return dict(zip(_START, start, strict=True))


def stored_checkpoints(lake: LakeWriter) -> dict[str, dict[str, Any]]:
    """Reads the columns _NAMES of each folder's last row in the table ``checkpoints``."""
    if not lake.has(CHECKPOINTS):
        return {}
    rows = lake.read(CHECKPOINTS, ["partition_dir", "read_at", *_NAMES]).sort_by("read_at")
    return {row.pop("partition_dir"): row for row in rows.select(["partition_dir", *_NAMES]).to_pylist()}
