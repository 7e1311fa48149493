"""Finds which byte of a range was changed, from its checksum and the one that it should have.

A checksum is linear: what two messages of one length differ in alone decides what their checksums differ in.
So the difference of checksums is taken back, a byte at a time from the end; where nothing but one byte is
left of it, a change of that byte explains it. One pass over the size, and no byte of the range is read.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.kernels.checksums import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL
from kafka_log_lake.udfs.kernels.jit import kernel


def _tables(polynomial: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (uint32[256], what a byte becomes; int64[256], the byte by the highest byte of that)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(polynomial), table >> 1).astype(np.uint32)
    inverse = np.zeros(256, dtype=np.int64)
    inverse[table >> 24] = np.arange(256)
    return table, inverse


TABLES = {True: _tables(CRC32C_POLYNOMIAL), False: _tables(CRC32_POLYNOMIAL)}


@kernel
def changed_byte(
    difference: int, size: int, table: np.ndarray, inverse: np.ndarray, single: bool
) -> tuple[int, int]:
    """Returns the byte whose change explains a difference of checksums, and the bits of it that were changed.

    ``difference``: of the checksums; ``size``: bytes that they cover; ``table``, ``inverse``: of TABLES;
    ``single``: whether only a change of one bit counts. The byte counts from the begin; -1 where there is
    none.
    """
    state = difference
    for k in range(size):
        low = inverse[state >> 24]
        state = (((state ^ np.int64(table[low])) << 8) | low) & 0xFFFFFFFF
        if state < 256 and state != 0 and (not single or state & (state - 1) == 0):
            return size - 1 - k, state
    return -1, 0


@kernel
def shift_begin(
    difference: int, data: np.ndarray, begin: int, end: int, size: int, table: np.ndarray, inverse: np.ndarray
) -> int:
    """Returns where ``size`` bytes were inserted into a range of ``data`` (uint8), by its right checksum.

    The range was ``[begin, end)``; after the place bytes moved on, the last ones to ``end + size``.
    ``difference``: of the stored checksum and that of ``data[begin:end]``. The place counts in ``data``: the
    last one that explains the difference; -1 where none does. ``table``, ``inverse``: of TABLES.
    """
    state = difference
    for k in range(end - begin):
        at = end - 1 - k
        low = inverse[state >> 24]
        moved = np.int64(data[at]) ^ np.int64(data[at + size])
        state = ((((state ^ np.int64(table[low])) << 8) | low) & 0xFFFFFFFF) ^ moved
        if state == 0:
            return at
    return -1
