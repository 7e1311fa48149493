"""Expands compressed payloads, each codec through its C library, with a bound on the bytes made.

Expansion goes into one scratch buffer that is used again for every batch; it grows as bytes really come,
never by what a header declares, and never past the limit. Each function below expands one payload into
``out[at:at + room]`` and returns the bytes written; ``_NoRoom`` asks for more of it.

Payloads end as Kafka reads them: several gzip members and zstd frames follow
each other; bytes after the last gzip member and after the first lz4 frame are ignored; after snappy and
zstd they are an error, but for a zstd frame that is cut: what came out of it may count (``_zstd_cut``).
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import cramjam
import numpy as np
import zstandard

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.jit import int64, kernel

try:
    from isal import isal_zlib as inflater
except ImportError:  # no wheel for this CPU
    inflater = zlib  # type: ignore[misc]

Bytes = Any  # uint8[n]: the stubs of the libraries don't know that an array is a buffer

_LIBRARY_ERRORS = (
    cramjam.DecompressionError,
    zstandard.ZstdError,
    zlib.error,
    getattr(inflater, "error", zlib.error),
    EOFError,
)

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = int.from_bytes(XERIAL_MAGIC[:4], "big")  # in mid-stream only these bytes are compared
XERIAL_HEADER = len(XERIAL_MAGIC) + 4 + 4  # version and compatible version: not looked at
_SNAPPY_MOST = 24  # a snappy element of three bytes makes 64 at most: 21.3 for one

_ZSTD_READ = (1 << 17) + 3  # bytes that zstd-jni reads at a time: ZSTD_DStreamInSize
_ZSTD_STEP = 64  # compressed bytes a step, so that one step's output stays small

LZ4_MAGIC = 0x184D2204
LZ4_STORED = 0x80000000
_LZ4_BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}

_GZIP_LEAST = 18  # header and trailer: what is not longer holds no member

_GZIP_STEP = 1 << 10  # compressed bytes of a member's first piece; each further one is twice as long

_FIRST_ROOM = 1 << 16


class _NoRoom(Exception):
    """The error for a payload that expands past the room it was given."""


class _Bad(Exception):
    """The error for a payload that is not valid for its codec."""


class Scratch:
    """The buffer of the expanded payloads of a group of batches, one after the other; it is used again."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(1 << 20, dtype=np.uint8)
        self.used = 0

    def clear(self) -> None:
        self.used = 0

    def shrink(self, size: int) -> None:
        """Frees the memory that one very large batch took: the buffer has ``size`` bytes at most then."""
        if len(self.data) > size:
            self.data = np.empty(size, dtype=np.uint8)

    def reserve(self, room: int) -> None:
        """Makes room for ``room`` bytes after those in use, which stay."""
        if self.used + room > len(self.data):
            grown = np.empty(max(self.used + room, min(2 * len(self.data), 1 << 24)), dtype=np.uint8)
            grown[: self.used] = self.data[: self.used]
            self.data = grown


def expand(codec: int, magic: int, payload: Bytes, scratch: Scratch, limit: int) -> int:
    """Expands ``payload`` (uint8) after what ``scratch`` holds.

    Returns the bytes made, or minus a fault's code. ``limit``: bytes that one batch may expand to. The
    scratch's ``used`` is moved on by the caller.
    """
    if codec not in _EXPANDERS or (codec == f.CODEC_ZSTD and magic < f.MAGIC_V2):
        return -faults.UNKNOWN_CODEC
    if len(payload) == 0:
        return -faults.DECOMPRESSION_FAILED
    expander = _EXPANDERS[codec]
    room = min(limit, max(_FIRST_ROOM, 8 * len(payload)))
    while True:
        scratch.reserve(room)
        try:
            return expander(payload, scratch.data, scratch.used, room, magic)
        except _NoRoom:
            if room >= limit:
                return -faults.DECOMPRESSED_TOO_LARGE
            room = min(limit, 4 * room)
        except (_Bad, *_LIBRARY_ERRORS):
            return -faults.DECOMPRESSION_FAILED


def _gzip_header_ends(data: bytes, start: int) -> bool:
    """Tells whether a whole gzip member header is at ``start`` (RFC 1952)."""
    if len(data) - start < 10 or data[start : start + 3] != b"\x1f\x8b\x08":
        return False
    flags, at = data[start + 3], start + 10
    if flags & 0x04:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for named in (0x08, 0x10):  # name, comment: each ends with a zero
        if flags & named:
            end = data.find(b"\0", at)
            if end < 0:
                return False
            at = end + 1
    if flags & 0x02:
        stored = int.from_bytes(data[at : at + 2], "little")
        at += 2
        return at <= len(data) and zlib.crc32(data[start : at - 2]) & 0xFFFF == stored
    return at <= len(data)


def _gzip(payload: Bytes, out: Bytes, at: int, room: int, magic: int) -> int:
    """Expands all members; ignores bytes after the last one that start no member, as the JVM does.

    A member is fed in pieces, as the library copies what it is given past the member's end.
    """
    data = payload.tobytes()
    view = memoryview(data)
    position = made = 0
    while position == 0 or (len(data) - position > _GZIP_LEAST and _gzip_header_ends(data, position)):
        member = inflater.decompressobj(wbits=31)
        step = _GZIP_STEP
        while not member.eof:
            if position == len(data):
                raise _Bad
            compressed = view[position : position + step]
            block = member.decompress(compressed, room - made + 1)
            if made + len(block) > room:
                raise _NoRoom
            out[at + made : at + made + len(block)] = np.frombuffer(block, dtype=np.uint8)
            made += len(block)
            position += len(compressed)
            step *= 2
        position -= len(member.unused_data)
    return made


def _zstd(payload: Bytes, out: Bytes, at: int, room: int, magic: int) -> int:
    """Expands all frames, to the end of the payload."""
    try:
        return int(cramjam.zstd.decompress_into(payload, out[at : at + room]))
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _NoRoom from None
        return _zstd_cut(payload, out, at, room)


def _zstd_cut(payload: Bytes, out: Bytes, at: int, room: int) -> int:
    """Expands a payload that ends within a frame, where Kafka's reader takes that for its end.

    zstd-jni (ZstdInputStreamNoFinalizer) does where a frame has ended since it last read from the payload,
    whatever came out of the cut frame after it; else the payload is refused.
    """
    made = position = ended = 0
    context = zstandard.ZstdDecompressor()
    while position < len(payload):
        frame = context.decompressobj()
        while position < len(payload) and not frame.eof:
            step = payload[position : position + _ZSTD_STEP]
            block = frame.decompress(step)
            if made + len(block) > room:
                raise _NoRoom
            out[at + made : at + made + len(block)] = np.frombuffer(block, dtype=np.uint8)
            made += len(block)
            position += len(step)
        position -= len(frame.unused_data)
        ended = position if frame.eof else ended
    if ended <= (len(payload) - 1) // _ZSTD_READ * _ZSTD_READ:
        raise _Bad
    return made


def _snappy_block(block: Bytes, out: Bytes, at: int, room: int) -> int:
    if len(block) == 0:
        raise _Bad
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except (cramjam.DecompressionError, ValueError):
        raise _Bad from None
    if size > _SNAPPY_MOST * len(block):
        raise _Bad
    if size > room:
        raise _NoRoom
    if size == 0:  # what follows the size must be nothing too
        return len(cramjam.snappy.decompress_raw(block))
    return int(cramjam.snappy.decompress_raw_into(block, out[at : at + size]))


def _snappy(payload: Bytes, out: Bytes, at: int, room: int, magic: int) -> int:
    """Expands xerial's framing where its magic is, else one raw block.

    The xerial header may come again in mid-stream; up to three bytes at the end start no block.
    """
    head = payload[: len(XERIAL_MAGIC)].tobytes()
    if head != XERIAL_MAGIC or len(payload) < XERIAL_HEADER:
        return _snappy_block(payload, out, at, room)
    made = 0
    p = XERIAL_HEADER
    while len(payload) - p >= 4:
        size = int.from_bytes(payload[p : p + 4].tobytes(), "big")
        if size == _XERIAL_HEAD:
            if len(payload) - p < XERIAL_HEADER:
                raise _Bad
            p += XERIAL_HEADER
            continue
        p += 4
        if size > len(payload) - p:
            raise _Bad
        made += _snappy_block(payload[p : p + size], out, at + made, room - made)
        p += size
    return made


@kernel
def xxh32(buf: np.ndarray, start: int, end: int) -> int:
    """Returns XXH32 with seed 0 of ``buf[start:end]`` (uint8) as int64: the checksum of lz4 frames."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    at = start
    if end - start >= 16:
        a, b, c, d = (p1 + p2) & mask, p2, 0, (-p1) & mask
        while at + 16 <= end:
            for lane in range(4):
                i = at + 4 * lane
                word = int64(buf[i]) | int64(buf[i + 1]) << 8 | int64(buf[i + 2]) << 16
                word |= int64(buf[i + 3]) << 24
                value = (a + ((word * p2) & mask)) & mask
                value = ((value << 13) | (value >> 19)) & mask
                a, b, c, d = b, c, d, (value * p1) & mask
            at += 16
        state = ((a << 1) | (a >> 31)) + ((b << 7) | (b >> 25)) + ((c << 12) | (c >> 20))
        state = (state + ((d << 18) | (d >> 14))) & mask
    else:
        state = p5
    state = (state + end - start) & mask
    while at + 4 <= end:
        word = int64(buf[at]) | int64(buf[at + 1]) << 8 | int64(buf[at + 2]) << 16
        word |= int64(buf[at + 3]) << 24
        state = (state + ((word * p3) & mask)) & mask
        state = ((((state << 17) | (state >> 15)) & mask) * p4) & mask
        at += 4
    while at < end:
        state = (state + int64(buf[at]) * p5) & mask
        state = ((((state << 11) | (state >> 21)) & mask) * p1) & mask
        at += 1
    state = ((state ^ (state >> 15)) * p2) & mask
    state = ((state ^ (state >> 13)) * p3) & mask
    return state ^ (state >> 16)


@lru_cache(maxsize=256)
def _lz4_descriptor(descriptor: bytes, checked: bool) -> tuple[int, bool] | None:
    """Returns (largest block, blocks have checksums) of a frame descriptor; None: it is not valid.

    Its last byte is its checksum. checked: whether that has to be right.
    """
    flags, block = descriptor[0], descriptor[1]
    if flags >> 5 != 0b011 or flags & 0x03 or block & 0x8F or block >> 4 not in _LZ4_BLOCK_SIZES:
        return None
    if checked:
        body = np.frombuffer(descriptor[:-1], dtype=np.uint8).copy()
        if (int(xxh32(body, 0, len(body))) >> 8) & 0xFF != descriptor[-1]:
            return None
    return _LZ4_BLOCK_SIZES[block >> 4], bool(flags & 0x10)


def _lz4(payload: Bytes, out: Bytes, at: int, room: int, magic: int) -> int:
    """Expands the first frame. Magic 0 accepts any header checksum: its writers computed it wrongly.

    Frames of linked blocks are refused, as Kafka does. The checksum of the whole content is ignored,
    those of blocks are checked.
    """
    head = payload[:7].tobytes()
    if len(head) < 7 or int.from_bytes(head[:4], "little") != LZ4_MAGIC:
        raise _Bad
    size = 10 if head[4] & 0x08 else 2  # with or without the content's size
    frame = _lz4_descriptor(payload[4 : 4 + size + 1].tobytes(), magic != f.MAGIC_V0)
    if frame is None or len(payload) < 4 + size + 1:
        raise _Bad
    largest, checksums = frame
    p = 4 + size + 1
    made = 0
    while True:
        if len(payload) - p < 4:
            raise _Bad
        word = int.from_bytes(payload[p : p + 4].tobytes(), "little")
        block_size = word & ~LZ4_STORED
        p += 4
        if block_size == 0:
            if head[4] & 0x04 and len(payload) - p < 4:
                raise _Bad
            return made
        if block_size > largest or block_size > len(payload) - p:
            raise _Bad
        block = payload[p : p + block_size]
        if word & LZ4_STORED:
            if block_size > room - made:
                raise _NoRoom
            out[at + made : at + made + block_size] = block
            made += block_size
        else:
            made += _lz4_block(block, out[at + made : at + min(room, made + largest)], largest)
        p += block_size
        if checksums:
            stored = payload[p : p + 4].tobytes()
            if len(stored) < 4 or int(xxh32(block, 0, block_size)) != int.from_bytes(stored, "little"):
                raise _Bad
            p += 4


def _lz4_block(block: Bytes, target: Bytes, largest: int) -> int:
    if len(target) == 0:
        raise _NoRoom
    try:
        return int(cramjam.lz4.decompress_block_into(block, target, output_len=len(target)))
    except cramjam.DecompressionError:
        if len(target) < largest:  # there may be more in it than the room that is left
            raise _NoRoom from None
        raise


_EXPANDERS = {f.CODEC_GZIP: _gzip, f.CODEC_SNAPPY: _snappy, f.CODEC_LZ4: _lz4, f.CODEC_ZSTD: _zstd}
