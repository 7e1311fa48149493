"""Works on texts and bytes in a column of payloads: ids before them, checks of UTF-8, copies of many.

A decoder notes a text as a *span*: its first byte in the data, shifted by SPAN_BITS, and its size in bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.kernels.jit import copy_bytes, copy_sixteen, int64, kernel, load_be32, load_u64

SPAN_BITS = 31  # Arrow's binary columns have less than 2^31 bytes
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
# Results of ``looks`` for a payload
LEFT, JSON_LIKE, TEXT, BYTES = range(4)


@kernel
def gather(data: np.ndarray, spans: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """Copies texts into ``out`` one after the other.

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
def framed_ids(data: np.ndarray, offsets: np.ndarray, ids: np.ndarray) -> None:
    """Writes the big-endian int32 after a first byte of 0, where it is not negative, into ``ids`` (int64[n]).

    data: uint8. offsets: int32[n + 1], where each payload begins. Other payloads leave ``ids`` as it is.
    """
    for i in range(len(ids)):
        at = int64(offsets[i])
        if offsets[i + 1] - at >= 5 and data[at] == 0 and data[at + 1] < 0x80:
            ids[i] = load_be32(data, at + 1)


@kernel
def is_utf8(data: np.ndarray, at: int, end: int) -> bool:
    """Tells whether ``data[at:end]`` is UTF-8 (RFC 3629).

    It has no overlong forms, no surrogates, nothing past U+10FFFF.
    """
    while at < end:
        while at + 8 <= end and load_u64(data, at) & _HIGH_BITS == 0:
            at += 8
        if at >= end:
            return True
        if at + 8 > end and at + 8 <= len(data):
            surplus = np.uint64(8 * (at + 8 - end))
            if (load_u64(data, at) << surplus) & _HIGH_BITS == 0:
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


@kernel
def has_controls(data: np.ndarray, at: int, end: int) -> bool:
    """Tells whether UTF-8 has a control character (C0, DEL, C1) other than blanks: 09-0D, 1C-1F, 85."""
    while at < end:
        if at + 8 <= end:
            word = load_u64(data, at)
            low = (word - _ONES * np.uint64(0x20)) & ~word
            deleted = (word ^ (_ONES * np.uint64(0x7F))) - _ONES
            if (word | low | deleted) & _HIGH_BITS == 0:
                at += 8
                continue
        byte = int64(data[at])
        if byte < 9 or 0x0D < byte < 0x1C or byte == 0x7F:
            return True
        if byte == 0xC2 and data[at + 1] < 0xA0 and data[at + 1] != 0x85:
            return True
        at += 1
    return False


@kernel
def looks(data: np.ndarray, offsets: np.ndarray, rows: Any, found: np.ndarray) -> None:
    """Writes what payloads without a framing look like into ``found`` (uint8[n] of zeros).

    data: uint8. offsets: int32[n + 1]. rows: int64[], which are looked at. JSON_LIKE: begins with { or [.
    TEXT: UTF-8 without such control characters. BYTES: all else. LEFT: what begins with blanks or a byte
    order mark before { or [.
    """
    for i in rows:
        begin, end = int64(offsets[i]), int64(offsets[i + 1])
        at = begin
        while at < end:
            if data[at] == 0x20 or data[at] == 9 or data[at] == 10 or data[at] == 13:
                at += 1
            elif at + 3 <= end and data[at] == 0xEF and data[at + 1] == 0xBB and data[at + 2] == 0xBF:
                at += 3
            else:
                break
        if at < end and (data[at] == 0x7B or data[at] == 0x5B):
            found[i] = JSON_LIKE if at == begin else LEFT
        else:
            found[i] = TEXT if is_utf8(data, begin, end) and not has_controls(data, begin, end) else BYTES
