"""Searches the bytes of one segment for the next batch that proves itself.

A batch proves itself by two things: its length is legal and fits the segment, and its checksum is right.

The search is linear in the bytes it passes, whatever they are. The checksum of any range is computed from
running checksums at fixed steps, so a candidate that turns out to be no batch costs the same
however long it claims to be. Candidates that end after the region in view wait: sorted by their ends they
are judged together, a block of the segment at a time. And what was searched is not searched again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafka_log_lake.udfs.decoder.range_checksums import BLOCK, RangeChecksums, running_sums, without
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.checksums import crc32, crc32c
from kafka_log_lake.udfs.kernels.framing import batch_size, checksum
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel, load_be32, load_u64
from kafka_log_lake.udfs.storage.byte_source import ByteSource, read_at

_STEP = 1 << 6  # bytes between running checksums
_REGION = 1 << 14  # bytes searched at a time: the first time, and
_REGION_MOST = 1 << 24  # from then on
_ZEROS_BLOCKS = 1 << 12, 1 << 20  # bytes read at the end of the segment, and then before them while all are 0

# Candidates whose ends are not in view: where each begins and ends in the segment, the running checksum up to
# the first byte that its own checksum covers, and the checksum that it stores
_WAITING = np.dtype([("at", "i8"), ("end", "i8"), ("before", "u4"), ("stored", "u4"), ("v2", "?")])
_WAITING_MOST = 1 << 20
_FEW = 1 << 10  # this few of them are followed first


@kernel
def _nonzero_end(buf: Any, size: int) -> int:
    """Returns where the zeros at the end of ``buf[0:size]`` (uint8) begin; 0 where all bytes are zero."""
    at = size
    while at >= 8 and load_u64(buf, at - 8) == np.uint64(0):
        at -= 8
    while at > 0 and buf[at - 1] == 0:
        at -= 1
    return at


@inlined
def _none_below_three(word: Any) -> bool:
    """Tells whether none of the eight bytes of a uint64 is 0, 1 or 2, so that none can be a magic.

    A byte below three borrows when three is taken from it (Bit Twiddling Hacks, "hasless"); a borrow may also
    come from the byte below, but only where that one was below three.
    """
    borrows = (word - np.uint64(0x0303030303030303)) & ~word & np.uint64(0x8080808080808080)
    return borrows == np.uint64(0)


@inlined
def _up_to(buf: Any, place: int, v2: bool, sums_c: Any, sums: Any) -> int:
    """Returns the running checksum up to ``buf[place]``: CRC-32C for magic 2, else CRC-32."""
    step = place // _STEP
    if v2:
        return crc32c(buf, step * _STEP, place, sums_c[step])
    return crc32(buf, step * _STEP, place, sums[step])


@kernel
def _find(
    buf: Any, start: int, stop: int, end: int, position: int, length: int, zeros: int,
    sums_c: Any, sums: Any, waiting: Any, n: int,
) -> tuple[int, bool, int]:  # fmt: skip
    """Finds the first place in ``buf[start:stop]`` (uint8) where a batch proves itself.

    Returns (place, True, n). Returns (place, False, n) where none does before that place: ``stop``, or where
    ``waiting`` was full. ``end`` bytes of ``buf`` are filled, from ``position`` of the segment on; the
    segment has ``length`` bytes and nothing but zeros from ``zeros`` on. ``waiting``: _WAITING rows, of which
    ``n`` are in use.
    """
    room, zeros = length - position, zeros - position
    last = min(stop, end - f.V0_MIN_SIZE + 1, zeros) - 1
    at = start - 1
    while at < last:
        at += 1
        while at + 7 <= last and _none_below_three(load_u64(buf, at + f.MAGIC_POS)):
            at += 8
        if at > last:
            break
        size = batch_size(buf, at, end)
        if size <= 0 or size > room - at:
            continue
        v2 = buf[at + f.MAGIC_POS] == f.MAGIC_V2
        stored = load_be32(buf, at + (f.V2_CRC_POS if v2 else f.LEGACY_CRC_POS)) & 0xFFFFFFFF
        begin = at + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
        following = at + size
        if following > end:
            if n == len(waiting):
                return at, False, n
            waiting[n]["at"], waiting[n]["end"] = position + at, position + following
            waiting[n]["before"], waiting[n]["stored"] = _up_to(buf, begin, v2, sums_c, sums), stored
            waiting[n]["v2"] = v2
            n += 1
            continue
        if size <= 4 * _STEP:
            computed = checksum(buf, at, size)
        else:
            before = _up_to(buf, begin, v2, sums_c, sums)
            computed = without(_up_to(buf, following, v2, sums_c, sums), before, following - begin, v2)
        if computed == stored:
            return at, True, n
    return stop, False, n


@kernel
def _judge(buf: Any, position: int, waiting: Any, k: int, before: Any, found: int) -> tuple[int, int]:
    """Checks the candidates from ``waiting[k]`` on that end before ``buf[BLOCK]``, ordered by their ends.

    ``buf``: uint8, from ``position`` on; ``before``: int64[2], the running CRC-32C and CRC-32
    up to ``buf[0]``. Returns the index of the first candidate that ends later, and the lowest position of a
    candidate whose checksum is right, or ``found`` where there is none lower.
    """
    place_c = place = 0
    while k < len(waiting) and waiting[k]["end"] < position + BLOCK:
        e = waiting[k]
        at = e["end"] - position
        k += 1
        if found >= 0 and e["at"] > found:
            continue
        if e["v2"]:
            before[0] = crc32c(buf, place_c, at, before[0])
            place_c, whole, begin = at, before[0], e["at"] + f.V2_ATTRIBUTES_POS
        else:
            before[1] = crc32(buf, place, at, before[1])
            place, whole, begin = at, before[1], e["at"] + f.MAGIC_POS
        if without(whole, int64(e["before"]), e["end"] - begin, e["v2"]) == e["stored"]:
            found = e["at"]
    return k, found


@dataclass(frozen=True)
class _Region:
    """A region of the segment in memory.

    It holds the bytes from ``position`` on, and their running checksums at every step.
    """

    position: int
    last: int  # batches that begin before it can be judged, or wait
    buf: np.ndarray
    sums_c: np.ndarray
    sums: np.ndarray


class BatchSearch:
    """Finds batches that prove themselves in the bytes of a segment from ``origin`` to ``length``."""

    def __init__(
        self,
        source: ByteSource,
        origin: int,
        length: int,
        checksums: RangeChecksums,
        leads_on: Callable[[int], bool] | None = None,
    ) -> None:
        """Sets what to search. leads_on: tells whether a batch may end at a position; None: at any.

        It is given where only batches that others follow are wanted.

        It spares the checksum of bytes that look like the header of a batch of many MiB.
        """
        self._leads_on = leads_on
        self._source, self._origin, self._length = source, origin, length
        self._checksums = checksums
        # The region that was searched last, and the one before: searches after damage go to and fro between
        # the place of the damage and where lengths lead
        self._regions: list[_Region] = []
        self._waiting = np.empty(_WAITING_MOST, dtype=_WAITING)
        self._zeros = -1  # where the zeros begin that the segment ends with; -1 not looked for
        # Ranges that were searched, ascending: no batch proves itself in them, but one does at their ends,
        # unless that is the segment's
        self._begins: list[int] = []
        self._ends: list[int] = []

    def _read(self, position: int, view: np.ndarray) -> int:
        return read_at(self._source, position, view, self._length)

    def zeros(self) -> int:
        """Returns the position where the zeros at the segment's end begin.

        It is the segment's length where no zeros end it.
        """
        if self._zeros < 0:
            self._zeros = self._length
            for size in itertools.chain(_ZEROS_BLOCKS[:1], itertools.repeat(_ZEROS_BLOCKS[1])):
                start = max(self._origin, self._zeros - size)
                block = np.empty(self._zeros - start, dtype=np.uint8)
                end = int(_nonzero_end(block, self._read(start, block)))
                self._zeros = start + end
                if end or start == self._origin:
                    break
        return self._zeros

    def first_from(self, start: int) -> int:
        """Returns the position of the first batch from byte ``start`` on that proves itself, or -1."""
        if start >= self.zeros():
            return -1
        at = bisect_right(self._begins, start)
        if at and start <= self._ends[at - 1]:
            at -= 1
        else:
            stop = self._begins[at] if at < len(self._begins) else self._length
            found = self._scan(start, stop)
            if found == stop < self._length:
                self._begins[at] = start
            else:
                self._begins.insert(at, start)
                self._ends.insert(at, found)
        return self._ends[at] if self._ends[at] < self._length else -1

    def _look(self, position: int, size: int, before: np.ndarray) -> _Region:
        """Reads ``size`` bytes from ``position`` on, and computes their running checksums.

        before: int64[2], the running CRC-32C and CRC-32 up to ``position``.
        """
        buf = np.empty(min(size, self._length - position), dtype=np.uint8)
        got = self._read(position, buf)
        sums_c = np.empty(got // _STEP + 1, dtype=np.int64)
        sums = np.empty_like(sums_c)
        sums_c[0], sums[0] = before
        running_sums(buf, got, _STEP, sums_c, sums)
        last = got if position + got == self._length else (got - f.V0_MIN_SIZE) // _STEP * _STEP
        return _Region(position, last, buf, sums_c, sums)

    def _scan(self, start: int, stop: int) -> int:
        """Returns the position of the first batch in [start, stop) that proves itself, or ``stop``."""
        there = (r for r in self._regions if r.position <= start < r.position + r.last)
        region = next(there, None)
        if region is None:
            both = [self._checksums.running(start, True), self._checksums.running(start, False)]
            region = self._look(start, _REGION, np.array(both, dtype=np.int64))
        before = [r for r in self._regions if r is not region][:1]
        waiting, n = self._waiting, 0
        at, size = start - region.position, _REGION
        while True:
            self._regions = [region, *before]
            last, proven = min(region.last, stop - region.position), False
            while at < last and not proven:
                in_view = (last, len(region.buf), region.position, self._length, self.zeros())
                at, proven, n = _find(region.buf, at, *in_view, region.sums_c, region.sums, waiting, n)
                if proven or at < last:
                    found = self._first_right(waiting[:n])
                    if found >= 0 or proven:
                        return found if found >= 0 else region.position + int(at)
                    n = 0
            position = region.position + last
            if position >= min(stop, self.zeros()):
                found = self._first_right(waiting[:n])
                return found if found >= 0 else stop
            size = min(4 * size, _REGION_MOST)
            sums = np.array([region.sums_c[last // _STEP], region.sums[last // _STEP]])
            region, at = self._look(position, size, sums), 0

    def _first_right(self, waiting: np.ndarray) -> int:
        """Returns the lowest position of the candidates that wait whose checksum is right, or -1."""
        waiting = waiting[np.argsort(waiting["end"])]
        if self._leads_on is not None and len(waiting) <= _FEW:
            waiting = waiting[[self._leads_on(int(end)) for end in waiting["end"]]]
        if not len(waiting):
            return -1
        block = np.empty(BLOCK, dtype=np.uint8)
        k, found = 0, -1
        while k < len(waiting):
            position = self._checksums.block_of(int(waiting["end"][k]))
            before = self._checksums.before(position)
            self._read(position, block)
            k, found = _judge(block, position, waiting, k, before, found)
        return int(found)
