"""Reads the headers of a segment's batches and the indexes next to it, without a look at records.

A header is a few bytes, and its length leads to the next one. Nothing here computes a checksum. An index may
be of another file, or damaged: what it says counts only where headers agree.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.listing.swaps import End
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.plain_header import framed, last_offset, newest_timestamp
from kafka_log_lake.udfs.indexes.entries import OFFSET_ENTRY, TIME_ENTRY, rising_entries
from kafka_log_lake.udfs.storage.byte_source import ByteSource, FileSource, SourceError, path_of_uri
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.regular_file import MOST_INDEX_BYTES, read_beside
from kafka_log_lake.udfs.storage.store import is_object_store, open_store

_BLOCK = 4096  # a page: small batches share a read, a larger one costs no more than its header does
_OBJECT_BLOCK = 1 << 17  # of an object all of whose headers are followed: it is fetched ahead in large reads
NO_INDEX = np.zeros((0, 2), dtype=np.int64)


class Header(NamedTuple):
    """A batch as its header tells it.

    position, size: in bytes. offset: as stored. timestamp: the highest of the batch, ms; -1 none.
    """

    position: int
    size: int
    magic: int
    offset: int
    last_offset: int
    timestamp: int

    @property
    def end(self) -> int:
        return self.position + self.size


def headers(source: ByteSource, start: int, length: int, block_bytes: int = _BLOCK) -> Iterator[Header]:
    """Yields the headers of batches from ``start`` on, as long as they are plausible, up to ``length``.

    block_bytes: read at a time.
    """
    buf = bytearray(block_bytes)
    block, begin, end = np.frombuffer(buf, dtype=np.uint8), 0, 0
    at = start
    while at + f.HEADER_UP_TO_MAGIC <= length:
        if at < begin or at + min(f.V2_HEADER_SIZE, length - at) > end:
            got = source.read_into(at, block[: min(len(buf), length - at)])
            begin, end = at, at + got
            if got < f.HEADER_UP_TO_MAGIC:
                return
        place = at - begin
        offset, size, magic = framed(buf, place)
        if not 0 < size <= length - at:
            return
        last, newest = last_offset(buf, place, offset, magic), newest_timestamp(buf, place, magic)
        yield Header(at, size, magic, offset, last, newest)
        at += size


def claimed_offsets(source: ByteSource, position: int, length: int) -> tuple[int, int] | None:
    """Returns first and last offset by the header of a batch that the segment cuts.

    None if the header is cut.
    """
    head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
    got = source.read_into(position, head[: length - position])
    raw = head[:got].tobytes()
    if got < f.HEADER_UP_TO_MAGIC:
        return None
    offset, _, magic = framed(raw)
    if magic != f.MAGIC_V2:
        return offset, offset
    return (offset, last_offset(raw, 0, offset, magic)) if got == len(head) else None


def may_go_on(source: ByteSource, position: int, length: int) -> bool:
    """Says whether a broker may still complete what lies at ``position``: a cut batch or header, or zeros."""
    head = np.zeros(max(0, min(f.HEADER_UP_TO_MAGIC, length - position)), dtype=np.uint8)
    got = source.read_into(position, head)
    if got < f.HEADER_UP_TO_MAGIC or not head.any():
        return True
    return framed(head.tobytes())[1] > length - position


def end_of_batches(uri: str, base: int, length: int) -> End:
    """Returns where the batches of a swap file end, as ``LogSegment.readNextOffset`` tells it.

    base: the offset in its name. length: bytes. Raises a SourceError where it can't be opened or read.
    """
    source, block = open_source(uri), _OBJECT_BLOCK if is_object_store(uri) else _BLOCK
    try:
        last = None
        for header in headers(source, 0, length, block):
            last = header
    finally:
        source.close()
    return End(last.last_offset + 1, last.end == length) if last else End(base, length == 0)


def is_file_older(file: str, base: int, length: int, timestamp: int) -> bool:
    """Says whether all batches of a local file are below ``timestamp``; False where that is not sure.

    file: a URI. Of an object each header would be a request, so it is always False. base, length, timestamp:
    as for ``older``.
    """
    path = path_of_uri(file)
    if path is None:
        return False
    try:
        source = FileSource(path)
        try:
            return older(source, file, base, length, timestamp) is not None
        finally:
            source.close()
    except SourceError:
        return False


def older(source: ByteSource, segment: str, base: int, length: int, timestamp: int) -> Header | None:
    """Returns the last header, if all batches have timestamps below ``timestamp``, ms.

    None where that is not sure.

    base: the offset in the segment's name. The last entry of the time index names the batch that was the
    newest when it was added: only the headers from that batch on are followed, if it has that timestamp.
    """
    times = read_index(segment, ".timeindex")
    if len(times):
        newest, offset = times[-1].tolist()
        if newest >= timestamp:
            return None
        index = read_index(segment)
        place = int(np.searchsorted(index[:, 0], offset, side="right")) - 1
        start = int(index[place, 1]) if place >= 0 else 0
        rest = (h for h in headers(source, start, length) if h.last_offset >= base + offset)
        first = next(rest, None)
        if first is not None and first.offset <= base + offset and first.timestamp == newest:
            return _older(itertools.chain([first], rest), length, timestamp)
    return _older(headers(source, 0, length), length, timestamp)


def start_for(
    source: ByteSource, segment: str, base: int, length: int, offset: int | None, timestamp: int | None
) -> int:
    """Returns a byte at or before the first batch with ``offset`` or a higher one, at ``timestamp`` or later.

    None: any offset, any time (ms). The byte is from the indexes next to the segment where headers agree with
    them; else 0. base: the offset in the segment's name. length: bytes of the segment.
    """
    starts, index = [0], read_index(segment) if (offset, timestamp) != (None, None) else NO_INDEX
    if offset is not None and len(index):
        place = int(np.searchsorted(index[:, 0], offset - base, side="right")) - 1
        first = _batch_with(source, length, int(index[place, 1]), base + int(index[place, 0]))
        if place >= 0 and first is not None:
            starts.append(first.position)
    times = read_index(segment, ".timeindex") if timestamp is not None and len(index) else NO_INDEX
    at = int((times[:, 0] < timestamp).sum()) - 1 if timestamp is not None else -1
    if at >= 0:
        newest, relative = times[at].tolist()
        place = int(np.searchsorted(index[:, 0], relative, side="right")) - 1
        begin = int(index[place, 1]) if place >= 0 else 0
        first = _batch_with(source, length, begin, base + relative)
        if first is not None and first.timestamp == newest:
            starts.append(first.position)
    return max(starts)


def _batch_with(source: ByteSource, length: int, start: int, offset: int) -> Header | None:
    """Returns the batch whose offsets include ``offset``, if headers lead to it from ``start``."""
    first = next((h for h in headers(source, start, length) if h.last_offset >= offset), None)
    return first if first is not None and first.offset <= offset else None


def _older(batches: Iterable[Header], length: int, timestamp: int) -> Header | None:
    """Returns the last of these headers, if they lead to the end of the segment, all below ``timestamp``.

    Else None.
    """
    last = None
    for last in batches:
        if last.timestamp >= timestamp:
            return None
    return last if last is not None and last.end == length else None


def read_index(segment: str, suffix: str = ".index") -> np.ndarray:
    """Returns the entries of the ``.index`` next to a segment: int64[n, 2] of relative offset and position.

    Of the ``.timeindex`` they are timestamp, ms, and relative offset. Without a readable one n is 0.
    """
    entry = OFFSET_ENTRY if suffix == ".index" else TIME_ENTRY
    return rising_entries(_content(segment, suffix), entry)


def _content(segment: str, suffix: str) -> bytes:
    """Returns the content of an index next to a segment; empty where it can't be read."""
    uri = segment.removesuffix(".log") + suffix
    try:
        path = path_of_uri(segment)
        if path is not None:
            return read_beside(path, os.path.basename(uri), MOST_INDEX_BYTES)
        if is_object_store(uri):
            system, path = open_store(uri)
            with system.open_input_file(path) as file:
                if file.size() <= MOST_INDEX_BYTES:
                    return bytes(file.read())
    except (OSError, ValueError):
        pass
    return b""
