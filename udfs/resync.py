"""After damage: where does the log go on?

An entry proves itself by three things: its header is plausible, what follows its end is an entry (or the
end of the segment), and its checksum is right. A value may hold Kafka batches of its own (backups,
mirrors); so a length that leads to a proven entry is believed before any search, and what a search finds
must have offsets above those before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs import format as f
from udfs.byte_source import ByteSource, SourceChanged
from udfs.checksums import crc32, crc32c
from udfs.framing import ENTRY, TOO_SHORT, entry_size, read_header
from udfs.jit import kernel, load_be16, load_be32, load_be64

_HEADER = f.V2_HEADER_SIZE
_BLOCK = 1 << 18


@kernel
def _plausible_v2(buf: Any, at: int, size: int) -> bool:
    attributes = load_be16(buf, at + f.V2_ATTRIBUTES_POS) & 0xFFFF
    count = load_be32(buf, at + f.RECORDS_COUNT_POS)
    delta = load_be32(buf, at + f.LAST_OFFSET_DELTA_POS)
    if attributes & f.V2_UNUSED_MASK or (attributes & f.CODEC_MASK) > f.CODEC_ZSTD:
        return False
    if delta < 0 or count < 0 or count > delta + 1:
        return False
    if attributes & f.CODEC_MASK == f.CODEC_NONE and count > (size - _HEADER) // f.MIN_RECORD_SIZE:
        return False
    if load_be64(buf, at + f.PRODUCER_ID_POS) < -1 or load_be16(buf, at + f.PRODUCER_EPOCH_POS) < -1:
        return False
    return load_be32(buf, at + f.BASE_SEQUENCE_POS) >= -1 and load_be32(buf, at + f.LEADER_EPOCH_POS) >= -1


@kernel
def _plausible_legacy(buf: Any, at: int, size: int, end: int) -> bool:
    magic = buf[at + f.MAGIC_POS]
    attributes = np.int64(buf[at + f.LEGACY_ATTRIBUTES_POS])
    unused = f.V1_UNUSED_MASK if magic == f.MAGIC_V1 else f.V0_UNUSED_MASK
    if attributes & unused or (attributes & f.CODEC_MASK) > f.CODEC_LZ4:
        return False
    head = f.V1_KEY_LENGTH_POS if magic == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS
    if at + head + 4 > end:
        return True
    key_size = load_be32(buf, at + head)
    if key_size < -1 or key_size > size - head - 8:
        return False
    value_at = at + head + 4 + max(key_size, 0)
    if value_at + 4 > end:
        return True  # its length lies past what is here to look at
    value_size = load_be32(buf, value_at)
    return value_size >= -1 and value_at + 4 + max(value_size, 0) == at + size


@kernel
def plausible(buf: Any, at: int, end: int, room: int) -> int:
    """Size of the entry whose header could lie at ``buf[at:end]`` (uint8), or 0.

    ``room``: bytes from ``at`` to the end of the segment; the entry must fit it. A header that a writer of
    the format would not make is not plausible, though a sound checksum may follow it.
    """
    if buf[at + f.MAGIC_POS] > f.MAGIC_V2 or buf[at] > 0x7F:
        return 0
    size = entry_size(buf, at, end)
    if size <= 0 or size > room:
        return 0
    if buf[at + f.MAGIC_POS] == f.MAGIC_V2:
        if at + _HEADER > end:
            return 0
        return size if _plausible_v2(buf, at, size) else 0
    return size if _plausible_legacy(buf, at, size, end) else 0


@kernel
def find_plausible(buf: Any, start: int, stop: int, end: int, room: int) -> int:
    """First place from ``start`` to ``stop`` with a plausible header, or -1. ``room``: from ``buf[0]`` on."""
    last = min(stop, end - f.HEADER_UP_TO_MAGIC + 1)
    for at in range(start, last):
        if buf[at + f.MAGIC_POS] <= f.MAGIC_V2 and plausible(buf, at, end, room - at) > 0:
            return at
    return -1


class Prover:
    """Looks for entries that prove themselves, in the bytes of one segment."""

    def __init__(self, source: ByteSource, length: int) -> None:
        self._source = source
        self._length = length
        self._head = np.zeros(_HEADER, dtype=np.uint8)
        self._block = np.zeros(_BLOCK, dtype=np.uint8)
        self._entry = np.zeros(1, dtype=ENTRY)
        self._trusted = -1  # headers lead on without a break up to here

    def _read(self, position: int, view: np.ndarray) -> int:
        wanted = min(len(view), self._length - position)
        got = self._source.read_into(position, view[:wanted])
        if got < wanted:
            raise SourceChanged(f"ends at byte {position + got}, planned with {self._length}")
        return wanted

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
        while position < self._length:
            got = self._read(position, self._block)
            if self._block[:got].any():
                return False
            position += got
        return True

    def _sound(self, position: int) -> int:
        """Size of the entry at ``position`` if it fits and its checksum is right, else 0."""
        size = self.size_at(position)
        if size <= 0 or size > self._length - position:
            return 0
        read_header(self._head, 0, size, position, self._entry[0])
        computed = self.checksum(position, size, int(self._entry["magic"][0]))
        return size if computed == int(self._entry["crc_stored"][0]) else 0

    def leads_on(self, position: int) -> bool:
        """Whether headers lead from ``position`` to a sound entry or to the end, without a break.

        Damaged entries whose lengths are right are so told from a length that lies.
        """
        start = position
        while position > self._trusted:
            if position == self._length:
                break
            size = self.size_at(position)
            if size == TOO_SHORT or size > self._length - position:
                break  # a torn end
            if size < 0:
                return position != start and self.is_zero(position)
            if self._sound(position):
                break
            position += size
        self._trusted = max(self._trusted, position)
        return True

    def next_proven(self, start: int, above: int) -> int:
        """The first entry from ``start`` on that proves itself, or -1.

        ``above``: its base offset must lie above this (the last sound offset; -1: any).
        """
        base = start
        while base + f.V0_MIN_SIZE <= self._length:
            got = self._read(base, self._block)
            at_end = base + got == self._length
            stop = got if at_end else got - _HEADER
            at = 0
            while True:
                at = int(find_plausible(self._block, at, stop, got, self._length - base))
                if at < 0:
                    break
                if self._proves(base + at, above):
                    return base + at
                # proving has used the block
                self._read(base, self._block[:got])
                at += 1
            if at_end:
                break
            base += stop
        return -1

    def _proves(self, position: int, above: int) -> bool:
        size = self.size_at(position)
        if load_be64(self._head, 0) <= above:
            return False
        end = position + size
        if end != self._length:
            following = self.size_at(end)
            if following <= 0 and following != TOO_SHORT and not self.is_zero(end):
                return False
        return bool(self._sound(position))
