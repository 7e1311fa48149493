"""Finds batches that are whole although their length, which no checksum covers, is wrong.

In a damaged range every place where the next batch may begin is tried as the end of the batch, in one pass
over its bytes; the right one is where the checksum is the stored one.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.kernels.framing import BATCH, read_header

MOST_BYTES = 16 << 20  # a larger range is not searched
_STARTS = 64  # places in a range where a batch is looked for, at most


def whole_batches(data: np.ndarray, position: int) -> np.ndarray:
    """Returns BATCH[n]: batches of magic 2 in a damaged range that are whole except for bytes 0 to 15.

    data: uint8[], the range and not more. position: of its first byte in the segment. ``size`` is the size
    that the checksum confirms. A range above MOST_BYTES is not searched, nor the rest of one after
    ``_STARTS`` places in vain.
    """
    parts: list[np.ndarray] = []
    if len(data) < f.V2_HEADER_SIZE or len(data) > MOST_BYTES:
        return np.zeros(0, dtype=BATCH)
    starts = np.flatnonzero(data[f.MAGIC_POS : len(data) - f.V2_HEADER_SIZE + f.MAGIC_POS + 1] == f.MAGIC_V2)
    attributes = data[starts + f.V2_ATTRIBUTES_POS]
    starts = starts[attributes == 0]
    at, tried = 0, 0
    for start in starts.tolist():
        if start < at or tried == _STARTS:
            continue
        tried += 1
        size = _whole_size(data, start, starts)
        if size:
            row = np.zeros(1, dtype=BATCH)
            read_header(data[start : start + f.V2_HEADER_SIZE].copy(), 0, size, position + start, row[0])
            if row["last_offset_delta"][0] >= 0:
                parts.append(row)
                at, tried = start + size, 0
    return np.concatenate(parts) if parts else np.zeros(0, dtype=BATCH)


def _whole_size(data: np.ndarray, start: int, starts: np.ndarray) -> int:
    """Returns the size in bytes that the checksum confirms for the batch at ``start``; 0 for none."""
    crc_at = start + f.V2_CRC_POS
    stored = int.from_bytes(data[crc_at : crc_at + 4].tobytes(), "big")
    least = start + f.V2_HEADER_SIZE
    length_at = start + f.LENGTH_POS
    claimed = int.from_bytes(data[length_at : length_at + 4].tobytes(), "big", signed=True)
    ends = {len(data), start + f.LOG_OVERHEAD + claimed, *starts[starts >= least].tolist()}
    done, crc = start + f.V2_ATTRIBUTES_POS, 0
    for end in sorted(end for end in ends if least <= end <= len(data)):
        crc, done = int(crc32c(data, done, end, crc)), end
        if crc == stored:
            return end - start
    return 0
