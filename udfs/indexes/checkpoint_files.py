"""Reads checkpoint files as Arrow record batches: their text is parsed by ``udfs.format.checkpoint_text``."""

from __future__ import annotations

import itertools

import pyarrow as pa

from kafka_log_lake.udfs.format.checkpoint_text import (
    LEADER_EPOCH_FILE,
    MOST_BYTES,
    OFFSET_FILES,
    epoch_entries,
    offset_entries,
)
from kafka_log_lake.udfs.indexes.rows import row_schema, rows_of

__all__ = [
    "LEADER_EPOCH_FILE",
    "MOST_BYTES",
    "OFFSET_FILES",
    "leader_epochs",
    "offset_checkpoint",
    "offset_entries",
]

LEADER_EPOCHS = row_schema(entry=pa.int32(), leader_epoch=pa.int32(), start_offset=pa.int64())
OFFSETS = row_schema(entry=pa.int32(), topic=pa.string(), partition=pa.int32(), offset=pa.int64())


def offset_checkpoint(data: bytes) -> pa.RecordBatch:
    """Returns the entries of a file of OFFSET_FILES as rows of OFFSETS."""
    entries = offset_entries(data)
    columns = {
        "entry": range(len(entries.rows)),
        "topic": [row[0] for row in entries.rows],
        "partition": [int(row[1]) for row in entries.rows],
        "offset": [int(row[2]) for row in entries.rows],
    }
    return rows_of(OFFSETS, columns, entries.problem)


def leader_epochs(data: bytes) -> pa.RecordBatch:
    """Returns the entries of a ``leader-epoch-checkpoint`` as rows of LEADER_EPOCHS.

    A row says which epoch begins at which offset; ``error`` names an epoch or offset that is not above the
    one before.
    """
    entries = epoch_entries(data)
    numbers = [(int(epoch), int(offset)) for epoch, offset in entries.rows]
    errors = {}
    for i, (before, after) in enumerate(itertools.pairwise(numbers), 1):
        for name, low, high in zip(("leader_epoch", "start_offset"), before, after, strict=True):
            if high <= low:
                errors[i] = f"{name}: expected more than {low} of the entry before, found {high}"
    columns = {
        "entry": range(len(numbers)),
        "leader_epoch": [epoch for epoch, _ in numbers],
        "start_offset": [offset for _, offset in numbers],
    }
    return rows_of(LEADER_EPOCHS, columns, entries.problem, errors)
