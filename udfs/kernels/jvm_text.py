"""Repairs UTF-8 as the JVM reads it: what is malformed becomes U+FFFD, never an error.

One U+FFFD takes the place of a maximal subpart (Unicode 16, 3.9.6), as in Python and Arrow; but of an encoded
surrogate (ED A0..BF, and 80..BF if it follows) the JVM makes one, where Python makes one a byte.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.kernels.jit import copy_bytes, inlined, int64, kernel, load_u64

_REPLACEMENT = (0xEF, 0xBF, 0xBD)
_MOST = (1 << 31) - 1  # bytes in one column of Arrow strings
_HIGH_BITS = np.uint64(0x8080808080808080)


@kernel
def _piece(data: np.ndarray, at: int, end: int) -> tuple[int, bool]:
    """Returns the size of the character at ``data[at]`` (uint8) and True; of malformed bytes and False."""
    first = data[at]
    if first < 0x80:
        return 1, True
    if first < 0xC2 or first > 0xF4:
        return 1, False
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    surrogate = False
    for k in range(1, size):
        if at + k >= end or data[at + k] < low or data[at + k] > high:
            return k, False
        if k == 1 and first == 0xED and data[at + 1] >= 0xA0:
            surrogate = True
        low, high = 0x80, 0xBF
    return size, not surrogate


@inlined
def _repair_text(data: np.ndarray, at: int, end: int, out: np.ndarray, to: int, width: int) -> int:
    """Writes the text ``data[at:end]``, repaired, to ``out[to:]``; returns where it ends there.

    An empty ``out``: nothing is written. width: bytes that stand for what is malformed, 3 or 1.
    """
    while at < end:
        if at + 8 <= end and load_u64(data, at) & _HIGH_BITS == 0:  # ASCII
            if len(out):
                copy_bytes(out, to, data, at, 8)
            to += 8
            at += 8
            continue
        size, right = _piece(data, at, end)
        made = size if right else width
        if len(out):
            for i in range(made):
                out[to + i] = data[at + i] if right else (_REPLACEMENT[i] if width > 1 else 0x3F)
        to += made
        at += size
    return to


@kernel
def _repair(
    data: np.ndarray, offsets: np.ndarray, out: np.ndarray, out_offsets: np.ndarray, width: int
) -> int:
    """Writes each text ``data[offsets[k]:offsets[k + 1]]``, repaired, one after the other into ``out``.

    width: bytes that stand for what is malformed, 3 or 1. An empty ``out``: only ``out_offsets`` is written.
    Returns the bytes of all texts.
    """
    to = 0
    for k in range(len(offsets) - 1):
        out_offsets[k] = to
        to = _repair_text(data, int64(offsets[k]), int64(offsets[k + 1]), out, to, width)
    out_offsets[len(offsets) - 1] = to
    return to


@kernel
def repair_bytes(data: np.ndarray, out: np.ndarray) -> int:
    """Writes the text ``data`` (uint8[n]), repaired, to ``out`` (uint8[3 * n]); returns its bytes."""
    return _repair_text(data, 0, len(data), out, 0, 3)


def repair_utf8(raw: pa.Array) -> pa.Array:
    """Returns binary[n] without nulls as string[n], with malformed bytes replaced by U+FFFD.

    They are replaced by "?" where U+FFFD would make the column larger than 2 GiB.
    """
    _, offset_buffer, data_buffer = raw.buffers()
    text = pa.Array.from_buffers(pa.string(), len(raw), [None, offset_buffer, data_buffer], 0)
    try:
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:
        pass
    data = np.frombuffer(data_buffer, dtype=np.uint8)
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[: len(raw) + 1]
    out_offsets = np.empty(len(raw) + 1, dtype=np.int64)
    nothing = np.empty(0, dtype=np.uint8)
    width = 3
    size = int(_repair(data, offsets, nothing, out_offsets, width))
    if size > _MOST:
        width = 1
        size = int(_repair(data, offsets, nothing, out_offsets, width))
    out = np.empty(size, dtype=np.uint8)
    if size:
        _repair(data, offsets, out, out_offsets, width)
    buffers = [None, pa.py_buffer(out_offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers, 0)
