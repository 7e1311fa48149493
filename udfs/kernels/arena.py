"""Lays out the one allocation that holds all columns of a group of batches: its parts and their sizes.

A part is a buffer of an Arrow array. Its size follows from the room: how many rows, headers and bytes of
each kind there can be. A part of a column that nobody requested has no bytes, and kernels leave it out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafka_log_lake.udfs.kernels.jit import copy_bytes, copy_sixteen, inlined, kernel, store_i32

# What the arena is sized by: rows, headers, and bytes of keys and values
COUNTED = ("rows", "headers", "key_bytes", "value_bytes", "header_key_bytes", "header_value_bytes")
ROOM = np.dtype([(name, "i8") for name in COUNTED])

# Parts, in their order in the arena. A column of varying sizes has three in a row: validity, offsets, bytes.
(
    NO_PART,  # the validity of a column without nulls
    OFFSET,
    TIMESTAMP_VALID,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    MAGIC,
    TIMESTAMP_MS,
    POSITION,
    SEQUENCE,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    LEADER_EPOCH,
    TRANSACTIONAL,
    CONTROL,
    CONTROL_TYPE_VALID,
    CONTROL_TYPES,
    SIZE,
    KEY_VALID,
    KEYS,
    KEY_DATA,
    VALUE_VALID,
    VALUES,
    VALUE_DATA,
    HEADER_VALID,
    HEADER_LISTS,
    HEADER_KEY_VALID,
    HEADER_KEYS,
    HEADER_KEY_DATA,
    HEADER_VALUE_VALID,
    HEADER_VALUES,
    HEADER_VALUE_DATA,
) = range(31)

SLACK = 16  # short copies write whole words
# For each part: bits of an element, the kind of room that counts its elements, elements added to these
_SIZES = {
    NO_PART: (0, "rows", 0),
    OFFSET: (64, "rows", 0),
    TIMESTAMP_VALID: (1, "rows", 0),
    TIMESTAMP: (64, "rows", 0),
    TIMESTAMP_TYPE: (32, "rows", 0),
    MAGIC: (8, "rows", 0),
    TIMESTAMP_MS: (64, "rows", 0),
    POSITION: (64, "rows", 0),
    SEQUENCE: (32, "rows", 0),
    PRODUCER_ID: (64, "rows", 0),
    PRODUCER_EPOCH: (16, "rows", 0),
    LEADER_EPOCH: (32, "rows", 0),
    TRANSACTIONAL: (1, "rows", 0),
    CONTROL: (1, "rows", 0),
    CONTROL_TYPE_VALID: (1, "rows", 0),
    CONTROL_TYPES: (32, "rows", 1),
    SIZE: (32, "rows", 0),
    KEY_VALID: (1, "rows", 0),
    KEYS: (32, "rows", 1),
    KEY_DATA: (8, "key_bytes", SLACK),
    VALUE_VALID: (1, "rows", 0),
    VALUES: (32, "rows", 1),
    VALUE_DATA: (8, "value_bytes", SLACK),
    HEADER_VALID: (1, "rows", 0),
    HEADER_LISTS: (32, "rows", 1),
    HEADER_KEY_VALID: (0, "headers", 0),  # a key is never null
    HEADER_KEYS: (32, "headers", 1),
    HEADER_KEY_DATA: (8, "header_key_bytes", SLACK),
    HEADER_VALUE_VALID: (1, "headers", 0),
    HEADER_VALUES: (32, "headers", 1),
    HEADER_VALUE_DATA: (8, "header_value_bytes", SLACK),
}
PARTS = len(_SIZES)


def part_sizes(wanted: set[int]) -> np.ndarray:
    """Returns int64[PARTS, 3], the sizes that ``lay_out`` takes; zeros for a part that is not ``wanted``."""
    sizes = np.zeros((PARTS, 3), dtype=np.int64)
    for part in wanted:
        bits, counted, more = _SIZES[part]
        sizes[part] = bits, COUNTED.index(counted), more
    return sizes


@kernel
def lay_out(sizes: np.ndarray, room: np.ndarray, at: np.ndarray) -> None:
    """Computes where each part begins in the arena, aligned to 64 bytes, and where the last one ends.

    ``sizes``: from ``part_sizes``; ``room``: ROOM[1]; ``at``: int64[PARTS + 1], bytes, written.
    """
    most = room.view(np.int64)
    at[0] = 0
    for part in range(PARTS):
        bits, counted, more = sizes[part, 0], sizes[part, 1], sizes[part, 2]
        at[part + 1] = at[part] + (bits * (most[counted] + more) + 511) // 512 * 64


class TextStarts(NamedTuple):
    """The bytes of the arena where the parts of a text column begin.

    offsets: -1 for a column nobody requested.
    """

    valid: int
    offsets: int
    data: int


class TextColumns(NamedTuple):
    """The columns whose bytes are copied record by record. ``lists``: of headers, without bytes."""

    keys: TextStarts
    values: TextStarts
    lists: TextStarts
    header_keys: TextStarts
    header_values: TextStarts


@inlined
def _texts(at: np.ndarray, valid: int, data: int) -> TextStarts:
    return TextStarts(at[valid], at[valid + 1] if at[valid + 2] > at[valid + 1] else -1, at[data])


@inlined
def text_columns(at: np.ndarray) -> TextColumns:
    """Returns the text columns of an arena that is laid out by ``at`` (int64[PARTS + 1])."""
    return TextColumns(
        _texts(at, KEY_VALID, KEY_DATA),
        _texts(at, VALUE_VALID, VALUE_DATA),
        _texts(at, HEADER_VALID, NO_PART),
        _texts(at, HEADER_KEY_VALID, HEADER_KEY_DATA),
        _texts(at, HEADER_VALUE_VALID, HEADER_VALUE_DATA),
    )


@inlined
def part_of(arena: np.ndarray, at: np.ndarray, part: int) -> Any:
    """Returns the bytes (uint8[n]) of a part of the arena."""
    return arena[at[part] : at[part + 1]]


@inlined
def unset_bit(bits: np.ndarray, begin: int, i: int) -> None:
    """Sets bit ``i``, counted from the byte at ``begin`` (uint8[n], the lowest bit first), to 0."""
    bits[begin + (i >> 3)] &= np.uint8(255 ^ (1 << (i & 7)))


@kernel
def set_bits(bits: np.ndarray, begin: int, end: int) -> None:
    """Sets bits[begin:end] to 1, of a bitmap of uint8."""
    while begin < end and begin & 7:
        bits[begin >> 3] |= np.uint8(1 << (begin & 7))
        begin += 1
    bits[begin >> 3 : end >> 3] = 255
    for i in range(max(begin, end & ~7), end):
        bits[i >> 3] |= np.uint8(1 << (i & 7))


@inlined
def put_text(
    arena: np.ndarray, texts: TextStarts, i: int, at: int, buf: np.ndarray, start: int, size: int
) -> None:
    """Writes text ``i``: ``size`` bytes of ``buf`` from ``start`` on, to byte ``at``; -1 for null.

    The caller has made sure of the room. Nothing is written where nobody requested the column.
    """
    if texts.offsets >= 0:
        store_i32(arena, texts.offsets + 4 * i, at)
        if size < 0:
            unset_bit(arena, texts.valid, i)
        elif size <= SLACK and start <= len(buf) - SLACK:
            copy_sixteen(arena, texts.data + at, buf, start)
        else:
            copy_bytes(arena, texts.data + at, buf, start, size)


@inlined
def end_texts(arena: np.ndarray, texts: TextStarts, n: int, at: int) -> None:
    """Writes the offset ``at`` where the last of ``n`` texts ends."""
    if texts.offsets >= 0:
        store_i32(arena, texts.offsets + 4 * n, at)
