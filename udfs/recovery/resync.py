"""After damage: where does the log go on?

At an entry that proves itself (``entry_search``). But a value may hold Kafka batches of its own (backups,
mirrors). So a length that leads to a sound entry is believed before any search, and what a search finds
must lead on: its headers to the end, or many of them, or its offsets must fit between what is before and
what comes after the place where it breaks off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs.format import layout as f
from udfs.kernels.checksums import crc32, crc32c
from udfs.kernels.framing import ENTRY, TOO_SHORT, entry_size, read_header
from udfs.kernels.jit import kernel, load_be64
from udfs.recovery.batch_search import EntrySearch
from udfs.source.byte_source import ByteSource, read_at

_BLOCK = 1 << 18
_HEADERS = 1 << 12  # bytes read to follow headers
_MANY = 64  # headers that lead on: more than a value that holds batches is likely to have


@kernel
def _follow(buf: Any, end: int, room: int, steps: int, e: Any) -> tuple[int, int, bool]:
    """Follow headers in ``buf[:end]`` (uint8), ``room`` bytes before the segment's end, _MANY at most.

    Gives the bytes passed, the steps taken in all, and whether no entry follows. ``e``: the last header out.
    """
    at = 0
    while steps < _MANY and (at + f.V2_HEADER_SIZE <= end or end == room):
        size = entry_size(buf, at, end)
        if size < 0 or size > room - at:
            return at, steps, True
        read_header(buf, at, size, 0, e)
        at += size
        steps += 1
    return at, steps, False


class Prover:
    """Looks at the bytes of one segment, where its entries do not follow each other."""

    def __init__(self, source: ByteSource, length: int) -> None:
        self._source = source
        self._length = length
        self._search = EntrySearch(source, length)
        self._head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
        self._block = np.zeros(_BLOCK, dtype=np.uint8)
        self._entry = np.zeros(1, dtype=ENTRY)
        self._trusted = -1  # headers lead on without a break up to here
        self._broken: set[int] = set()  # and from here they do not

    def _read(self, position: int, view: np.ndarray) -> int:
        return read_at(self._source, position, view, self._length)

    def size_at(self, position: int) -> int:
        """Size of the entry at ``position`` by its length field, or a negative code of ``framing``."""
        if position >= self._length:
            return TOO_SHORT
        got = self._read(position, self._head)
        return int(entry_size(self._head, 0, got))

    def header_at(self, position: int) -> np.ndarray:
        """The header at ``position`` as an ENTRY[1] row; the caller knows that an entry fits there."""
        size = self.size_at(position)
        row = np.zeros(1, dtype=ENTRY)
        read_header(self._head, 0, size, position, row[0])
        row["crc_computed"][0] = self.checksum(position, size, int(row["magic"][0]))
        return row

    def checksum(self, position: int, size: int, magic: int) -> int:
        """The checksum of an entry, read block by block, whatever its size."""
        at = position + (f.V2_ATTRIBUTES_POS if magic == f.MAGIC_V2 else f.MAGIC_POS)
        update = crc32c if magic == f.MAGIC_V2 else crc32
        value = 0
        while at < position + size:
            got = self._read(at, self._block[: min(_BLOCK, position + size - at)])
            value = int(update(self._block, 0, got, value))
            at += got
        return value

    def content_crc(self, start: int, end: int, value: int = 0) -> int:
        """CRC-32C of the segment's bytes ``start`` to ``end``, going on from ``value``."""
        while start < end:
            got = self._read(start, self._block[: min(_BLOCK, end - start)])
            value = int(crc32c(self._block, 0, got, value))
            start += got
        return value

    def is_zero(self, position: int) -> bool:
        """Whether nothing but zeros lies from ``position`` to the end of the segment."""
        return position >= self._search.zeros()

    def _sound(self, position: int) -> int:
        """Size of the entry at ``position`` if it fits and its checksum is right, else 0."""
        size = self.size_at(position)
        if size <= 0 or size > self._length - position:
            return 0
        read_header(self._head, 0, size, position, self._entry[0])
        computed = self.checksum(position, size, int(self._entry["magic"][0]))
        return size if computed == int(self._entry["crc_stored"][0]) else 0

    def is_sound(self, position: int) -> bool:
        """Whether an entry with a right checksum begins at ``position``."""
        return self._sound(position) > 0

    def leads_on(self, position: int) -> bool:
        """Whether headers lead from ``position`` to a sound entry or to the end, without a break.

        Damaged entries whose lengths are right are so told from a length that lies. A header whose entry ends
        past the segment is its torn end only where no entry proves itself behind it.
        """
        walked: list[int] = []
        while position > self._trusted and position != self._length:
            size = self.size_at(position)
            torn = size == TOO_SHORT or size > self._length - position
            ends = torn and (size == TOO_SHORT or self._search.first_from(position + 1) < 0)
            if position in self._broken or (torn and not ends) or (size < 0 and not torn):
                if size < 0 and self.is_zero(position):
                    break
                self._broken.update(walked)
                return False
            if ends or self._sound(position):
                break
            walked.append(position)
            position += size
        self._trusted = max(self._trusted, position)
        return True

    def search(self, start: int, above: int) -> tuple[int, bool]:
        """The entry from ``start`` on where the log goes on, or -1; and whether its headers lead far.

        ``above``: the last offset before; what breaks off soon and does not fit between it and what comes
        after the break is a batch within a value.
        """
        found = self._search.first_from(start)
        while found >= 0:
            stop, first, last, far = self._walk(found)
            if far:
                return found, True
            after = self._search.first_from(stop)
            if after < 0 or (first > above and last < self._base_offset(after)):
                return found, False
            found = after
        return -1, False

    def _base_offset(self, position: int) -> int:
        self.size_at(position)
        return int(load_be64(self._head, 0))

    def _walk(self, position: int) -> tuple[int, int, int, bool]:
        """Follow headers from a proven entry: (where they break off, first and last offset, whether far)."""
        first = self._base_offset(position)
        row = np.zeros(1, dtype=ENTRY)
        steps = 0
        while steps < _MANY:
            got = self._read(position, self._block[:_HEADERS])
            size, steps, broken = _follow(self._block, got, self._length - position, steps, row[0])
            position += size
            if broken:
                done = self.size_at(position) == TOO_SHORT or self.is_zero(position)
                return position + 1, first, int(row["last_offset"][0]), done
        return position, first, int(row["last_offset"][0]), True
