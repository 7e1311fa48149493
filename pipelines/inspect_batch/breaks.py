"""Finds where the records of an uncompressed batch can't be read, and where they can be read again.

A record states some things twice: its length is that of its fields, and its offset follows the one before. So
bytes that were written over it show; records after them that lead to the end of the batch and to its last
offset are sound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.varints import varint_at

_MOST_BYTES = 1 << 20  # of a batch whose records are looked for after the break


@dataclass(frozen=True)
class Break:
    """A place in a batch where records can't be read.

    at: where a record, or a length, should begin and can't be read. behind: where the records can be read
    again; -1 unknown. lost: number of records between, by their count and by their offsets. next: where the
    record after ``at`` should begin, by the length that is at ``at``; -1 unknown. size: bytes of the batch.
    """

    at: int
    size: int
    behind: int = -1
    lost: int = 0
    next: int = -1

    @property
    def end(self) -> int:
        """Returns the place up to which nothing can be read."""
        return self.behind if self.behind >= 0 else self.size


def break_of_records(data: bytes, count: int, last_delta: int) -> Break | None:
    """Finds the break in a batch of magic 2; None where all records can be read.

    count, last_delta: as the header of the batch has them.
    """
    at, front, delta = f.V2_HEADER_SIZE, 0, -1
    while front < count:
        one = record_at(data, at, len(data))
        if one is None or one[1] <= delta:
            break
        (at, delta), front = one, front + 1
    if front == count and at == len(data):
        return None
    following = _next_of(data, at, delta)
    behind, lost = _records_behind(data, at, count - front, delta, last_delta)
    if behind < 0 and count == last_delta + 1:  # the last record would be found, were it sound
        lost = count - front
    return Break(at, len(data), behind, lost, following)


def _next_of(data: bytes, at: int, delta: int) -> int:
    """Returns where the record at ``at`` ends by its length if its offset follows ``delta``; else -1."""
    head = varint_at(data, at, len(data))
    if head is None or head[0] < f.MIN_RECORD_SIZE - 1 or sum(head) > len(data) or data[head[1]]:
        return -1
    times = varint_at(data, head[1] + 1, len(data), bits=64)
    own = varint_at(data, times[1], len(data)) if times else None
    return sum(head) if own is not None and own[0] == delta + 1 else -1


def break_of_message(data: bytes, whole: int) -> Break | None:
    """Finds a key or value length of a message of magic 0 or 1 that does not fit; None where both fit.

    whole: bytes of the message. data: as many of them as there are.
    """
    at = f.V1_KEY_LENGTH_POS if data[f.MAGIC_POS] == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS
    begin = at
    for _ in range(2):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if not -1 <= size <= whole - at - 4:
            return Break(at, whole)
        begin, at = at, at + 4 + max(0, size)
        if at + 4 > len(data) and at != whole:
            return Break(at, whole)
    return None if at == whole else Break(begin, whole)


def ends_inside(data: bytes, at: int) -> bool:
    """Returns whether ``data`` ends inside of the record at a place, or of its length."""
    head = varint_at(data, at, len(data))
    if head is None:
        return len(data) - at < f.MAX_VARINT_BYTES
    return head[0] >= f.MIN_RECORD_SIZE - 1 and sum(head) > len(data) and not any(data[head[1] : head[1] + 1])


def record_at(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Returns (end, offset delta) of the record at a place; None where there is none."""
    head = varint_at(data, at, end)
    if head is None or head[0] < f.MIN_RECORD_SIZE - 1 or head[1] + head[0] > end or data[head[1]]:
        return None
    stop = head[1] + head[0]
    times = varint_at(data, head[1] + 1, stop, bits=64)
    delta = varint_at(data, times[1], stop) if times else None
    if delta is None or delta[0] < 0:
        return None
    place = _past(data, _past(data, delta[1], stop, -1), stop, -1)
    headers = varint_at(data, place, stop) if place >= 0 else None
    if headers is None or not 0 <= headers[0] <= stop - headers[1]:
        return None
    place = headers[1]
    for _ in range(headers[0]):
        place = _past(data, _past(data, place, stop, 0), stop, -1)
    return (stop, delta[0]) if place == stop else None


def _past(data: bytes, at: int, end: int, least: int) -> int:
    """Returns the place after a length and as many bytes; -1 if they do not fit or ``at`` is -1."""
    size = varint_at(data, at, end) if at >= 0 else None
    if size is None or not least <= size[0] <= end - size[1]:
        return -1
    return size[1] + max(0, size[0])


def _records_behind(data: bytes, start: int, left: int, delta: int, last_delta: int) -> tuple[int, int]:
    """Finds records that lead to the end of the batch: (their begin, records lost before it), or (-1, 0).

    left: records from ``start`` on; delta: of the offset before. As many records must be missing by
    their number as by their offsets.
    """
    if len(data) > _MOST_BYTES:
        return -1, 0
    begins = _possible_begins(np.frombuffer(data, dtype=np.uint8), start + 1)
    wrong: set[int] = set()
    for begin in begins:
        at, before, passed = begin, -1, []
        first = -1
        while at < len(data) and at not in wrong:
            one = record_at(data, at, len(data))
            if one is None or one[1] <= before:
                break
            passed.append(at)
            first = one[1] if first < 0 else first
            at, before = one
        lost = left - len(passed)
        if at == len(data) and before == last_delta and lost == first - delta - 1 and lost > 0:
            return begin, lost
        wrong.update(passed)
        wrong.add(begin)
    return -1, 0


def _possible_begins(data: np.ndarray, start: int) -> list[int]:
    """Returns places of a length of one to three bytes that is followed by attributes, which are 0."""
    low = data < 0x80
    zero = data == 0
    begins = np.zeros(len(data), dtype=bool)
    begins[:-1] |= low[:-1] & (data[:-1] >= 2 * (f.MIN_RECORD_SIZE - 1)) & zero[1:]
    begins[:-2] |= ~low[:-2] & low[1:-1] & zero[2:]
    begins[:-3] |= ~low[:-3] & ~low[1:-2] & low[2:-1] & zero[3:]
    begins[:start] = False
    return [int(at) for at in np.flatnonzero(begins)]
