"""The header checksum of an LZ4 frame, right and as Kafka's first producers wrote it.

The byte is (xxHash32 >> 8) & 0xFF over the frame descriptor. Producers of message format 0 took the hash over
magic number and descriptor together, so readers of format 0 must not look at it.
"""

from __future__ import annotations

import struct

FRAME_MAGIC = bytes.fromhex("04224d18")
_FLAGS_POS = len(FRAME_MAGIC)
_CONTENT_SIZE_FLAG = 0x08
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0."""
    position = 0
    if len(data) >= 16:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while position + 16 <= len(data):
            words = struct.unpack_from("<4I", data, position)
            lanes = [
                _rotate(lane + word * _P2, 13) * _P1 & _MASK for lane, word in zip(lanes, words, strict=True)
            ]
            position += 16
        hash_ = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        hash_ = _P5
    hash_ = (hash_ + len(data)) & _MASK
    while position + 4 <= len(data):
        hash_ = _rotate(hash_ + struct.unpack_from("<I", data, position)[0] * _P3, 17) * _P4 & _MASK
        position += 4
    for byte in data[position:]:
        hash_ = _rotate(hash_ + byte * _P5, 11) * _P1 & _MASK
    hash_ = (hash_ ^ (hash_ >> 15)) * _P2 & _MASK
    hash_ = (hash_ ^ (hash_ >> 13)) * _P3 & _MASK
    return hash_ ^ (hash_ >> 16)


def checksum_position(frame: bytes) -> int:
    """Where the header checksum lies: after flags, block descriptor and, if flagged, the content size."""
    return _FLAGS_POS + 2 + (8 if frame[_FLAGS_POS] & _CONTENT_SIZE_FLAG else 0)


def _with_checksum(frame: bytes, hashed_from: int) -> bytes:
    position = checksum_position(frame)
    byte = (xxh32(frame[hashed_from:position]) >> 8) & 0xFF
    return frame[:position] + bytes([byte]) + frame[position + 1 :]


def with_right_checksum(frame: bytes) -> bytes:
    """The frame with the header checksum that the LZ4 frame format asks for."""
    return _with_checksum(frame, _FLAGS_POS)


def with_historic_checksum(frame: bytes) -> bytes:
    """The frame with the header checksum as Kafka's producers of message format 0 wrote it."""
    return _with_checksum(frame, 0)
