"""Decodes Avro payloads into Arrow arrays: a schema becomes a program of ``udfs.kernels.avro``.

The types are those of ``avro.arrow_types``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.kernels import avro as k
from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro.arrow_types import (
    DAY_MS,
    DURATION,
    LEAST_DAY,
    MOST_DAY,
    MOST_DIGITS,
    NUMBERS,
    TIMESTAMP,
    arrow_type,
    plain_value,
)
from kafka_log_lake.udfs.values.avro.schema import MOST_DECIMAL_BYTES, AvroType, check_size
from kafka_log_lake.udfs.values.schemas.payload import MOST_FIELDS, PayloadError
from kafka_log_lake.udfs.values.schemas.payload_arrays import gathered, in_parts, masked, payload_spans

_FIRST_ROOM = 1024  # of a column that is full with fewer values
_PRIMITIVE_OPS = {
    "null": k.NULL,
    "boolean": k.BOOLEAN,
    "int": k.INT,
    "long": k.LONG,
    "float": k.FLOAT,
    "double": k.DOUBLE,
    "bytes": k.BYTES,
    "string": k.STRING,
    "fixed": k.FIXED,
    "enum": k.ENUM,
}
# Bytes of a value in each column, by operation; 4 for others
_WIDTHS = {k.BOOLEAN: 1, k.NULLABLE: 1, k.UNION: 1} | dict.fromkeys(
    (k.LONG, k.DOUBLE, k.BYTES, k.STRING, k.FIXED), 8
)


@dataclass
class _Node:
    """A type of the schema with the column that its values go to.

    column: the column's index; -1 for none.
    """

    type: AvroType
    op: int
    column: int
    parts: list[_Node] = field(default_factory=list)


class AvroColumns:
    """A decoder of the payloads of one schema into Arrow arrays. Not for several threads at once."""

    def __init__(self, type_: AvroType) -> None:
        """Raises a PayloadError for a type that is too large for a table."""
        check_size(type_, MOST_FIELDS)
        self._type = type_
        self.arrow_type = arrow_type(type_)
        self._reader = avro.reader_of(type_)
        self._ops: list[int] = []
        self._code: list[tuple[int, int, int, int]] = []
        self._depth = 1
        # A schema of bytes alone has no length in the payload, a recursive one no program of finite length
        self._is_compiled = type_.kind != "bytes" and not type_.is_recursive()
        if self._is_compiled:
            self._root = self._compile(type_, 1)
            self._code.append((k.END, 0, 0, 0))
            self._program = np.array(self._code, np.int64)

    def _column(self, op: int) -> int:
        self._ops.append(op)
        return len(self._ops) - 1

    def _compile(self, type_: AvroType, depth: int) -> _Node:
        self._depth = max(self._depth, depth)
        if type_.kind == "record":
            return _Node(type_, -1, -1, [self._compile(field.type, depth) for field in type_.fields])
        if type_.kind == "union":
            return self._compile_union(type_, depth)
        if type_.items is not None:
            return self._compile_items(type_, depth)
        op = _PRIMITIVE_OPS[type_.kind]
        column = -1 if op == k.NULL else self._column(op)
        size = type_.size if op == k.FIXED else len(type_.symbols)
        if op == k.BYTES and type_.logical == "decimal":
            size = MOST_DECIMAL_BYTES
        self._code.append((op, column, size, 0))
        return _Node(type_, op, column)

    def _compile_union(self, type_: AvroType, depth: int) -> _Node:
        if type_.nullable is not None:
            null = next(at for at, branch in enumerate(type_.branches) if branch.kind == "null")
            node = _Node(type_, k.NULLABLE, self._column(k.NULLABLE))
            self._code.append((k.NULLABLE, node.column, null, 0))
            node.parts.append(self._compile(type_.nullable, depth + 1))
        else:
            node = _Node(type_, k.UNION, self._column(k.UNION))
            self._code.append((k.UNION, node.column, len(type_.branches), 0))
            for at, branch in enumerate(type_.branches):
                self._code.append((k.BRANCH, 0, at, 0))
                node.parts.append(self._compile(branch, depth + 1))
        self._code.append((k.UNION_END, 0, 0, 0))
        return node

    def _compile_items(self, type_: AvroType, depth: int) -> _Node:
        assert type_.items is not None
        is_map = type_.kind == "map"
        node = _Node(type_, k.ARRAY, self._column(k.ARRAY))
        begin = len(self._code)
        least = avro.least_bytes(type_.items) + is_map
        self._code.append((k.ARRAY, node.column, least, 0))
        if is_map:
            node.parts.append(self._compile(AvroType("string"), depth + 1))
        node.parts.append(self._compile(type_.items, depth + 1))
        self._code.append((k.ARRAY_END, node.column, least, begin))
        self._code[begin] = (k.ARRAY, node.column, least, len(self._code) - 1)
        return node

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Decodes payloads into an array of ``arrow_type``, and marks those that are wrong.

        payloads: binary[n]. starts: int64[n], the byte of each payload at which Avro's encoding begins.
        Returns the array of n values, null for null and for wrong payloads, and bool[n], True for wrong ones.
        """
        if not self._is_compiled:
            return self._decode_exactly(payloads, starts)
        return in_parts(self._decode, payloads, starts, len(self._ops))

    def _decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        n = len(payloads)
        raw, begins, ends = payload_spans(payloads, starts)
        failed = np.zeros(n, np.bool_)
        room = _Room(self._ops, n)
        stack = np.zeros((self._depth + 1, 2), np.int64)
        row = 0
        while True:
            row = k.decode_payloads(
                self._program, raw, begins, ends, row, room.columns, stack, failed, avro.MOST_EMPTY_ITEMS
            )
            if row == n:
                break
            room.grow()
        values = _Assembly(room.columns, raw).array(self._root, n)
        return masked(values, (begins >= 0) & ~failed), failed

    def _decode_exactly(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        failed = np.zeros(len(payloads), np.bool_)
        decoded = []
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                value = None if payload is None else self._read(payload, int(starts[row]))
            except PayloadError:
                failed[row], value = True, None
            decoded.append(value)
        return pa.array(decoded, self.arrow_type), failed

    def plain(self, value: object) -> Any:
        """Converts canonical JSON to the Python value that ``pa.array`` takes for ``arrow_type``."""
        return plain_value(self._type, value)

    def _read(self, payload: bytes, start: int) -> Any:
        return self.plain(avro.read(self._type, self._reader, payload, start))


class _Room:
    """The memory that a program fills, in one piece: the values of each column after a 0, for offsets.

    A column that is full moves after the last one, so that what is copied grows as the values do.
    """

    def __init__(self, ops: list[int], rows: int) -> None:
        n = len(ops)
        self._widths = [_WIDTHS.get(op, 4) for op in ops]
        ends = np.cumsum([_padded((rows + 1) * width) for width in self._widths], dtype=np.int64)
        self._end = int(ends[-1]) if n else 0
        memory = np.empty(self._end + 64, np.uint8)
        base = np.zeros(n, np.int64)
        for column, width in enumerate(self._widths):
            begin = int(ends[column - 1]) if column else 0
            memory[begin : begin + width] = 0
            base[column] = begin // width + 1
        count, saved = np.zeros((2, n, 2), np.int64)
        self.columns = k.Columns(
            *_views(memory), base, np.full(n, rows, np.int64), count, saved, np.zeros(2, np.int64)
        )

    def grow(self) -> None:
        """Doubles the room of the column that was full."""
        columns = self.columns
        column = int(columns.need[0])
        width = self._widths[column]
        begin = (int(columns.base[column]) - 1) * width
        held = (int(columns.count[column, k.VALUES]) + 1) * width
        columns.room[column] = max(_FIRST_ROOM, 2 * columns.room[column])
        to, self._end = self._end, self._end + _padded((int(columns.room[column]) + 1) * width)
        memory = columns.bytes_
        if self._end > len(memory):
            memory = np.empty(2 * self._end, np.uint8)
            memory[:to] = columns.bytes_[:to]
        memory[to : to + held] = memory[begin : begin + held]
        columns.base[column] = to // width + 1
        self.columns = k.Columns(*_views(memory), *columns[3:])


def _padded(size: int) -> int:
    return (size + 63) & ~63


def _views(memory: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    whole = memory[: len(memory) & ~7]
    return memory, whole.view(np.int32), whole.view(np.int64)


class _Assembly:
    """Builds Arrow arrays over the filled columns."""

    def __init__(self, columns: k.Columns, raw: np.ndarray) -> None:
        self._columns, self._buffer, self._raw = columns, pa.py_buffer(columns.bytes_), raw

    def _values(self, column: int, width: int, rows: int, leading: int = 0) -> object:
        begin = (int(self._columns.base[column]) - leading) * width
        return self._buffer.slice(begin, (rows + leading) * width)

    def array(self, node: _Node, rows: int) -> pa.Array:
        type_ = node.type
        if type_.kind == "record":
            arrays = [self.array(part, rows) for part in node.parts]
            target = arrow_type(type_)
            if not arrays:
                return pa.array([{}] * rows, target)
            return pa.StructArray.from_arrays(arrays, fields=list(target))
        if node.op == k.NULLABLE:
            is_held = np.frombuffer(self._values(node.column, 1, rows), np.bool_)
            return masked(self.array(node.parts[0], rows), is_held)
        if node.op == k.UNION:
            return self._union(node, rows)
        if node.op == k.ARRAY:
            items = int(self._columns.count[node.column, k.ITEMS])
            offsets = pa.Array.from_buffers(
                pa.int32(), rows + 1, [None, self._values(node.column, 4, rows, leading=1)]
            )
            parts = [self.array(part, items) for part in node.parts]
            if type_.kind == "map":
                return pa.MapArray.from_arrays(offsets, *parts)
            return pa.ListArray.from_arrays(offsets, *parts)
        return self._leaf(node, rows)

    def _union(self, node: _Node, rows: int) -> pa.Array:
        chosen = np.frombuffer(self._values(node.column, 1, rows), np.uint8)
        arrays, nulls = [], np.ones(rows, np.bool_)
        for at, part in enumerate(node.parts):
            if part.type.kind != "null":
                arrays.append(masked(self.array(part, rows), chosen == at))
                nulls &= chosen != at
        fields = list(arrow_type(node.type))
        if not arrays:
            return pa.nulls(rows, arrow_type(node.type))
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(nulls))

    def _leaf(self, node: _Node, rows: int) -> pa.Array:
        if node.op == k.NULL:
            return pa.nulls(rows)
        if node.op == k.BOOLEAN:
            return pa.array(np.frombuffer(self._values(node.column, 1, rows), np.bool_))
        if node.op in (k.BYTES, k.STRING, k.FIXED):
            begin = int(self._columns.base[node.column])
            spans = self._columns.longs[begin : begin + rows]
            plain = pa.string() if node.op == k.STRING else pa.binary()
            return _of_bytes(node.type, gathered(self._raw, spans, plain))
        width = _WIDTHS.get(node.op, 4)
        plain = pa.int32() if node.op == k.ENUM else NUMBERS[node.type.kind]
        values = pa.Array.from_buffers(plain, rows, [None, self._values(node.column, width, rows)])
        if node.op == k.ENUM:
            if not node.type.symbols:
                return pa.nulls(rows, pa.string())
            symbols = pa.array(node.type.symbols, pa.string())
            return pa.DictionaryArray.from_arrays(values, symbols).cast(pa.string())
        return _of_instant(node.type.logical, values)


def _of_instant(logical: str, values: pa.Array) -> pa.Array:
    """Converts days and instants to date32 and timestamps; null where a year is not between 1 and 9999."""
    if logical == "date":
        return _within(values, LEAST_DAY, MOST_DAY).cast(pa.date32())
    if logical in ("timestamp-millis", "timestamp-micros"):
        unit = 1 if logical == "timestamp-millis" else 1000
        held = _within(values, LEAST_DAY * DAY_MS * unit, (MOST_DAY + 1) * DAY_MS * unit - 1)
        return (pc.multiply(held, 1000) if unit == 1 else held).cast(TIMESTAMP)
    return values


def _within(values: pa.Array, least: int, most: int) -> pa.Array:
    held = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    is_whole = pc.all(held).as_py() is not False
    return values if is_whole else pc.if_else(held, values, pa.scalar(None, values.type))


def _of_bytes(type_: AvroType, values: pa.Array) -> pa.Array:
    """Converts the bytes of decimals, UUIDs and durations to their Arrow arrays."""
    if type_.logical == "decimal":
        return _decimals(type_, values)
    if type_.logical == "duration":
        raw = np.frombuffer(b"".join((value or b"").ljust(12, b"\0") for value in values.to_pylist()), "<u4")
        parts = raw.reshape(-1, 3).astype(np.int64)
        return pa.StructArray.from_arrays([pa.array(parts[:, i]) for i in range(3)], fields=list(DURATION))
    if type_.logical == "uuid" and type_.kind == "fixed":
        texts = [value.hex() for value in values.to_pylist()]
        return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())
    return values


def _decimals(type_: AvroType, values: pa.Array) -> pa.Array:
    """Converts big-endian bytes to decimal128, null for more digits than the schema's precision.

    Returns strings where that precision is above 38 digits, which decimal128 can't hold.
    """
    if type_.precision > MOST_DIGITS:
        numbers = (int.from_bytes(value, "big", signed=True) for value in values.to_pylist())
        return pa.array([avro.decimal_text(number, type_.scale) for number in numbers], pa.string())
    n = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[: n + 1]
    data = values.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    halves, valid = np.empty((n, 2), np.uint64), np.empty(n, np.bool_)
    k.decimals_of_each(raw, offsets, halves, valid)
    target = pa.decimal128(type_.precision, type_.scale)
    decimals = pa.Array.from_buffers(target, n, [None, pa.py_buffer(halves)])
    bound = 10**type_.precision  # 128 bits hold more than 38 digits
    high, low = divmod(bound, 1 << 64)
    signed = halves[:, 1].view(np.int64)
    below = (signed < high) | ((signed == high) & (halves[:, 0] < low))
    high, low = divmod(-bound, 1 << 64)
    above = (signed > high) | ((signed == high) & (halves[:, 0] > low))
    valid &= below & above
    return masked(decimals, valid)
