"""After damage: where does the log go on?

An entry proves itself by three things: its header is plausible, what follows its end is an entry (or the
end of the segment), and its checksum is right. A value may hold Kafka batches of its own (backups,
mirrors). So a length that leads to a sound entry is believed before any search, and what a search finds
must lead on: its headers to the end, or many of them, or its offsets must fit between what is before and
what comes after the place where it breaks off.

A search is linear in the bytes it passes, whatever they are: the checksum of any range comes from running
checksums at fixed steps (that of a whole is that of its parts), so a header that only looks like one costs
the same however long an entry it claims.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from udfs import format as f
from udfs.byte_source import ByteSource, SourceChanged
from udfs.checksums import crc32, crc32_combine, crc32c, crc32c_combine
from udfs.framing import ENTRY, TOO_SHORT, checksum, entry_size, read_header
from udfs.jit import inlined, kernel, load_be16, load_be32, load_be64, load_u64

_HEADER = f.V2_HEADER_SIZE
_BLOCK = 1 << 18
_REGION = 1 << 22  # bytes searched at a time: the first time, and
_REGION_MOST = 1 << 26  # from then on
_STEP = 1 << 8  # bytes between running checksums within a region
_FAR_STEP = 1 << 16  # and within the segment

# What a search comes to at a place: nothing there, an entry, or one that ends outside the region
_NOT_FOUND, _PROVEN, _UNDECIDED = range(3)
_MANY = 64  # headers that lead on: more than a value that holds batches is likely to have


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
def _plausible_legacy(buf: Any, at: int, size: int, end: int, unseen: bool) -> bool:
    """``unseen``: the answer where its lengths lie past what is here to look at."""
    magic = buf[at + f.MAGIC_POS]
    if at + f.LEGACY_ATTRIBUTES_POS >= end:
        return unseen
    attributes = np.int64(buf[at + f.LEGACY_ATTRIBUTES_POS])
    unused = f.V1_UNUSED_MASK if magic == f.MAGIC_V1 else f.V0_UNUSED_MASK
    if attributes & unused or (attributes & f.CODEC_MASK) > f.CODEC_LZ4:
        return False
    head = f.V1_KEY_LENGTH_POS if magic == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS
    if at + head + 4 > end:
        return unseen
    key_size = load_be32(buf, at + head)
    if key_size < -1 or key_size > size - head - 8:
        return False
    value_at = at + head + 4 + max(key_size, 0)
    if value_at + 4 > end:
        return unseen
    value_size = load_be32(buf, value_at)
    return value_size >= -1 and value_at + 4 + max(value_size, 0) == at + size


@kernel
def plausible(buf: Any, at: int, end: int, room: int, strict: bool) -> int:
    """Size of the entry whose header could lie at ``buf[at:end]`` (uint8), or 0.

    ``room``: bytes from ``at`` to the end of the segment; the entry must fit it. ``strict``: headers as a
    writer of the format would make them; if not, the others. What can't be told apart yet is both.
    """
    magic = buf[at + f.MAGIC_POS]
    if magic > f.MAGIC_V2 or (magic == f.MAGIC_V2 and at + _HEADER > end):
        return 0
    size = entry_size(buf, at, end)
    if size <= 0 or size > room:
        return 0
    as_made = buf[at] <= 0x7F
    if as_made:
        if magic == f.MAGIC_V2:
            as_made = _plausible_v2(buf, at, size)
        else:
            as_made = _plausible_legacy(buf, at, size, end, strict)
    return size if as_made == strict else 0


@kernel
def _running(buf: Any, size: int, v2: bool, sums: Any) -> None:
    """Running checksums of ``buf[0:size]`` at every step; ``sums``: int64[size // _STEP + 1] out."""
    value = 0
    sums[0] = 0
    for k in range(1, size // _STEP + 1):
        if v2:
            value = crc32c(buf, (k - 1) * _STEP, k * _STEP, value)
        else:
            value = crc32(buf, (k - 1) * _STEP, k * _STEP, value)
        sums[k] = value


@kernel
def _entry_checksum(buf: Any, at: int, size: int, sums_c: Any, sums: Any) -> int:
    """The checksum of an entry that lies in the region, by the running ones where it is long."""
    if size <= 4 * _STEP:
        return checksum(buf, at, size)
    end = at + size
    if buf[at + f.MAGIC_POS] == f.MAGIC_V2:
        begin = at + f.V2_ATTRIBUTES_POS
        before = crc32c(buf, begin // _STEP * _STEP, begin, sums_c[begin // _STEP])
        whole = crc32c(buf, end // _STEP * _STEP, end, sums_c[end // _STEP])
        return whole ^ crc32c_combine(before, 0, end - begin)
    begin = at + f.MAGIC_POS
    before = crc32(buf, begin // _STEP * _STEP, begin, sums[begin // _STEP])
    whole = crc32(buf, end // _STEP * _STEP, end, sums[end // _STEP])
    return whole ^ crc32_combine(before, 0, end - begin)


@kernel
def _stored_checksum(buf: Any, at: int) -> int:
    place = f.V2_CRC_POS if buf[at + f.MAGIC_POS] == f.MAGIC_V2 else f.LEGACY_CRC_POS
    return load_be32(buf, at + place) & 0xFFFFFFFF


@inlined
def _none_below_three(word: Any) -> bool:
    """Whether none of the eight bytes of a uint64 is 0, 1 or 2: none can be a magic.

    A byte below three borrows when three is taken from it (Bit Twiddling Hacks, "hasless"); a borrow may also
    come from the byte below, but only where that one was below three.
    """
    borrows = (word - np.uint64(0x0303030303030303)) & ~word & np.uint64(0x8080808080808080)
    return borrows == np.uint64(0)


@kernel
def _find(
    buf: Any, start: int, stop: int, end: int, room: int, zeros: int, strict: bool, sums_c: Any, sums: Any
) -> tuple[int, int]:
    """First place from ``start`` to ``stop`` with an entry, proven or undecided: (place, verdict).

    ``buf``: uint8, ``end`` bytes of it hold the region; ``room``: bytes from ``buf[0]`` to the segment's end,
    ``zeros``: to the zeros that it ends with.
    """
    at = start - 1
    last = min(stop, end - f.HEADER_UP_TO_MAGIC + 1) - 1
    while at < last:
        at += 1
        while at + 7 <= last and _none_below_three(load_u64(buf, at + f.MAGIC_POS)):
            at += 8
        if at > last or buf[at + f.MAGIC_POS] > f.MAGIC_V2:
            continue
        size = load_be32(buf, at + f.LENGTH_POS) + f.LOG_OVERHEAD
        if size < f.V0_MIN_SIZE or size > room - at:  # most places fall here, and a call costs more
            continue
        size = plausible(buf, at, end, room - at, strict)
        if size == 0:
            continue
        following = at + size
        if following > end or (following < zeros and following + f.HEADER_UP_TO_MAGIC > end and end < room):
            return at, _UNDECIDED
        inside = following < zeros and following + f.HEADER_UP_TO_MAGIC <= end
        if inside and entry_size(buf, following, end) < 0:
            continue
        if _entry_checksum(buf, at, size, sums_c, sums) == _stored_checksum(buf, at):
            return at, _PROVEN
    return -1, _NOT_FOUND


class Prover:
    """Looks for entries that prove themselves, in the bytes of one segment."""

    def __init__(self, source: ByteSource, length: int) -> None:
        self._source = source
        self._length = length
        self._head = np.zeros(_HEADER, dtype=np.uint8)
        self._block = np.zeros(_BLOCK, dtype=np.uint8)
        self._entry = np.zeros(1, dtype=ENTRY)
        self._trusted = -1  # headers lead on without a break up to here
        self._broken: set[int] = set()  # and from here they do not
        # By strictness: no entry proves itself from, up to, and whether one does there
        self._searched = {True: (0, 0, False), False: (0, 0, False)}
        self._zeros = -1  # where the zeros begin that the segment ends with; -1 not looked for
        self._far: dict[bool, list[int]] = {True: [0], False: [0]}  # running checksums, CRC-32C and CRC-32
        self._far_start = 0

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
        return position >= self._zeros

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
            ends = torn and (size == TOO_SHORT or self._next(position + 1) < 0)
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
        found = self._next(start)
        while found >= 0:
            stop, first, last, far = self._walk(found)
            if far:
                return found, True
            after = self._next(stop)
            if after < 0 or (first > above and last < self._base_offset(after)):
                return found, False
            found = after
        return -1, False

    def _base_offset(self, position: int) -> int:
        self.size_at(position)
        return int(load_be64(self._head, 0))

    def _walk(self, position: int) -> tuple[int, int, int, bool]:
        """Follow headers from a proven entry: (where they break off, first and last offset, whether far)."""
        first = last = self._base_offset(position)
        row = np.zeros(1, dtype=ENTRY)
        for _ in range(_MANY):
            size = self.size_at(position)
            if size < 0 or size > self._length - position:
                done = size == TOO_SHORT or self.is_zero(position)
                return position + 1, first, last, done
            read_header(self._head, 0, size, position, row[0])
            last = int(row["last_offset"][0])
            position += size
        return position, first, last, True

    def _next(self, start: int) -> int:
        """The first entry from ``start`` on that proves itself, of whatever offset and header, or -1."""
        found = self._next_proven(start, self._length, True)
        odd = self._next_proven(start, self._length if found < 0 else found, False)
        return odd if odd >= 0 else found

    def _next_proven(self, start: int, stop: int, strict: bool) -> int:
        """The same for one kind of headers, before ``stop``; what was searched is not searched again."""
        begin, end, proven = self._searched[strict]
        if start > end or stop < begin:
            begin, end, proven = start, start, False
        if start < begin:
            found = self._scan(start, begin, strict)
            end, proven = (found, True) if found >= 0 else (end, proven)
            begin = start
        if end < stop and not proven:
            found = self._scan(end, stop, strict)
            end, proven = (found, True) if found >= 0 else (stop, False)
        self._searched[strict] = begin, end, proven
        return end if proven and end < stop else -1

    def _scan(self, start: int, stop: int, strict: bool) -> int:
        """The first entry that proves itself and begins from ``start`` on and before ``stop``, or -1."""
        self._far_start, self._far = start, {True: [0], False: [0]}
        size = _REGION
        while start < stop and start + f.V0_MIN_SIZE <= self._length:
            room = self._length - start
            region = np.empty(min(size, room), dtype=np.uint8)
            got = self._read(start, region)
            sums_c = np.zeros(got // _STEP + 1, dtype=np.int64)
            sums = np.zeros_like(sums_c)
            _running(region, got, True, sums_c)
            _running(region, got, False, sums)
            last = min(stop - start, got if got == room else got - _HEADER)
            self.is_zero(start)
            place = (last, got, room, self._zeros - start, strict, sums_c, sums)
            at, verdict = _find(region, 0, *place)
            if verdict == _UNDECIDED and got == _REGION < room:
                start += int(at)  # it ends far away: with more in view most decide themselves
                size = _REGION_MOST
                continue
            while verdict == _UNDECIDED and not self._proves(start + at):
                at, verdict = _find(region, at + 1, *place)
            if verdict != _NOT_FOUND:
                return start + int(at)
            start += last
            size = _REGION_MOST
        return -1

    def _proves(self, position: int) -> bool:
        """The proof of a plausible entry, by reading what it takes of the segment."""
        size = self.size_at(position)
        row = np.zeros(1, dtype=ENTRY)
        read_header(self._head, 0, size, position, row[0])
        end = position + size
        if end != self._length:
            following = self.size_at(end)
            if following <= 0 and following != TOO_SHORT and not self.is_zero(end):
                return False
        v2 = bool(row["magic"][0] == f.MAGIC_V2)
        begin = position + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
        combine = crc32c_combine if v2 else crc32_combine
        computed = self._up_to(end, v2) ^ int(combine(self._up_to(begin, v2), 0, end - begin))
        return bool(computed == row["crc_stored"][0])

    def _up_to(self, position: int, v2: bool) -> int:
        """Checksum of the bytes from where the search began to ``position``, from the running ones."""
        update = crc32c if v2 else crc32
        far = self._far[v2]
        step, rest = divmod(position - self._far_start, _FAR_STEP)
        while len(far) <= step:
            got = self._read(self._far_start + (len(far) - 1) * _FAR_STEP, self._block[:_FAR_STEP])
            far.append(int(update(self._block, 0, got, far[-1])))
        got = self._read(position - rest, self._block[:rest])
        return int(update(self._block, 0, got, far[step]))
