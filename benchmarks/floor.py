"""The floor under a codec: its decompressor alone, the checksum alone, and one copy of what came out.

What no decoder in Python can do without. Payloads and blocks are cut before the clock starts; each library
is called in the way that costs least, into a buffer that is used again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import numpy as np

from benchmarks.segments import MIB
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.checksums import crc32, crc32c
from kafka_log_lake.udfs.kernels.framing import BATCH, scan_batches
from kafka_log_lake.udfs.storage.byte_source import FileSource

try:
    from isal import isal_zlib as inflater
except ImportError:
    import zlib as inflater  # type: ignore[no-redef]

_XERIAL_HEADER = 16
_LZ4_HEADER = 7  # without the content's size, as Kafka writes it
_LZ4_STORED = 1 << 31
_WINDOW = MIB


def measure(path: Path, passes: int) -> float:
    """Seconds of the fastest pass over a segment: expanding + checksum + copy, each timed alone."""
    data = np.fromfile(path, dtype=np.uint8)
    batches = scan_all(path)
    codec = int(batches["codec"][0])
    blocks, expanded = list(_blocks(data, batches, codec)), len(data)
    seconds = 0.0
    if codec != f.CODEC_NONE:
        out = np.empty(16 * MIB, dtype=np.uint8)
        expand = _EXPAND[codec]
        expanded = sum(expand(block, out) for block in blocks)
        seconds += _best(passes, lambda: [expand(block, out) for block in blocks])
    kernel = crc32 if batches["magic"][0] < f.MAGIC_V2 else crc32c
    seconds += _best(passes, lambda: [kernel(data, a, b) for a, b in _windows(len(data))])
    source = np.ones(_WINDOW, dtype=np.uint8)
    target = np.empty_like(source)
    seconds += _best(passes, lambda: [_copy(source[: b - a], target) for a, b in _windows(expanded)])
    return seconds


def scan_all(path: Path) -> np.ndarray:
    """BATCH[n]: every batch of a segment; ``payload_at`` is a position in the file."""
    size = path.stat().st_size
    window = np.empty(size, dtype=np.uint8)
    source = FileSource(str(path))
    source.read_into(0, window)
    source.close()
    found = []
    position = 0
    rows = np.zeros(1 << 16, dtype=BATCH)
    while position < size:
        count, used, _, _ = scan_batches(window[position:], size - position, position, size, 0, rows)
        if not count:
            break
        block = rows[:count].copy()
        block["payload_at"] += position
        found.append(block)
        position += int(used)
    return np.concatenate(found)


def _copy(source: np.ndarray, target: np.ndarray) -> int:
    target[: len(source)] = source
    return len(source)


def _windows(size: int) -> list[tuple[int, int]]:
    return [(at, min(at + _WINDOW, size)) for at in range(0, size, _WINDOW)]


def _best(passes: int, run: Callable[[], object]) -> float:
    taken = []
    for _ in range(passes):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _blocks(data: np.ndarray, batches: np.ndarray, codec: int) -> Iterator[np.ndarray]:
    """What the library takes in one call: a payload, or for lz4 and snappy a block of it."""
    for at, size in zip(batches["payload_at"].tolist(), batches["payload_size"].tolist(), strict=True):
        payload = data[at : at + size]
        if codec == f.CODEC_LZ4:
            yield from _lz4_blocks(payload)
        elif codec == f.CODEC_SNAPPY:
            yield from _snappy_blocks(payload)
        else:
            yield payload


def _lz4_blocks(payload: np.ndarray) -> Iterator[np.ndarray]:
    at = _LZ4_HEADER
    while True:
        (word,) = struct.unpack_from("<I", payload.data, at)
        size = word & ~_LZ4_STORED
        if size == 0:
            return
        if word == size:
            yield payload[at + 4 : at + 4 + size]
        at += 4 + size


def _snappy_blocks(payload: np.ndarray) -> Iterator[np.ndarray]:
    at = _XERIAL_HEADER
    while at < len(payload):
        (size,) = struct.unpack_from(">I", payload.data, at)
        yield payload[at + 4 : at + 4 + size]
        at += 4 + size


def _snappy(block: Any, out: Any) -> int:
    return int(cramjam.snappy.decompress_raw_into(block, out))


def _lz4(block: Any, out: Any) -> int:
    return int(cramjam.lz4.decompress_block_into(block, out, output_len=1 << 16))


def _zstd(block: Any, out: Any) -> int:
    return int(cramjam.zstd.decompress_into(block, out))


def _gzip(block: object, out: object) -> int:
    return len(inflater.decompress(block, 31))


_EXPAND: dict[int, Callable[[object, object], int]] = {
    f.CODEC_GZIP: _gzip,
    f.CODEC_SNAPPY: _snappy,
    f.CODEC_LZ4: _lz4,
    f.CODEC_ZSTD: _zstd,
}
