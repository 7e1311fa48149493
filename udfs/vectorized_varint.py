"""Zigzag varints, the integers inside a magic 2 record: 1 to 5 bytes for int32, 1 to 10 for int64.

Seven bits a byte, least significant first, the high bit says that more follow. Padded forms are legal,
and bits past the type's width are dropped, as Kafka's ``ByteUtils.readVarint`` and ``readVarlong`` do;
a sixth (eleventh) byte is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs.format import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from udfs.jit import kernel


@kernel
def read_varint(buf: Any, pos: int, end: int) -> tuple[int, int]:
    """Read an int32 at ``buf[pos]``, never at or past ``end``.

    ``buf``: uint8[n], ``end`` <= n. Returns (value, position behind it); the position is -1 where the
    varint is cut by ``end`` or longer than five bytes.
    """
    if pos < 0 or pos >= end:
        return 0, -1
    first = np.int64(buf[pos])
    if first < 128:
        return (first >> 1) ^ -(first & 1), pos + 1
    raw = first & 0x7F
    stop = min(end, pos + MAX_VARINT_BYTES)
    shift = 7
    i = pos + 1
    while i < stop:
        byte = np.int64(buf[i])
        raw |= (byte & 0x7F) << shift
        i += 1
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), i
        shift += 7
    return 0, -1


@kernel
def read_varlong(buf: Any, pos: int, end: int) -> tuple[int, int]:
    """Read an int64; as ``read_varint``, with ten bytes at most."""
    if pos < 0 or pos >= end:
        return 0, -1
    first = np.int64(buf[pos])
    if first < 128:
        return (first >> 1) ^ -(first & 1), pos + 1
    raw = np.uint64(first & 0x7F)
    stop = min(end, pos + MAX_VARLONG_BYTES)
    shift = np.uint64(7)
    i = pos + 1
    while i < stop:
        byte = np.uint64(buf[i])
        raw |= (byte & np.uint64(0x7F)) << shift
        i += 1
        if byte < np.uint64(128):
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), i
        shift += np.uint64(7)
    return 0, -1


@kernel
def varint_size(value: int) -> int:
    """Bytes of the shortest varint that holds ``value`` (int32)."""
    raw = ((value << 1) ^ (value >> 31)) & 0xFFFFFFFF
    size = 1
    while raw >= 128:
        raw >>= 7
        size += 1
    return size
