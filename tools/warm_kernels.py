"""Compiles the kernels into their cache, by decoding a few small real segments.

A worker loads compiled kernels from the cache at once. Without it each of the first workers compiles them.
"""

from __future__ import annotations

from pathlib import Path

from udfs import decode_segment

_CASES = ("v0-codec-gzip", "v1-codec-lz4", "v2-codec-zstd", "v2-headers", "hostile/bitflip-crc-v2-none-0")


def main() -> None:
    """Decodes the first segment of each case."""
    corpus = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus"
    for case in _CASES:
        segment = next((corpus / case).rglob("*.log"), None)
        if segment is not None:
            for _ in decode_segment(segment, on_damage="ignore"):
                pass


if __name__ == "__main__":
    main()
