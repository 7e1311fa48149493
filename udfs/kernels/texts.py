"""Texts and bytes inside a column of payloads: ids before them, whether they are UTF-8, copies of many.

A decoder notes a text as a *span*: its first byte in the data, shifted by SPAN_BITS, and its size in bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs.kernels.jit import copy_bytes, copy_sixteen, int64, kernel, load_be32, load_u64

SPAN_BITS = 31  # Arrow's binary columns have less than 2^31 bytes
_HIGH_BITS = np.uint64(0x8080808080808080)


@kernel
def gather(data: Any, spans: Any, offsets: Any, out: Any) -> None:
    """Copy texts into ``out`` one behind the other.

    data, out: uint8. spans: int64[n]. offsets: int32[n + 1], is filled.
    """
    to = int64(0)
    mask = (1 << SPAN_BITS) - 1
    offsets[0] = 0
    for i in range(len(spans)):
        at, size = spans[i] >> SPAN_BITS, spans[i] & mask
        if size <= 16 and at + 16 <= len(data) and to + 16 <= len(out):
            copy_sixteen(out, to, data, at)
        else:
            copy_bytes(out, to, data, at, size)
        to += size
        offsets[i + 1] = to


@kernel
def framed_ids(data: Any, offsets: Any, ids: Any) -> None:
    """The big-endian int32 behind a first byte of 0, where it is not negative, into ``ids``: int64[n].

    data: uint8. offsets: int32[n + 1], where each payload begins. Other payloads leave ``ids`` as it is.
    """
    for i in range(len(ids)):
        at = int64(offsets[i])
        if offsets[i + 1] - at >= 5 and data[at] == 0 and data[at + 1] < 0x80:
            ids[i] = load_be32(data, at + 1)


@kernel
def is_utf8(data: Any, at: int, end: int) -> bool:
    """Whether bytes are UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing past U+10FFFF."""
    while at < end:
        while at + 8 <= end and load_u64(data, at) & _HIGH_BITS == 0:
            at += 8
        if at >= end:
            return True
        if at + 8 > end and at + 8 <= len(data):
            behind = np.uint64(8 * (at + 8 - end))
            if (load_u64(data, at) << behind) & _HIGH_BITS == 0:
                return True
        lead = int64(data[at])
        if lead < 0x80:
            at += 1
            continue
        more = 1 if 0xC2 <= lead <= 0xDF else 2 if lead & 0xF0 == 0xE0 else 3 if 0xF0 <= lead <= 0xF4 else 0
        if more == 0 or at + more >= end:
            return False
        second = int64(data[at + 1])
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for i in range(2, more + 1):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True
