"""Cuts the bytes of a segment into chunks to land: 16 MiB at most, at batch boundaries where possible."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.kernels.framing import BATCH, batch_size, last_whole, read_header
from kafka_log_lake.udfs.storage.byte_source import ByteSource, ChunkSource, SourceChanged
from kafka_log_lake.udfs.storage.fingerprint import fingerprint

CHUNK_BYTES = 16 << 20


def cut_chunks(
    source: ByteSource, start: int, length: int, stored: str | None, last_offset: int | None = None
) -> Iterator[dict[str, object]]:
    """Yields the chunks of a segment from ``start`` to ``length``: columns of raw_segments, by name.

    A chunk ends where a whole batch ends, so that what follows the last whole batch, a tail or damage, begins
    a chunk and can be replaced when the file changes. An empty segment is one empty chunk. stored,
    last_offset: the fingerprint and the last offset so far, where landing goes on.
    """
    head = np.zeros(1, dtype=BATCH)
    last_batch: int | None = None  # where the last whole batch begins
    whole = start  # and where it ends
    large_end = 0  # of a batch larger than a chunk
    while start < length or length == 0:
        if isinstance(source, ChunkSource):
            # the header of the last whole batch makes the fingerprint's last mark
            source.keep_from(start if last_batch is None else min(last_batch, start))
        wanted = min(CHUNK_BYTES, (large_end if large_end > start else length) - start)
        content = pa.allocate_buffer(wanted)  # of Arrow's pool, which keeps its pages
        buf = np.frombuffer(content, dtype=np.uint8) if wanted else np.empty(0, dtype=np.uint8)
        size = source.read_into(start, buf)
        if size < wanted:
            raise SourceChanged(f"ends at byte {start + size}, planned with {length}")
        if start == whole:
            # At the segment's end a wrong checksum may turn right: a copy or a disk may bring the bytes later
            end, last = map(int, last_whole(buf, size, start + size == length))
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
            "content": content.slice(0, size),
            "crc32c": None if source.unreadable(start, start + size) else int(crc32c(buf, 0, size, 0)),
            "fingerprint": stored,
            "whole_bytes": whole,
            "last_offset": last_offset,
        }
        start += size
        if length == 0:
            break
