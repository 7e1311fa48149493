"""Computes checksums of any range of a segment, at a cost that does not grow with the range.

A false length field may claim a gibibyte, and the next one too. The checksum of a range is what is left
of the checksum up to its end without the one up to its begin, so running checksums, kept at every block of
the segment, answer for each range after at most one more block has been read at either side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.kernels.checksums import crc32, crc32_combine, crc32c, crc32c_combine
from kafka_log_lake.udfs.kernels.jit import inlined, kernel
from kafka_log_lake.udfs.storage.byte_source import ByteSource, read_at

BLOCK = 1 << 12
_READ = 1 << 17


@kernel
def running_sums(buf: Any, size: int, step: int, sums_c: Any, sums: Any) -> None:
    """Writes the running CRC-32C and CRC-32 of ``buf[0:size]`` (uint8) at every step.

    The caller sets the first of each: ``sums_c[0]`` and ``sums[0]``.
    """
    for k in range(1, size // step + 1):
        sums_c[k] = crc32c(buf, (k - 1) * step, k * step, sums_c[k - 1])
        sums[k] = crc32(buf, (k - 1) * step, k * step, sums[k - 1])


@inlined
def without(whole: int, before: int, size: int, v2: bool) -> int:
    """Returns the checksum of the last ``size`` bytes, from that of all and that of the bytes before them."""
    return whole ^ (crc32c_combine(before, 0, size) if v2 else crc32_combine(before, 0, size))


class RangeChecksums:
    """The checksums of the bytes of a segment from ``origin`` on; the segment has ``length`` bytes."""

    def __init__(self, source: ByteSource, origin: int, length: int) -> None:
        self._source, self._origin, self._length = source, origin, length
        self._buf = np.empty(_READ, dtype=np.uint8)
        # uint32[n]: CRC-32C and CRC-32 from the origin to each block's begin, the first ``_known`` of them
        blocks = max(1, (length - origin) // BLOCK + 1)
        self._sums_c, self._sums = np.zeros(blocks, dtype=np.uint32), np.zeros(blocks, dtype=np.uint32)
        self._known = 1
        self._last = {True: (origin, 0), False: (origin, 0)}  # the last place requested, and its checksum

    def block_of(self, position: int) -> int:
        """Returns the position where the block that holds ``position`` begins."""
        return position - (position - self._origin) % BLOCK

    def before(self, block: int) -> np.ndarray:
        """Returns int64[2]: CRC-32C and CRC-32 from the origin to the begin of a block."""
        number = (block - self._origin) // BLOCK
        while self._known <= number:
            at = self._known - 1
            got = self._read(self._origin + at * BLOCK, _READ)
            steps = got // BLOCK
            own = np.zeros((2, steps + 1), dtype=np.int64)
            own[:, 0] = self._sums_c[at], self._sums[at]
            running_sums(self._buf, got, BLOCK, own[0], own[1])
            self._sums_c[at : at + steps + 1], self._sums[at : at + steps + 1] = own
            self._known += steps
        return np.array([self._sums_c[number], self._sums[number]], dtype=np.int64)

    def running(self, position: int, v2: bool) -> int:
        """Returns the checksum from the origin to ``position``: CRC-32C for magic 2, else CRC-32."""
        block = self.block_of(position)
        at, value = self._last[v2]
        if not block <= at <= position:
            at, value = block, int(self.before(block)[0 if v2 else 1])
        value = self._go_on(at, position, v2, value)
        self._last[v2] = position, value
        return value

    def of(self, start: int, end: int, v2: bool) -> int:
        """Returns the checksum of the bytes from ``start`` to ``end``: CRC-32C for magic 2, else CRC-32."""
        if end - start <= 2 * BLOCK:
            return self._go_on(start, end, v2, 0)
        before = self.running(start, v2)
        return int(without(self.running(end, v2), before, end - start, v2))

    def _go_on(self, start: int, end: int, v2: bool, value: int) -> int:
        update = crc32c if v2 else crc32
        while start < end:
            got = self._read(start, end - start)
            value = int(update(self._buf, 0, got, value))
            start += got
        return value

    def _read(self, position: int, size: int) -> int:
        return read_at(self._source, position, self._buf[: min(_READ, size)], self._length)
