"""Keeps how far decoding has come: in a batch (the cursor), and in the columns of a group (FILLED).

What is filled before a batch is kept, so that a fault, or a batch that there is no room for, is rolled back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels.jit import inlined, kernel, store_i32

# The place up to which a batch is decoded, so that one of very many records goes in chunks
CURSOR = np.dtype(
    [
        ("at", "i8"),  # in the data buffer: of the next record, or of the one at fault
        ("record", "i8"),  # records before it in the batch
        ("fault", "i8"),  # of that record: a code of format.faults,
        ("stopped_at", "i8"),  # and its place in the data buffer
        ("previous", "i8"),  # offset of the record before: relative in magic 2, absolute in a wrapper
        ("base", "i8"),  # what is added to the offsets of a wrapper's messages
    ]
)

# Counts and bounds of what columns are filled with
FILLED = np.dtype(
    [
        *a.ROOM.descr,
        ("null_keys", "i8"),
        ("null_values", "i8"),
        ("null_headers", "i8"),
        ("null_header_values", "i8"),
        ("null_timestamps", "i8"),
        ("not_ascii", "i8"),  # keys of headers that hold other bytes than ASCII
        ("data_bytes", "i8"),  # of the batches, expanded
        ("controls", "i8"),  # rows of control records
        ("min_offset", "i8"),
        ("max_offset", "i8"),
        ("min_timestamp", "i8"),  # us, of those not null; above the maximum where all are
        ("max_timestamp", "i8"),
        ("always_0", "i8"),
    ]
)

# Lines: what each row has of its own, so that columns of numbers are filled in loops over nothing else: int64
LINE_OFFSET, LINE_TIMESTAMP, LINE_SIZE = range(3)
_APART = 72  # more elements than requested: lines that are a power of two apart share the cache's sets

_NO_OFFSET = -(1 << 62)


def new_lines(rows: int) -> np.ndarray:
    """Allocates int64[3, n] for ``rows`` rows or a few more; for 0 rows n is 0, and nothing is kept."""
    return np.empty((3, rows + _APART if rows else 0), dtype=np.int64)


@kernel
def start_cursor(e: np.void, cursor: np.ndarray) -> None:
    """Sets the cursor (a row of CURSOR) to the first record of a batch."""
    cursor["at"] = e["data_at"]
    cursor["record"] = 0
    cursor["fault"] = faults.NO_FAULT
    cursor["previous"] = _NO_OFFSET
    cursor["base"] = 0


@kernel
def stop(cursor: np.ndarray, code: int, at: int) -> int:
    """Notes a fault in the cursor, and its position ``at``. Returns -1.

    In a hot loop such a call, which is hardly ever made, costs less than one more value to return.
    """
    cursor["fault"] = code
    cursor["stopped_at"] = at
    return -1


class Parts(NamedTuple):
    """The parts of a record that are copied.

    They are positions in the data buffer, sizes in bytes (-1: null), and the number of headers.
    """

    key_at: int
    key_size: int
    value_at: int
    value_size: int
    headers_at: int
    headers: int


@inlined
def has_room(filled: np.ndarray, room: np.ndarray, parts: Parts) -> bool:
    """Tells whether the columns have room for a row with this key, this value, and that many headers."""
    return (
        filled["rows"] < room["rows"]
        and filled["key_bytes"] + parts.key_size <= room["key_bytes"]
        and filled["value_bytes"] + parts.value_size <= room["value_bytes"]
        and filled["headers"] + parts.headers <= room["headers"]
    )


@inlined
def put_row(
    arena: np.ndarray,
    columns: a.TextColumns,
    lines: np.ndarray,
    filled: np.ndarray,
    buf: np.ndarray,
    parts: Parts,
    offset: int,
    timestamp: int,
    size: int,
) -> None:
    """Appends a row whose headers are written already. There is room for it."""
    row = filled["rows"]
    a.put_text(arena, columns.keys, row, filled["key_bytes"], buf, parts.key_at, parts.key_size)
    a.put_text(arena, columns.values, row, filled["value_bytes"], buf, parts.value_at, parts.value_size)
    if columns.lists.offsets >= 0:
        store_i32(arena, columns.lists.offsets + 4 * row, filled["headers"] - parts.headers)
        if parts.headers == 0:
            a.unset_bit(arena, columns.lists.valid, row)
    filled["key_bytes"] += max(parts.key_size, 0)
    filled["value_bytes"] += max(parts.value_size, 0)
    filled["null_keys"] += parts.key_size < 0
    filled["null_values"] += parts.value_size < 0
    filled["null_headers"] += parts.headers == 0
    if lines.shape[1]:
        lines[LINE_OFFSET, row] = offset
        lines[LINE_TIMESTAMP, row] = timestamp
        lines[LINE_SIZE, row] = size
    filled["rows"] = row + 1
