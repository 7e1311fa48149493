"""Finds where the log continues after damage.

It continues at a batch that proves itself (``batch_search``). But a value may itself hold Kafka batches
(backups, mirrors), any number of them. So a length that leads to a sound batch is believed before any search.
A damaged batch whose checksum holds up to a place found is known to end there: its length was false. Any
other place must fit: its headers lead to the end of the segment, or its offsets lie between those before it
and those of the batches that lead to the end. Where nothing leads there, the longest chain of batches is the
measure.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from kafka_log_lake.udfs.decoder.batch_search import BatchSearch
from kafka_log_lake.udfs.decoder.headers import Chain, Headers
from kafka_log_lake.udfs.decoder.range_checksums import RangeChecksums, without
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.framing import BATCH, batch_size, read_header
from kafka_log_lake.udfs.kernels.jit import load_be32
from kafka_log_lake.udfs.storage.byte_source import ByteSource

_AHEAD = 1 << 16  # chains known ahead, at most
_LONGEST = 64  # of those the longest, kept as measures where no chain leads to the end
# Whether the checksum of a damaged batch holds up to a chain is tried for this many of them, and for one more
# for this many bytes that were passed: so the time stays linear
_TRIED = 1 << 17
_BYTES_A_TRY = 256
_MANY = 64  # headers that lead on: enough to start a slice there, as the driver checks whether slices fit
_BEYOND = 32 << 20  # how far past its end a slice looks for the end of its first batch


@dataclass(frozen=True)
class _DamagedHeader:
    """A damaged batch whose header can be read: where its checksum begins, and what it is.

    first: its base offset; of magic 0 and 1 its offset, which is that of its last message.
    last: its last offset where its base offset goes on from the batch before, so that both may be believed;
    else the last offset before. value_end: where its value ends (magic 0 and 1), -1 unknown.
    is_cut: whether it may be the last batch, which goes on past the end of the segment.
    """

    begin: int
    v2: bool
    stored: int
    first: int
    last: int
    value_end: int
    is_cut: bool


@dataclass(frozen=True, order=True)
class KnownOffset:
    """A last offset of the log, and where its batch ends."""

    offset: int
    end: int

    def goes_on(self, first: int, position: int) -> bool:
        """Tells whether a batch at ``position`` may follow.

        No more offsets are missing than records fit in the gap.
        """
        return self.offset < first <= self.offset + 1 + (position - self.end) // f.MIN_RECORD_SIZE


class LastOffset:
    """The last offset of a log where its batches are read one group after another.

    above: of the last batch; of the one before, where that is lower and the two do not follow each other.
    is_named: above is what the name of the file says, as no batch was read. confirmed: the last one that the
    batch before, or the name of the file, confirms; None: above is.
    """

    def __init__(self, before: int | None, start: int, file_base: int | None = None) -> None:
        """Starts at byte ``start`` of a segment.

        before: the last offset before it, None unknown. file_base: base offset in the file's name, or None.
        """
        self.is_named = False
        if before is None and start == 0 and file_base is not None:
            before, self.is_named = file_base - 1, True
        self.above = -1 if before is None else before
        self.confirmed = self._last = None if before is None else KnownOffset(before, start)

    def add(self, total: dict[str, int], last: np.void) -> None:
        """Moves on to the last offset of a group of batches that count.

        total: SUMS of the group. last: its last batch (BATCH).
        """
        position, end = int(last["position"]), int(last["position"] + last["size"])
        self.above, self.is_named = total["sure_offset"], False
        self.confirmed, before = KnownOffset(self.above, end), self._last
        # a single batch, or several whose offsets fall, do not confirm each other
        is_doubtful = total["counted"] == 1 or total["first_offset"] > total["last_offset"]
        if is_doubtful and before is not None and not before.goes_on(total["first_offset"], position):
            self.confirmed = min(before, self.confirmed)
        self._last = KnownOffset(total["last_offset"], end)


def _fits(chain: Chain, above: int, limit: int | None, room: int) -> bool:
    """Tells whether the offsets of a chain lie between ``above`` and ``limit``.

    No checksum covers a base offset, so one of its first two batches, and one of its last two, may have
    others. Without a limit (that of the later chain contradicts ``above``) no more offsets may be missing
    before it than records fit in ``room`` bytes of damage.
    """
    first = min((offset for offset in (chain.first, chain.second) if offset > above), default=None)
    if first is None or (limit is None and first > above + 1 + room):
        return False
    lasts = [offset for offset in (chain.before_last, chain.last) if limit is None or offset < limit]
    return first <= max(lasts, default=above)


class Resynchronizer:
    """Finds where the log continues after damage, in the bytes of a segment from ``origin`` to ``length``."""

    def __init__(self, source: ByteSource, origin: int, length: int, stop: int | None = None) -> None:
        """Sets what to search. stop: where the slice ends.

        Far past ``stop`` nothing is searched, only headers are followed.
        """
        self._source, self._origin, self._length = source, origin, length
        self._horizon = length if stop is None else min(length, stop + _BEYOND)
        self._checksums = RangeChecksums(source, origin, length)
        self._search = BatchSearch(source, origin, length, self._checksums)
        self.headers = Headers(source, length, self._checksums, self._search)
        self._ahead: list[Chain] = []  # chains after the last damage, the nearest last
        self._to_end: Chain | None = None  # the chain that leads to the end of the segment
        self._longest: list[Chain] = []  # where there is none
        self._tried = 0

    def content_crc(self, start: int, end: int) -> int:
        """Returns the CRC-32C of the segment's bytes from ``start`` to ``end``."""
        return self._checksums.of(start, end, True)

    def end_of(self, position: int, size: int) -> int:
        """Returns where a batch with a wrong checksum ends, or -1 where its length is not believed.

        The length is believed where it leads to a sound batch, or to the end of the segment. Two cases are
        excepted: where sound batches end with the segment's last byte, and these headers before it; and a
        batch whose checksum holds up to a sound batch.
        """
        end = position + size
        if not self.headers.leads_on(end):
            return -1
        if end <= self.headers.trusted:
            return end
        self._look_ahead(position)
        if not self._ahead:  # nothing but damage up to the end
            self.headers.trust(self._length)
            return end
        to_last_byte = self.headers.leads_to_the_last_byte(end)
        if not to_last_byte and self._to_end is not None and self._to_end.stop == self._length:
            return -1
        host = self._host(position, -1)
        real = -1 if host is None else self._end_of(host, end)
        return end if real < 0 else real

    def next_batch(self, position: int, before: LastOffset) -> int:
        """Returns where the log continues after damage at ``position``, or -1."""
        self._look_ahead(position)
        above, confirmed, is_named = before.above, before.confirmed, before.is_named
        host = self._host(position, above)
        if host is not None:
            end = self._end_of(host, self._length)
            if end < 0 and host.value_end > host.begin and self.headers.is_sound(host.value_end):
                end = host.value_end
            if end >= 0:
                return end if end < self._length else -1
            if host.last != above:
                above, confirmed, is_named = host.last, None, False
            if host.is_cut:
                is_read = before.confirmed is not None and not before.is_named
                return self._next_if_cut(host, before.above if is_read else host.first)
        if not self._ahead:
            return -1
        measure = self._measure_above(above)
        if is_named and (measure is None or max(measure.first, measure.second) <= above):
            above, measure = -1, self._measure_above(-1)  # the file has another name
        if confirmed is not None and confirmed.offset < above:  # whose base offset no checksum covers
            if measure is not None and max(measure.first, measure.second) <= above:
                above = confirmed.offset
            elif measure is None:
                going_on = (c for c in reversed(self._ahead) if confirmed.goes_on(c.first, c.begin))
                return next((c.begin for c in going_on), -1)
        return -1 if measure is None else self._choose(position, above, confirmed, measure)

    def _look_ahead(self, position: int) -> None:
        """Finds the chains after ``position``, each once over the whole segment.

        Chains that were found before stay as they are. A new one may reach over them: were they looked for
        again after it, false lengths would make every look the length of the segment.
        """
        while self._ahead and self._ahead[-1].begin <= position:
            self._ahead.pop()
        known = self._ahead[-1].begin if self._ahead else self._horizon
        batch = self._search.first_from(position + 1)
        near: list[Chain] = []
        while 0 <= batch < known and len(near) < _AHEAD:
            near.append(self.headers.chain(batch))
            batch = self._search.first_from(near[-1].stop)
        if near:
            self._measure(near)
            self._ahead += reversed(near)

    def _measure(self, chains: list[Chain]) -> None:
        """Updates the chain that leads to the end, and the longest ones: others are measured by these."""
        last = chains[-1]
        if last.stop == self._length or self.headers.is_end(last.stop, self.headers.size_at(last.stop)):
            self._to_end = last
        self._longest = heapq.nlargest(_LONGEST, self._longest + chains, key=lambda c: c.stop - c.begin)

    def _measure_above(self, above: int) -> Chain | None:
        """Returns the chain that leads to the end; without one the longest above an offset; else None."""
        position = self._ahead[-1].begin
        if self._to_end is not None and self._to_end.begin >= position:
            return self._to_end
        longest = (c for c in self._longest if c.begin >= position and above < max(c.first, c.second))
        return next(longest, None)

    def _choose(self, damaged: int, above: int, confirmed: KnownOffset | None, measure: Chain) -> int:
        """Returns the position of the first chain that belongs to the log.

        It is ``measure``, or a fitting chain before it. Offsets of batches within values seldom rise with
        those of the log. A single batch as ``measure``, or one whose offsets do not rise, may have a wrong
        base offset: it limits no chain of several that goes on from the damage. Nor does an offset that
        nothing confirms keep such a chain from going on.
        """
        limit = min((offset for offset in (measure.first, measure.second) if offset > above), default=None)
        is_doubtful = measure.is_single or measure.second <= measure.first
        for chain in reversed(self._ahead):
            room = (chain.begin - damaged) // f.MIN_RECORD_SIZE
            if chain.begin >= measure.begin or _fits(chain, above, limit, room):
                return min(chain.begin, measure.begin)
            if chain.is_single:
                continue
            if is_doubtful and above < chain.first and _fits(chain, above, None, room):
                return chain.begin
            is_below = limit is None or max(chain.before_last, chain.last) < limit
            if is_below and confirmed is not None and confirmed.goes_on(chain.first, chain.begin):
                return chain.begin
        return measure.begin

    def _next_if_cut(self, host: _DamagedHeader, above: int) -> int:
        """Returns where the log continues after a batch that may be the last, cut at the segment's end.

        Returns -1 where there is none. above: the last offset of the batch before. Where the offsets of
        chains up to the end lie between it and those that the header claims, the header is no batch's, and
        the nearest chain is returned: a log has no gap there.
        Only a chain that leads to the end says that the length is wrong, and only where its offsets go
        on from those of the batch, or where it is the first and no more offsets are missing than records find
        room in the bytes between. Or the first chain says so, where it goes on like that and ends before the
        offsets of the chain that leads to the end: more batches are damaged in between. The chain may begin
        with messages at the end of a wrapper's value, which lead into the log: their offsets do not go on in
        its.
        """
        chain = self._to_end
        if chain is None or not self._ahead:
            return -1
        nearest = self._ahead[-1]
        if above < max(nearest.first, nearest.second) and chain.last < host.first:
            return nearest.begin
        if chain.begin <= host.begin:
            return -1
        room = (nearest.begin - host.begin) // f.MIN_RECORD_SIZE
        if nearest is not chain:
            if 0 <= nearest.first - host.last - 1 <= room and nearest.last < chain.first:
                return nearest.begin
            room = 0
        position, before = chain.begin, None
        for _ in range(_MANY):
            offset = self.headers.base_offset(position)
            if 0 <= offset - host.last - 1 <= room and offset - 1 != before:
                return position
            size = self.headers.size_at(position)
            if self.headers.head[f.MAGIC_POS] >= f.MAGIC_V2 or size <= 0 or position + size >= chain.stop:
                break
            position, before = position + size, offset
        return -1

    def _host(self, position: int, above: int) -> _DamagedHeader | None:
        """Returns the damaged batch at ``position``; None where its header is cut or its magic is unknown."""
        head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
        got = self._source.read_into(position, head[: max(0, self._length - position)])
        if got < len(head) or head[f.MAGIC_POS] > f.MAGIC_V2:
            return None
        e = np.zeros(1, dtype=BATCH)[0]
        read_header(head, 0, len(head), position, e)
        v2 = bool(head[f.MAGIC_POS] == f.MAGIC_V2)
        last, count = int(e["last_offset"]), int(e["count"])
        first = int(e["base_offset"]) if v2 else last
        believed = first <= last and (first == above + 1 or (not v2 and last > above))
        whole = above < first <= last and (not v2 or 0 < count <= last - first + 1)
        size = batch_size(head, 0, len(head))
        begin = position + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
        value_end = -1 if v2 else self._value_end(position, int(e["magic"]))
        cut = whole and size > self._length - position and value_end in (-1, position + size)
        value_end = value_end if value_end <= self._length else -1
        stored = int(e["crc_stored"])
        return _DamagedHeader(begin, v2, stored, first, last if believed else above, value_end, cut)

    def _value_end(self, position: int, magic: int) -> int:
        """Returns where the message at ``position`` ends by the lengths of key and value, or -1.

        It is -1 where one of them can't be read.
        """
        at = position + (f.V1_KEY_LENGTH_POS if magic == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS)
        word = np.zeros(4, dtype=np.uint8)
        for _ in range(2):
            if self._source.read_into(at, word[: max(0, self._length - at)]) < len(word):
                return -1
            at += len(word) + max(0, int(load_be32(word, 0)))
        return at

    def _end_of(self, host: _DamagedHeader, limit: int) -> int:
        """Returns the position up to which a damaged batch's checksum holds, or -1 where it holds up to none.
        It is where a chain begins before ``limit``, or ``limit`` itself. Only the batch's length is wrong
        then.
        """
        begin, v2 = host.begin, host.v2
        if begin < host.value_end <= limit and self._checksums.of(begin, host.value_end, v2) == host.stored:
            return host.value_end
        before = self._checksums.running(begin, v2)
        for chain in reversed(self._ahead):
            if chain.begin >= limit or self._tried > _TRIED + (chain.begin - self._origin) // _BYTES_A_TRY:
                break
            if chain.begin > begin:
                self._tried += 1
                whole = chain.crc32c if v2 else chain.crc32
                if without(whole, before, chain.begin - begin, v2) == host.stored:
                    return chain.begin
        return limit if self._checksums.of(begin, limit, v2) == host.stored else -1

    def first_batch(self, start: int, stop: int) -> int:
        """Returns the position of a slice's first batch that proves itself and leads on, or -1.

        A batch inside a value may be taken for it: the driver checks whether slices fit together. Bytes far
        past the slice are not looked at.
        """
        limit = min(self._length, stop + _BEYOND)
        search = BatchSearch(
            self._source,
            start,
            limit,
            RangeChecksums(self._source, start, limit),
            leads_on=lambda end: self.headers.break_of(end, limit, 1) < 0,
        )
        batch = search.first_from(start)
        while 0 <= batch < stop:
            end = self.headers.break_of(batch, limit, _MANY)
            if end < 0:
                return batch
            batch = search.first_from(end + 1)
        return -1
