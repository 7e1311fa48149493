"""Entries -> the columns of ``batches``, damaged ranges -> those of ``quarantine``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from udfs.decoded import Damage, describe_entry
from udfs.format import faults
from udfs.format import layout as f
from udfs.format.schema import BATCHES, QUARANTINE
from udfs.kernels.framing import base_unknown

_CODECS = pa.array(f.CODEC_NAMES)
_CONTROL_TYPES = pa.array([*f.CONTROL_TYPES, "UNKNOWN"])
_STATUSES = pa.array(faults.STATUS_NAMES)
_BATCH_TYPES = {column.name: column.arrow_type for column in BATCHES.columns}


def _named(names: pa.Array, codes: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    return names.take(pa.array(codes.astype(np.int32), mask=missing))


def entry_columns(entries: np.ndarray) -> dict[str, pa.Array]:
    """ENTRY[n] -> the columns of ``batches`` that the bytes alone tell, by name."""
    v2 = entries["magic"] == f.MAGIC_V2
    attributes = entries["attributes"]
    fault = entries["fault"]
    status = np.where(entries["marks"] != 0, faults.SUSPECT, faults.OK).astype(np.int8)
    error: list[str | None] = [None] * len(entries)
    for k in np.flatnonzero((fault != 0) | (entries["marks"] != 0)):
        error[k] = describe_entry(entries[k])
        if fault[k]:
            status[k] = faults.FAULTS[int(fault[k])].status
    maximum = entries["max_timestamp"]
    outside = (maximum == f.NO_TIMESTAMP) | (maximum < f.MIN_TIMESTAMP_MS) | (maximum > f.MAX_TIMESTAMP_MS)
    marker = entries["control_type"]
    no_marker = (marker != f.CONTROL_ABORT) & (marker != f.CONTROL_COMMIT)
    computed = entries["crc_computed"]
    columns: dict[str, Any] = {
        "magic": entries["magic"],
        "position": entries["position"],
        "size_bytes": entries["size"],
        "base_offset": (entries["base_offset"], base_unknown(entries)),
        "last_offset": entries["last_offset"],
        "record_count": entries["record_count"],
        "declared_count": (entries["count"], ~v2),
        "compression": _named(_CODECS, entries["codec"]),
        "attributes": attributes,
        "timestampType": entries["timestamp_type"],
        "base_timestamp_ms": entries["base_timestamp"],
        "max_timestamp_ms": maximum,
        "max_timestamp": (np.where(outside, 0, maximum) * 1000, outside),
        "delete_horizon_ms": (
            entries["base_timestamp"],
            ~v2 | (attributes & f.DELETE_HORIZON_MASK == 0),
        ),
        "leader_epoch": entries["leader_epoch"],
        "producer_id": entries["producer_id"],
        "producer_epoch": entries["producer_epoch"],
        "base_sequence": entries["base_sequence"],
        "last_sequence": entries["last_sequence"],
        "is_transactional": v2 & (attributes & f.TRANSACTIONAL_MASK != 0),
        "is_control": v2 & (attributes & f.CONTROL_MASK != 0),
        "control_type": _named(_CONTROL_TYPES, marker, marker == f.NO_CONTROL),
        "coordinator_epoch": (entries["coordinator_epoch"], no_marker),
        "crc_stored": entries["crc_stored"],
        "crc_computed": computed,
        "crc_ok": computed == entries["crc_stored"],
        "payload_bytes": entries["payload_size"],
        "uncompressed_bytes": entries["data_size"],
        "key_bytes": entries["key_bytes"],
        "value_bytes": entries["value_bytes"],
        "header_bytes": entries["header_bytes"],
        "status": _named(_STATUSES, status),
        "error": pa.array(error, pa.string()),
    }
    return {name: _column(name, value) for name, value in columns.items()}


def _column(name: str, value: Any) -> pa.Array:
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
    """Damaged ranges -> the columns of ``quarantine`` but topic, partition and segment, by name."""
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
