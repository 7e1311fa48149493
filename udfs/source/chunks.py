"""The bytes of a segment cut into chunks to land: 16 MiB at most, at entry boundaries where they can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from udfs.kernels.checksums import crc32c
from udfs.kernels.framing import entry_size
from udfs.source.byte_source import ByteSource, SourceChanged
from udfs.source.fingerprint import fingerprint

CHUNK_BYTES = 16 << 20


def _boundary(buf: np.ndarray, size: int) -> tuple[int, int]:
    """(end of the last whole entry in ``buf[:size]`` by its length fields alone, where that entry begins)."""
    at = last = 0
    while True:
        length = int(entry_size(buf, at, size))
        if length <= 0 or length > size - at:
            return at, last
        last = at
        at += length


def cut_chunks(source: ByteSource, start: int, length: int, stored: str | None) -> Iterator[dict[str, Any]]:
    """Chunks of the segment from ``start`` to ``length``: columns of raw_segments that the bytes tell.

    What follows the last whole entry (a tail) is a chunk of its own, so that it can be replaced when the
    segment grows. ``stored``: the fingerprint so far, where landing goes on.
    """
    buf = np.empty(min(CHUNK_BYTES, max(length - start, 0)), dtype=np.uint8)
    last_entry = 0
    entry_end = start  # of an entry larger than a chunk
    while start < length:
        wanted = min(len(buf), (entry_end if entry_end > start else length) - start)
        size = source.read_into(start, buf[:wanted])
        if size < wanted:
            raise SourceChanged(f"ends at byte {start + size}, planned with {length}")
        if entry_end <= start:
            end, last = _boundary(buf, size)
            if end:
                last_entry = start + last
            elif 0 < (large := int(entry_size(buf, 0, size))) <= length - start:
                last_entry, entry_end = start, start + large
            size = end or size
        stored = fingerprint(source, last_entry, start + size, stored)
        yield {
            "chunk_position": start,
            "chunk_bytes": size,
            "content": buf[:size].tobytes(),
            "crc32c": int(crc32c(buf, 0, size, 0)),
            "fingerprint": stored,
        }
        start += size
