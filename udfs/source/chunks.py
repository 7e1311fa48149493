"""The bytes of a segment cut into chunks to land: 16 MiB at most, at batch boundaries where they can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from udfs.format import layout as f
from udfs.kernels.checksums import crc32, crc32c
from udfs.kernels.framing import BATCH, batch_size, read_header
from udfs.source.byte_source import ByteSource, SourceChanged
from udfs.source.fingerprint import fingerprint

CHUNK_BYTES = 16 << 20


def _boundary(buf: np.ndarray, size: int, is_end: bool) -> tuple[int, int]:
    """(end of the last whole batch in ``buf[:size]`` by its length field, where that batch begins).

    is_end: whether the segment ends there too. A batch whose checksum is wrong is not whole then: its bytes
    may be there later, under the same header, where a copy or a disk is behind.
    """
    begins, at = [0], 0
    while 0 < (length := int(batch_size(buf, at, size))) <= size - at:
        at += length
        begins.append(at)
    end = begins.pop()
    while is_end and begins and not _is_sound(buf, begins[-1], end):
        end = begins.pop()
    return end, begins[-1] if begins else 0


def _is_sound(buf: np.ndarray, begin: int, end: int) -> bool:
    head = np.zeros(1, dtype=BATCH)
    read_header(buf, begin, end - begin, 0, head[0])
    v2 = int(head["magic"][0]) == f.MAGIC_V2
    first = begin + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
    return bool(int((crc32c if v2 else crc32)(buf, first, end, 0)) == int(head["crc_stored"][0]))


def cut_chunks(
    source: ByteSource, start: int, length: int, stored: str | None, last_offset: int | None = None
) -> Iterator[dict[str, Any]]:
    """Chunks of the segment from ``start`` to ``length``: columns of raw_segments that the bytes tell.

    A chunk ends where a whole batch ends, so that what follows the last whole batch, a tail or damage, begins
    a chunk and can be replaced when the file changes. An empty segment is one empty chunk. stored,
    last_offset: the fingerprint and the last offset so far, where landing goes on.
    """
    buf = np.empty(min(CHUNK_BYTES, max(length - start, 0)), dtype=np.uint8)
    head = np.zeros(1, dtype=BATCH)
    last_batch, whole = 0, start  # where the last whole batch begins, and where it ends
    large_end = 0  # of a batch larger than a chunk
    while start < length or length == 0:
        wanted = min(len(buf), (large_end if large_end > start else length) - start)
        size = source.read_into(start, buf[:wanted])
        if size < wanted:
            raise SourceChanged(f"ends at byte {start + size}, planned with {length}")
        if start == whole:
            end, last = _boundary(buf, size, is_end=start + size == length)
            large = int(batch_size(buf, 0, size))
            is_large = size < large <= length - start
            if end or is_large:
                read_header(buf, last, large, 0, head[0])
                last_batch, last_offset = start + last, int(head["last_offset"][0])
            if end:
                whole, size = start + end, end
            elif is_large:
                large_end = start + large
        if start + size == large_end:
            whole = large_end
        stored = fingerprint(source, last_batch, whole, stored, whole, length)
        yield {
            "chunk_position": start,
            "chunk_bytes": size,
            "content": buf[:size].tobytes(),
            "crc32c": None if source.unreadable(start, start + size) else int(crc32c(buf, 0, size, 0)),
            "fingerprint": stored,
            "whole_bytes": whole,
            "last_offset": last_offset,
        }
        start += size
        if length == 0:
            break
