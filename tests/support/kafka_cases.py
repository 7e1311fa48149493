"""Batches by hand, each odd in one way, for Kafka's own library to judge: where codecs and text have corners.

``CASES``: name -> bytes of one batch with a right checksum. Whether Kafka reads or refuses it is not written
here; Kafka says so when the tests run.
"""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from random import Random

import lz4.frame
import zstandard

from tests.support import lz4_header
from tests.support.segment_maker import (
    CONTROL,
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    Batch,
    Message,
    Record,
    flip,
    varlong,
    wrap,
    xerial,
)

_RECORDS = [Record(key=b"k%d" % i, value=b"value" * 10) for i in range(20)]
_PLAIN = b"".join(record.encode(place) for place, record in enumerate(_RECORDS))
_LARGE = [Record(value=bytes(range(256)) * 200), Record(value=bytes(range(256)) * 300)]
_LARGE_PLAIN = b"".join(record.encode(place) for place, record in enumerate(_LARGE))


def _stored(codec: int, stored: bytes) -> bytes:
    return Batch(_RECORDS, codec=codec, stored=stored).encode()


def _lz4(**options: object) -> bytes:
    return bytes(lz4.frame.compress(_PLAIN, **{"store_size": False, **options}))


def _lz4_flags(position: int, mask: int) -> bytes:
    """A frame with bits of its flags (4) or block descriptor (5) flipped, and the checksum made right."""
    return _stored(LZ4, lz4_header.with_right_checksum(flip(_lz4(), position, mask)))


def _lz4_cases() -> dict[str, bytes]:
    large = {"store_size": False, "block_size": lz4.frame.BLOCKSIZE_MAX64KB}
    linked = bytes(lz4.frame.compress(_LARGE_PLAIN, block_linked=True, **large))
    several = bytes(lz4.frame.compress(_LARGE_PLAIN, block_linked=False, **large))
    messages = [Message(magic=0, offset=offset, value=b"value" * 9) for offset in range(4)]
    old = wrap(messages, codec=LZ4, magic=0, style="historic")
    new = wrap([replace(message, magic=1) for message in messages], codec=LZ4, style="historic")
    return {
        "content checksum": _stored(LZ4, _lz4(content_checksum=True)),
        "wrong content checksum": _stored(LZ4, flip(_lz4(content_checksum=True), -1)),
        "content checksum cut": _stored(LZ4, _lz4(content_checksum=True)[:-2]),
        "content size": _stored(LZ4, _lz4(store_size=True)),
        "block checksum": _stored(LZ4, _lz4(block_checksum=True)),
        "wrong block checksum": _stored(LZ4, flip(_lz4(block_checksum=True), -5)),
        "linked blocks": Batch(_LARGE, codec=LZ4, stored=linked).encode(),
        "several blocks": Batch(_LARGE, codec=LZ4, stored=several).encode(),
        "one block flagged as linked": _lz4_flags(4, 0x20),
        "version 2": _lz4_flags(4, 0xC0),
        "reserved flag": _lz4_flags(4, 0x02),
        "dictionary flag": _lz4_flags(4, 0x01),
        "reserved bit in the block descriptor": _lz4_flags(5, 0x01),
        "block size code 3": _lz4_flags(5, 0x70),
        "no end mark": _stored(LZ4, _lz4()[:-4]),
        "bytes after the frame": _stored(LZ4, _lz4() + b"garbage"),
        "two frames": _stored(LZ4, _lz4() + _lz4()),
        "historic checksum under magic 2": _stored(LZ4, lz4_header.with_historic_checksum(_lz4())),
        "historic checksum under magic 1": new.encode(),
        "historic checksum under magic 0": old.encode(),
        "linked under magic 0": replace(old, value=flip(old.value or b"", 4, 0x20)).encode(),
        "magic number alone": _stored(LZ4, lz4_header.FRAME_MAGIC),
        "skippable frame": _stored(LZ4, b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + _lz4()),
    }


def _gzip_cases() -> dict[str, bytes]:
    member = gzip.compress(_PLAIN, mtime=0)
    header = member[:10]
    empty = gzip.compress(b"", mtime=0)
    return {
        "two members": _stored(
            GZIP, gzip.compress(_PLAIN[:99], mtime=0) + gzip.compress(_PLAIN[99:], mtime=0)
        ),
        "member with a reserved flag after": _stored(
            GZIP, gzip.compress(_PLAIN[:99], mtime=0) + flip(gzip.compress(_PLAIN[99:], mtime=0), 3, 0x20)
        ),
        "empty member after": _stored(GZIP, member + empty),
        "empty member before": _stored(GZIP, empty + member),
        "garbage after": _stored(GZIP, member + b"garbage after the member, and more"),
        "magic number after": _stored(GZIP, member + b"\x1f\x8b"),
        "cut member after": _stored(GZIP, member + member[:30]),
        "header after": _stored(GZIP, member + header),
        "bad stream after": _stored(GZIP, member + header + b"\xff" * 40),
        "endless file name after": _stored(GZIP, member + header[:3] + b"\x08" + header[4:] + b"n" * 40),
        "wrong checksum": _stored(GZIP, flip(member, -8)),
        "wrong size": _stored(GZIP, flip(member, -1)),
        "trailer cut": _stored(GZIP, member[:-1]),
        "reserved flag": _stored(GZIP, flip(member, 3, 0x20)),
        "other method": _stored(GZIP, flip(member, 2, 0x01)),
        "zlib instead": _stored(GZIP, b"\x78\x9c" + member[10:-8]),
        "empty payload": _stored(GZIP, b""),
    }


def _snappy_cases() -> dict[str, bytes]:
    framed = xerial(_PLAIN)
    versions = {"0": (">", 0), "little-endian": ("<", 1), "9": (">", 9)}
    cases = {
        f"version {name}": _stored(
            SNAPPY, xerial(_PLAIN, header=XERIAL_HEADER[:8] + struct.pack(order + "ii", number, number))
        )
        for name, (order, number) in versions.items()
    }
    cases |= {f"{n} bytes after": _stored(SNAPPY, framed + bytes(n)) for n in range(1, 5)}
    return cases | {
        "many blocks": _stored(SNAPPY, xerial(_PLAIN, block=37)),
        "header again in mid-stream": _stored(SNAPPY, xerial(_PLAIN[:300]) + xerial(_PLAIN[300:])),
        "header cut in mid-stream": _stored(SNAPPY, framed + XERIAL_HEADER[:11]),
        "header alone": _stored(SNAPPY, XERIAL_HEADER),
        "header cut": _stored(SNAPPY, XERIAL_HEADER[:12]),
        "negative block": _stored(SNAPPY, framed + b"\xff\xff\xff\xff"),
        "empty block": _stored(SNAPPY, framed + struct.pack(">i", 1) + b"\x00"),
        "empty block with bytes after its size": _stored(SNAPPY, framed + struct.pack(">i", 3) + b"\x00ab"),
        "block without bytes": _stored(SNAPPY, framed + struct.pack(">i", 0)),
        "block cut": _stored(SNAPPY, framed[:-1]),
        "raw": Batch(_RECORDS, codec=SNAPPY, style="raw").encode(),
        "raw with bytes after": _stored(SNAPPY, xerial(_PLAIN)[20:] + b"x"),
        "empty payload": _stored(SNAPPY, b""),
    }


def _zstd_with(window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return frame.compress(_PLAIN) + frame.flush()


_ZSTD_READ = (1 << 17) + 3  # bytes that Kafka's zstd reads at a time


def _zstd_frame_of(size: int) -> Batch:
    """One record in a frame of this size: it can't be made smaller."""
    random = Random(size)
    for value_size in range(size - 60, size):
        records = [Record(value=random.randbytes(value_size))]
        frame = zstandard.compress(records[0].encode())
        if len(frame) == size:
            return Batch(records, codec=ZSTD, stored=frame)
    raise ValueError(size)


def _zstd_cut_cases() -> dict[str, bytes]:
    """A frame that is cut after a whole one: Kafka may take it for the end of the payload."""
    frame = zstandard.compress(_PLAIN)
    flushed = zstandard.ZstdCompressor().compressobj()
    block = flushed.compress(_RECORDS[0].encode(20)) + flushed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    one_more = replace(Batch([*_RECORDS, _RECORDS[0]], codec=ZSTD), stored=frame + block)
    cases = {
        "in its header": _stored(ZSTD, frame + frame[:7]),
        "in its magic": _stored(ZSTD, frame + frame[:1]),
        "in its last block": _stored(ZSTD, frame + frame[:-1]),
        "skippable": _stored(ZSTD, frame + b"\x50\x2a\x4d\x18\x03\x00\x00\x00ab"),
        "after a skippable one": _stored(ZSTD, b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + frame[:-1]),
        "after a whole block, counted": one_more.encode(),
        "after a whole block, not counted": _stored(ZSTD, frame + block),
        "after a block that is cut": replace(one_more, stored=frame + block[:-1]).encode(),
    }
    for size in (_ZSTD_READ - 1, _ZSTD_READ, _ZSTD_READ + 1):
        whole = _zstd_frame_of(size)
        cases[f"after {size} bytes"] = replace(whole, stored=(whole.stored or b"") + frame[:7]).encode()
    return {f"frame cut {name}": batch for name, batch in cases.items()}


def _zstd_cases() -> dict[str, bytes]:
    frame = zstandard.compress(_PLAIN)
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(_PLAIN)
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    return {
        "two frames": _stored(ZSTD, zstandard.compress(_PLAIN[:99]) + zstandard.compress(_PLAIN[99:])),
        "skippable frame after": _stored(ZSTD, frame + skippable),
        "skippable frame before": _stored(ZSTD, skippable + frame),
        "empty frame after": _stored(ZSTD, frame + zstandard.compress(b"")),
        "garbage after": _stored(ZSTD, frame + b"abc"),
        "frame cut": _stored(ZSTD, frame[:-1]),
        "window of 128 MiB": _stored(ZSTD, _zstd_with(27)),
        "window of 256 MiB": _stored(ZSTD, _zstd_with(28)),
        "checksum": _stored(ZSTD, checked),
        "wrong checksum": _stored(ZSTD, flip(checked, -1)),
        "empty payload": _stored(ZSTD, b""),
        **_zstd_cut_cases(),
    }


def _text_cases() -> dict[str, bytes]:
    """Header keys that are not UTF-8: how many U+FFFD does the JVM make of each?"""
    keys = (
        "ff c080 f888808080 e28278 e282 f09f98 f09f9878 f09078 f0908078 f4908080 f08f8080 e08080 ed9fbf "
        "ed eda0 eda078 eda080 eda08078 edbfbfeda0 eda0eda080 eda0c3a9 edafbfedb080 eeff c3 c3c3a9 80 efbfbd"
    )
    return {key: Batch([Record(headers=((bytes.fromhex(key), b"v"),))]).encode() for key in keys.split()}


def _record_cases() -> dict[str, bytes]:
    def one(record: Record, **fields: object) -> bytes:
        return Batch([record], **fields).encode()  # type: ignore[arg-type]

    wide = b"\x00" + b"\x80" * 10 + b"\x00" + b"\x00\x01\x01\x00"
    cases = {
        "sequence of a negative delta": one(Record(offset_delta=-5), base_sequence=3, producer_id=1),
        "sequence at the wrap": one(Record(offset_delta=1), base_sequence=(1 << 31) - 1, producer_id=1),
        "base sequence -2": one(Record(offset_delta=1), base_sequence=-2, producer_id=1),
        "offset past 2^63": one(Record(offset_delta=9), base_offset=(1 << 63) - 1),
        "timestamp past 2^63": one(Record(timestamp_delta=9), base_timestamp=(1 << 63) - 1, max_timestamp=0),
        "varlong of 11 bytes": Batch(payload=b"\x1e" + wide, count=1).encode(),
        "varlong of 10 bytes": Batch(
            payload=b"\x1c\x00" + varlong(-1, size=10) + b"\x00\x01\x01\x00", count=1
        ).encode(),
        "varint with bits past 32": Batch(
            payload=b"\x14\x00\x00\x80\x80\x80\x80\x70\x01\x01\x00", count=1
        ).encode(),
        "no records, gzip of nothing": Batch(codec=GZIP).encode(),
        "no records, zstd of nothing": Batch(codec=ZSTD).encode(),
        "no records, no bytes": Batch().encode(),
        "key length -2": one(Record(key_length=-2)),
        "header value length -7": Batch(payload=b"\x14\x00\x00\x00\x01\x01\x02\x02k\x0d", count=1).encode(),
    }
    for key in ("", "0000", "000000", "0000ffff", "ffff0001", "00000063", "0000000500", "7fff0003"):
        value = b"\x00\x00\x00\x00\x00\x07"
        cases[f"control key {key}"] = one(Record(key=bytes.fromhex(key), value=value), flags=CONTROL)
    values = (
        None,
        b"",
        b"\x00\x00\x00\x00\x00",
        b"\xff\xff\x00\x00\x00\x01",
        b"\x00\x09\x00\x00\x00\x01\x02",
    )
    for marker in values:
        for kind in (0, 1, 3):
            record = Record(key=struct.pack(">hh", 0, kind), value=marker)
            cases[f"control type {kind} with {marker!r}"] = one(record, flags=CONTROL)
    return cases


def _legacy_cases() -> dict[str, bytes]:
    cases: dict[str, bytes] = {}
    for magic in (0, 1):
        inner = [Message(magic=magic, offset=offset, value=b"v") for offset in (3, 4, 9)]
        other = [replace(message, magic=1 - magic) for message in inner]
        nested = wrap(inner, codec=GZIP, magic=magic)
        cases |= {
            f"magic {magic} wrapper with gaps": wrap(inner, codec=GZIP, magic=magic).encode(),
            f"magic {magic} wrapper of the other magic": wrap(other, codec=GZIP, magic=magic).encode(),
            f"magic {magic} nested": wrap([nested], codec=GZIP, magic=magic).encode(),
            f"magic {magic} empty wrapper": wrap([], codec=GZIP, magic=magic).encode(),
            f"magic {magic} wrapper with a key": replace(nested, key=b"key").encode(),
            f"magic {magic} wrapper without a value": replace(nested, value=None).encode(),
            f"magic {magic} falling offsets": wrap(inner[::-1], codec=GZIP, magic=magic).encode(),
            f"magic {magic} zstd": replace(nested, attributes=4).encode(),
            f"magic {magic} codec 5": replace(nested, attributes=5).encode(),
            f"magic {magic} bytes after the value": replace(inner[0], surplus=b"abc").encode(),
            f"magic {magic} key length -2": replace(inner[0], key_length=-2).encode(),
            f"magic {magic} value length -2": Message(magic=magic, value_length=-2).encode(),
            f"magic {magic} unused attributes": replace(inner[0], attributes=0xF0).encode(),
        }
        for outer in (-1, 0, 8, 9, 1000):
            wrapper = wrap(inner, codec=SNAPPY, magic=magic, outer_offset=outer)
            cases[f"magic {magic} outer offset {outer}"] = wrapper.encode()
    inner = [Message(magic=1, offset=offset, timestamp=5 + offset) for offset in range(3)]
    cases["log append time wrapper"] = wrap(inner, codec=LZ4, log_append_time=77).encode()
    cases["log append time message"] = Message(magic=1, attributes=8, timestamp=77).encode()
    return cases


CASES: dict[str, bytes] = {
    f"{group}: {name}": data
    for group, cases in {
        "lz4": _lz4_cases(),
        "gzip": _gzip_cases(),
        "snappy": _snappy_cases(),
        "zstd": _zstd_cases(),
        "text": _text_cases(),
        "record": _record_cases(),
        "legacy": _legacy_cases(),
    }.items()
    for name, data in cases.items()
}
