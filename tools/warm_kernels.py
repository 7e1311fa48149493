"""Compiles the kernels into their cache, by decoding a few small real segments as a worker does.

A worker loads compiled kernels from the cache at once. Without it each of the first workers compiles them.
"""

from __future__ import annotations

from pathlib import Path

from udfs.decoded import Range
from udfs.segment_decoder import SegmentDecoder
from udfs.source.byte_source import FileSource

_CASES = ("v0-codec-gzip", "v1-codec-lz4", "v2-codec-zstd", "v2-headers", "hostile/bitflip-crc-v2-none-0")


def main() -> None:
    """Decodes the first segment of each case, from its first byte, and as a slice that begins within it."""
    corpus = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus"
    for case in _CASES:
        segment = next((corpus / case).rglob("*.log"), None)
        if segment is not None:
            length = segment.stat().st_size
            for slice_ in (Range(length), Range(length, start=1, exact=False)):
                for _ in SegmentDecoder(FileSource(str(segment)), slice_):
                    pass


if __name__ == "__main__":
    main()
