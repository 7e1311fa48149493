"""Slow, plain decompression of a batch's payload, as Kafka's own library reads it: bytes in, bytes out.

Every function takes the whole payload and a limit, and raises ``TooLargeError`` as soon as the output
passes it, ``BadPayloadError`` where Kafka's library would refuse the payload.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from tests.support import lz4_header

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + 4 + 4  # version, compatible version
_ZSTD_WINDOW_LIMIT = 1 << 27
_ZSTD_STEP = 64  # compressed bytes a step, so that one step's output stays small


class BadPayloadError(Exception):
    """Kafka's library would refuse this payload."""


class TooLargeError(Exception):
    """The payload expands past the limit."""


def _bounded(parts: list[bytes], limit: int) -> None:
    if sum(map(len, parts)) > limit:
        raise TooLargeError(f"expands past {limit} bytes")


def _gzip_header_size(data: bytes) -> int | None:
    """Size of the gzip member header that data starts with, None where it starts with none."""
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
    """All members one after the other; bytes behind the last one that start no member are ignored."""
    parts: list[bytes] = []
    rest = payload
    while _gzip_header_size(rest) is not None:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(rest, limit + 1))
        except zlib.error as error:
            raise BadPayloadError(str(error)) from error
        _bounded(parts, limit)
        if not member.eof:
            raise BadPayloadError("gzip member is cut")
        rest = member.unused_data
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
    """Xerial framing, which may begin anew in mid-stream, or one raw block."""
    if not payload:
        raise BadPayloadError("empty snappy stream")
    if len(payload) < XERIAL_HEADER_SIZE or not payload.startswith(XERIAL_MAGIC):
        return _unsnappy_block(payload, limit)
    parts: list[bytes] = []
    position = XERIAL_HEADER_SIZE
    while position + 4 <= len(payload):  # one to three bytes at the end are no length: ignored
        if payload.startswith(XERIAL_MAGIC, position):
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


def unlz4(payload: bytes, limit: int, *, magic: int) -> bytes:
    """The first frame; what follows it is ignored. Magic 0: whatever the header checksum says."""
    if payload[:4] != lz4_header.FRAME_MAGIC or len(payload) <= 7:
        raise BadPayloadError("no lz4 frame")
    if magic == 0 and len(payload) > lz4_header.checksum_position(payload):
        payload = lz4_header.with_right_checksum(payload)
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        output = frame.decompress(payload, max_length=limit + 1)
    except RuntimeError as error:
        raise BadPayloadError(str(error)) from error
    _bounded([output], limit)
    if not frame.eof:
        raise BadPayloadError("lz4 frame is cut")
    return output


def unzstd(payload: bytes, limit: int) -> bytes:
    """All frames, skippable ones too, to the end of the payload."""
    parts: list[bytes] = []
    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_LIMIT)
    position = 0
    while position < len(payload):
        frame = context.decompressobj()
        while not frame.eof:
            if position >= len(payload):
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
    """codec: bits 0 to 2 of the attributes, 1 to 4."""
    if codec == 3:
        return unlz4(payload, limit, magic=magic)
    plain: dict[int, Callable[[bytes, int], bytes]] = {1: gunzip, 2: unsnappy, 4: unzstd}
    return plain[codec](payload, limit)
