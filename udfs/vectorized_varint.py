"""Reads zigzag varints, the integers in a magic 2 record: 1 to 5 bytes for int32, 1 to 10 for int64.

Seven bits a byte, least significant first, the high bit says that more follow. Padded forms are legal,
and bits past the type's width are dropped, as Kafka's ``ByteUtils.readVarint`` and ``readVarlong`` do;
a sixth (eleventh) byte is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.format.layout import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel


@kernel
def _long_varint(buf: Any, pos: int, end: int) -> tuple[int, int]:
    raw = 0
    shift = 0
    for i in range(pos, min(end, pos + MAX_VARINT_BYTES)):
        byte = int64(buf[i])
        raw |= (byte & 0x7F) << shift
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), i + 1
        shift += 7
    return 0, -1


@inlined
def read_varint(buf: Any, pos: int, end: int) -> tuple[int, int]:
    """Reads an int32 at ``buf[pos]``, never at or past ``end``.

    ``buf``: uint8[n], ``end`` <= n. Returns (value, position after it); the position is -1 where the
    varint is cut by ``end`` or longer than five bytes, or ``pos`` is -1 already.
    """
    if pos < 0 or pos >= end:
        return 0, -1
    first = int64(buf[pos])
    if first < 128:
        return (first >> 1) ^ -(first & 1), pos + 1
    if pos + 1 < end:
        second = int64(buf[pos + 1])
        if second < 128:
            raw = (first & 0x7F) | (second << 7)
            return (raw >> 1) ^ -(raw & 1), pos + 2
    return _long_varint(buf, pos, end)


@kernel
def _long_varlong(buf: Any, pos: int, end: int) -> tuple[int, int]:
    raw = np.uint64(0)
    shift = np.uint64(0)
    for i in range(pos, min(end, pos + MAX_VARLONG_BYTES)):
        byte = np.uint64(buf[i])
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(128):
            return int64(raw >> np.uint64(1)) ^ -int64(raw & np.uint64(1)), i + 1
        shift += np.uint64(7)
    return 0, -1


@inlined
def read_varlong(buf: Any, pos: int, end: int) -> tuple[int, int]:
    """Reads an int64; arguments and result as for ``read_varint``, with ten bytes at most."""
    if pos < 0 or pos >= end:
        return 0, -1
    first = int64(buf[pos])
    if first < 128:
        return (first >> 1) ^ -(first & 1), pos + 1
    return _long_varlong(buf, pos, end)


@inlined
def varint_size(value: int) -> int:
    """Returns the bytes of the shortest varint that holds ``value`` (int32)."""
    raw = ((value << 1) ^ (value >> 31)) & 0xFFFFFFFF
    return 1 + (raw >= 1 << 7) + (raw >= 1 << 14) + (raw >= 1 << 21) + (raw >= 1 << 28)
