"""The one allocation that all columns of a group of batches lie in: its parts, for kernels and for Arrow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from udfs.kernels.jit import inlined, kernel

# Parts, in their order in the arena. What varies in size has three in a row: offsets, validity, bytes.
(
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_VALID,
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
    SIZE,
    KEYS,
    KEY_VALID,
    KEY_DATA,
    VALUES,
    VALUE_VALID,
    VALUE_DATA,
    HEADER_LISTS,
    HEADER_VALID,
    HEADER_KEYS,
    HEADER_KEY_VALID,
    HEADER_KEY_DATA,
    HEADER_VALUES,
    HEADER_VALUE_VALID,
    HEADER_VALUE_DATA,
) = range(28)

SLACK = 16  # short copies write whole words
# What there is a number of, for ``lay_out``
_ROWS, _HEADERS, _KEY_BYTES, _VALUE_BYTES, _HEADER_KEY_BYTES, _HEADER_VALUE_BYTES = range(6)
# Of each part: bits of an element, what there is one for, elements more
_SIZES = {
    OFFSET: (64, _ROWS, 0),
    TIMESTAMP: (64, _ROWS, 0),
    TIMESTAMP_VALID: (1, _ROWS, 0),
    TIMESTAMP_TYPE: (32, _ROWS, 0),
    MAGIC: (8, _ROWS, 0),
    TIMESTAMP_MS: (64, _ROWS, 0),
    POSITION: (64, _ROWS, 0),
    SEQUENCE: (32, _ROWS, 0),
    PRODUCER_ID: (64, _ROWS, 0),
    PRODUCER_EPOCH: (16, _ROWS, 0),
    LEADER_EPOCH: (32, _ROWS, 0),
    TRANSACTIONAL: (1, _ROWS, 0),
    CONTROL: (1, _ROWS, 0),
    SIZE: (32, _ROWS, 0),
    KEYS: (32, _ROWS, 1),
    KEY_VALID: (1, _ROWS, 0),
    KEY_DATA: (8, _KEY_BYTES, SLACK),
    VALUES: (32, _ROWS, 1),
    VALUE_VALID: (1, _ROWS, 0),
    VALUE_DATA: (8, _VALUE_BYTES, SLACK),
    HEADER_LISTS: (32, _ROWS, 1),
    HEADER_VALID: (1, _ROWS, 0),
    HEADER_KEYS: (32, _HEADERS, 1),
    HEADER_KEY_VALID: (0, _HEADERS, 0),  # a key is never null
    HEADER_KEY_DATA: (8, _HEADER_KEY_BYTES, SLACK),
    HEADER_VALUES: (32, _HEADERS, 1),
    HEADER_VALUE_VALID: (1, _HEADERS, 0),
    HEADER_VALUE_DATA: (8, _HEADER_VALUE_BYTES, SLACK),
}
PARTS = len(_SIZES)
_LAYOUT = np.array([_SIZES[part] for part in range(PARTS)], dtype=np.int64)


@kernel
def lay_out(n: int, totals: Any, at: Any) -> None:
    """Where each part begins in the arena, aligned to 64 bytes, and its size: ``at`` (int64[PARTS + 1]).

    For ``n`` rows with the totals ``totals`` (TOTALS[1]).
    """
    total = totals[0]
    at[0] = 0
    for part in range(PARTS):
        bits, counted, more = _LAYOUT[part, 0], _LAYOUT[part, 1], _LAYOUT[part, 2]
        count = n
        if counted == _HEADERS:
            count = total["headers"]
        elif counted == _KEY_BYTES:
            count = total["key_bytes"]
        elif counted == _VALUE_BYTES:
            count = total["value_bytes"]
        elif counted == _HEADER_KEY_BYTES:
            count = total["header_key_bytes"]
        elif counted == _HEADER_VALUE_BYTES:
            count = total["header_value_bytes"]
        at[part + 1] = at[part] + (bits * (count + more) + 511) // 512 * 64


class Texts(NamedTuple):
    """A column of varying size: offsets (int32[n + 1]), validity (uint8, bits), bytes (uint8)."""

    offsets: Any
    valid: Any
    data: Any


@inlined
def part_of(arena: Any, at: Any, part: int) -> Any:
    """The bytes (uint8) of a part of the arena."""
    return arena[at[part] : at[part + 1]]


@inlined
def texts_of(arena: Any, at: Any, part: int) -> Texts:
    """The three parts from ``part`` on."""
    offsets = part_of(arena, at, part).view(np.int32)
    return Texts(offsets, part_of(arena, at, part + 1), part_of(arena, at, part + 2))


class Arena:
    """The filled allocation, cut into Arrow arrays without a copy."""

    def __init__(self, buffer: pa.Buffer, at: np.ndarray) -> None:
        """``at``: of ``lay_out``."""
        self._buffer = buffer
        self._at = at.tolist()

    def part(self, which: int) -> pa.Buffer:
        return self._buffer.slice(self._at[which], self._at[which + 1] - self._at[which])

    def plain(self, kind: pa.DataType, n: int, which: int, valid: int = -1, nulls: int = 0) -> pa.Array:
        validity = self.part(valid) if nulls else None
        return pa.Array.from_buffers(kind, n, [validity, self.part(which)], nulls)

    def sized(self, kind: pa.DataType, n: int, which: int, nulls: int) -> pa.Array:
        """Of the three parts from ``which`` on."""
        validity = self.part(which + 1) if nulls else None
        return pa.Array.from_buffers(kind, n, [validity, self.part(which), self.part(which + 2)], nulls)
