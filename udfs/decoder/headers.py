"""Follows headers of batches from one to the next, and keeps which of them lead to a sound batch.

What was followed once is kept, so that false lengths can't make every look the length of the segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kafka_log_lake.udfs.decoder.batch_search import BatchSearch
from kafka_log_lake.udfs.decoder.range_checksums import RangeChecksums
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.framing import (
    BATCH,
    NO_BATCH,
    STOPPED,
    TOO_SHORT,
    batch_size,
    follow_to_sound,
    read_header,
)
from kafka_log_lake.udfs.kernels.jit import kernel, load_be64
from kafka_log_lake.udfs.storage.byte_source import ByteSource, read_at

_HEADERS = 1 << 16  # bytes read to follow headers, at most
_LEAP = 1 << 10  # and for the first header after a large batch


@kernel
def _follow(buf: Any, end: int, room: int, limit: int, most: int, rows: Any) -> tuple[int, int, bool]:
    """Follows headers in ``buf[:end]`` (uint8), ``room`` bytes before the segment's end, ``most`` at most.

    Returns the first place at or past ``limit`` that they lead to, or where they end before; how many they
    are (``steps``); whether no batch follows. ``rows``: BATCH[2], header ``n`` of them out at ``n % 2``.
    """
    at = steps = 0
    while steps < most and at < limit and (at + f.V2_HEADER_SIZE <= end or end == room):
        size = batch_size(buf, at, end)
        if size < 0 or size > room - at:
            return at, steps, True
        read_header(buf, at, size, 0, rows[steps % 2])
        at += size
        steps += 1
    return at, steps, False


@dataclass(frozen=True)
class Chain:
    """Batches that follow each other by their headers.

    stop: where no more follows. first, second: base offsets of the first two; last, before_last: last offsets
    of the last two. Of a single batch both are the same. crc32c, crc32: of all bytes before it.
    """

    begin: int
    stop: int
    first: int
    second: int
    last: int
    before_last: int
    crc32c: int
    crc32: int

    @property
    def is_single(self) -> bool:
        """Tells whether the chain is a single batch."""
        return self.first == self.second and self.last == self.before_last


class Headers:
    """The headers of a segment from ``origin`` to ``length``, and the chains that they make."""

    def __init__(
        self, source: ByteSource, length: int, checksums: RangeChecksums, search: BatchSearch
    ) -> None:
        self._source, self._length = source, length
        self._checksums, self._search = checksums, search
        self.head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)  # the last one that was read
        self._block = np.zeros(_HEADERS + f.V2_HEADER_SIZE, dtype=np.uint8)
        self._block_at, self._block_size = 0, 0  # the bytes of the segment that it holds
        self._step = _LEAP
        self._rows = np.zeros(2, dtype=BATCH)
        self._trusted = -1  # headers lead on to a sound batch up to here,
        self._ending: dict[int, bool] = {}  # from here they lead to the end: to its last byte, or near it,
        self._broken: set[int] = set()  # and from here to neither
        self._passed: dict[int, Chain] = {}  # places on chains that were followed, one in each block

    def _read(self, position: int, view: np.ndarray) -> int:
        return read_at(self._source, position, view, self._length)

    # One batch

    def size_at(self, position: int) -> int:
        """Returns the batch's size in bytes by its length field, or a negative code of ``framing``."""
        if position >= self._length:
            return TOO_SHORT
        got = self._read(position, self.head)
        return int(batch_size(self.head, 0, got))

    def header_at(self, position: int) -> np.ndarray:
        """Returns the header at ``position`` as a BATCH[1] row; the caller knows that a batch fits there."""
        size = self.size_at(position)
        row = np.zeros(1, dtype=BATCH)
        read_header(self.head, 0, size, position, row[0])
        row["crc_computed"][0] = self._checksum(position, size, int(row["magic"][0]))
        return row

    def _checksum(self, position: int, size: int, magic: int) -> int:
        v2 = magic == f.MAGIC_V2
        begin = position + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
        return self._checksums.of(begin, position + size, v2)

    def is_zero(self, position: int) -> bool:
        """Tells whether nothing but zeros lies from ``position`` to the end of the segment."""
        return position >= self._search.zeros()

    def is_sound(self, position: int) -> bool:
        """Tells whether a batch with a right checksum begins at ``position``."""
        size = self.size_at(position)
        if size <= 0 or size > self._length - position:
            return False
        read_header(self.head, 0, size, position, self._rows[0])
        magic, stored = int(self._rows["magic"][0]), int(self._rows["crc_stored"][0])
        return self._checksum(position, size, magic) == stored

    # Batches that follow each other

    @property
    def trusted(self) -> int:
        """Returns the position up to which headers are known to lead to a sound batch; -1 where none are."""
        return self._trusted

    def trust(self, position: int) -> None:
        """Notes that headers lead to a sound batch at ``position``."""
        self._trusted = max(self._trusted, position)

    def leads_on(self, position: int) -> bool:
        """Tells whether headers lead from ``position`` to a sound batch or to the end, without a break.

        This tells damaged batches whose lengths are right from false lengths. A header whose batch ends
        past the segment is its torn end only where no batch proves itself after it.
        """
        passed: list[int] = []
        while position > self._trusted and position != self._length and position not in self._ending:
            if position in self._broken:
                break
            block, _ = self._block_from(position)
            place, why = follow_to_sound(block, 0, len(block))
            passed.append(position)
            position += int(place)
            if why == STOPPED:
                self._trusted = position
            elif why == NO_BATCH or place == 0:
                size = self.size_at(position)
                if 0 < size <= self._length - position:  # larger than a block
                    if self.is_sound(position):
                        self._trusted = position
                    else:
                        position += size
                elif self.is_end(position, size):
                    self._ending.update(dict.fromkeys(passed, False))
                    return True
                else:
                    break
        else:
            if position > self._trusted:
                self._ending.update(dict.fromkeys(passed, self._ending.get(position, True)))
            return True
        self._broken.update(passed, [position])
        return False

    def leads_to_the_last_byte(self, position: int) -> bool:
        """Tells whether headers lead to the segment's last byte.

        ``leads_on`` holds, and no sound batch follows.
        """
        return position == self._length or self._ending[position]

    def is_end(self, position: int, size: int) -> bool:
        """Tells whether the segment ends at ``position``, where no whole batch begins: torn, or in zeros."""
        if size == TOO_SHORT or self.is_zero(position):
            return True
        return size > 0 and self._search.first_from(position + 1) < 0

    def _block_from(self, position: int) -> tuple[np.ndarray, int]:
        """Returns bytes from ``position`` on (uint8[n]), and the bytes up to the next multiple of _HEADERS.

        They end one header past that multiple at most, so that each walk over headers comes by the same
        places. Headers that follow each other closely are read more and more at a time, after a leap only a
        few.
        """
        limit = _HEADERS - position % _HEADERS
        at, size = self._block_at, self._block_size
        if not at <= position <= at + size - f.V2_HEADER_SIZE or position // _HEADERS != at // _HEADERS:
            near = at <= position <= at + size
            self._step = min(2 * self._step, _HEADERS) if near else _LEAP
            size = self._read(position, self._block[: min(self._step, limit) + f.V2_HEADER_SIZE])
            self._block_at, self._block_size = at, size = position, size
        return self._block[position - at : size], limit

    def chain(self, position: int) -> Chain:
        """Returns the chain of batches from ``position`` until none follows. No chain is followed twice."""
        begin, first = position, self.base_offset(position)
        second = begin + self.size_at(begin)
        lasts: list[int] = []
        passed: list[int] = []
        ends = False
        while not ends and position < self._length and position not in self._passed:
            block, limit = self._block_from(position)
            size, steps, ends = _follow(
                block, len(block), self._length - position, limit, 1 << 30, self._rows
            )
            position += int(size)
            newest = self._rows["last_offset"][[steps % 2, (steps - 1) % 2]].tolist()
            lasts = [*lasts, *newest[2 - min(steps, 2) :]][-2:]
            passed.append(position)
        known = self._passed.get(position) if not ends else None
        if known is not None:
            position, lasts = known.stop, [known.before_last, known.last]
        sums = self._checksums.running(begin, True), self._checksums.running(begin, False)
        lasts = lasts or [first]
        offsets = first, self.base_offset(second) if second < position else first
        chain = Chain(begin, position, *offsets, lasts[-1], lasts[0], *sums)
        self._passed.update(dict.fromkeys(passed, chain))
        return chain

    def base_offset(self, position: int) -> int:
        """Returns the base offset field of the batch at ``position``."""
        self.size_at(position)
        return int(load_be64(self.head, 0))

    def break_of(self, position: int, limit: int, many: int) -> int:
        """Returns where headers from ``position`` break off before ``limit``, or -1.

        many: headers after which it stops looking, and returns -1.
        """
        steps = 0
        while steps < many and position < limit:
            block, reach = self._block_from(position)
            work = (self._length - position, reach, many - steps, self._rows)
            size, more, ends = _follow(block, len(block), *work)
            position, steps = position + int(size), steps + int(more)
            if ends:
                torn = self.size_at(position) == TOO_SHORT or self.is_zero(position)
                return -1 if torn else position
        return -1
