"""Decompresses a batch's payload in slow, plain Python, as Kafka's own library reads it.

Every function takes the whole payload and a limit, and raises ``TooLargeError`` as soon as the output
passes it, ``BadPayloadError`` where Kafka's library would refuse the payload.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import zstandard

from tests.support import lz4_header

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + 4 + 4  # version, compatible version
_ZSTD_WINDOW_LIMIT = 1 << 27
_ZSTD_PIECE = 131_075
_ZSTD_STEP = 64  # compressed bytes a step, so that one step's output stays small


class BadPayloadError(Exception):
    """A payload that Kafka's library would refuse."""


class TooLargeError(Exception):
    """A payload that decompresses to more than the limit."""


def _bounded(parts: list[bytes], limit: int) -> None:
    if sum(map(len, parts)) > limit:
        raise TooLargeError(f"expands past {limit} bytes")


def _gzip_header_size(data: bytes) -> int | None:
    """Returns the size of the gzip member header that data starts with; None where it starts with none."""
    if len(data) < 10 or data[:3] != b"\x1f\x8b\x08":
        return None
    flags, position = data[3], 10
    if flags & 4:
        if len(data) < position + 2:
            return None
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for bit in (8, 16):  # file name, comment: up to a zero byte
        if flags & bit:
            end = data.find(b"\0", position)
            if end < 0:
                return None
            position = end + 1
    if flags & 2:
        stored = int.from_bytes(data[position : position + 2], "little")
        if zlib.crc32(data[:position]) & 0xFFFF != stored:
            return None
        position += 2
    return position if position <= len(data) else None


def gunzip(payload: bytes, limit: int) -> bytes:
    """Decompresses all gzip members in turn; bytes after the last one that start no member are ignored.

    So are 18 bytes or fewer, whatever they start: the JVM looks for a further member in more than those.
    """
    parts: list[bytes] = []
    rest = payload
    while (header := _gzip_header_size(rest)) is not None and (rest is payload or len(rest) > 18):
        member = zlib.decompressobj(wbits=-15)
        try:
            parts.append(member.decompress(rest[header:], limit + 1))
        except zlib.error as error:
            raise BadPayloadError(str(error)) from error
        _bounded(parts, limit)
        trailer, rest = member.unused_data[:8], member.unused_data[8:]
        size = len(parts[-1]) & 0xFFFFFFFF
        if not member.eof or trailer != struct.pack("<II", zlib.crc32(parts[-1]), size):
            raise BadPayloadError("gzip member is cut, or its checksum or size is wrong")
    if rest is payload:
        raise BadPayloadError("not in gzip format")
    return b"".join(parts)


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise TooLargeError(f"expands past {limit} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadPayloadError(str(error)) from error


def unsnappy(payload: bytes, limit: int) -> bytes:
    """Decompresses snappy: xerial framing, which may begin anew in mid-stream, or one raw block."""
    if not payload:
        raise BadPayloadError("empty snappy stream")
    if len(payload) < XERIAL_HEADER_SIZE or not payload.startswith(XERIAL_MAGIC):
        return _unsnappy_block(payload, limit)
    parts: list[bytes] = []
    position = XERIAL_HEADER_SIZE
    while position + 4 <= len(payload):  # one to three bytes at the end are no length: ignored
        if payload.startswith(XERIAL_MAGIC[:4], position):  # the rest of it is not looked at here
            position += XERIAL_HEADER_SIZE
            if position > len(payload):
                raise BadPayloadError("xerial header is cut")
            continue
        size = int.from_bytes(payload[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(payload):
            raise BadPayloadError(f"xerial block of {size} bytes, {len(payload) - position} left")
        parts.append(_unsnappy_block(payload[position : position + size], limit))
        _bounded(parts, limit)
        position += size
    return b"".join(parts)


def _lz4_descriptor(payload: bytes, magic: int) -> int:
    """Checks the frame descriptor. Returns the position after it."""
    if len(payload) <= 6 or payload[:4] != lz4_header.FRAME_MAGIC:
        raise BadPayloadError("no lz4 frame")
    flags, block = payload[4], payload[5]
    if flags & 0xE3 != 0x60:  # version 1, blocks independent, nothing reserved
        raise BadPayloadError(f"lz4 frame flags {flags:#04x}")
    if block & 0x8F or not 4 <= block >> 4 <= 7:
        raise BadPayloadError(f"lz4 block descriptor {block:#04x}")
    end = lz4_header.checksum_position(payload) + 1
    if end > len(payload):
        raise BadPayloadError("lz4 frame header is cut")
    if magic != 0 and lz4_header.with_right_checksum(payload)[end - 1] != payload[end - 1]:
        raise BadPayloadError("lz4 header checksum")
    return end


def unlz4(payload: bytes, limit: int, *, magic: int) -> bytes:
    """Decompresses the first lz4 frame; ignores what follows it, and the checksum of its content.

    For magic 0 the header checksum is ignored too.
    """
    cursor = _lz4_descriptor(payload, magic)
    most = 1 << (2 * (payload[5] >> 4) + 8)
    parts: list[bytes] = []
    while True:
        word = int.from_bytes(payload[cursor : cursor + 4], "little")
        size, cursor = word & 0x7FFFFFFF, cursor + 4
        if cursor > len(payload) or size > most or cursor + size > len(payload):
            raise BadPayloadError(f"lz4 block of {size} bytes")
        if not size:
            if payload[4] & 4 and cursor + 4 > len(payload):
                raise BadPayloadError("lz4 content checksum is cut")
            return b"".join(parts)
        block = payload[cursor : cursor + size]
        cursor += size
        if payload[4] & 0x10:
            if payload[cursor : cursor + 4] != lz4_header.xxh32(block).to_bytes(4, "little"):
                raise BadPayloadError("lz4 block checksum")
            cursor += 4
        if not word >> 31:
            try:
                block = lz4.block.decompress(block, uncompressed_size=most)
            except lz4.block.LZ4BlockError as error:
                raise BadPayloadError(str(error)) from error
        parts.append(block)
        _bounded(parts, limit)


def unzstd(payload: bytes, limit: int) -> bytes:
    """Decompresses all zstd frames, skippable ones too, to the end of the payload.

    A frame may be cut where another ended in the last piece that zstd-jni reads.
    """
    parts: list[bytes] = []
    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_LIMIT)
    position = 0
    last_piece = (len(payload) - 1) // _ZSTD_PIECE * _ZSTD_PIECE
    while position < len(payload):
        frame = context.decompressobj()
        begin = position
        while not frame.eof:
            if position >= len(payload):
                if begin > last_piece:
                    return b"".join(parts)
                raise BadPayloadError("zstd frame is cut")
            step = payload[position : position + _ZSTD_STEP]
            try:
                parts.append(frame.decompress(step))
            except zstandard.ZstdError as error:
                raise BadPayloadError(str(error)) from error
            _bounded(parts, limit)
            position += len(step)
        position -= len(frame.unused_data)
    return b"".join(parts)


def decompress(codec: int, payload: bytes, limit: int, *, magic: int) -> bytes:
    """Decompresses a payload. codec: 1 to 4, bits 0 to 2 of the attributes."""
    if codec == 3:
        return unlz4(payload, limit, magic=magic)
    plain: dict[int, Callable[[bytes, int], bytes]] = {1: gunzip, 2: unsnappy, 4: unzstd}
    return plain[codec](payload, limit)
