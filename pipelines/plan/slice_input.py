"""Slices as the input rows of a task, columns of SLICE_SCHEMA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipelines.plan.slices import Slice
from udfs.spark.protocol import SLICE_SCHEMA


def to_arrow(slices: Sequence[Slice]) -> pa.Table:
    """One row per slice, columns of SLICE_SCHEMA; content is null."""
    return pa.Table.from_pylist([slice_row(s) for s in slices], schema=SLICE_SCHEMA)


def slice_row(slice_: Slice) -> dict[str, Any]:
    segment = slice_.segment
    continued = segment.was if segment.start > 0 else None
    previous = continued if slice_.start == segment.start else None
    return {
        "group_id": slice_.group_id,
        "topic": segment.topic,
        "partition": segment.partition,
        "partition_dir": segment.partition_dir,
        "segment": segment.segment,
        "file": segment.file,
        "file_base_offset": segment.file_base_offset,
        "length": segment.length,
        "modified": segment.modified,
        "log_start_offset": segment.log_start_offset,
        "topic_id": segment.topic_id,
        "start": slice_.start,
        "stop": slice_.stop,
        "exact_start": slice_.exact_start,
        "has_successor": segment.has_successor,
        "previous_last_offset": previous.end_offset if previous else None,
        "expected_crc32c": slice_.expected_crc32c,
        "scope": segment.scope.condition,
        "fingerprint": continued.fingerprint if continued else None,
        "chunk_position": 0,
    }
