"""The search for the next entry that proves itself, in the bytes of one segment.

An entry proves itself by three things: its length is legal and fits the segment, what follows its end is an
entry (or the end of the segment, or the zeros up to it), and its checksum is right.

The search is linear in the bytes it passes, whatever they are. The checksum of any range comes from running
checksums at fixed steps (that of a whole is that of its parts), so what only looks like an entry costs the
same however long it claims to be. Entries that end past the region in view wait: sorted by their ends they
are judged together, in one more pass over the segment. And what was searched is not searched again.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from udfs.format import layout as f
from udfs.kernels.checksums import crc32, crc32_combine, crc32c, crc32c_combine
from udfs.kernels.framing import checksum, entry_size
from udfs.kernels.jit import inlined, kernel, load_be32, load_u64
from udfs.source.byte_source import ByteSource, read_at

_STEP = 1 << 6  # bytes between running checksums
_REGION = 1 << 16  # bytes searched at a time: the first time, and
_REGION_MOST = 1 << 24  # from then on
_BLOCK = 1 << 16

# Entries whose ends are not in view: begin and end in the segment, the running checksum up to what the
# entry's own one covers, and that one
_WAITING = np.dtype([("at", "i8"), ("end", "i8"), ("before", "u4"), ("stored", "u4"), ("v2", "?")])
_WAITING_MOST = 1 << 20


@kernel
def _running(buf: Any, size: int, before: Any, sums_c: Any, sums: Any) -> None:
    """Running CRC-32C and CRC-32 of ``buf[0:size]`` at every step, going on from ``before`` (int64[2])."""
    sums_c[0], sums[0] = before[0], before[1]
    for k in range(1, size // _STEP + 1):
        sums_c[k] = crc32c(buf, (k - 1) * _STEP, k * _STEP, sums_c[k - 1])
        sums[k] = crc32(buf, (k - 1) * _STEP, k * _STEP, sums[k - 1])


@inlined
def _none_below_three(word: Any) -> bool:
    """Whether none of the eight bytes of a uint64 is 0, 1 or 2: none can be a magic.

    A byte below three borrows when three is taken from it (Bit Twiddling Hacks, "hasless"); a borrow may also
    come from the byte below, but only where that one was below three.
    """
    borrows = (word - np.uint64(0x0303030303030303)) & ~word & np.uint64(0x8080808080808080)
    return borrows == np.uint64(0)


@inlined
def _up_to(buf: Any, place: int, v2: bool, sums_c: Any, sums: Any) -> int:
    """The running checksum up to ``buf[place]``: CRC-32C for magic 2, else CRC-32."""
    step = place // _STEP
    if v2:
        return crc32c(buf, step * _STEP, place, sums_c[step])
    return crc32(buf, step * _STEP, place, sums[step])


@inlined
def _without(whole: int, before: int, size: int, v2: bool) -> int:
    """The checksum of the last ``size`` bytes, from that of all and that of the bytes before them."""
    return whole ^ (crc32c_combine(before, 0, size) if v2 else crc32_combine(before, 0, size))


@inlined
def _follows(buf: Any, at: int, end: int, zeros: int) -> bool:
    """Whether an entry may end at ``buf[at]``: another begins there, or nothing more but zeros."""
    return at >= zeros or at + f.HEADER_UP_TO_MAGIC > end or entry_size(buf, at, end) > 0


@kernel
def _find(
    buf: Any, start: int, stop: int, end: int, position: int, length: int, zeros: int,
    sums_c: Any, sums: Any, waiting: Any, n: int,
) -> tuple[int, bool, int]:  # fmt: skip
    """The first place in ``buf[start:stop]`` (uint8) where an entry proves itself: (place, True, n).

    (place, False, n) where none does before that place: ``stop``, or where ``waiting`` was full. ``end``
    bytes of ``buf`` are there, from ``position`` of the segment on; the segment has ``length`` bytes and
    nothing but zeros from ``zeros`` on. ``waiting``: _WAITING rows, of which ``n`` are in use.
    """
    room, zeros = length - position, zeros - position
    last = min(stop, end - f.V0_MIN_SIZE + 1) - 1
    at = start - 1
    while at < last:
        at += 1
        while at + 7 <= last and _none_below_three(load_u64(buf, at + f.MAGIC_POS)):
            at += 8
        if at > last:
            break
        size = entry_size(buf, at, end)
        if size <= 0 or size > room - at:
            continue
        v2 = buf[at + f.MAGIC_POS] == f.MAGIC_V2
        stored = load_be32(buf, at + (f.V2_CRC_POS if v2 else f.LEGACY_CRC_POS)) & 0xFFFFFFFF
        begin = at + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
        following = at + size
        if following > end or (following < zeros and following + f.HEADER_UP_TO_MAGIC > end and end < room):
            if n == len(waiting):
                return at, False, n
            waiting[n]["at"], waiting[n]["end"] = position + at, position + following
            waiting[n]["before"], waiting[n]["stored"] = _up_to(buf, begin, v2, sums_c, sums), stored
            waiting[n]["v2"] = v2
            n += 1
        elif _follows(buf, following, end, zeros):
            if size <= 4 * _STEP:
                computed = checksum(buf, at, size)
            else:
                before = _up_to(buf, begin, v2, sums_c, sums)
                computed = _without(_up_to(buf, following, v2, sums_c, sums), before, following - begin, v2)
            if computed == stored:
                return at, True, n
    return stop, False, n


@kernel
def _keep_followed(
    buf: Any, end: int, position: int, length: int, zeros: int, waiting: Any, k: int, kept: int
) -> tuple[int, int]:
    """Of the entries from ``waiting[k]`` on, which end in ``buf``, keep those that another may follow.

    Gives the first entry that ends past ``buf``, and how many are kept in all, at the front of ``waiting``.
    """
    while k < len(waiting):
        at = waiting[k]["end"] - position
        if at + f.HEADER_UP_TO_MAGIC > end and position + end < length:
            break
        if _follows(buf, at, end, zeros - position):
            waiting[kept] = waiting[k]
            kept += 1
        k += 1
    return k, kept


@kernel
def _judge(
    buf: Any, end: int, position: int, waiting: Any, k: int, before: Any, found: int
) -> tuple[int, int]:
    """Hold the entries from ``waiting[k]`` on that end in ``buf`` to their checksums.

    ``before``: int64[2], the running CRC-32C and CRC-32 up to ``buf[0]``, and up to its end afterwards.
    Gives the first entry that ends past ``buf``, and the lowest place of one that is right, or ``found``.
    """
    place_c = place = 0
    while k < len(waiting) and waiting[k]["end"] <= position + end:
        e = waiting[k]
        at = e["end"] - position
        if e["v2"]:
            before[0] = crc32c(buf, place_c, at, before[0])
            place_c, whole, begin = at, before[0], e["at"] + f.V2_ATTRIBUTES_POS
        else:
            before[1] = crc32(buf, place, at, before[1])
            place, whole, begin = at, before[1], e["at"] + f.MAGIC_POS
        right = _without(whole, np.int64(e["before"]), e["end"] - begin, e["v2"]) == e["stored"]
        if right and (found < 0 or e["at"] < found):
            found = e["at"]
        k += 1
    before[0] = crc32c(buf, place_c, end, before[0])
    before[1] = crc32(buf, place, end, before[1])
    return k, found


@dataclass(frozen=True)
class _Region:
    """Bytes in view, from ``position`` of the segment on, with their running checksums at every step."""

    position: int
    last: int  # entries that begin before it can be judged, or wait
    buf: np.ndarray
    sums_c: np.ndarray
    sums: np.ndarray

    def before(self, at: int) -> np.ndarray:
        """int64[2]: both running checksums up to ``buf[at]``, a step."""
        return np.array([self.sums_c[at // _STEP], self.sums[at // _STEP]])


class EntrySearch:
    """Finds entries that prove themselves in a segment of ``length`` bytes."""

    def __init__(self, source: ByteSource, length: int) -> None:
        self._source = source
        self._length = length
        self._block = np.empty(_BLOCK, dtype=np.uint8)
        self._region: _Region | None = None
        self._zeros = -1  # where the zeros begin that the segment ends with; -1 not looked for
        # Ranges that were searched, ascending: no entry proves itself in them, but one does at their ends,
        # unless that is the segment's
        self._begins: list[int] = []
        self._ends: list[int] = []

    def _read(self, position: int, view: np.ndarray) -> int:
        return read_at(self._source, position, view, self._length)

    def zeros(self) -> int:
        """Where the zeros begin that the segment ends with; its length where it ends with none."""
        if self._zeros < 0:
            self._zeros = self._length
            while self._zeros > 0:
                start = max(0, self._zeros - _BLOCK)
                got = self._read(start, self._block[: self._zeros - start])
                some = self._block[:got].nonzero()[0]
                if len(some):
                    self._zeros = start + int(some[-1]) + 1
                    break
                self._zeros = start
        return self._zeros

    def first_from(self, start: int) -> int:
        """The first entry from byte ``start`` on that proves itself, of whatever offset, or -1."""
        if start >= self._length:
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
        """``size`` bytes from ``position`` on, after the running checksums ``before``."""
        buf = np.empty(min(size, self._length - position), dtype=np.uint8)
        got = self._read(position, buf)
        sums_c = np.empty(got // _STEP + 1, dtype=np.int64)
        sums = np.empty_like(sums_c)
        _running(buf, got, before, sums_c, sums)
        last = got if position + got == self._length else (got - f.V0_MIN_SIZE) // _STEP * _STEP
        return _Region(position, last, buf, sums_c, sums)

    def _scan(self, start: int, stop: int) -> int:
        """The first entry from ``start`` on, and before ``stop``, that proves itself; or ``stop``."""
        region = self._region
        if not region or not region.position <= start < region.position + region.last:
            region = self._look(start, _REGION, np.zeros(2, dtype=np.int64))
        waiting, n = np.empty(_WAITING_MOST, dtype=_WAITING), 0
        floor = region  # where those began that wait
        at, size = start - region.position, _REGION
        while True:
            self._region = region
            last, proven = min(region.last, stop - region.position), False
            while at < last and not proven:
                in_view = (last, len(region.buf), region.position, self._length, self.zeros())
                at, proven, n = _find(region.buf, at, *in_view, region.sums_c, region.sums, waiting, n)
                if proven or at < last:
                    found = self._first_right(waiting[:n], floor)
                    if found >= 0 or proven:
                        return found if found >= 0 else region.position + int(at)
                    floor, n = region, 0
            position = region.position + last
            if position >= stop:
                found = self._first_right(waiting[:n], floor)
                return found if found >= 0 else stop
            size = min(4 * size, _REGION_MOST)
            region, at = self._look(position, size, region.before(last)), 0
            floor = floor if n else region

    def _first_right(self, waiting: np.ndarray, floor: _Region) -> int:
        """The first of the entries that wait which proves itself, or -1; all of them end past ``floor``."""
        waiting = waiting[np.argsort(waiting["end"])]
        k = kept = 0
        while k < len(waiting):
            position = int(waiting["end"][k])
            got = self._read(position, self._block)
            k, kept = _keep_followed(self._block, got, position, self._length, self.zeros(), waiting, k, kept)
        position, before = floor.position, floor.before(0)
        waiting, k, found = waiting[:kept], 0, -1
        while k < kept:
            got = self._read(position, self._block)
            k, found = _judge(self._block, got, position, waiting, k, before, found)
            position += got
        return int(found)
