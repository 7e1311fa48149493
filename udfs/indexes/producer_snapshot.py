"""Reads producer snapshots: what a broker knows of each producer of a log, by its ``ProducerStateManager``.

    version int16 = 1 | crc uint32 | entries: count int32, then each:                    (all big-endian)
    producer id int64 | epoch int16 | last sequence int32 | last offset int64 | offset delta int32
    | timestamp int64 | coordinator epoch int32 | first offset of its open transaction int64

The CRC-32C is of all that follows it. The file's name is the offset up to which the log was read for it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.indexes.rows import row_schema, rows_of
from kafka_log_lake.udfs.words import counted_noun

VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_ENDS = 6  # what follows is covered by it
ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp_ms", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)
PRODUCER_SNAPSHOT = row_schema(
    producer_id=pa.int64(),
    producer_epoch=pa.int16(),
    last_sequence=pa.int32(),
    last_offset=pa.int64(),
    offset_delta=pa.int32(),
    timestamp_ms=pa.int64(),
    coordinator_epoch=pa.int32(),
    current_txn_first_offset=pa.int64(),
)


class Snapshot(NamedTuple):
    """The entries of a producer snapshot, ENTRY[n], as far as they can be read.

    problem: what is wrong with the file, in Kafka's words where it refuses it; None: nothing.
    """

    entries: np.ndarray
    problem: str | None


def read_producer_snapshot(data: bytes) -> Snapshot:
    """Returns the producers in a snapshot, as far as they can be read."""
    nothing = np.zeros(0, dtype=ENTRY)
    if len(data) < 2:
        return Snapshot(nothing, _too_short(data))
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != VERSION:
        reason = f"Snapshot failed schema validation: Snapshot contained an unknown file version {version}"
        return Snapshot(nothing, reason)
    if len(data) < _HEAD.size:
        return Snapshot(nothing, _too_short(data))
    _, stored, count = _HEAD.unpack_from(data)
    there = (len(data) - _HEAD.size) // ENTRY.itemsize
    entries = np.frombuffer(data, dtype=ENTRY, count=max(0, min(count, there)), offset=_HEAD.size)
    if not 0 <= count <= there:
        counted = f"it counts {counted_noun(count, 'producer')}, and has bytes for {there}"
        reason = f"Snapshot failed schema validation: {counted}"
        return Snapshot(entries, reason)
    computed = _crc32c(data[_CRC_ENDS:])
    if stored != computed:
        words = f"Stored crc: {stored}. Computed crc: {computed}"
        return Snapshot(entries, f"Snapshot is corrupt (CRC is no longer valid). {words}")
    return Snapshot(entries, None)


def producer_snapshot(data: bytes) -> pa.RecordBatch:
    """Returns the producers in a ``.snapshot`` as rows of PRODUCER_SNAPSHOT.

    -1: no sequence, no offset, no open transaction. The broker refuses a file as a whole; here what can be
    read of it are rows before the reason.
    """
    snapshot = read_producer_snapshot(data)
    columns = {name: snapshot.entries[name].tolist() for name in ENTRY.names or ()}
    return rows_of(PRODUCER_SNAPSHOT, columns, snapshot.problem)


def _crc32c(data: bytes) -> int:
    from kafka_log_lake.udfs.kernels.checksums import (
        crc32c,  # loads compiled kernels, which the other files do not need
    )

    return int(crc32c(np.frombuffer(data, dtype=np.uint8), 0, len(data), 0))


def _too_short(data: bytes) -> str:
    return f"Snapshot failed schema validation: it has {counted_noun(len(data), 'byte')}"
