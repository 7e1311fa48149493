"""Where batches begin in a segment, read from their headers alone: a slice starts and ends there.

A header is a few bytes, and its length leads to the next one. The ``.index`` next to a segment (Kafka's
``OffsetIndex``: pairs of a relative offset and a position, big-endian int32, ascending; zeros behind them
while the segment is active) saves most of that walk. It may be of another file: headers at its positions have
to agree with it, else all headers are followed. Nothing here computes a checksum, so a task that reads a
slice verifies that it ends where the next one starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.plan.headers import headers
from udfs.source.byte_source import ByteSource


def boundaries(
    source: ByteSource,
    index: np.ndarray,
    base: int,
    length: int,
    cuts: Sequence[int],
    start: int = 0,
    walks: bool = True,
) -> list[int]:
    """For each cut the first batch at or past it; none for cuts past the last batch that headers lead to.

    index: int64[n, 2] of ``read_index``. base: the offset in the segment's name. cuts: ascending, past
    ``start``, where a batch begins. walks: whether all headers are followed where the index does not help;
    else such a cut is left out.
    """
    found: list[int] = []
    known = start  # a batch begins here
    for cut in cuts:
        if found and found[-1] >= cut:
            continue
        boundary = _by_index(source, index, base, length, cut)
        if boundary < 0 and walks:
            boundary = next((h.position for h in headers(source, known, length) if h.position >= cut), -1)
        if start < boundary < length:
            found.append(boundary)
            known = boundary
        elif walks:
            break
    return found


def _by_index(source: ByteSource, index: np.ndarray, base: int, length: int, cut: int) -> int:
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
