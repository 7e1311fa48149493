"""Decodes Protobuf's wire format into columns: a message type is tables, run over a column of payloads.

Fields come in any order and more than once, so that a row is made first, with the defaults of all its
columns, and then written over. A message that is not repeated has the row of the one that holds it: what
comes again is merged. A repeated field has rows of another *scope*, one an item; the column in its parent's
scope holds the number of items up to the end of each row.

A payload that breaks a rule is refused, and so is what is left to the exact reader
(``udfs.values.protobuf.payload``), which holds the same rules: groups, a message inside itself, a message
that replaces another member of its oneof, a number that a closed enum does not know.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel
from kafka_log_lake.udfs.kernels.texts import SPAN_BITS, is_utf8

# How a value is encoded; LEFT: by no kernel, left to the exact reader
VARINT, INT32, UINT32, BOOL, SINT32, SINT64, FIXED64, FIXED32, BYTES, STRING, MESSAGE, LEFT = range(12)
# Columns of ``Program.fields``; its rows rise by number within a message. presence: the column that holds
# ``case`` where the field is set, -1 for none. symbols: begin and end in ``Program.symbols``, equal for an
# open enum
NUMBER, WIRE, OP, COLUMN, CHILD, ITEMS, PRESENCE, CASE, SYMBOLS, SYMBOLS_END = range(10)
# Columns of ``Program.messages``; scope: -1 for a message in the rows of the one that holds it
FIELDS, FIELDS_END, SCOPE = range(3)
# Columns of ``Program.columns``; counted: the scope whose rows the column counts, -1 for none
DEFAULT, COUNTED = 0, 1
# Frames of the stack
_END, _MESSAGE, _ROW, _NEXT = range(4)

WRONG, NO_ROOM = -1, -2
_MOST_FIELD = (1 << 29) - 1
_LENGTH = 2


class Program(NamedTuple):
    """The tables of a message type: int64. scopes: [n, 2], the first column and the end of each."""

    fields: np.ndarray
    messages: np.ndarray
    columns: np.ndarray
    scopes: np.ndarray
    symbols: np.ndarray


class FilledRows(NamedTuple):
    """The rows that are filled. values: int64, all columns. base: int64[n], where a column begins in it.

    count, saved, room: int64[scopes], the rows that there are, were before the payload, and can be. need:
    int64[1], the scope that is full.
    """

    values: np.ndarray
    base: np.ndarray
    count: Any
    saved: np.ndarray
    room: np.ndarray
    need: np.ndarray


@kernel
def decode_messages(
    program: Program,
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    first: int,
    rows: FilledRows,
    stack: np.ndarray,
    failed: np.ndarray,
) -> int:
    """Decodes ``data[starts[i]:ends[i]]`` from row ``first`` on; a start below 0 is a null.

    starts, ends: int64[n]. stack: int64[depth, 4]. failed: bool[n], set where a payload is refused. Returns
    n, or the row that there is no room for.
    """
    for row in range(first, len(starts)):
        _keep(rows.saved, rows.count)
        if starts[row] >= 0:
            at = _message(program, data, starts[row], ends[row], rows, stack)
            if at >= 0:
                continue
            _keep(rows.count, rows.saved)
            if at == NO_ROOM:
                return row
            failed[row] = True
        made = _add_row(program, rows, 0)
        _end_row(program, rows, 0, made)
    return len(starts)


@inlined
def _keep(to: np.ndarray, of: np.ndarray) -> None:
    for scope in range(len(of)):
        to[scope] = of[scope]


@kernel
def _message(
    program: Program, data: np.ndarray, at: int, end: int, rows: FilledRows, stack: np.ndarray
) -> int:
    """Decodes one payload. Returns the position after it, WRONG or NO_ROOM."""
    fields, messages = program.fields, program.messages
    depth, message, row = 0, int64(0), _add_row(program, rows, 0)
    hint = messages[0, FIELDS]
    while True:
        if at >= end:
            if messages[message, SCOPE] >= 0:
                _end_row(program, rows, messages[message, SCOPE], row)
            if depth == 0:
                return at
            depth -= 1
            end, message = stack[depth, _END], stack[depth, _MESSAGE]
            row, hint = stack[depth, _ROW], stack[depth, _NEXT]
            continue
        tag, at = read_varint64(data, at, end)
        number, wire = int64(tag >> np.uint64(3)), int64(tag & np.uint64(7))
        if at < 0 or not 0 < number <= _MOST_FIELD:
            return WRONG
        place = _find(fields, hint, messages[message, FIELDS], messages[message, FIELDS_END], number)
        if place < 0:
            at = _skip(data, at, end, wire)
            if at < 0:
                return WRONG
            continue
        hint = place
        op, items = fields[place, OP], fields[place, ITEMS]
        if wire == fields[place, WIRE] and op == MESSAGE:
            size, at = _size(data, at, end)
            inner = _open(program, rows, place, row)
            if at < 0 or inner < 0:
                return inner if at >= 0 else WRONG
            stack[depth, _END], stack[depth, _MESSAGE] = end, message
            stack[depth, _ROW], stack[depth, _NEXT] = row, hint
            depth += 1
            end, message, row = at + size, fields[place, CHILD], inner
            hint = messages[message, FIELDS]
        elif wire == fields[place, WIRE]:
            at = _value(program, rows, place, row, data, at, end)
            if at < 0:
                return at
        elif items >= 0 and wire == _LENGTH and op < BYTES:
            size, at = _size(data, at, end)
            packed_end = at + size
            while 0 <= at < packed_end:
                at = _value(program, rows, place, row, data, at, packed_end)
            if at < 0:
                return at
        else:
            at = _skip(data, at, end, wire)
            if at < 0:
                return WRONG


@inlined
def _add_row(program: Program, rows: FilledRows, scope: int) -> int:
    """Adds a row with defaults to a scope, and returns its number; NO_ROOM where there is none."""
    row = rows.count[scope]
    if row >= rows.room[scope]:
        rows.need[0] = scope
        return NO_ROOM
    rows.count[scope] = row + 1
    for column in range(program.scopes[scope, 0], program.scopes[scope, 1]):
        rows.values[rows.base[column] + row] = program.columns[column, DEFAULT]
    return int64(row)


@inlined
def _end_row(program: Program, rows: FilledRows, scope: int, row: int) -> None:
    """Writes, for each repeated field of a row, the number of items up to the end of the row."""
    for column in range(program.scopes[scope, 0], program.scopes[scope, 1]):
        counted = program.columns[column, COUNTED]
        if counted >= 0:
            rows.values[rows.base[column] + row] = rows.count[counted]


@inlined
def _find(fields: np.ndarray, hint: int, begin: int, end: int, number: int) -> int:
    """Returns the place of the field of a number, -1 for an unknown one.

    Mostly it is the one that was last met, or the next.
    """
    for place in range(hint, min(hint + 2, end)):
        if fields[place, NUMBER] == number:
            return int64(place)
    while begin < end:
        middle = (begin + end) >> 1
        if fields[middle, NUMBER] < number:
            begin = middle + 1
        elif fields[middle, NUMBER] > number:
            end = middle
        else:
            return int64(middle)
    return int64(-1)


@inlined
def _open(program: Program, rows: FilledRows, place: int, row: int) -> int:
    """Returns the row of a message in a field.

    It is WRONG where the message is left to the exact reader, NO_ROOM where the scope is full.
    """
    items = program.fields[place, ITEMS]
    if items >= 0:
        return _add_row(program, rows, items)
    presence = program.fields[place, PRESENCE]
    if presence >= 0:
        slot = rows.base[presence] + row
        if rows.values[slot] != 0 and rows.values[slot] != program.fields[place, CASE]:
            return WRONG
        rows.values[slot] = program.fields[place, CASE]
    return int64(row)


@inlined
def _value(
    program: Program, rows: FilledRows, place: int, row: int, data: np.ndarray, at: int, end: int
) -> int:
    """Reads a value of a field that is no message; returns the position after it, WRONG or NO_ROOM."""
    op, items = program.fields[place, OP], program.fields[place, ITEMS]
    value, at = _scalar(op, data, at, end)
    if at < 0:
        return WRONG
    begin, symbols_end = program.fields[place, SYMBOLS], program.fields[place, SYMBOLS_END]
    if begin < symbols_end and not _holds(program.symbols, begin, symbols_end, value):
        return WRONG
    if items >= 0:
        row = _add_row(program, rows, items)
        if row < 0:
            return NO_ROOM
    elif program.fields[place, PRESENCE] >= 0:
        rows.values[rows.base[program.fields[place, PRESENCE]] + row] = program.fields[place, CASE]
    rows.values[rows.base[program.fields[place, COLUMN]] + row] = value
    return at


@inlined
def _holds(symbols: np.ndarray, begin: int, end: int, value: int) -> bool:
    """Tells whether ``symbols[begin:end]``, which rise, hold ``value``."""
    while begin < end:
        middle = (begin + end) >> 1
        if symbols[middle] == value:
            return True
        if symbols[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return False


@inlined
def _scalar(op: int, data: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Returns a value as an int64, and the position after it or WRONG.

    Reals are their bits; a text is its span.
    """
    if op in (FIXED64, FIXED32):
        size = 8 if op == FIXED64 else 4
        if at + size > end:
            return int64(0), WRONG
        bits = np.uint64(0)
        for i in range(size):
            bits |= np.uint64(data[at + i]) << np.uint64(8 * i)
        return int64(bits), at + size
    if op in (BYTES, STRING):
        size, at = _size(data, at, end)
        if at < 0 or (op == STRING and not is_utf8(data, at, at + size)):
            return int64(0), WRONG
        return int64(at << SPAN_BITS | size), at + size
    if op >= MESSAGE:
        return int64(0), WRONG
    raw, at = read_varint64(data, at, end)
    low = int64(raw & np.uint64(0xFFFFFFFF))
    if op == VARINT:
        return int64(raw), at
    if op == INT32:
        return (low ^ 0x80000000) - 0x80000000, at
    if op == UINT32:
        return low, at
    if op == BOOL:
        return int64(raw != np.uint64(0)), at
    if op == SINT32:
        return (low >> 1) ^ -(low & 1), at
    return int64(raw >> np.uint64(1)) ^ -int64(raw & np.uint64(1)), at


@inlined
def read_varint64(data: np.ndarray, at: int, end: int) -> tuple[Any, int]:
    """Returns an unsigned varint (uint64) and the position after it.

    The position is WRONG where the varint is cut or longer than 10 bytes.
    """
    if at < end and data[at] < 128:
        return np.uint64(data[at]), at + 1
    return _long_varint64(data, at, end)


@kernel
def _long_varint64(data: np.ndarray, at: int, end: int) -> tuple[Any, int]:
    raw, shift = np.uint64(0), np.uint64(0)
    for i in range(at, min(end, at + 10)):
        raw |= np.uint64(data[i] & 0x7F) << shift
        if data[i] < 128:
            return raw, i + 1
        shift += np.uint64(7)
    return np.uint64(0), WRONG


@inlined
def _size(data: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Returns a length, and where its bytes begin; WRONG where they do not lie before ``end``."""
    size, at = read_varint64(data, at, end)
    if at < 0 or size > np.uint64(end - at):
        return int64(0), WRONG
    return int64(size), at


@inlined
def _skip(data: np.ndarray, at: int, end: int, wire: int) -> int:
    """Returns the position after an unknown field, or WRONG: groups are left to the exact reader."""
    if wire == 0:
        return int64(read_varint64(data, at, end)[1])
    if wire == _LENGTH:
        size, at = _size(data, at, end)
        return at + size if at >= 0 else WRONG
    if wire in (1, 5):
        at += 8 if wire == 1 else 4
        return at if at <= end else WRONG
    return WRONG


@kernel
def hashes(data: np.ndarray, spans: np.ndarray, out: np.ndarray) -> None:
    """Writes a hash of 32 bits (FNV-1a) of each text. spans: int64[n]. out: int64[n]."""
    for i in range(len(spans)):
        at, size = spans[i] >> SPAN_BITS, spans[i] & ((1 << SPAN_BITS) - 1)
        found = int64(0x811C9DC5)
        for place in range(at, at + size):
            found = ((found ^ int64(data[place])) * 0x1000193) & 0xFFFFFFFF
        out[i] = found
