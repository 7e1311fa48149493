"""Integers of Java in plain Python, and the varints of a record of magic 2."""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.format import layout as f


def varint_at(
    data: bytes | memoryview | np.ndarray, at: int, end: int, bits: int = 32
) -> tuple[int, int] | None:
    """Returns the zigzag varint at ``at``, and the position after it.

    It is None where the varint does not end before ``end``. bits: 32 or 64; higher bits are dropped, as in
    Kafka's ``ByteUtils``. A varint of more than 5 or 10 bytes is None too.
    """
    if at < end and (byte := int(data[at])) < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = 0
    most = f.MAX_VARINT_BYTES if bits == 32 else f.MAX_VARLONG_BYTES
    for i in range(min(most, end - at)):
        byte = int(data[at + i])
        raw |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            raw &= (1 << bits) - 1
            return (raw >> 1) ^ -(raw & 1), at + i + 1
    return None


def int64(value: int) -> int:
    """Returns the value as Java's long holds it: sums and differences of two longs overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
