"""Chooses the columns of ``records`` to build, and makes a filled arena one Arrow record batch.

The arena begins with the head of an Arrow IPC message, whose body the parts are: Arrow makes all arrays of it
in one call and without a copy, a tenth of the time that one call an array takes. The head is made once, by
Arrow itself; of each group only the sizes are written into it.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels.arena import PARTS, lay_out, part_sizes
from kafka_log_lake.udfs.kernels.jvm_text import repair_utf8
from kafka_log_lake.udfs.kernels.record_cursor import FILLED


class _ColumnLayout(NamedTuple):
    """The layout of a column in the arena: its type, the counts of its arrays, outer ones first, its buffers.

    arrays: (how many values, how many nulls): fields of FILLED. parts: of the arena.
    """

    type: pa.DataType
    arrays: tuple[tuple[str, str], ...]
    parts: tuple[int, ...]


def _numbers(kind: pa.DataType, part: int) -> _ColumnLayout:
    return _ColumnLayout(kind, (("rows", "always_0"),), (a.NO_PART, part))


_CONTROL_PARTS = (a.CONTROL, a.KEY_VALID, a.KEYS, a.KEY_DATA)  # what control types are read from
_COLUMNS = {
    "key": _ColumnLayout(pa.binary(), (("rows", "null_keys"),), (a.KEY_VALID, a.KEYS, a.KEY_DATA)),
    "value": _ColumnLayout(pa.binary(), (("rows", "null_values"),), (a.VALUE_VALID, a.VALUES, a.VALUE_DATA)),
    "offset": _numbers(pa.int64(), a.OFFSET),
    "timestamp": _ColumnLayout(
        pa.timestamp("us", "UTC"), (("rows", "null_timestamps"),), (a.TIMESTAMP_VALID, a.TIMESTAMP)
    ),
    "timestampType": _numbers(pa.int32(), a.TIMESTAMP_TYPE),
    "headers": _ColumnLayout(
        HEADER_TYPE,
        (
            ("rows", "null_headers"),
            ("headers", "always_0"),
            ("headers", "always_0"),
            ("headers", "null_header_values"),
        ),
        (
            *(a.HEADER_VALID, a.HEADER_LISTS),
            a.NO_PART,  # the pairs'
            *(a.HEADER_KEY_VALID, a.HEADER_KEYS, a.HEADER_KEY_DATA),
            *(a.HEADER_VALUE_VALID, a.HEADER_VALUES, a.HEADER_VALUE_DATA),
        ),
    ),
    "magic": _numbers(pa.int8(), a.MAGIC),
    "timestamp_ms": _numbers(pa.int64(), a.TIMESTAMP_MS),
    "batch_position": _numbers(pa.int64(), a.POSITION),
    "sequence": _numbers(pa.int32(), a.SEQUENCE),
    "producer_id": _numbers(pa.int64(), a.PRODUCER_ID),
    "producer_epoch": _numbers(pa.int16(), a.PRODUCER_EPOCH),
    "leader_epoch": _numbers(pa.int32(), a.LEADER_EPOCH),
    "is_transactional": _numbers(pa.bool_(), a.TRANSACTIONAL),
    "is_control": _numbers(pa.bool_(), a.CONTROL),
    # null in all rows, until there are control records
    "control_type": _ColumnLayout(
        pa.string(), (("rows", "rows"),), (a.CONTROL_TYPE_VALID, a.CONTROL_TYPES, a.NO_PART)
    ),
    "size_bytes": _numbers(pa.int32(), a.SIZE),
}
NAMES = tuple(_COLUMNS)
_FIELDS = FILLED.names or ()


class _Head(NamedTuple):
    """The head of an IPC message (int64[n], a multiple of 64 bytes), and where each group changes it.

    Indices of int64: rows, size of the body, arrays (length and nulls each), buffers (begin and size each).
    """

    words: np.ndarray
    rows: int
    body: int
    arrays: slice
    buffers: slice


def _head(schema: pa.Schema) -> _Head:
    """Makes the head of a record batch's IPC message (flatbuffers of Arrow's ``Message.fbs``)."""
    one = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)
    message = one.serialize().to_pybytes()
    size = struct.unpack_from("<i", message, 4)[0]

    def at(table: int, field: int) -> int:
        """Returns where a field of a flatbuffers table lies."""
        fields = table - struct.unpack_from("<i", message, table)[0]
        return table + int(struct.unpack_from("<H", message, fields + 4 + 2 * field)[0])

    def follow(place: int) -> int:
        return place + int(struct.unpack_from("<I", message, place)[0])

    root = follow(8)
    record_batch = follow(at(root, 2))
    places = []
    for field in (1, 2):  # nodes and buffers: vectors of pairs of int64, after their number
        vector = follow(at(record_batch, field))
        begin, number = (vector + 4) // 8, struct.unpack_from("<I", message, vector)[0]
        places.append(slice(begin, begin + 2 * number))
    padded = -(-(8 + size) // 64) * 64
    head = message[:4] + struct.pack("<i", padded - 8) + message[8 : 8 + size] + bytes(padded - 8 - size)
    words = np.frombuffer(head, dtype=np.int64)
    return _Head(words, at(record_batch, 0) // 8, at(root, 3) // 8, *places)


class Arena(NamedTuple):
    """The memory for the columns of a group.

    buffer: the message; parts: uint8[n], its body; at: int64[PARTS + 1], where each part begins in the body.
    """

    buffer: pa.Buffer
    parts: np.ndarray
    at: np.ndarray


NO_ARENA = Arena(pa.py_buffer(b""), np.empty(0, dtype=np.uint8), np.zeros(PARTS + 1, dtype=np.int64))


class RecordColumns:
    """The columns of ``records`` that are requested, of those that the bytes alone tell (NAMES)."""

    def __init__(self, names: frozenset[str] | None) -> None:
        """Sets the columns. names: also others than NAMES; None: all.

        Without any, a batch still has its rows.
        """
        wanted = {name: column for name, column in _COLUMNS.items() if names is None or name in names}
        self._is_bare = not wanted
        wanted = wanted or {"magic": _COLUMNS["magic"]}
        parts = {part for column in wanted.values() for part in column.parts}
        if "control_type" in wanted:
            parts |= {*_CONTROL_PARTS}
        self._schema = pa.schema([(name, column.type) for name, column in wanted.items()])
        self._sizes = part_sizes(parts)
        self._head = _head(self._schema)
        self._arrays = np.array(
            [_FIELDS.index(n) for column in wanted.values() for ends in column.arrays for n in ends],
            dtype=np.int64,
        )
        self._buffers = np.array(
            [part for column in wanted.values() for part in column.parts], dtype=np.int64
        )

    def allocate(self, room: np.ndarray) -> Arena:
        """Allocates an arena with room for ``room`` (ROOM[1])."""
        at = np.empty(PARTS + 1, dtype=np.int64)
        lay_out(self._sizes, room, at)
        head = self._head.words.nbytes
        buffer = pa.allocate_buffer(head + int(at[PARTS]))
        return Arena(buffer, np.frombuffer(buffer, dtype=np.uint8)[head:], at)

    def batch(self, arena: Arena, filled: np.ndarray) -> pa.RecordBatch:
        """Returns the columns of a filled arena, in the order of NAMES; at least a row.

        ``filled``: FILLED[1].
        """
        head, at = self._head, arena.at
        words = np.frombuffer(arena.buffer, dtype=np.int64, count=len(head.words))
        words[:] = head.words
        words[head.rows], words[head.body] = filled["rows"][0], at[PARTS]
        words[head.arrays] = filled.view(np.int64)[self._arrays]
        buffers = words[head.buffers].reshape(-1, 2)
        buffers[:, 0] = at[self._buffers]
        buffers[:, 1] = at[self._buffers + 1] - at[self._buffers]
        found = pa.ipc.read_record_batch(arena.buffer, self._schema)
        if filled["controls"][0] and "control_type" in found.schema.names:
            found = _replaced(found, "control_type", _control_types(arena, filled))
        if filled["not_ascii"][0] and "headers" in found.schema.names:
            found = _replaced(found, "headers", _repaired(found.column("headers")))
        return found.select([]) if self._is_bare else found


@cache
def record_columns(names: frozenset[str] | None) -> RecordColumns:
    """Returns the ``RecordColumns`` of these names, the same object each time.

    Small segments have a decoder each.
    """
    return RecordColumns(names)


def _replaced(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)


def _repaired(lists: pa.ListArray) -> pa.Array:
    """Returns headers with the malformed UTF-8 in their keys replaced."""
    pairs = lists.values
    keys = pairs.field(0)
    keys = repair_utf8(pa.Array.from_buffers(pa.binary(), len(keys), keys.buffers()))
    pairs = pa.StructArray.from_arrays([keys, pairs.field(1)], fields=list(HEADER_TYPE.value_type))
    return pa.Array.from_buffers(
        HEADER_TYPE, len(lists), lists.buffers()[:2], lists.null_count, children=[pairs]
    )


def _control_types(arena: Arena, filled: np.ndarray) -> pa.Array:
    """Returns control types from the keys of control records: int16 version, int16 type; null for data."""
    n, at = int(filled["rows"][0]), arena.at

    def array(kind: pa.DataType, nulls: int, *parts: int) -> list[object]:
        buffers = [pa.py_buffer(arena.parts[at[part] : at[part + 1]]) for part in parts]
        values: list[object] = pa.Array.from_buffers(kind, n, buffers, nulls).to_pylist()
        return values

    keys = array(pa.binary(), int(filled["null_keys"][0]), a.KEY_VALID, a.KEYS, a.KEY_DATA)
    is_control = array(pa.bool_(), 0, a.NO_PART, a.CONTROL)
    codes = [
        min(int.from_bytes(key[2:4], "big"), f.CONTROL_UNKNOWN) if control else None  # type: ignore[index]
        for key, control in zip(keys, is_control, strict=True)
    ]
    # made here, as pyarrow imports pandas for the first array that it makes of a list
    return pa.array([*f.CONTROL_TYPES, "UNKNOWN"]).take(pa.array(codes, pa.int32()))
