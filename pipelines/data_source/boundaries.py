"""Where batches begin in a segment, read from their headers alone: a slice starts and ends there.

A header is a few bytes, and its length leads to the next one. The ``.index`` beside a segment (Kafka's
``OffsetIndex``: pairs of a relative offset and a position, big-endian int32, ascending; zeros behind them
while the segment is active) saves most of that walk. It may be of another file: headers at its positions have
to agree with it, else all headers are followed. Nothing here computes a checksum, so a task that reads a
slice verifies that it ends where the next one starts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from udfs.format import layout as f
from udfs.source.byte_source import FileSource, local_path

_HEADER = struct.Struct(">qi4xb")  # offset, length, leader epoch or checksum, magic
_LEAST = {f.MAGIC_V0: f.V0_MIN_SIZE, f.MAGIC_V1: f.V1_MIN_SIZE, f.MAGIC_V2: f.V2_HEADER_SIZE}
_INT64, _INT32 = struct.Struct(">q"), struct.Struct(">i")
_BLOCK = 4096  # a page: small batches share a read, a larger one costs no more than its header does
_MOST_INDEX_BYTES = 1 << 27
NO_INDEX = np.zeros((0, 2), dtype=np.int64)


class Header(NamedTuple):
    """One batch by its header. offset: as stored. timestamp: the highest of the batch; -1 none."""

    position: int
    size: int
    magic: int
    offset: int
    last_offset: int
    timestamp: int

    @property
    def end(self) -> int:
        return self.position + self.size


def headers(source: FileSource, start: int, length: int) -> Iterator[Header]:
    """Batches from ``start`` on, as far as plausible headers follow each other up to ``length``."""
    buf = bytearray(_BLOCK)
    block, begin, end = np.frombuffer(buf, dtype=np.uint8), 0, 0
    at = start
    while at + f.HEADER_UP_TO_MAGIC <= length:
        if at < begin or at + min(f.V2_HEADER_SIZE, length - at) > end:
            got = source.read_into(at, block[: min(_BLOCK, length - at)])
            begin, end = at, at + got
            if got < f.HEADER_UP_TO_MAGIC:
                return
        offset, size, magic = _HEADER.unpack_from(buf, at - begin)
        size += f.LOG_OVERHEAD
        if size < _LEAST.get(magic, 1 << 32) or size > length - at:
            return
        timestamp, last_offset = f.NO_TIMESTAMP, offset
        if magic == f.MAGIC_V2:
            last_offset += _INT32.unpack_from(buf, at - begin + f.LAST_OFFSET_DELTA_POS)[0]
        if magic:
            place = f.MAX_TIMESTAMP_POS if magic == f.MAGIC_V2 else f.V1_TIMESTAMP_POS
            (timestamp,) = _INT64.unpack_from(buf, at - begin + place)
        yield Header(at, size, magic, offset, last_offset, timestamp)
        at += size


def boundaries(
    source: FileSource, index: np.ndarray, base: int, length: int, cuts: Sequence[int], start: int = 0
) -> list[int]:
    """For each cut the first batch at or past it; none for cuts past the last batch that headers lead to.

    index: int64[n, 2] of ``read_index``. base: the offset in the segment's name. cuts: ascending, past
    ``start``, where a batch begins.
    """
    found: list[int] = []
    known = start  # a batch begins here
    for cut in cuts:
        if found and found[-1] >= cut:
            continue
        boundary = _by_index(source, index, base, length, cut)
        if boundary < 0:
            boundary = _walk(source, known, length, cut)
        if not start < boundary < length:
            break
        found.append(boundary)
        known = boundary
    return found


def _walk(source: FileSource, start: int, length: int, cut: int) -> int:
    """The first batch at or past ``cut`` by headers from ``start`` on; -1 without one."""
    return next((h.position for h in headers(source, start, length) if h.position >= cut), -1)


def _by_index(source: FileSource, index: np.ndarray, base: int, length: int, cut: int) -> int:
    """The first batch at or past ``cut`` by headers between two entries of the index; -1 where they disagree.

    An entry names a batch by the last offset of what was appended there.
    """
    after = int(np.searchsorted(index[:, 1], cut, side="left"))
    if not 0 < after < len(index):
        return -1
    (before_offset, before), (offset, stop) = index[after - 1].tolist(), index[after].tolist()
    boundary, first = -1, True
    for header in headers(source, before, length):
        if first and not base <= header.offset <= base + before_offset:
            return -1
        first = False
        if boundary < 0 and header.position >= cut:
            boundary = header.position
        if header.position >= stop:
            agrees = header.position == stop and base + before_offset < header.offset <= base + offset
            return boundary if agrees else -1
    return -1


def read_index(segment: str) -> np.ndarray:
    """The entries of the ``.index`` beside a segment: int64[n, 2] of relative offset and position.

    Without a readable one there is none: n is 0.
    """
    path = (local_path(segment) or "").removesuffix(".log") + ".index"
    try:
        if os.path.getsize(path) > _MOST_INDEX_BYTES:
            return NO_INDEX
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return NO_INDEX
    pairs = np.frombuffer(data[: len(data) // 8 * 8], dtype=">i4").reshape(-1, 2).astype(np.int64)
    rises = (np.diff(pairs[:, 0], prepend=-1) > 0) & (np.diff(pairs[:, 1], prepend=-1) > 0)
    return pairs if rises.all() else pairs[: int(np.argmin(rises))]


def highest_timestamp(source: FileSource, length: int) -> int | None:
    """The highest timestamp in a segment's headers, ms; -1 none. None if headers do not lead to its end."""
    highest, end = f.NO_TIMESTAMP, 0
    for header in headers(source, 0, length):
        highest, end = max(highest, header.timestamp), header.end
    return highest if end == length else None
