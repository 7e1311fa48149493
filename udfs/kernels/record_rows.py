"""Where the parts of each record lie (rows), and how far the first of the two passes has come.

A row holds positions, no bytes: ``record_index`` writes the rows, ``record_columns`` gathers what they
point to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs.kernels.jit import inlined, kernel

# The rows: a line a field, a place a record, so that each pass reads what it needs and nothing else.
# Positions are those in the batch's data buffer; sizes of keys and values are -1 for null.
(
    ROW_OFFSET,
    ROW_TIMESTAMP,
    ROW_SEQUENCE,
    ROW_SIZE,
    ROW_KEY_AT,
    ROW_KEY_SIZE,
    ROW_VALUE_AT,
    ROW_VALUE_SIZE,
    ROW_HEADERS_AT,
    ROW_HEADERS,
) = range(10)
ROW_FIELDS = 10
_APART = 72  # places more than asked for: lines that are a power of two apart share the cache's sets

# How far a pass over a batch has come, so that a batch of very many records goes in chunks
CURSOR = np.dtype(
    [
        ("at", "i8"),  # in the data buffer: of the next record, or of the one at fault
        ("record", "i8"),  # records before it in the batch
        ("fault", "i8"),  # of that record: a code of format.faults,
        ("stopped_at", "i8"),  # and its place in the data buffer
        ("previous", "i8"),  # offset of the record before: relative in magic 2, absolute in a wrapper
        ("base", "i8"),  # what is added to the offsets of a wrapper's messages
        ("row", "i8"),  # place of the next row
        ("step", "i8"),  # 1; 0 puts all rows into one place, to check a batch without keeping them
        ("capacity", "i8"),  # rows that one call may make
        ("room", "i8"),  # bytes of data that one call may go through, a record at least; 0: no bound
    ]
)

# Sums over rows: what the second pass allocates
TOTALS = np.dtype(
    [
        ("key_bytes", "i8"),
        ("value_bytes", "i8"),
        ("headers", "i8"),
        ("header_key_bytes", "i8"),
        ("header_value_bytes", "i8"),
        ("not_ascii", "i8"),  # not 0: a header's key holds other bytes than ASCII
    ]
)

_NO_OFFSET = -(1 << 62)


def new_rows(capacity: int) -> np.ndarray:
    """int64[ROW_FIELDS, n] for ``capacity`` records or a few more."""
    return np.empty((ROW_FIELDS, capacity + _APART), dtype=np.int64)


def named(row: np.ndarray) -> dict[str, int]:
    """The fields of the one row of an array of records, all int64, by name."""
    return dict(zip(row.dtype.names or (), row.item(), strict=True))


@kernel
def start_cursor(e: Any, cursor: Any) -> None:
    """Set the cursor (a row of CURSOR) to the first record of a batch; what a call may make stays."""
    cursor["at"] = e["data_at"]
    cursor["record"] = 0
    cursor["previous"] = _NO_OFFSET
    cursor["base"] = 0


@kernel
def stop(cursor: Any, code: int, at: int) -> int:
    """Note a fault and the place where it is. Returns -1.

    In a hot loop such a call, which is hardly ever made, costs less than one more value to return.
    """
    cursor["fault"] = code
    cursor["stopped_at"] = at
    return -1


@kernel
def stay(cursor: Any, at: int, record: int) -> int:
    """Set the cursor to the record at ``at``, which is at fault. Returns -1."""
    cursor["at"] = at
    cursor["record"] = record
    return -1


@inlined
def clear_totals(totals: Any) -> None:
    """Set all sums of a row of TOTALS to 0."""
    totals["key_bytes"] = 0
    totals["value_bytes"] = 0
    totals["headers"] = 0
    totals["header_key_bytes"] = 0
    totals["header_value_bytes"] = 0
    totals["not_ascii"] = 0


@inlined
def add_totals(totals: Any, more: Any) -> None:
    """Add the sums of one row of TOTALS to those of another."""
    totals["key_bytes"] += more["key_bytes"]
    totals["value_bytes"] += more["value_bytes"]
    totals["headers"] += more["headers"]
    totals["header_key_bytes"] += more["header_key_bytes"]
    totals["header_value_bytes"] += more["header_value_bytes"]
    totals["not_ascii"] |= more["not_ascii"]
