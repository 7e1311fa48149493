"""Expands many compressed payloads a call, of the kinds that nearly every producer writes, by C libraries.

What is out of the ordinary (several frames or members, dictionaries, checksums within, no room, damage) is
declined and left to ``codecs``, which alone says what is wrong with a payload. So what is accepted here must
be accepted there, with the same bytes; what is declined costs time only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.checksums import crc32
from kafka_log_lake.udfs.kernels.codecs import LZ4_MAGIC, LZ4_STORED, XERIAL_HEADER, XERIAL_MAGIC, xxh32
from kafka_log_lake.udfs.kernels.jit import (
    copy_bytes,
    copy_sixteen,
    inlined,
    int64,
    kernel,
    load_be32,
    load_u32,
    load_u64,
)
from kafka_log_lake.udfs.kernels.native import DECLINED, inflate, lz4_block, zstd_frame
from kafka_log_lake.udfs.kernels.record_batches import most_records

# Why a call ended
GROUP_ENDS, DECLINES = range(2)
# How far a group of batches is expanded, and what bounds it
PROGRESS = np.dtype(
    [
        ("first", "i8"),  # of the group's batches
        ("next", "i8"),  # the batch to expand next; at last the first after the group
        ("used", "i8"),  # bytes of the scratch buffer in use
        ("rows", "i8"),  # rows the group may have so far
        ("batch_bytes", "i8"),  # that one batch may expand to
        ("group_rows", "i8"),  # that a group of more batches than one may have
        ("group_bytes", "i8"),  # expanded bytes after which a group ends
    ]
)

_XERIAL_MAGIC = np.uint64(int.from_bytes(XERIAL_MAGIC, "little"))
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_LARGEST_WINDOW_LOG = 27  # what zstd takes as long as nobody asks it for more
_GZIP_HEADER, _GZIP_TRAILER = 10, 8


@inlined
def _byte(buf: np.ndarray, at: int) -> Any:
    return int64(buf[at])


@inlined
def _word(buf: np.ndarray, at: int) -> Any:
    return int64(load_u32(buf, at))


@kernel
def _lz4(src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int, magic: int) -> int:
    """Expands a frame of independent blocks without checksums and size (lz4 Frame format 1.6.1)."""
    end = at + size
    if size < 11 or _word(src, at) != LZ4_MAGIC:
        return DECLINED
    if src[at + 4] != 0x60 or src[at + 5] & 0x8F or src[at + 5] >> 4 < 4:
        return DECLINED
    if magic != f.MAGIC_V0 and (xxh32(src, at + 4, at + 6) >> 8) & 0xFF != src[at + 6]:
        return DECLINED
    largest = 1 << (8 + 2 * (src[at + 5] >> 4))
    p = at + 7
    made = 0
    while p + 4 <= end:
        word = _word(src, p)
        block = word & ~LZ4_STORED
        p += 4
        if block == 0:
            return made
        if block > largest or block > end - p:
            return DECLINED
        if word & LZ4_STORED:
            if block > room - made:
                return DECLINED
            copy_bytes(dst, to + made, src, p, block)
            made += block
        else:
            got = lz4_block(src, p, block, dst, to + made, min(largest, room - made))
            if got < 0:
                return DECLINED
            made += got
        p += block
    return DECLINED


@kernel
def _repeat(dst: np.ndarray, at: int, back: int, size: int) -> None:
    """Fills ``dst[at:at+size]`` from the bytes that lie ``back`` bytes before it, which it may overlap."""
    end = at + size
    period = back
    while period < 16:
        period += back
    fast = end + 16 <= len(dst)
    stop = min(end, at + period - back) if fast else end
    while at < stop:
        dst[at] = dst[at - back]
        at += 1
    while at < end:
        copy_sixteen(dst, at, dst, at - period)
        at += 16


@kernel
def _snappy_size(src: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Returns the size that a block begins with, a varint of 32 bits, and the position after it.

    The size is DECLINED where the varint is cut or too long.
    """
    size = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = _byte(src, at)
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
    return DECLINED, at


@kernel
def _snappy_block(src: np.ndarray, at: int, end: int, dst: np.ndarray, to: int, room: int) -> int:
    """Expands one raw block ``src[at:end]`` (Snappy format description, 2011)."""
    size, at = _snappy_size(src, at, end)
    if size < 0 or size > room:
        return DECLINED
    made = 0
    while at < end:
        tag = _byte(src, at)
        at += 1
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if length > 60:
                more = length - 60
                if more > end - at:
                    return DECLINED
                length = 1
                for i in range(more):
                    length += _byte(src, at + i) << (8 * i)
                at += more
            if length > end - at or length > size - made:
                return DECLINED
            if length <= 16 and at + 16 <= len(src) and to + made + 16 <= len(dst):
                copy_sixteen(dst, to + made, src, at)
            else:
                copy_bytes(dst, to + made, src, at, length)
            at += length
            made += length
            continue
        wide = 1 if kind == 1 else 2 * (kind - 1)
        if wide > end - at:
            return DECLINED
        back = 0
        if at + 4 <= len(src):
            back = _word(src, at) & ((1 << (8 * wide)) - 1)
        else:
            for i in range(wide):
                back |= _byte(src, at + i) << (8 * i)
        at += wide
        if kind == 1:
            length = 4 + ((tag >> 2) & 7)
            back |= (tag >> 5) << 8
        if back == 0 or back > made or length > size - made:
            return DECLINED
        if length <= 16 <= back and to + made + 16 <= len(dst):
            copy_sixteen(dst, to + made, dst, to + made - back)
        else:
            _repeat(dst, to + made, back, length)
        made += length
    return made if made == size else DECLINED


@kernel
def _snappy(src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int) -> int:
    """Expands a raw block, or blocks of xerial's framing, whose header comes once."""
    end = at + size
    if size < XERIAL_HEADER or load_u64(src, at) != _XERIAL_MAGIC:
        return _snappy_block(src, at, end, dst, to, room)
    p = at + XERIAL_HEADER
    made = 0
    while p + 4 <= end:
        block = load_be32(src, p)
        p += 4
        if block <= 0 or block > end - p:
            return DECLINED
        got = _snappy_block(src, p, p + block, dst, to + made, room - made)
        if got < 0:
            return DECLINED
        made += got
        p += block
    return made if p == end else DECLINED


@kernel
def _zstd(context: int, src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int) -> int:
    """Expands one frame without a dictionary whose window zstd accepts in a stream (RFC 8878).

    In one piece zstd also takes content past the window, with blocks larger than it, which a stream refuses:
    content that does not fit in the window is declined.
    """
    if size < 9 or _word(src, at) != _ZSTD_MAGIC:
        return DECLINED
    descriptor = _byte(src, at + 4)
    if descriptor & 0x0B:  # a dictionary, a reserved bit
        return DECLINED
    if descriptor & 0x20:  # the content in one piece: its size is the window's
        if room > 1 << _ZSTD_LARGEST_WINDOW_LOG:
            room = 1 << _ZSTD_LARGEST_WINDOW_LOG
    else:
        log = 10 + (_byte(src, at + 5) >> 3)
        if log >= _ZSTD_LARGEST_WINDOW_LOG:
            return DECLINED
        window = (1 << log) + (1 << log - 3) * (_byte(src, at + 5) & 7)
        if room > window:
            room = window
    return zstd_frame(context, src, at, size, dst, to, room)


@kernel
def _gzip(state: Any, src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int) -> int:
    """Expands one member with nothing in its header, and nothing after it (RFC 1952)."""
    if size < _GZIP_HEADER + _GZIP_TRAILER or _word(src, at) != 0x00088B1F:
        return DECLINED
    p = at + _GZIP_HEADER
    made, left = inflate(state, src, p, size - _GZIP_HEADER, dst, to, room)
    if made < 0 or left != _GZIP_TRAILER:
        return DECLINED
    trailer = at + size - _GZIP_TRAILER
    if _word(src, trailer) != crc32(dst, to, to + made, 0):
        return DECLINED
    if _word(src, trailer + 4) != made & 0xFFFFFFFF:
        return DECLINED
    return made


@kernel
def _expand_one(
    window: np.ndarray, e: np.void, scratch: np.ndarray, used: int, room: int, zstd: int, inflater: Any
) -> int:
    """Expands the payload of one batch to ``scratch[used:used+room]``.

    Returns the bytes made, or DECLINED.
    """
    at, size, codec = e["payload_at"], e["payload_size"], e["codec"]
    if codec == f.CODEC_GZIP:
        return _gzip(inflater, window, at, size, scratch, used, room)
    if codec == f.CODEC_SNAPPY:
        return _snappy(window, at, size, scratch, used, room)
    if codec == f.CODEC_LZ4:
        return _lz4(window, at, size, scratch, used, room, e["magic"])
    if codec == f.CODEC_ZSTD and e["magic"] == f.MAGIC_V2:
        return _zstd(zstd, window, at, size, scratch, used, room)
    return DECLINED


@kernel
def expand_regular(
    window: np.ndarray,
    batches: np.ndarray,
    scratch: np.ndarray,
    progress: np.ndarray,
    zstd: int,
    inflater: Any,
) -> int:
    """Expands a group of compressed batches into ``scratch``, from ``progress`` (PROGRESS[1]) on.

    ``window``, ``scratch``: uint8; ``batches``: BATCH[n]; ``zstd``, ``inflater``: of ``libraries.Contexts``.
    The group ends at a batch that needs no expanding, after ``group_bytes``, or before ``group_rows`` would
    be passed: it returns GROUP_ENDS. DECLINES: the next batch has to be expanded by ``codecs`` first.
    """
    group = progress[0]
    while group["next"] < len(batches):
        e = batches[group["next"]]
        codec, used = e["codec"], group["used"]
        begun = group["next"] > group["first"]
        if codec == f.CODEC_NONE or (begun and used > group["group_bytes"]):
            return GROUP_ENDS
        empty = e["payload_size"] == 0 and e["magic"] == f.MAGIC_V2 and codec <= f.CODEC_ZSTD
        if not e["fault"] and not e["expanded"] and not empty:
            room = min(group["batch_bytes"], len(scratch) - used)
            made = _expand_one(window, e, scratch, used, room, zstd, inflater)
            if made < 0:
                return DECLINES
            e["expanded"] = 1
            e["data_at"], e["data_size"] = used, made
            group["used"] = used + made
        rows = most_records(e)
        if begun and group["rows"] + rows > group["group_rows"]:
            if e["expanded"]:  # it opens the next group, and is expanded there once more
                group["used"] -= e["data_size"]
                e["expanded"] = 0
            return GROUP_ENDS
        group["rows"] += rows
        group["next"] += 1
    return GROUP_ENDS
