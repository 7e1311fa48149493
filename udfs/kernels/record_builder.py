"""Builds record batches from batches: gives the kernels memory, and continues where it was not enough.

Capacity is not known before the records are read. It is estimated from what the last
columns were filled with; what does not fit comes in the next group, and the first batch that does not fit is
counted before. Memory follows the bytes that are there, never what they claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels.record_batches import decode_batches, decode_chunk, make_room
from kafka_log_lake.udfs.kernels.record_columns import NO_ARENA, record_columns
from kafka_log_lake.udfs.kernels.record_cursor import CURSOR, FILLED, new_lines, start_cursor

MOST_ROWS = 1 << 17  # rows of a record batch, at most
CHUNK_BYTES = 1 << 26  # expanded bytes above which a batch goes in chunks: a column of Arrow holds 2 GiB
_NO_BOUND = np.full(len(a.COUNTED), 1 << 62, dtype=np.int64).view(a.ROOM)
_ONE_ROW = _NO_BOUND.copy()
_ONE_ROW["rows"] = 1
_NO_LINES = new_lines(0)


class Data(NamedTuple):
    """The buffers (uint8) of batches' data: the window for plain ones, the scratch for expanded ones."""

    window: np.ndarray
    scratch: np.ndarray


class Built(NamedTuple):
    """Built records, None without any or where no column is requested; FILLED[1], their counts and bounds."""

    records: pa.RecordBatch | None
    filled: np.ndarray


class RecordBuilder:
    """Builds the columns of ``records`` that are requested."""

    def __init__(self, names: Collection[str] | None) -> None:
        """Sets the columns to build. names: of ``RecordColumns``; none at all: records are only counted."""
        wanted = None if names is None else frozenset(names)
        self._columns = None if wanted == frozenset() else record_columns(wanted)
        self._lines = new_lines(MOST_ROWS) if self._columns else _NO_LINES
        self._cursor = np.zeros(1, dtype=CURSOR)
        self._last = np.zeros(1, dtype=FILLED)

    def group(self, data: Data, batches: np.ndarray) -> tuple[int, Built]:
        """Builds the records of the first batches (BATCH[n]), one or more.

        Returns how many batches these are.
        """
        room = self._room(_data_size(batches))
        taken, built = self._build(decode_batches, data, batches, room)
        if not taken:
            room = _larger(room, self._count(decode_batches, data, batches[:1], _NO_BOUND))
            taken, built = self._build(decode_batches, data, batches, room)
        return taken, built

    def check(self, data: Data, batch: np.ndarray) -> Built:
        """Checks and counts the records of one batch (BATCH[1]), without building them."""
        return Built(None, self._count(decode_batches, data, batch, _NO_BOUND))

    def chunks(self, data: Data, batch: np.ndarray) -> Iterator[Built]:
        """Yields the records of one sound batch (BATCH[1]), as many at a time as a record batch may have."""
        e, cursor = batch[0], self._cursor
        start_cursor(e, cursor[0])
        while cursor["record"][0] < e["record_count"]:
            room = self._room(min(int(e["data_size"]), CHUNK_BYTES))
            taken, built = self._build(decode_chunk, data, batch, room)
            if not taken:  # a record larger than its like
                before = cursor.copy()
                room = _larger(room, self._count(decode_chunk, data, batch, _ONE_ROW))
                cursor[:] = before
                _, built = self._build(decode_chunk, data, batch, room)
            yield built

    def take(self, data: Data, batches: np.ndarray, numbers: np.ndarray, in_chunks: bool) -> pa.RecordBatch:
        """Returns records by their numbers among all of ``batches`` (BATCH[n]).

        numbers: int64[m], rising, m > 0. in_chunks: for one batch that is large.
        """
        parts, first = [], 0
        for built in self.chunks(data, batches) if in_chunks else self._groups(data, batches):
            rows = int(built.filled["rows"][0])
            own = numbers[(numbers >= first) & (numbers < first + rows)] - first
            if len(own) and built.records is not None:
                parts.append(_taken(built.records, own))
            first += rows
            if first > numbers[-1]:
                break
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _groups(self, data: Data, batches: np.ndarray) -> Iterator[Built]:
        begin = 0
        while begin < len(batches):
            taken, built = self.group(data, batches[begin:])
            begin += taken
            yield built

    def _room(self, size: int) -> np.ndarray:
        if not self._columns:
            return _NO_BOUND
        room = np.empty(1, dtype=a.ROOM)
        make_room(size, self._last, room)
        room["rows"] = np.minimum(room["rows"], MOST_ROWS)
        return room

    def _build(self, decode: Any, data: Data, batches: np.ndarray, room: np.ndarray) -> tuple[int, Built]:
        """Returns how many batches, or records of one, there was room for, and their columns."""
        arena = self._columns.allocate(room) if self._columns else NO_ARENA
        both = np.zeros(2, dtype=FILLED)
        filled = both[:1]
        taken = decode(*data, batches, arena.parts, arena.at, self._lines, self._cursor, both, room)
        records = None
        if filled["rows"][0] and self._columns:
            self._last = filled
            records = self._columns.batch(arena, filled)
        return int(taken), Built(records, filled)

    def _count(self, decode: Any, data: Data, batch: np.ndarray, room: np.ndarray) -> np.ndarray:
        """Returns FILLED[1], what columns would be filled with."""
        both = np.zeros(2, dtype=FILLED)
        filled = both[:1]
        decode(*data, batch, NO_ARENA.parts, NO_ARENA.at, _NO_LINES, self._cursor, both, room)
        return filled


def _taken(records: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    """Returns a copy of the records with these numbers (int64[n], rising, n > 0)."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first >= len(numbers):
        return records.take(pa.array(numbers))
    # Neighbours are copied without Arrow's functions, which take 60 ms to load: often there is a single match
    return pa.ipc.read_record_batch(records[first : last + 1].serialize(), records.schema)


def _larger(room: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Returns ROOM[1], the larger of ``room`` (ROOM[1]) and ``filled`` (FILLED[1]), count by count."""
    return np.maximum(room.view(np.int64), filled.view(np.int64)[: len(a.COUNTED)]).view(a.ROOM)


def _data_size(batches: np.ndarray) -> int:
    """Returns the bytes of data of batches that follow each other, in one buffer as a rule."""
    first, last = batches[0], batches[-1]
    if first["expanded"] != last["expanded"]:
        return int(batches["data_size"].sum())
    return int(last["data_at"] + last["data_size"] - first["data_at"])
