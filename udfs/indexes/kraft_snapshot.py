"""Reads snapshots of KRaft's metadata log: record batches, as a segment has them, in a ``.checkpoint``.

Its name holds the offset and the epoch that it reaches. The records of its first and last batch are control
records; those between are the metadata.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from kafka_log_lake.udfs.decoder.decoded import Damage
from kafka_log_lake.udfs.format.file_names import OFFSET_DIGITS
from kafka_log_lake.udfs.indexes.rows import row_schema, rows_of

SUFFIX = ".checkpoint"
BOOTSTRAP = "bootstrap.checkpoint"  # the records with which a cluster begins
METADATA_TOPIC = "__cluster_metadata"
_NAME = re.compile(rf"({OFFSET_DIGITS})-([0-9]{{10}})\.checkpoint")
_COLUMNS = ("offset", "timestamp_ms", "control_type", "key", "value")

KRAFT_SNAPSHOT = row_schema(
    offset=pa.int64(),
    timestamp_ms=pa.int64(),
    control_type=pa.string(),
    name=pa.string(),
    version=pa.int32(),
    value=pa.string(),
)


class SnapshotId(NamedTuple):
    """The offset after the last record that is in a snapshot, and the epoch of that record."""

    end_offset: int
    epoch: int


def snapshot_id(name: str) -> SnapshotId | None:
    """Returns the offset and epoch in the name of a snapshot; None for another name."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def kraft_snapshot(path: str | os.PathLike[str]) -> Iterator[pa.RecordBatch]:
    """Yields the records of a snapshot as rows of KRAFT_SNAPSHOT: name and value (JSON) of metadata records.

    control_type is null for metadata, name for control records. Raises OSError where it can't be opened.
    """
    from kafka_log_lake.udfs.files import (
        decode_segment,  # loads compiled kernels, which the other files do not need
    )
    from kafka_log_lake.udfs.values.internal.columns import internal_records

    damages: list[Damage] = []
    for batch in decode_segment(path, columns=_COLUMNS, on_damage=damages.append):
        rows = batch.to_pydict()
        names = [METADATA_TOPIC if kind is None else None for kind in rows["control_type"]]
        topics = pa.array(names, pa.string())
        records = internal_records(topics, batch.column("key"), batch.column("value")).to_pylist()
        read = [row or {"name": None, "version": None, "value": None, "error": None} for row in records]
        columns = {name: rows[name] for name in ("offset", "timestamp_ms", "control_type")}
        columns |= {name: [row[name] for row in read] for name in ("name", "version", "value")}
        errors = {i: row["error"] for i, row in enumerate(read) if row["error"] is not None}
        yield rows_of(KRAFT_SNAPSHOT, columns, None, errors)
    for damage in damages:
        empty: dict[str, list[object]] = {name: [] for name in KRAFT_SNAPSHOT.names[:-1]}
        yield rows_of(KRAFT_SNAPSHOT, empty, f"{damage.reason} at byte {damage.position}: {damage.detail}")
