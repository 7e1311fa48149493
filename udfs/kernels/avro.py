"""Decodes Avro's binary encoding into columns: a schema is a small program, run over a column of payloads.

The program (``CODE``, int64[n, 4]) has an instruction for each type of the schema in the order of its bytes:
operation, column, and two arguments. A column has a row a value: numbers, texts and bytes as spans
(``udfs.kernels.texts``), of an array the number of items up to its end.
A value that is missing (the branches of a union that a value does not have, all of a payload that is null or
wrong) gets a default, so that each column has the rows of the one that it lies in; validity lies in the
columns of unions.

A payload that breaks a rule is rolled back, and gets defaults. The exact reader says what is wrong with it
(``udfs.values.avro.payload``): it holds the same rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel, load_u32, load_u64
from kafka_log_lake.udfs.kernels.texts import SPAN_BITS, is_utf8
from kafka_log_lake.udfs.vectorized_varint import read_varlong

# Operations. The second argument b is the branch or symbol count, the size (of BYTES the most, 0 for any),
# or the least bytes of an item
NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM = range(10)
NULLABLE, UNION, BRANCH, UNION_END, ARRAY, ARRAY_END, END = range(10, 17)

WRONG, NO_ROOM = -1, -2
# Columns of ``count`` and ``saved``: values of a column, and items of the arrays that are its values
VALUES, ITEMS = 0, 1


class Columns(NamedTuple):
    """The columns that a program fills.

    bytes_, ints, longs: one piece of memory as uint8, int32 and int64. base: int64[n], where a column's
    values begin in the view of their width. room: int64[n], how many there can be. count, saved: int64[n, 2],
    how many there are, and were before the payload. need: int64[2], the column that is full, and the items
    without bytes that the payload has had so far.
    """

    bytes_: np.ndarray
    ints: np.ndarray
    longs: np.ndarray
    base: np.ndarray
    room: np.ndarray
    count: Any
    saved: np.ndarray
    need: np.ndarray


@kernel
def decode_payloads(
    code: np.ndarray,
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    first: int,
    columns: Columns,
    stack: np.ndarray,
    failed: np.ndarray,
    empty: int,
) -> int:
    """Decodes ``data[starts[i]:ends[i]]`` from row ``first`` on; a start below 0 is a null.

    starts, ends: int64[n]. stack: int64[depth, 2]. failed: bool[n], set where a payload breaks a rule. empty:
    the most items without bytes that a payload may have. Returns n, or the row that there was no room for.
    """
    for row in range(first, len(starts)):
        _keep(columns.saved, columns.count)
        columns.need[1] = 0
        at = int64(WRONG)
        if starts[row] >= 0:
            at = _run(code, data, starts[row], ends[row], columns, stack, False, empty)
            if at != ends[row]:
                _keep(columns.count, columns.saved)
                if at == NO_ROOM:
                    return row
                failed[row] = True
                at = int64(WRONG)
        if at < 0 and _run(code, data, 0, 0, columns, stack, True, empty) == NO_ROOM:
            _keep(columns.count, columns.saved)
            failed[row] = False
            return row
    return len(starts)


@inlined
def _keep(to: np.ndarray, of: np.ndarray) -> None:
    for column in range(len(of)):
        to[column, VALUES], to[column, ITEMS] = of[column, VALUES], of[column, ITEMS]


@kernel
def _run(
    code: np.ndarray,
    data: np.ndarray,
    at: int,
    end: int,
    columns: Columns,
    stack: np.ndarray,
    skip: bool,
    empty: int,
) -> int:
    """Decodes one payload. skip: writes defaults alone. Returns the position after it, WRONG or NO_ROOM."""
    pc, depth = 0, 0
    while at >= 0:
        op = code[pc, 0]
        if op < NULLABLE:
            at = _value(code, pc, data, at, end, columns, skip)
        elif op in (NULLABLE, UNION):
            stack[depth, 0] = skip
            at = _union(code, pc, data, at, end, columns, stack, depth, skip)
            skip = skip or (op == NULLABLE and stack[depth, 1] == code[pc, 2])
            depth += 1
        elif op == BRANCH:
            skip = stack[depth - 1, 0] != 0 or stack[depth - 1, 1] != code[pc, 2]
        elif op == UNION_END:
            depth -= 1
            skip = stack[depth, 0] != 0
        elif op == END:
            return at
        else:
            if op == ARRAY:
                stack[depth, 1] = 0
                depth += 1
            else:
                columns.count[code[pc, 1], ITEMS] += 1
                stack[depth - 1, 1] -= 1
            if stack[depth - 1, 1] == 0:
                at = _block(code, pc, data, at, end, columns, stack, depth - 1, skip, empty)
            if stack[depth - 1, 1] == 0:  # the array ends
                depth -= 1
                pc = code[pc, 3] if op == ARRAY else pc
            elif op == ARRAY_END:
                pc = code[pc, 3]
        pc += 1
    return at


@inlined
def _slot(columns: Columns, column: int) -> int:
    """Takes and returns the place of the next value of a column; NO_ROOM where there is none."""
    place = columns.count[column, VALUES]
    if place == columns.room[column]:
        columns.need[0] = column
        return NO_ROOM
    columns.count[column, VALUES] = place + 1
    return int64(place)


@inlined
def _value(
    code: np.ndarray, pc: int, data: np.ndarray, at: int, end: int, columns: Columns, skip: bool
) -> int:
    """Decodes a value without parts. Returns the position after it, WRONG or NO_ROOM."""
    op, column = code[pc, 0], code[pc, 1]
    if op == NULL:
        return at
    place = _slot(columns, column)
    if place < 0:
        return NO_ROOM
    place += columns.base[column]
    if op in (BYTES, STRING, FIXED):
        return _text(code, pc, data, at, end, columns, place, skip)
    if op in (FLOAT, DOUBLE):
        return _real(op == DOUBLE, data, at, end, columns, place, skip)
    if op == BOOLEAN:
        columns.bytes_[place] = 0
        if skip:
            return at
        if at >= end or data[at] > 1:
            return WRONG
        columns.bytes_[place] = data[at]
        return at + 1
    value = int64(0)
    if not skip:
        value, at = read_long(data, at, end)
    if op == LONG:
        columns.longs[place] = value
        return at
    if value != int64(np.int32(value)) or (op == ENUM and not skip and not 0 <= value < code[pc, 2]):
        return WRONG
    columns.ints[place] = value
    return at


@inlined
def read_long(data: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Reads a zigzag varint of 64 bits: (value, position after it).

    The position is WRONG where the varint is cut, too long, or has more bits.
    """
    value, stop = read_varlong(data, at, end)
    if stop - at == 10 and data[at + 9] > 1:
        return 0, WRONG
    return value, stop


@inlined
def _real(
    is_double: bool, data: np.ndarray, at: int, end: int, columns: Columns, place: int, skip: bool
) -> int:
    """Writes a float or a double as its bits. Returns the position after it, or WRONG."""
    size = 8 if is_double else 4
    if not skip and at + size > end:
        return WRONG
    bits = np.uint64(0)
    if not skip:
        bits = load_u64(data, at) if is_double else load_u32(data, at)
    if is_double:
        columns.longs[place] = int64(bits)
    else:
        columns.ints[place] = np.int32(np.uint32(bits))
    return at if skip else at + size


@inlined
def _text(
    code: np.ndarray, pc: int, data: np.ndarray, at: int, end: int, columns: Columns, place: int, skip: bool
) -> int:
    """Writes the span of bytes, of a text or of a fixed. Returns the position after it, or WRONG."""
    op = code[pc, 0]
    size = int64(0)
    if not skip:
        if op == FIXED:
            size = code[pc, 2]
        else:
            size, at = read_long(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return WRONG
        if op == BYTES and 0 < code[pc, 2] < size:
            return WRONG
        if op == STRING and not is_utf8(data, at, at + size):
            return WRONG
    columns.longs[place] = at << SPAN_BITS | size
    return at + size


@inlined
def _union(
    code: np.ndarray,
    pc: int,
    data: np.ndarray,
    at: int,
    end: int,
    columns: Columns,
    stack: np.ndarray,
    depth: int,
    skip: bool,
) -> int:
    """Reads the index of a union's branch onto the stack, -1 for none.

    Returns the position after it, or a code. The column of a union gets the index; that of a nullable gets
    whether there is a value. The code is WRONG or NO_ROOM.
    """
    op, column = code[pc, 0], code[pc, 1]
    branch = int64(-1)
    if not skip:
        branch, at = read_long(data, at, end)
        if at < 0 or not 0 <= branch < (2 if op == NULLABLE else code[pc, 2]):
            return WRONG
    place = _slot(columns, column)
    if place < 0:
        return NO_ROOM
    held = branch if op == UNION else int64(branch >= 0 and branch != code[pc, 2])
    columns.bytes_[columns.base[column] + place] = held & 0xFF
    stack[depth, 1] = branch
    return at


@kernel
def _block(
    code: np.ndarray,
    pc: int,
    data: np.ndarray,
    at: int,
    end: int,
    columns: Columns,
    stack: np.ndarray,
    depth: int,
    skip: bool,
    empty: int,
) -> int:
    """Reads the count of an array's next block onto the stack.

    Returns the position after it, WRONG or NO_ROOM. At the array's end the column gets the offset where its
    items end.
    """
    column, least = code[pc, 1], code[pc, 2]
    count = int64(0)
    if not skip:
        count, at = read_long(data, at, end)
        if at >= 0 and count < 0:
            count = -count
            size, at = read_long(data, at, end)
            if size < 0:
                return WRONG
        if at < 0 or count < 0:
            return WRONG
        if (least and count > (end - at) // least) or (not least and count > empty - columns.need[1]):
            return WRONG
        if not least:
            columns.need[1] += count
    if count == 0:
        place = _slot(columns, column)
        if place < 0:
            return NO_ROOM
        columns.ints[columns.base[column] + place] = columns.count[column, ITEMS]
    stack[depth, 1] = count
    return at


@kernel
def decimals_of_each(data: np.ndarray, offsets: np.ndarray, out: np.ndarray, valid: np.ndarray) -> None:
    """Writes each value, big-endian two's complement, into ``out`` (uint64[n, 2], low half first).

    valid: bool[n], whether it fits in 128 bits; an empty value is 0. data: uint8, offsets: int32[n + 1].
    """
    for i in range(len(valid)):
        begin, end = int64(offsets[i]), int64(offsets[i + 1])
        sign = np.uint64(0xFFFFFFFFFFFFFFFF) if end > begin and data[begin] & 0x80 else np.uint64(0)
        valid[i] = True
        while end - begin > 16 and np.uint64(data[begin]) == sign & np.uint64(0xFF):
            begin += 1
        low, high = sign, sign
        for at in range(begin, end):
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[at])
        valid[i] = end - begin <= 16 and (end == begin or (high ^ sign) >> np.uint64(63) == np.uint64(0))
        out[i, 0], out[i, 1] = low, high
