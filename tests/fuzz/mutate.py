"""Changes to batches, drawn from a counter: compiled, so that they cost little and repeat by their seed.

A batch is changed in a few places, blindly (bits, bytes, cuts) and knowingly (header fields, big-endian
lengths, varints). Most are mended afterwards: their length is made right and their checksum, also that of
inner messages, so that what is wrong with them is met where checksums end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.checksums import crc32, crc32c
from kafka_log_lake.udfs.kernels.jit import copy_bytes, kernel, load_be32

MOST = 1 << 14  # bytes of an input
ROOM = MOST + 64  # bytes of a working buffer

_TELLING = np.array([0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x1F, 0x28], dtype=np.uint8)
# fmt: off
_NUMBERS = np.array(
    [
        -(1 << 63),
        -(1 << 31),
        -(1 << 31) + 1,
        -1000,
        -128,
        -65,
        -64,
        -3,
        -2,
        -1,
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        13,
        14,
        21,
        22,
        26,
        34,
        48,
        49,
        61,
        63,
        64,
        127,
        128,
        255,
        256,
        1000,
        65535,
        1 << 16,
        1 << 20,
        1 << 24,
        1 << 30,
        (1 << 31) - 13,
        (1 << 31) - 1,
        1 << 40,
        (1 << 63) - 1,
    ],
    dtype=np.int64,
)
_FIELDS = np.array(  # position and width: of record batches, then of messages
    [
        (0, 8),
        (8, 4),
        (12, 4),
        (16, 1),
        (17, 4),
        (21, 2),
        (22, 1),
        (23, 4),
        (27, 8),
        (35, 8),
        (43, 8),
        (51, 2),
        (53, 4),
        (57, 4),
        (57, 4),
        (61, 1),
        (62, 1),
        (63, 1),
        (64, 1),
        (65, 1),
        (66, 1),
        (17, 1),
        (18, 8),
        (18, 4),
        (22, 4),
        (26, 4),
        (30, 4),
        (34, 8),
        (42, 4),
        (50, 1),
        (51, 1),
    ],
    dtype=np.int64,
)
# fmt: on
OPERATIONS = 12


@kernel
def draw(state: Any, bound: int) -> int:
    """A number from 0 to below ``bound``; ``state``: uint64[1], moved on (splitmix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64((z >> np.uint64(1)) % np.uint64(bound))


@kernel
def _put(work: Any, at: int, width: int, value: int) -> None:
    """Big-endian ``value`` at ``work[at:at+width]``."""
    for i in range(width):
        work[at + i] = np.uint8((value >> (8 * (width - 1 - i))) & 0xFF)


@kernel
def _put_varint(work: Any, at: int, n: int, value: int, least: int) -> None:
    """Zigzag ``value`` over what lies at ``work[at:n]``, padded to ``least`` bytes, cut by ``n``."""
    raw = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = 1
    while at < n:
        low = np.uint8(raw & np.uint64(0x7F))
        raw = raw >> np.uint64(7)
        if raw == 0 and size >= least:
            work[at] = low
            break
        work[at] = low | np.uint8(0x80)
        at += 1
        size += 1


@kernel
def _number(state: Any) -> int:
    value = _NUMBERS[draw(state, len(_NUMBERS))]
    return value + draw(state, 3) - 1 if draw(state, 4) == 0 else value


@kernel
def _resize(work: Any, n: int, state: Any, operation: int) -> int:
    """Bytes cut out, put in, doubled, or lost from the end; the new size."""
    at = draw(state, n)
    size = 1 + draw(state, 8)
    if operation == 0:
        size = min(size, n - at)
        for i in range(at, n - size):
            work[i] = work[i + size]
        return int(n - size)
    if operation == 1:
        return int(at)
    if n + size > MOST:
        return n
    for i in range(n - 1, at - 1, -1):
        work[i + size] = work[i]
    if operation == 2:
        for i in range(size):
            work[at + i] = _TELLING[draw(state, len(_TELLING))]
    return n + size


@kernel
def _change(work: Any, n: int, state: Any) -> int:
    """One change to ``work[0:n]``, n > 0; the new size."""
    operation = draw(state, OPERATIONS)
    at = draw(state, n)
    if operation == 0:
        work[at] ^= np.uint8(1 << draw(state, 8))
    elif operation <= 2:
        work[at] = _TELLING[draw(state, len(_TELLING))]
    elif operation == 3:
        work[at] = np.uint8(work[at] + draw(state, 33) - 16)
    elif operation == 4 and n >= 4:
        _put(work, draw(state, n - 3), 4, _number(state))
    elif operation <= 7:
        k = draw(state, len(_FIELDS))
        if _FIELDS[k, 0] + _FIELDS[k, 1] <= n:
            value = _number(state) if draw(state, 4) else draw(state, 1 << 62)
            _put(work, _FIELDS[k, 0], _FIELDS[k, 1], value)
    elif operation <= 9:
        _put_varint(work, at, n, _number(state), draw(state, 12))
    elif operation == 10:
        return _resize(work, n, state, draw(state, 4))
    else:
        other, size = draw(state, n), 1 + draw(state, 16)
        for i in range(min(size, n - max(at, other))):
            work[at + i] = work[other + i]
    return n


@kernel
def mend(work: Any, n: int) -> None:
    """Make the length and the checksum of the batch ``work[0:n]`` right."""
    if n < f.V0_MIN_SIZE:
        return
    _put(work, f.LENGTH_POS, 4, n - f.LOG_OVERHEAD)
    if work[f.MAGIC_POS] != f.MAGIC_V2:
        _put(work, f.LEGACY_CRC_POS, 4, crc32(work, f.MAGIC_POS, n, 0))
    elif n >= f.V2_HEADER_SIZE:
        _put(work, f.V2_CRC_POS, 4, crc32c(work, f.V2_ATTRIBUTES_POS, n, 0))


@kernel
def value_of(work: Any, n: int) -> int:
    """Where the value of the message ``work[0:n]`` begins, if it goes on to the end; else -1."""
    at = f.V1_KEY_LENGTH_POS if work[f.MAGIC_POS] == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS
    if work[f.MAGIC_POS] == f.MAGIC_V2 or at + 8 > n:
        return -1
    at += 4 + max(0, load_be32(work, at))
    return at + 4 if at + 4 <= n else -1


@kernel
def _mend_inner(work: Any, n: int) -> None:
    """Make the value's length right, and the checksums of the messages in it."""
    at = value_of(work, n)
    if at < 0:
        return
    _put(work, at - 4, 4, n - at)
    while at + f.V0_MIN_SIZE <= n:
        size = load_be32(work, at + f.LENGTH_POS) + f.LOG_OVERHEAD
        if size < f.V0_MIN_SIZE or size > n - at:
            break
        _put(work, at + f.LEGACY_CRC_POS, 4, crc32(work, at + f.MAGIC_POS, at + size, 0))
        at += size


@kernel
def pick(seeds: Any, starts: Any, work: Any, state: Any) -> int:
    """Copy one of the seeds (uint8, seed k from ``starts[k]`` on) to ``work``; its size."""
    k = draw(state, len(starts) - 1)
    n = starts[k + 1] - starts[k]
    copy_bytes(work, 0, seeds, starts[k], n)
    return n


@kernel
def change(work: Any, n: int, state: Any) -> int:
    """One to a few changes to ``work[0:n]``; the new size, at least 1."""
    for _ in range(1 + draw(state, 1 + draw(state, 4))):
        n = max(1, _change(work, n, state))
    return n


@kernel
def mend_mostly(work: Any, n: int, state: Any) -> None:
    """Seven of eight batches get a right length and checksum, most of their inner messages too."""
    if draw(state, 8) == 0:
        return
    if draw(state, 4):
        _mend_inner(work, n)
    mend(work, n)
