"""Builds segments byte by byte from plain descriptions, right ones and wrong ones.

    Batch(records=(Record(value=b"a"),), codec=GZIP).encode()      a batch of magic 2
    Message(magic=1, offset=5, value=b"a").encode()                a plain message of magic 0 or 1
    wrap(messages, codec=LZ4, magic=0).encode()                    a wrapper

Every field that the format derives (counts, lengths, checksums) is right unless a description names
another value. A segment is batches joined by ``b"".join``.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import crc32c
import lz4.frame
import snappy
import zstandard

from tests.support import lz4_header

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def varint(value: int, *, size: int = 0, bits: int = 32) -> bytes:
    """Returns value as a zigzag varint, padded to ``size`` bytes where that is more than it needs."""
    raw = ((value << 1) ^ (value >> (bits - 1))) % (1 << bits)
    out = bytearray()
    while raw >= 0x80 or len(out) + 1 < size:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def varlong(value: int, *, size: int = 0) -> bytes:
    return varint(value, size=size, bits=64)


def xerial(data: bytes, block: int = 32 << 10, header: bytes = XERIAL_HEADER) -> bytes:
    """Compresses data with snappy in xerial framing, ``block`` plain bytes per block."""
    blocks = [snappy.compress(data[i : i + block]) for i in range(0, len(data), block)]
    return header + b"".join(struct.pack(">i", len(each)) + each for each in blocks)


def compress(codec: int, data: bytes, style: str = "") -> bytes:
    """Compresses data. style: "raw" or "twice" (snappy), "historic" (lz4), "frames" (zstd, gzip), or ""."""
    half = len(data) // 2
    match codec, style:
        case 1, "frames":
            return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
        case 1, _:
            return gzip.compress(data, mtime=0)
        case 2, "raw":
            return bytes(snappy.compress(data))
        case 2, "twice":
            return xerial(data[:half]) + xerial(data[half:])
        case 2, _:
            return xerial(data)
        case 3, "historic":
            return lz4_header.with_historic_checksum(lz4.frame.compress(data, store_size=False))
        case 3, _:
            return bytes(lz4.frame.compress(data, store_size=False, block_linked=False))
        case 4, "frames":
            return zstandard.compress(data[:half]) + zstandard.compress(data[half:])
        case 4, _:
            return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    return data


@dataclass(frozen=True)
class Record:
    """A record of a V2 batch. Fields that are None are derived; ``padding``: least bytes of a varint."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None  # None: its place in the batch
    attributes: int = 0
    padding: int = 0
    body_length: int | None = None
    key_length: int | None = None
    value_length: int | None = None
    header_count: int | None = None
    header_key_length: int | None = None  # of every header
    surplus: bytes = b""  # surplus bytes after the headers, inside the body

    def _sized(self, data: bytes | None, length: int | None) -> bytes:
        natural = -1 if data is None else len(data)
        return varint(natural if length is None else length, size=self.padding) + (data or b"")

    def encode(self, place: int = 0) -> bytes:
        delta = place if self.offset_delta is None else self.offset_delta
        count = len(self.headers) if self.header_count is None else self.header_count
        body = struct.pack(">B", self.attributes)
        body += varlong(self.timestamp_delta, size=self.padding) + varint(delta, size=self.padding)
        body += self._sized(self.key, self.key_length) + self._sized(self.value, self.value_length)
        body += varint(count, size=self.padding)
        for key, value in self.headers:
            body += self._sized(key, self.header_key_length) + self._sized(value, None)
        body += self.surplus
        length = len(body) if self.body_length is None else self.body_length
        return varint(length, size=self.padding) + body


@dataclass(frozen=True)
class Batch:
    """A batch of magic 2. Fields that are None are derived from the others."""

    records: Sequence[Record] = ()
    codec: int = NONE
    style: str = ""
    flags: int = 0  # LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON, or any other attribute bits
    base_offset: int = 0
    leader_epoch: int = 0
    magic: int = 2
    last_offset_delta: int | None = None
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    payload: bytes | None = None  # the records, expanded
    stored: bytes | None = None  # the records as they lie in the file
    length: int | None = None
    crc: int | None = None

    def deltas(self) -> list[int]:
        return [
            place if record.offset_delta is None else record.offset_delta
            for place, record in enumerate(self.records)
        ]

    def next_offset(self) -> int:
        """Returns the first offset after this batch."""
        return self.base_offset + max(0, self._last_delta()) + 1

    def _last_delta(self) -> int:
        if self.last_offset_delta is not None:
            return self.last_offset_delta
        return max(self.deltas(), default=0)

    def _max_timestamp(self) -> int:
        if self.max_timestamp is not None:
            return self.max_timestamp
        stamps = [self.base_timestamp + record.timestamp_delta for record in self.records]
        return max(stamps, default=self.base_timestamp)

    def encode(self) -> bytes:
        payload = b"".join(record.encode(place) for place, record in enumerate(self.records))
        payload = payload if self.payload is None else self.payload
        stored = compress(self.codec, payload, self.style) if self.stored is None else self.stored
        checked = struct.pack(
            ">Hiqqqhii",
            self.codec | self.flags,
            self._last_delta(),
            self.base_timestamp,
            self._max_timestamp(),
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records) if self.count is None else self.count,
        )
        checked += stored
        crc = crc32c.crc32c(checked) if self.crc is None else self.crc
        after_length = struct.pack(">ibI", self.leader_epoch, self.magic, crc) + checked
        length = len(after_length) if self.length is None else self.length
        return struct.pack(">qi", self.base_offset, length) + after_length


@dataclass(frozen=True)
class Message:
    """A plain message, a wrapper or an inner message of magic 0 or 1. Fields that are None are derived."""

    magic: int = 1
    offset: int = 0
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = 1_400_000_000_000  # magic 1 alone
    attributes: int = 0
    key_length: int | None = None
    value_length: int | None = None
    surplus: bytes = b""  # surplus bytes after the value
    length: int | None = None
    crc: int | None = None

    @staticmethod
    def _sized(data: bytes | None, length: int | None) -> bytes:
        natural = -1 if data is None else len(data)
        return struct.pack(">i", natural if length is None else length) + (data or b"")

    def encode(self) -> bytes:
        checked = struct.pack(">bB", self.magic, self.attributes)
        if self.magic != 0:
            checked += struct.pack(">q", self.timestamp)
        checked += self._sized(self.key, self.key_length) + self._sized(self.value, self.value_length)
        checked += self.surplus
        crc = zlib.crc32(checked) if self.crc is None else self.crc
        length = 4 + len(checked) if self.length is None else self.length
        return struct.pack(">qiI", self.offset, length, crc) + checked


def wrap(
    messages: Sequence[Message],
    *,
    codec: int,
    magic: int = 1,
    outer_offset: int | None = None,
    log_append_time: int | None = None,
    style: str = "",
    inner: bytes | None = None,
) -> Message:
    """Returns a wrapper around messages, whose offsets are absolute here, and made relative for magic 1.

    ``inner``: bytes of the message set; None for those of ``messages``.
    """
    first = messages[0].offset if messages else 0
    outer = (messages[-1].offset if messages else 0) if outer_offset is None else outer_offset
    if inner is None:
        moved = [replace(m, offset=m.offset - first) if magic == 1 else m for m in messages]
        inner = b"".join(message.encode() for message in moved)
    stamps = [message.timestamp for message in messages if message.magic == 1]
    return Message(
        magic=magic,
        offset=outer,
        value=compress(codec, inner, style),
        timestamp=max(stamps, default=-1) if log_append_time is None else log_append_time,
        attributes=codec | (0 if log_append_time is None else LOG_APPEND),
    )


def flip(data: bytes, position: int, mask: int = 0x01) -> bytes:
    """Returns data with the bits of a mask flipped in one byte; a negative position counts from the end."""
    out = bytearray(data)
    out[position] ^= mask
    return bytes(out)


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"
