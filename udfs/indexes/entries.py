"""Reads indexes of entries of a fixed size: Kafka's ``OffsetIndex``, ``TimeIndex`` and ``TransactionIndex``.

    .index      relative offset int32 | position int32                                   (all big-endian)
    .timeindex  timestamp int64 | relative offset int32
    .txnindex   version int16 | producer id int64 | first, last, last stable offset int64 each

Offsets of the first two are relative to the base offset in the file's name. While a segment is active these
two files have the size of all the entries they may get one day: zeros are after the last entry.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.format.layout import MAX_OFFSET
from kafka_log_lake.udfs.indexes.rows import row_schema, rows_of

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
TRANSACTION_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
TRANSACTION_VERSION = 0  # the highest that Kafka reads

OFFSET_INDEX = row_schema(entry=pa.int32(), offset=pa.int64(), position=pa.int64())
TIME_INDEX = row_schema(entry=pa.int32(), timestamp_ms=pa.int64(), offset=pa.int64())
ABORTED_TRANSACTIONS = row_schema(
    entry=pa.int32(),
    version=pa.int16(),
    producer_id=pa.int64(),
    first_offset=pa.int64(),
    last_offset=pa.int64(),
    last_stable_offset=pa.int64(),
)


def whole_entries(data: bytes, entry: np.dtype) -> np.ndarray:
    """Returns the whole entries in a file (entry[n]), also the zeros after the last one that is in use."""
    return np.frombuffer(data, dtype=entry, count=len(data) // entry.itemsize)


def used_entries(data: bytes, entry: np.dtype) -> np.ndarray:
    """Returns the entries in a file (entry[n]) without the zeros after the last one."""
    entries = whole_entries(data, entry)
    is_used = entries.view(np.uint8).reshape(len(entries), entry.itemsize).any(axis=1)
    return entries[: int(np.flatnonzero(is_used)[-1]) + 1] if is_used.any() else entries[:0]


def rising_entries(data: bytes, entry: np.dtype) -> np.ndarray:
    """Returns int64[n, 2]: the entries as far as both of their numbers rise and are not negative."""
    stored = whole_entries(data, entry)
    pairs = np.stack([stored[name] for name in entry.names or ()], axis=1).astype(np.int64)
    rises = (np.diff(pairs, axis=0, prepend=[[-1, -1]]) > 0).all(axis=1)
    return pairs if rises.all() else pairs[: int(np.argmin(rises))]


def offset_index(data: bytes, base: int) -> pa.RecordBatch:
    """Returns the entries of an ``.index`` as rows of OFFSET_INDEX.

    base: the offset in the file's name.
    """
    entries = used_entries(data, OFFSET_ENTRY)
    offsets, too_high = _absolute(base, entries["offset"])
    errors = _not_rising(entries, "offset") | _not_rising(entries, "position") | too_high
    columns = {
        "entry": range(len(entries)),
        "offset": offsets,
        "position": entries["position"].tolist(),
    }
    return rows_of(OFFSET_INDEX, columns, _cut(data, OFFSET_ENTRY), errors)


def time_index(data: bytes, base: int) -> pa.RecordBatch:
    """Returns the entries of a ``.timeindex`` as rows of TIME_INDEX.

    base: the offset in the file's name.
    """
    entries = used_entries(data, TIME_ENTRY)
    offsets, too_high = _absolute(base, entries["offset"])
    errors = _not_rising(entries, "offset", may_repeat=True) | _not_rising(entries, "timestamp") | too_high
    columns = {
        "entry": range(len(entries)),
        "timestamp_ms": entries["timestamp"].tolist(),
        "offset": offsets,
    }
    return rows_of(TIME_INDEX, columns, _cut(data, TIME_ENTRY), errors)


def transaction_index(data: bytes) -> pa.RecordBatch:
    """Returns the entries of a ``.txnindex`` as rows of ABORTED_TRANSACTIONS."""
    entries = whole_entries(data, TRANSACTION_ENTRY)
    errors = _not_rising(entries, "last_offset")
    for i in np.flatnonzero(entries["first_offset"] > entries["last_offset"]).tolist():
        errors[i] = f"last_offset: expected {entries['first_offset'][i]} or more, as first_offset, found less"
    for i in np.flatnonzero(entries["version"] != TRANSACTION_VERSION).tolist():
        errors[i] = f"version: expected {TRANSACTION_VERSION}, found {entries['version'][i]}"
    columns = {name: entries[name].tolist() for name in TRANSACTION_ENTRY.names or ()}
    columns["entry"] = list(range(len(entries)))
    return rows_of(ABORTED_TRANSACTIONS, columns, _cut(data, TRANSACTION_ENTRY), errors)


def _absolute(base: int, relative: np.ndarray) -> tuple[list[int | None], dict[int, str]]:
    """Returns the offsets in the log, and the errors by number of the entry.

    An offset that no int64 holds is None, and an error.
    """
    offsets = [base + offset for offset in relative.tolist()]
    errors = {
        i: f"offset: expected {MAX_OFFSET} or less, found {offset}"
        for i, offset in enumerate(offsets)
        if offset > MAX_OFFSET
    }
    return [None if i in errors else offset for i, offset in enumerate(offsets)], errors


def _not_rising(entries: np.ndarray, name: str, may_repeat: bool = False) -> dict[int, str]:
    """Returns the reason, by number of the entry, why a number is wrong that is not above the one before."""
    numbers = entries[name]
    falls = numbers[1:] < numbers[:-1] if may_repeat else numbers[1:] <= numbers[:-1]
    return {
        i: f"{name}: expected more than {numbers[i - 1]} of the entry before, found {numbers[i]}"
        for i in (np.flatnonzero(falls) + 1).tolist()
    }


def _cut(data: bytes, entry: np.dtype) -> str | None:
    """Says what is wrong with a file that ends inside an entry; None where it does not."""
    left = len(data) % entry.itemsize
    if not left:
        return None
    return f"the file ends inside an entry: expected {entry.itemsize} bytes, found {left}"
