"""Finds where the records of an uncompressed batch can't be read, and where they can be read again.

A record states some things twice: its length is that of its fields, and its offset follows the one before. So
bytes that were written over it show; records after them that lead to the end of the batch and to its last
offset are sound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format import plain_reader as plain
from kafka_log_lake.udfs.format.plain_reader import read_message, read_record

_MOST_BYTES = 1 << 20  # of a batch whose records are looked for after the break


@dataclass(frozen=True)
class Break:
    """A place in a batch where records can't be read.

    at: where a record, or a length, should begin and can't be read. resumes: where the records can be read
    again; -1 unknown. lost: number of records between, by their count and by their offsets. next: where the
    record after ``at`` should begin, by the length that is at ``at``; -1 unknown. size: bytes of the batch.
    """

    at: int
    size: int
    resumes: int = -1
    lost: int = 0
    next: int = -1

    @property
    def end(self) -> int:
        """Returns the place up to which nothing can be read."""
        return self.resumes if self.resumes >= 0 else self.size


def break_of_records(data: bytes, count: int, last_delta: int) -> Break | None:
    """Finds the break in a batch of magic 2; None where all records can be read.

    count, last_delta: as the header of the batch has them.
    """
    at, front, delta = f.V2_HEADER_SIZE, 0, -1
    while front < count:
        record = record_at(data, at, len(data))
        if record is None or record[1] <= delta:
            break
        (at, delta), front = record, front + 1
    if front == count and at == len(data):
        return None
    following = _next_of(data, at, delta)
    resumes, lost = _records_after(data, at, count - front, delta, last_delta)
    if resumes < 0 and count == last_delta + 1:  # the last record would be found, were it sound
        lost = count - front
    return Break(at, len(data), resumes, lost, following)


def _next_of(data: bytes, at: int, delta: int) -> int:
    """Returns where the record at ``at`` ends by its length if its offset follows ``delta``; else -1."""
    fields = read_record(data, at, len(data)).fields
    if len(fields) <= plain.OFFSET_DELTA or fields[plain.ATTRIBUTES].value:
        return -1
    length, offset_delta = fields[plain.LENGTH], fields[plain.OFFSET_DELTA].value
    fits = length.value >= f.MIN_RECORD_SIZE - 1 and offset_delta == delta + 1
    return length.at + length.size + length.value if fits else -1


def break_of_message(data: bytes, whole: int) -> Break | None:
    """Finds a key or value length of a message of magic 0 or 1 that does not fit; None where both fit.

    whole: bytes of the message. data: as many of them as there are.
    """
    message = read_message(data, 0, whole)
    lengths = [field for field in message.fields if field.name in ("keyLength", "valueLength")]
    for field in lengths:
        if field.value < f.NULL_LENGTH or field.at + field.size > len(data):
            return Break(field.at, whole)
    if message.wrong is not None:
        return Break(message.wrong.at, whole)
    return Break(lengths[-1].at, whole) if message.fields[-1].name == "surplus" else None


def ends_inside(data: bytes, at: int) -> bool:
    """Returns whether ``data`` ends inside of the record at a place, or of its length."""
    record = read_record(data, at, len(data))
    if record.wrong is None or not record.fields:
        return record.wrong is not None and len(data) - at < f.MAX_VARINT_BYTES
    length = record.fields[plain.LENGTH]
    is_long = record.wrong.fault == faults.RECORD_BEYOND and length.value >= f.MIN_RECORD_SIZE - 1
    return is_long and not any(data[record.end : record.end + 1])


def record_at(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Returns (end, offset delta) of the record at a place; None where there is none."""
    record = read_record(data, at, end)
    if record.wrong is not None or record.fields[plain.ATTRIBUTES].value:
        return None
    delta = record.fields[plain.OFFSET_DELTA].value
    return None if delta < 0 else (record.end, delta)


def _records_after(data: bytes, start: int, left: int, delta: int, last_delta: int) -> tuple[int, int]:
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
            record = record_at(data, at, len(data))
            if record is None or record[1] <= before:
                break
            passed.append(at)
            first = record[1] if first < 0 else first
            at, before = record
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
