"""Writes JSON canonically, where that is the same text but for blanks between tokens and zeros
after a fraction.

What may come out otherwise is left to the exact way (``udfs.values.json.parse``), and so is what breaks
RFC 8259: escapes that Python writes otherwise, exponents, members of one name, too many levels. No number is
read: a real with more digits than a double holds for sure is for the caller to compare (``reals``). What is
written here is never longer than what was read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.kernels.jit import copy_bytes, inlined, int64, kernel, load_u64
from kafka_log_lake.udfs.kernels.texts import is_utf8

LEFT = -1
# Decimal digits that a double tells apart always; zeros after the point before Python writes an exponent
# (it does for 10^16 and more too); what a double needs at most
_EXACT_DIGITS, _MOST_ZEROS, _MOST_WHOLE, _ALL_DIGITS = 15, 3, 16, 17
# Bytes of the shortest real that is compared
LEAST_REAL = _EXACT_DIGITS + 2
_MOST_DIGITS = 1000  # of an integer: Python reads 4,300
_BACKSLASH, _QUOTE, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _COLON = 92, 34, 44, 45, 46, 48, 57, 58
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 91, 93, 123, 125
_VALUE, _NAME, _AFTER = range(3)
_IN_LIST = -1

_ESCAPED = np.zeros(256, np.bool_)
_ESCAPED[list(b'"\\bfnrt')] = True
_WORDS = np.frombuffer(b"true false null", np.uint8)
_TRUE, _FALSE, _NULL = (0, 4), (5, 5), (11, 4)
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _BLANKS = (np.uint64(c) * _ONES for c in (_QUOTE, _BACKSLASH, 0x20))


@kernel
def canonical_texts(
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    out: np.ndarray,
    offsets: np.ndarray,
    names: np.ndarray,
    levels: np.ndarray,
    reals: np.ndarray,
) -> int:
    """Writes ``data[starts[i]:ends[i]]`` one after the other into ``out``; nothing for what is left.

    starts, ends: int64[n]; a start below 0 is a null. out: uint8, at least all bytes. offsets: int32[n + 1],
    where each text begins, and the end. names: int64[k, 3], for k names of the open objects together. levels:
    int64[k + 1], for k arrays and objects within each other. reals: int64[m + 1, 2], where reals begin and
    end in ``out`` that are right if they are the shortest ones of their doubles; m: bytes / LEAST_REAL at
    least. Its last row counts them. Returns their number.
    """
    size, count = int64(0), reals[len(reals) - 1]
    offsets[0] = count[0] = 0
    for row in range(len(starts)):
        if starts[row] >= 0:
            before = count[0]
            end = _text(data, starts[row], ends[row], out, size, names, levels, reals)
            if end != LEFT:
                size = end
            else:
                count[0] = before
        offsets[row + 1] = size
    return int64(count[0])


@kernel
def _text(
    data: np.ndarray,
    at: int,
    end: int,
    out: np.ndarray,
    to: int,
    names: np.ndarray,
    levels: np.ndarray,
    reals: np.ndarray,
) -> int:
    """Writes one payload. Returns the position after it in ``out``, or LEFT."""
    depth, held, expected = int64(0), int64(0), _VALUE
    at = _past_blanks(data, at, end)
    if at < end and data[at] == _WORDS[_NULL[0]]:
        return LEFT
    while True:
        at = _past_blanks(data, at, end)
        if expected == _AFTER and depth == 0:
            return LEFT if at < end else to
        if at >= end:
            return LEFT
        byte = int64(data[at])
        begin = to
        if expected == _AFTER:
            out[to] = byte
            at, to = at + 1, to + 1
            is_list = levels[depth] == _IN_LIST
            if byte == _COMMA:
                expected = _VALUE if is_list else _NAME
            elif byte == (_CLOSE_LIST if is_list else _CLOSE):
                held = held if is_list else levels[depth]
                depth -= 1
            else:
                return LEFT
        elif byte == _QUOTE:
            at, to = _string(data, at, end, out, to)
            if at == LEFT:
                return LEFT
            if expected == _NAME:
                if held == len(names) or _is_held(out, begin, to, names, levels[depth], held):
                    return LEFT
                held += 1
                at = _past_blanks(data, at, end)
                if at >= end or data[at] != _COLON:
                    return LEFT
                out[to] = _COLON
                at, to, expected = at + 1, to + 1, _VALUE
            else:
                expected = _AFTER
        elif expected == _NAME:
            return LEFT
        elif byte in (_OPEN, _OPEN_LIST):
            if depth == len(levels) - 1:
                return LEFT
            out[to] = byte
            to, depth = to + 1, depth + 1
            levels[depth] = held if byte == _OPEN else _IN_LIST
            at = _past_blanks(data, at + 1, end)
            is_empty = at < end and data[at] == byte + 2  # the closing one
            expected = _AFTER if is_empty else _NAME if byte == _OPEN else _VALUE
        else:
            at, to = _scalar(data, at, end, out, to, reals)
            if at == LEFT:
                return LEFT
            expected = _AFTER


@inlined
def _past_blanks(data: np.ndarray, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@kernel
def _string(data: np.ndarray, at: int, end: int, out: np.ndarray, to: int) -> tuple[int, int]:
    """Copies a string with its quotes. Returns the positions after it, or LEFT."""
    begin, is_ascii = at, True
    at += 1
    while True:
        while at + 8 <= end:
            word = load_u64(data, at)
            quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
            found = (quotes - _ONES) & ~quotes | (slashes - _ONES) & ~slashes | (word - _BLANKS) & ~word
            if (found | word) & _HIGH != 0:
                break
            at += 8
        if at >= end:
            return LEFT, to
        byte = int64(data[at])
        if byte == _QUOTE:
            break
        if byte < 0x20:
            return LEFT, to
        if byte == _BACKSLASH:
            at += 1
            if at >= end or not _ESCAPED[data[at]]:
                return LEFT, to
        is_ascii = is_ascii and byte < 0x80
        at += 1
    at += 1
    if not is_ascii and not is_utf8(data, begin, at):
        return LEFT, to
    copy_bytes(out, to, data, begin, at - begin)
    return at, to + at - begin


@inlined
def _is_held(out: np.ndarray, begin: int, end: int, names: np.ndarray, first: int, held: int) -> bool:
    """Tells whether the object has a member of this name; else the name is kept, after the others."""
    digest = int64(end - begin)
    for k in range(begin, end):
        digest = digest * 31 + int64(out[k])
    for one in range(first, held):
        if names[one, 0] == digest and names[one, 2] == end - begin:
            same = True
            for k in range(end - begin):
                same = same and out[begin + k] == out[names[one, 1] + k]
            if same:
                return True
    names[held, 0], names[held, 1], names[held, 2] = digest, begin, end - begin
    return False


@inlined
def _is_word(data: np.ndarray, at: int, end: int, word: Any) -> bool:
    begin, size = word
    same = size <= end - at
    for k in range(size if same else 0):
        same = same and data[at + k] == _WORDS[begin + k]
    return same


@kernel
def _scalar(
    data: np.ndarray, at: int, end: int, out: np.ndarray, to: int, reals: np.ndarray
) -> tuple[int, int]:
    """Copies a number, true, false or null. Returns the positions after it, or LEFT."""
    for word in (_TRUE, _FALSE, _NULL):
        size = word[1]
        if _is_word(data, at, end, word):
            copy_bytes(out, to, data, at, size)
            return at + size, to + size
    begin = at
    is_negative = data[at] == _MINUS
    first = at + 1 if is_negative else at
    point = _past_digits(data, first, end)
    digits = point - first
    is_zero = digits == 1 and data[first] == _ZERO
    if digits == 0 or digits > _MOST_DIGITS or (data[first] == _ZERO and not is_zero):
        return LEFT, to
    at = point
    if point < end and data[point] == _POINT:
        at = _past_digits(data, point + 1, end)
        if at == point + 1:
            return LEFT, to
        last = at
        while last > point + 2 and data[last - 1] == _ZERO:
            last -= 1
        zeros = int64(0)
        while is_zero and point + 1 + zeros < last and data[point + 1 + zeros] == _ZERO:
            zeros += 1
        fraction = last - point - 1
        exact = fraction - zeros if is_zero else digits + fraction
        if zeros > _MOST_ZEROS or digits > _MOST_WHOLE or exact > _ALL_DIGITS:
            return LEFT, to
        size = last - begin
        if exact > _EXACT_DIGITS:
            count = reals[len(reals) - 1]
            reals[count[0], 0], reals[count[0], 1] = to, to + size
            count[0] += 1
    else:
        if is_zero and is_negative:
            return LEFT, to
        size = point - begin
    if at < end and (data[at] | 32) == 101:  # an exponent
        return LEFT, to
    copy_bytes(out, to, data, begin, size)
    return at, to + size


@inlined
def _past_digits(data: np.ndarray, at: int, end: int) -> int:
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    return at
