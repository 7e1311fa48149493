"""Logs of ``random_logs`` as rows of a lake's tables: what a run would leave, without decoding a byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, SEGMENTS
from tests.support import segment_maker as make
from tests.support.log_model import SIZE, Log, LogBatch, Segment, wrapped


def _segment_row(log: Log, segment: Segment) -> dict[str, Any]:
    ends = [one.last_offset for one in segment.sound]
    firsts = [wrapped(one.base_offset + one.places[0]) for one in segment.sound if one.places]
    is_decoded = segment.left_out == 0
    length = SIZE * len(segment.batches)
    return {
        "topic": log.topic,
        "partition": log.partition,
        "partition_dir": log.partition_dir,
        "segment": log.uri(segment),
        "file_base_offset": segment.file_base_offset,
        "length": length,
        "modified": segment.modified_ms * 1000,
        "decoded_bytes": length,
        "batches": len([one for one in segment.batches if not one.is_garbage]) if is_decoded else 0,
        "records": sum(one.count for one in segment.sound) if is_decoded else 0,
        "damaged": len(segment.batches) - len(ends) if is_decoded else 0,
        "offset_regressions": sum(b.base_offset <= e for e, b in zip(ends, segment.sound[1:], strict=False)),
        "tail": "none",
        "tail_bytes": 0,
        "first_offset": min(firsts, default=None) if is_decoded else None,
        "end_offset": ends[-1] if ends and is_decoded else None,
        "ends_in_damage": bool(is_decoded and segment.batches and not segment.batches[-1].is_sound),
        "log_start_offset": segment.log_start_offset,
        "left_out": segment.left_out,
        "run_id": "run",
    }


def _batch_row(log: Log, segment: Segment, position: int, one: LogBatch) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "magic": 2,
        "segment": log.uri(segment),
        "position": position,
        "size_bytes": SIZE,
        "base_offset": one.base_offset,
        "last_offset": one.last_offset,
        "record_count": one.count,
        "declared_count": one.count,
        "compression": "none",
        "attributes": one.flags | (make.CONTROL if one.control else 0),
        "timestampType": int(one.is_log_append),
        "base_timestamp_ms": one.base_timestamp_ms,
        "max_timestamp_ms": one.max_timestamp_ms,
        "delete_horizon_ms": one.base_timestamp_ms if one.has_horizon else None,
        "leader_epoch": one.leader_epoch,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "base_sequence": one.base_sequence,
        "last_sequence": one.last_sequence,
        "is_transactional": one.is_transactional,
        "is_control": one.control is not None,
        "control_type": one.control,
        "coordinator_epoch": 1 if one.control else None,
        "crc_stored": 1,
        "crc_computed": 1 if one.is_sound else 2,
        "crc_ok": one.is_sound,
        "payload_bytes": 100,
        "uncompressed_bytes": 100,
        "header_bytes": 0,
        "status": one.status,
    }


def _rows(
    logs: Iterable[Log], of: Callable[[Log, Segment], Iterable[dict[str, Any]]]
) -> list[dict[str, Any]]:
    return [row for log in logs for segment in log.segments for row in of(log, segment)]


def _batches(log: Log, segment: Segment) -> Iterable[dict[str, Any]]:
    for at, one in enumerate(segment.batches if segment.left_out == 0 else ()):
        if not one.is_garbage:
            yield _batch_row(log, segment, at * SIZE, one)


def _quarantine(log: Log, segment: Segment) -> Iterable[dict[str, Any]]:
    for at, one in enumerate(segment.batches if segment.left_out == 0 else ()):
        if not one.is_sound:
            yield {
                "topic": log.topic,
                "partition": log.partition,
                "segment": log.uri(segment),
                "position": at * SIZE,
                "size_bytes": SIZE,
                "reason": "garbage" if one.is_garbage else "crc_mismatch",
                "detail": "made",
                "content": one.encode(),
                "next_position": (at + 1) * SIZE,
                "run_id": "run",
            }


def tables(logs: Iterable[Log]) -> dict[str, pa.Table]:
    """segments, batches, quarantine and checkpoints, as a run would leave them."""
    logs = list(logs)
    noted = [
        {
            "topic": log.topic,
            "partition": log.partition,
            "partition_dir": log.partition_dir,
            **dict(
                zip(("log_start_offset", "recovery_point", "high_watermark"), log.checkpoint, strict=True)
            ),
            "read_at": 1,
            "run_id": "run",
        }
        for log in logs
        if log.checkpoint is not None
    ]
    found = {
        SEGMENTS: _rows(logs, lambda log, segment: [_segment_row(log, segment)]),
        BATCHES: _rows(logs, _batches),
        QUARANTINE: _rows(logs, _quarantine),
        CHECKPOINTS: noted,
    }
    return {
        table.name: pa.table(
            {c.name: pa.array([row.get(c.name) for row in rows], c.arrow_type) for c in table.columns}
        )
        for table, rows in found.items()
    }
