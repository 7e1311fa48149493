"""Converts batches to the columns of ``batches``, and damaged ranges to those of ``quarantine``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder.decoded import Damage
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE
from kafka_log_lake.udfs.kernels.framing import base_unknown

_CODECS = pa.array(f.CODEC_NAMES)
_CONTROL_TYPES = pa.array([*f.CONTROL_TYPES, "UNKNOWN"])
_STATUSES = pa.array(faults.STATUS_NAMES)
_BATCH_TYPES = {column.name: column.arrow_type for column in BATCHES.columns}


def _named(names: pa.Array, codes: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    return names.take(pa.array(codes.astype(np.int32), mask=missing))


def batch_columns(batches: np.ndarray) -> dict[str, pa.Array]:
    """Returns the columns of ``batches`` that the bytes alone tell, by name, from BATCH[n]."""
    v2 = batches["magic"] == f.MAGIC_V2
    attributes = batches["attributes"]
    fault = batches["fault"]
    status = np.where(batches["marks"] != 0, faults.SUSPECT, faults.OK).astype(np.int8)
    error: list[str | None] = [None] * len(batches)
    for k in np.flatnonzero((fault != 0) | (batches["marks"] != 0)):
        error[k] = faults.describe_batch(batches[k])
        if fault[k]:
            status[k] = faults.FAULTS[int(fault[k])].status
    maximum = batches["max_timestamp"]
    outside = (maximum == f.NO_TIMESTAMP) | (maximum < f.MIN_TIMESTAMP_MS) | (maximum > f.MAX_TIMESTAMP_MS)
    marker = batches["control_type"]
    no_marker = (marker != f.CONTROL_ABORT) & (marker != f.CONTROL_COMMIT)
    computed = batches["crc_computed"]
    columns: dict[str, Any] = {
        "magic": batches["magic"],
        "position": batches["position"],
        "size_bytes": batches["size"],
        "base_offset": (batches["base_offset"], base_unknown(batches)),
        "last_offset": batches["last_offset"],
        "record_count": batches["record_count"],
        "declared_count": (batches["count"], ~v2),
        "compression": _named(_CODECS, batches["codec"]),
        "attributes": attributes,
        "timestampType": batches["timestamp_type"],
        "base_timestamp_ms": batches["base_timestamp"],
        "max_timestamp_ms": maximum,
        "max_timestamp": (np.where(outside, 0, maximum) * 1000, outside),
        "delete_horizon_ms": (
            batches["base_timestamp"],
            ~v2 | (attributes & f.DELETE_HORIZON_MASK == 0),
        ),
        "leader_epoch": batches["leader_epoch"],
        "producer_id": batches["producer_id"],
        "producer_epoch": batches["producer_epoch"],
        "base_sequence": batches["base_sequence"],
        "last_sequence": batches["last_sequence"],
        "is_transactional": v2 & (attributes & f.TRANSACTIONAL_MASK != 0),
        "is_control": v2 & (attributes & f.CONTROL_MASK != 0),
        "control_type": _named(_CONTROL_TYPES, marker, marker == f.NO_CONTROL),
        "coordinator_epoch": (batches["coordinator_epoch"], no_marker),
        "crc_stored": batches["crc_stored"],
        "crc_computed": computed,
        "crc_ok": computed == batches["crc_stored"],
        "payload_bytes": batches["payload_size"],
        "uncompressed_bytes": batches["data_size"],
        "key_bytes": batches["key_bytes"],
        "value_bytes": batches["value_bytes"],
        "header_bytes": batches["header_bytes"],
        "status": _named(_STATUSES, status),
        "error": pa.array(error, pa.string()),
    }
    return {name: _column(name, value) for name, value in columns.items()}


def _column(name: str, value: object) -> pa.Array:
    if isinstance(value, pa.Array):
        return value
    kind = _BATCH_TYPES[name]
    values, missing = value if isinstance(value, tuple) else (value, None)
    if pa.types.is_boolean(kind):
        return pa.array(values)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64(), mask=missing).cast(kind)
    return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=missing)


def damage_columns(damages: list[Damage], run_id: str) -> dict[str, pa.Array]:
    """Returns the columns of ``quarantine`` by name, all but topic, partition and segment."""
    rows: dict[str, list[Any]] = {
        "position": [d.position for d in damages],
        "size_bytes": [d.size for d in damages],
        "base_offset": [d.base_offset for d in damages],
        "reason": [d.reason for d in damages],
        "detail": [d.detail for d in damages],
        "content": [d.content for d in damages],
        "next_position": [d.next_position for d in damages],
        "run_id": [run_id] * len(damages),
    }
    types = {column.name: column.arrow_type for column in QUARANTINE.columns}
    return {name: pa.array(values, types[name]) for name, values in rows.items()}
