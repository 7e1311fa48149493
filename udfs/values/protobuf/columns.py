"""Decodes Protobuf payloads into Arrow arrays: a message type becomes tables for ``udfs.kernels.protobuf``.

The types are those of ``protobuf.arrow_types``. A payload that the compiled reader refuses is for the exact
one (``protobuf.payload``) to judge.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.kernels import protobuf as k
from kafka_log_lake.udfs.values.json.structs import text
from kafka_log_lake.udfs.values.protobuf.arrow_types import UINT64, arrow_type, plain_message
from kafka_log_lake.udfs.values.protobuf.payload import (
    BYTES,
    ENUM,
    GROUP,
    STRING,
    MessageReader,
    ProtobufField,
)
from kafka_log_lake.udfs.values.schemas.payload import MOST_FIELDS, PayloadError
from kafka_log_lake.udfs.values.schemas.payload_arrays import (
    gathered,
    in_parts,
    masked,
    payload_spans,
    struct_of,
)

_OPS = {
    **dict.fromkeys((3, 4), k.VARINT),
    **dict.fromkeys((5, ENUM), k.INT32),
    **dict.fromkeys((1, 6, 16), k.FIXED64),
    **dict.fromkeys((2, 7, 15), k.FIXED32),
    8: k.BOOL,
    13: k.UINT32,
    17: k.SINT32,
    18: k.SINT64,
    BYTES: k.BYTES,
    STRING: k.STRING,
}
_FIRST_ROOM = 64


@dataclass
class _Place:
    """A field with the columns that are filled for it.

    column: of its values, or of the counts of its items. items: their scope. value: the column of its values.
    presence: the column that says whether it is set, -1 where it always is. message: of a message its fields;
    None for other fields, and for one that is left to the exact reader.
    """

    field: ProtobufField
    column: int = -1
    value: int = -1
    items: int = -1
    presence: int = -1
    case: int = 0
    message: _Message | None = None


@dataclass
class _Message:
    """A message with the places of its fields.

    scope: the scope of columns that a row of it fills. index: of its table in the program; -1 before it has
    one.
    """

    reader: MessageReader
    scope: int
    places: list[_Place] = field(default_factory=list)
    index: int = -1


class ProtobufColumns:
    """A decoder of the payloads of one message type into Arrow arrays. Not for several threads at once."""

    def __init__(self, message: MessageReader) -> None:
        """Raises a PayloadError for a type that is too large for a table."""
        _check_size(message, (), [0])
        self._message = message
        self.arrow_type = arrow_type(message)
        self._tables = _Tables(message)

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Decodes payloads into an array of ``arrow_type``, and marks those that it refuses.

        payloads: binary[n]. starts: int64[n], the byte of each payload at which the message begins.
        Returns the array of n structs, null for null and for refused payloads, and bool[n], True for refused
        ones.
        """
        return in_parts(self._decode, payloads, starts, len(self._tables.program.columns))

    def _decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        n = len(payloads)
        raw, begins, ends = payload_spans(payloads, starts)
        failed = np.zeros(n, np.bool_)
        rows, program = self._tables.rows(n), self._tables.program
        stack = np.zeros((self._tables.depth + 1, 4), np.int64)
        row = 0
        while True:
            row = k.decode_messages(program, raw, begins, ends, row, rows, stack, failed)
            if row == n:
                break
            rows = self._tables.grown(rows)
        made = _Assembly(rows, raw, failed)
        values = made.message(self._tables.root, n, np.arange(n))  # may refuse more
        return masked(values, (begins >= 0) & ~failed), failed

    def plain(self, value: Any) -> Any:
        """Converts canonical JSON to the Python value that ``pa.array`` takes for ``arrow_type``."""
        return plain_message(self._message, value, ())


def _check_size(message: MessageReader, above: tuple[MessageReader, ...], count: list[int]) -> None:
    count[0] += len(message.fields)
    if count[0] > MOST_FIELDS:
        raise PayloadError("unreadable_schema", f"a message of more than {MOST_FIELDS} fields")
    for field_ in message.fields.values():
        if field_.message is not None and field_.message not in (*above, message):
            _check_size(field_.message, (*above, message), count)


class _Tables:
    """The tables of a message type, which the kernel follows. Columns of a scope lie one after the other."""

    def __init__(self, message: MessageReader) -> None:
        self.depth = 1
        self._columns: list[list[tuple[int, int]]] = [[]]  # by scope: default, counted scope
        self._messages: list[_Message] = []
        self.root = self._compile(message, 0, True, ())
        self.program = self._program()

    def _compile(
        self, reader: MessageReader, scope: int, is_root: bool, above: tuple[MessageReader, ...]
    ) -> _Message:
        compiled = _Message(reader, scope if is_root else ~scope)
        compiled.index = len(self._messages)
        self._messages.append(compiled)
        self.depth = max(self.depth, len(above) + 1)
        oneofs: dict[tuple[int, ...], int] = {}
        for number, field_ in reader.fields.items():
            place = _Place(field_)
            compiled.places.append(place)
            if field_.repeated:
                place.column = self._column(scope, 0, len(self._columns))
                place.items = len(self._columns)
                self._columns.append([])
            elif field_.siblings:
                members = tuple(sorted((*field_.siblings, number)))
                if members not in oneofs:
                    oneofs[members] = self._column(scope, 0)
                place.presence, place.case = oneofs[members], number
            elif field_.has_presence:
                place.presence, place.case = self._column(scope, 0), 1
            inside = (*above, reader)
            of = place.items if field_.repeated else scope
            if field_.message is None:
                place.value = self._column(of, _default(field_))
            elif field_.message not in inside and field_.kind != GROUP:
                place.message = self._compile(field_.message, of, field_.repeated, inside)
        return compiled

    def _column(self, scope: int, default: int, counted: int = -1) -> int:
        """Adds a column to a scope, and returns scope << 32 | its place in the scope.

        Columns get their numbers once all are known. default: the number that it holds where nothing is set.
        """
        self._columns[scope].append((default, counted))
        return scope << 32 | len(self._columns[scope]) - 1

    def _program(self) -> k.Program:
        ends = np.cumsum([len(columns) for columns in self._columns])
        scopes = np.stack([np.concatenate([[0], ends[:-1]]), ends], 1).astype(np.int64)

        def number(column: int) -> int:
            return column if column < 0 else int(scopes[column >> 32, 0]) + (column & 0xFFFFFFFF)

        fields: list[tuple[int, ...]] = []
        messages: list[tuple[int, int, int]] = []
        symbols: list[int] = []
        for message in self._messages:
            begin = len(fields)
            for place in message.places:
                place.column, place.value = number(place.column), number(place.value)
                place.presence = number(place.presence)
            numbered = zip(message.reader.fields.items(), message.places, strict=True)
            for (tag, of), place in sorted(numbered, key=lambda pair: pair[0][0]):
                before = len(symbols)
                symbols += sorted(of.symbols) if of.is_closed else ()
                fields.append(
                    (
                        *(tag, of.wire, _op(place), place.value),
                        place.message.index if place.message else -1,
                        *(place.items, place.presence, place.case, before, len(symbols)),
                    )
                )
            messages.append((begin, len(fields), max(message.scope, -1)))
        columns = [column for scope in self._columns for column in scope]
        return k.Program(
            np.array(fields, np.int64).reshape(-1, 10),
            np.array(messages, np.int64),
            np.array(columns, np.int64).reshape(-1, 2),
            scopes,
            np.array(symbols, np.int64),
        )

    def rows(self, rows: int) -> k.FilledRows:
        """Allocates empty columns for so many rows, and as many items of each repeated field."""
        room = np.full(len(self._columns), max(rows, _FIRST_ROOM), np.int64)
        ends = np.cumsum(self._sizes(room))
        values, count = np.empty(int(ends[-1]) if len(ends) else 0, np.int64), np.zeros_like(room)
        base = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        return k.FilledRows(values, base, count, np.zeros_like(room), room, np.zeros(1, np.int64))

    def grown(self, rows: k.FilledRows) -> k.FilledRows:
        """Returns the rows with twice the room for the scope that was full.

        Its columns move after the last one.

        Its columns move after the last one.
        """
        scope = int(rows.need[0])
        columns, held = slice(*self.program.scopes[scope].tolist()), int(rows.count[scope])
        used = int((rows.base + self._sizes(rows.room)).max())
        rows.room[scope] *= 2
        moved = used + int(rows.room[scope]) * np.arange(columns.stop - columns.start)
        end, values = used + int(rows.room[scope]) * len(moved), rows.values
        if end > len(values):
            values = np.empty(2 * end, np.int64)
            values[:used] = rows.values[:used]
        for old, new in zip(rows.base[columns].tolist(), moved.tolist(), strict=True):
            values[new : new + held] = values[old : old + held]
        rows.base[columns] = moved
        return rows._replace(values=values)

    def _sizes(self, room: np.ndarray) -> np.ndarray:
        """Returns the room of each column in values, from the room of each scope."""
        scopes = self.program.scopes
        return np.repeat(room, scopes[:, 1] - scopes[:, 0])


def _op(place: _Place) -> int:
    if place.field.message is not None:
        return k.MESSAGE if place.message is not None else k.LEFT
    return _OPS[place.field.kind]


def _default(field: ProtobufField) -> int:
    """Returns the default of a field as the 64-bit number that its column holds; 0 for texts and bytes."""
    if not isinstance(field.default, int | float):
        return 0
    if isinstance(field.default, float):
        return int(struct.unpack("<q", struct.pack("<d", field.default))[0]) if field.default else 0
    return int(field.default)


class _Assembly:
    """Builds Arrow arrays over the filled columns.

    failed: bool[n], to which it adds the payloads that have a key twice in a map.
    """

    def __init__(self, rows: k.FilledRows, raw: np.ndarray, failed: np.ndarray) -> None:
        self._rows, self._raw, self._failed = rows, raw, failed

    def _numbers(self, column: int, rows: int) -> np.ndarray:
        begin = int(self._rows.base[column])
        numbers: np.ndarray = self._rows.values[begin : begin + rows]
        return numbers

    def message(self, message: _Message, rows: int, roots: np.ndarray) -> pa.Array:
        """Returns a message as a struct array of n rows.

        roots: int64[n], the payload that each row is from.
        """
        arrays = [self._field(place, rows, roots) for place in message.places]
        target = arrow_type(message.reader)
        fields = [pa.field(field.name, made.type) for field, made in zip(target, arrays, strict=True)]
        return struct_of(pa.struct(fields), arrays, rows, None)

    def _field(self, place: _Place, rows: int, roots: np.ndarray) -> pa.Array:
        if not place.field.repeated:
            values = self._one(place, rows, roots)
            if place.presence < 0:
                return values
            return masked(values, self._numbers(place.presence, rows) == place.case)
        ends = self._numbers(place.column, rows)
        items = int(self._rows.count[place.items])
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        owners = roots[np.searchsorted(ends, np.arange(items), side="right")]
        if place.field.is_map and place.message is not None:
            key, value = (next(p for p in place.message.places if p.field is half) for half in _entry(place))
            self._refuse_twice(key, ends, items, owners)
            arrays = [self._one(half, items, owners) for half in (key, value)]
            return pa.MapArray.from_arrays(offsets, *arrays)
        return pa.ListArray.from_arrays(offsets, self._one(place, items, owners))

    def _refuse_twice(self, key: _Place, ends: np.ndarray, items: int, owners: np.ndarray) -> None:
        """Leaves payloads to the exact reader that have a key twice in a map, or two keys of one hash."""
        if items < 2:
            return
        numbers = self._numbers(key.value, items)
        if _OPS[key.field.kind] == k.STRING:
            spans, numbers = numbers, np.empty(items, np.int64)
            k.hashes(self._raw, spans, numbers)
        maps = np.searchsorted(ends, np.arange(items), side="right")
        order = np.lexsort((numbers, maps))
        is_twice = (np.diff(numbers[order]) == 0) & (np.diff(maps[order]) == 0)
        self._failed[owners[order[1:][is_twice]]] = True

    def _one(self, place: _Place, rows: int, roots: np.ndarray) -> pa.Array:
        """Returns the values of a field, or the items of a repeated one, as an array of n rows."""
        if place.message is not None:
            return self.message(place.message, rows, roots)
        of = place.field
        if of.message is not None:
            if of.kind == GROUP:  # no payload that is not refused has one
                return pa.nulls(rows, arrow_type(of.message))
            # nor one inside itself, except as the value that an entry of a map leaves out: an empty one
            return pa.repeat(text(of.message.read(b"")), rows)
        numbers = self._numbers(place.value, rows)
        if of.kind in (BYTES, STRING):
            return gathered(self._raw, numbers, pa.binary() if of.kind == BYTES else pa.string())
        return _enum_names(of, numbers) if of.kind == ENUM else _numbers_as(of.kind, numbers)


def _entry(place: _Place) -> tuple[ProtobufField, ProtobufField]:
    assert place.field.message is not None
    return place.field.message.fields[1], place.field.message.fields[2]


def _enum_names(of: ProtobufField, numbers: np.ndarray) -> pa.Array:
    known = np.array(sorted(of.symbols), np.int64)
    names = pa.array([of.symbols[number] for number in known.tolist()], pa.string())
    if not len(known):
        return pa.array(numbers).cast(pa.string())
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    named = names.take(pa.array(places))
    is_known = known[places] == numbers
    return named if is_known.all() else pc.if_else(is_known, named, pa.array(numbers).cast(pa.string()))


def _numbers_as(kind: int, numbers: np.ndarray) -> pa.Array:
    """Converts the 64-bit numbers of a column to the Arrow type of a scalar kind of Protobuf."""
    if kind == 8:
        return pa.array(numbers != 0)
    if kind in (4, 6):
        halves = np.zeros((len(numbers), 2), np.int64)
        halves[:, 0] = numbers
        return pa.Array.from_buffers(UINT64, len(numbers), [None, pa.py_buffer(halves)])
    if kind == 1:
        return pa.array(numbers.view(np.float64))
    if kind == 2:
        return pa.array(numbers.astype(np.uint32).view(np.float32))
    if kind == 15:
        return pa.array(numbers.astype(np.uint32).view(np.int32))
    return pa.array(numbers.astype(np.int32) if kind in (5, 17) else numbers.copy())
