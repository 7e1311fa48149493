"""Crafted input costs in proportion to its bytes: what is read, expanded and kept, counted.

Time is for ``make bench`` and ``make fuzz``; here is what causes it, and what can be counted exactly.
"""

from __future__ import annotations

import gzip
import itertools
import struct
from typing import Any

import numpy as np
import pytest

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.range_checksums import BLOCK
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.kernels import codecs
from tests.support.damage import sound
from tests.support.fast import BytesSource
from tests.support.segment_maker import (
    GZIP,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    Batch,
    Message,
    Record,
    compress,
    varint,
)


class Counting(BytesSource):
    """A source that counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.bytes = self.calls = 0

    def read_into(self, position: int, view: np.ndarray) -> int:
        self.bytes += len(view)
        self.calls += 1
        return super().read_into(position, view)


def _with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def _lying_pairs(pairs: int) -> bytes:
    """A length that claims nearly all of the rest, then a sound batch, and so on."""
    values = [sound(2 * n + 1) + bytes(1000) for n in range(pairs)]
    one = len(values[0]) + len(sound(0))
    parts = [_with_length(sound(2 * n), (pairs - n) * one - 200) + values[n] for n in range(pairs)]
    return b"".join(parts)


def _tiny(count: int) -> bytes:
    """The smallest messages there are, each with a wrong checksum."""
    message = bytearray(Message(magic=0, offset=5).encode())
    message[12] ^= 1
    return b"".join(n.to_bytes(8, "big") + bytes(message[8:]) for n in range(count))


def _islands(count: int) -> bytes:
    """A sound batch, a byte that belongs to none, and so on."""
    return b"".join(sound(3 * n) + b"\xff" for n in range(count))


SEGMENTS = {
    "lying pairs": _lying_pairs(400),
    "tiny messages with a wrong checksum": _tiny(20_000),
    "islands": _islands(3000),
    "zeros between": sound(0) + bytes(8 << 20) + sound(3),
    "a torn batch of a claimed gibibyte": sound(0) + _with_length(sound(3) * 20_000, 1 << 30),
}


@pytest.mark.parametrize("data", SEGMENTS.values(), ids=SEGMENTS.keys())
def test_what_is_read_is_a_few_times_the_segment(data: bytes) -> None:
    """And a few blocks, to search and to compute checksums, for each damaged range."""
    source = Counting(data)
    damages = sum(
        len(group.damages) for group in SegmentDecoder(source, Range(len(data)), window_bytes=1 << 16)
    )
    assert source.bytes < 10 * len(data) + 8 * BLOCK * damages + (1 << 20)


@pytest.mark.parametrize("data", SEGMENTS.values(), ids=SEGMENTS.keys())
def test_slices_together_read_a_few_times_the_segment(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice looks for its own begin, and past its end only for the end of its last batch."""
    monkeypatch.setattr("kafka_log_lake.udfs.decoder.resync._BEYOND", 1 << 16)
    total = 0
    slices = 16
    cuts = [len(data) * k // slices for k in range(slices + 1)]
    for start, stop in itertools.pairwise(cuts):
        source = Counting(data)
        what = Range(len(data), start, stop, exact=start == 0)
        for _ in SegmentDecoder(source, what, window_bytes=1 << 16):
            pass
        total += source.bytes
    assert total < 20 * len(data) + slices * (1 << 20)


@pytest.mark.parametrize("members", [10, 20_000])
def test_gzip_members_are_fed_once(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = 0
    inflater = vars(codecs)["inflater"]
    make = inflater.decompressobj

    class Inflater:
        def __init__(self, wbits: int) -> None:
            self._own = make(wbits=wbits)

        def decompress(self, data: Any, most: int) -> bytes:
            nonlocal fed
            fed += len(data)
            return bytes(self._own.decompress(data, most))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

    monkeypatch.setattr(inflater, "decompressobj", Inflater)
    payload = gzip.compress(b"", mtime=0) * members + compress(GZIP, Record(value=b"v").encode())
    data = Batch(codec=GZIP, stored=payload, count=1).encode()
    (group,) = SegmentDecoder(BytesSource(data), Range(len(data)))
    assert group.records is not None
    assert group.records.num_rows == 1
    assert fed < 80 * len(payload)  # pieces of a KiB, for members of twenty bytes


def test_empty_snappy_blocks_are_read_as_others_are() -> None:
    blocks = [b"\x00"] * 1000 + [compress(SNAPPY, Record(value=b"v").encode(), "raw")]
    payload = XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    data = Batch(codec=SNAPPY, stored=payload, count=1).encode()
    (group,) = SegmentDecoder(BytesSource(data), Range(len(data)))
    assert group.damages == []
    assert group.records is not None
    assert group.records.column("value").to_pylist() == [b"v"]


def test_header_keys_that_are_no_text_make_columns_as_others_do() -> None:
    """Two million of them in half a kilobyte of zstd."""
    count = 2_000_000
    record = Record(headers=((b"\xff", None),)).encode()
    one = b"\x02\xff\x01"
    assert one in record
    body = record[1:].replace(b"\x02" + one, varint(count) + one * count)
    data = Batch(codec=ZSTD, stored=compress(ZSTD, varint(len(body)) + body), count=1).encode()
    (group,) = SegmentDecoder(BytesSource(data), Range(len(data)))
    assert group.damages == []
    assert group.records is not None
    headers = group.records.column("headers").flatten()
    assert len(headers) == count
    assert headers.field(0).unique().to_pylist() == ["\ufffd"]
