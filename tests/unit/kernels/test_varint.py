"""Boundary table of the varint kernels: every length, both ends, padded, overlong and cut ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs import vectorized_varint
from tests.support import segment_maker
from tests.support.reference_records import Cursor, InvalidError, varint_size

Reader = Callable[[Any, int, int], tuple[int, int]]


def _forms(kernel: Any) -> list[Any]:
    """The compiled kernel and its plain Python form."""
    return [pytest.param(kernel, id="compiled"), pytest.param(kernel.py_func, id="plain")]


READ_VARINT = _forms(vectorized_varint.read_varint)
READ_VARLONG = _forms(vectorized_varint.read_varlong)
VARINT_SIZE = _forms(vectorized_varint.varint_size)

# Bytes by hand, after the zigzag rule: 0, -1, 1, -2, ... and seven bits a byte, lowest first
VARINTS = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (1048575, "feff7f"),
    (-1048576, "ffff7f"),
    (1048576, "80808001"),
    (-1048577, "81808001"),
    (134217727, "feffff7f"),
    (-134217728, "ffffff7f"),
    (134217728, "8080808001"),
    (-134217729, "8180808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]
VARLONGS = [
    *VARINTS,
    (17179869183, "feffffff7f"),
    (-17179869184, "ffffffff7f"),
    (17179869184, "808080808001"),
    (-17179869185, "818080808001"),
    (2199023255551, "feffffffff7f"),
    (-2199023255552, "ffffffffff7f"),
    (2199023255552, "80808080808001"),
    (-2199023255553, "81808080808001"),
    (281474976710655, "feffffffffff7f"),
    (-281474976710656, "ffffffffffff7f"),
    (281474976710656, "8080808080808001"),
    (-281474976710657, "8180808080808001"),
    (36028797018963967, "feffffffffffff7f"),
    (-36028797018963968, "ffffffffffffff7f"),
    (36028797018963968, "808080808080808001"),
    (-36028797018963969, "818080808080808001"),
    (4611686018427387903, "feffffffffffffff7f"),
    (-4611686018427387904, "ffffffffffffffff7f"),
    (4611686018427387904, "80808080808080808001"),
    (-4611686018427387905, "81808080808080808001"),
    (9223372036854775807, "feffffffffffffffff01"),
    (-9223372036854775808, "ffffffffffffffffff01"),
]
# Longer than need be, but no longer than the type may be; what does not fit the type is dropped
LEGAL_VARINTS = [
    (0, "8000"),
    (0, "8080808000"),
    (2, "8480808000"),
    (-(1 << 31), "ffffffff7f"),
    (0, "8080808070"),
]
LEGAL_VARLONGS = [
    (0, "80808080808080808000"),
    (2, "84808080808080808000"),
    (-(1 << 63), "ffffffffffffffffff7f"),
]
BAD_VARINTS = ["", "80", "8080", "ffffff", "80808080", "808080808001", "ffffffffff0f", "808080808080"]
BAD_VARLONGS = ["", "80", "808080808080808080", "8080808080808080808001", "ffffffffffffffffffff01"]

JUNK = b"\xff\x01\x80"


def _read(reader: Reader, encoded: bytes, *, before: bytes = b"", after: bytes = b"") -> tuple[int, int]:
    """Read with bytes before, and with bytes after that lie past ``end``; the position less ``before``."""
    buf = np.frombuffer(before + encoded + after, dtype=np.uint8)
    value, position = reader(buf, len(before), len(before) + len(encoded))
    return int(value), int(position) - (len(before) if position >= 0 else 0)


@pytest.mark.parametrize("reader", READ_VARINT)
@pytest.mark.parametrize(("value", "encoded"), VARINTS + LEGAL_VARINTS)
def test_varint_reads_as_written(reader: Reader, value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert _read(reader, data) == (value, len(data))
    assert _read(reader, data, before=JUNK, after=JUNK) == (value, len(data))


@pytest.mark.parametrize("reader", READ_VARLONG)
@pytest.mark.parametrize(("value", "encoded"), VARLONGS + LEGAL_VARLONGS)
def test_varlong_reads_as_written(reader: Reader, value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert _read(reader, data) == (value, len(data))
    assert _read(reader, data, before=JUNK, after=JUNK) == (value, len(data))


@pytest.mark.parametrize("reader", READ_VARINT)
@pytest.mark.parametrize("encoded", BAD_VARINTS)
def test_a_cut_or_overlong_varint_is_refused(reader: Reader, encoded: str) -> None:
    assert _read(reader, bytes.fromhex(encoded), before=JUNK, after=b"\x00")[1] == -1


@pytest.mark.parametrize("reader", READ_VARLONG)
@pytest.mark.parametrize("encoded", BAD_VARLONGS)
def test_a_cut_or_overlong_varlong_is_refused(reader: Reader, encoded: str) -> None:
    assert _read(reader, bytes.fromhex(encoded), before=JUNK, after=b"\x00")[1] == -1


@pytest.mark.parametrize("reader", [*READ_VARINT, *READ_VARLONG])
@pytest.mark.parametrize("position", [-1, -9, 3, 4, 1 << 40])
def test_a_position_outside_the_buffer_is_refused(reader: Reader, position: int) -> None:
    assert reader(np.zeros(3, dtype=np.uint8), position, 3)[1] == -1


@pytest.mark.parametrize("size", VARINT_SIZE)
@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_size_equals_that_of_the_shortest_form(size: Callable[[int], int], value: int, encoded: str) -> None:
    assert size(value) == len(encoded) // 2


@pytest.mark.parametrize(("value", "encoded"), VARLONGS)
def test_the_maker_of_segments_writes_the_same_bytes(value: int, encoded: str) -> None:
    assert segment_maker.varlong(value).hex() == encoded
    if -(1 << 31) <= value < 1 << 31:
        assert segment_maker.varint(value).hex() == encoded
        assert varint_size(value) == len(encoded) // 2


def _by_reference(data: bytes, *, bits: int) -> tuple[int, int]:
    cursor = Cursor(data)
    try:
        return (cursor.varint() if bits == 32 else cursor.varlong()), cursor.position
    except InvalidError:
        return 0, -1


@given(st.binary(max_size=12) | st.lists(st.sampled_from([0, 1, 127, 128, 255]), max_size=12).map(bytes))
def test_any_bytes_read_alike_compiled_plain_and_by_the_reference(data: bytes) -> None:
    for bits, kernel in ((32, vectorized_varint.read_varint), (64, vectorized_varint.read_varlong)):
        expected = _by_reference(data, bits=bits)
        for reader in (kernel, kernel.py_func):
            got = _read(reader, data, after=b"\x00" * 4)
            assert got == expected if expected[1] >= 0 else got[1] == -1


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 10))
def test_every_long_survives_padding(value: int, size: int) -> None:
    data = segment_maker.varlong(value, size=size)
    assert _read(vectorized_varint.read_varlong, data) == (value, len(data))
