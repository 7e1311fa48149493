"""The search for a batch that proves itself, against a look at every byte; in pieces of any size."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.decoder import batch_search
from kafka_log_lake.udfs.decoder.batch_search import BatchSearch
from kafka_log_lake.udfs.decoder.range_checksums import RangeChecksums
from tests.support.damage import sound
from tests.support.drawn import examples
from tests.support.reference_decoder import proves_itself
from tests.support.segment_maker import Message

V0 = Message(magic=0, offset=7, value=b"v").encode()
V1 = Message(magic=1, offset=8, value=b"value" * 90).encode()
V2 = sound(100)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, dtype=np.uint8)
        self.read = 0

    def read_into(self, position: int, view: np.ndarray) -> int:
        part = self._data[position : position + len(view)]
        view[: len(part)] = part
        self.read += len(part)
        return len(part)

    def unreadable(self, position: int, end: int) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def _search(source: _Bytes, length: int) -> BatchSearch:
    return BatchSearch(source, 0, length, RangeChecksums(source, 0, length))


def _proven(data: bytes) -> list[int]:
    return [c for c in range(len(data) - 16) if proves_itself(data, c)]


def _near_miss(leads: int, magic: int) -> bytes:
    """A batch as far as its length and magic go, ``leads`` bytes long by what it says."""
    body = struct.pack(">qiibI", 5, leads - 12, 0, magic, 0xBAD)
    return body + bytes(5)


def _pieces() -> st.SearchStrategy[bytes]:
    sizes = st.sampled_from([26, 34, 61, 100, 444, 3000])
    return st.one_of(
        st.sampled_from([V0, V1, V2]),
        st.builds(_near_miss, sizes, st.integers(0, 2)),
        st.binary(max_size=40),
        st.integers(0, 90).map(bytes),
    )


@pytest.fixture(params=["one piece", "small pieces"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small enough that most batches end outside the bytes in view, and that more wait than may."""
    if request.param == "small pieces":
        for name, size in {
            "_REGION": 96,
            "_REGION_MOST": 128,
            "_ZEROS_BLOCKS": (8, 40),
            "_WAITING_MOST": 3,
        }.items():
            monkeypatch.setattr(batch_search, name, size)


@pytest.mark.usefixtures("_sizes")
@examples(300)
@given(st.lists(_pieces(), min_size=1, max_size=12).map(b"".join), st.lists(st.integers(0, 5000), max_size=6))
def test_the_first_batch_from_any_place_on_is_found(data: bytes, starts: list[int]) -> None:
    search, proven = _search(_Bytes(data), len(data)), _proven(data)
    for start in [0, *starts]:
        assert search.first_from(start) == next((c for c in proven if c >= start), -1)


@pytest.mark.parametrize("leads", [61, 6100, 1 << 20, 3 << 20])
@pytest.mark.parametrize("magic", [1, 2])
def test_what_is_read_grows_with_the_segment_whatever_lengths_it_claims(leads: int, magic: int) -> None:
    """Near misses after each other, each of which leads to another: none costs a separate read."""
    miss = _near_miss(leads // 61 * 61, magic).ljust(61, b"\xee")
    source = _Bytes(miss * ((4 << 20) // 61))
    length = (4 << 20) // 61 * 61
    search = _search(source, length)
    assert search.first_from(0) == -1
    assert source.read < 5 * length
    read = source.read
    for start in range(0, length, 4099):
        assert search.first_from(start) == -1
    assert source.read == read
