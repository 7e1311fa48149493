"""Compresses payloads, in the framing and with the parameters of Kafka's own library.

Levels are those of Kafka (``udfs.format.levels``). Source: ``org.apache.kafka.common.compress``.
``udfs.kernels.codecs`` expands what is made here.

* gzip: one member of zlib's deflate.
* snappy: xerial framing, 32 KiB of input a block. It has no levels.
* lz4: one frame of independent blocks of 64 KiB, without checksums of blocks or content. Level 9 is the
  fast compressor, every other level LZ4 HC (``Lz4BlockOutputStream``).
* zstd: one frame, written as a stream: without the size of its content, without a checksum. Kafka flushes
  the stream before it closes it, so an empty last block ends the frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import zstandard

from kafka_log_lake.udfs.format.levels import LZ4_FAST, CodecLevel

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
# Magic, flags (version 1, independent blocks), block size 4 (64 KiB), and the checksum of these two
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 1 << 31
_LZ4_END = struct.pack("<I", 0)


def compress(how: CodecLevel, data: bytes) -> bytes:
    """Returns ``data`` compressed as Kafka would write it."""
    return _COMPRESSORS[how.codec](data, how.level or 0)


def _gzip(data: bytes, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return stream.compress(data) + stream.flush()


def _snappy(data: bytes, level: int) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _lz4(data: bytes, level: int) -> bytes:
    fast = level == LZ4_FAST
    options = {} if fast else {"mode": "high_compression", "compression": level}
    out = bytearray(_LZ4_HEADER)
    for at in range(0, len(data), _LZ4_BLOCK):
        plain = data[at : at + _LZ4_BLOCK]
        block = lz4.block.compress(plain, store_size=False, **options)
        if len(block) >= len(plain):
            out += struct.pack("<I", len(plain) | _LZ4_STORED) + plain
        else:
            out += struct.pack("<I", len(block)) + block
    return bytes(out + _LZ4_END)


def _zstd(data: bytes, level: int) -> bytes:
    stream = zstandard.ZstdCompressor(level=level, write_content_size=False).compressobj()
    blocks = stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return blocks + stream.flush()


_COMPRESSORS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
