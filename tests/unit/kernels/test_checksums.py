"""The checksum kernels against the ``crc32c`` package and zlib: CPU instruction, tables, combination."""

from __future__ import annotations

import random
import zlib
from functools import cache
from typing import Any

import crc32c as crc32c_package
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.kernels import checksums
from kafka_log_lake.udfs.kernels.jit import kernel as compiled_kernel

# Around the steps of the kernels: 8 and 16 bytes, and three streams of 512
SIZES = [0, 1, 7, 8, 9, 15, 16, 17, 31, 511, 512, 513, 1535, 1536, 1537, 3071, 3072, 3073, 10_000]
CRC32C = [
    pytest.param(checksums.crc32c, id="chosen"),
    pytest.param(checksums.crc32c_table, id="table"),
    pytest.param(checksums.crc32c_hardware, id="hardware"),
]
CRC32 = [
    pytest.param(checksums.crc32, id="chosen"),
    pytest.param(checksums.crc32_table, id="table"),
]


@cache
def _compiled(function: Any) -> Any:
    return compiled_kernel(lambda a, b: function(a, b))


def _bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def _array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


def _crc(kernel: Any, data: bytes, start: int = 0, end: int | None = None, seed: int = 0) -> int:
    return int(kernel(_array(data), start, len(data) if end is None else end, seed))


@pytest.mark.parametrize("kernel", CRC32C)
def test_crc32c_of_the_check_string(kernel: Any) -> None:
    assert _crc(kernel, b"123456789") == 0xE3069283


@pytest.mark.parametrize("kernel", CRC32)
def test_crc32_of_the_check_string(kernel: Any) -> None:
    assert _crc(kernel, b"123456789") == 0xCBF43926


@pytest.mark.parametrize("kernel", CRC32C)
@pytest.mark.parametrize("size", SIZES)
def test_crc32c_at_every_size_and_alignment(kernel: Any, size: int) -> None:
    data = _bytes(size + 9)
    for start in range(9):
        assert _crc(kernel, data, start, start + size) == crc32c_package.crc32c(data[start : start + size])


@pytest.mark.parametrize("kernel", CRC32)
@pytest.mark.parametrize("size", SIZES)
def test_crc32_at_every_size_and_alignment(kernel: Any, size: int) -> None:
    data = _bytes(size + 9)
    for start in range(9):
        assert _crc(kernel, data, start, start + size) == zlib.crc32(data[start : start + size])


@pytest.mark.parametrize("kernel", CRC32C)
@given(st.binary(max_size=2000), st.data())
def test_crc32c_goes_on_from_a_prefix(kernel: Any, data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    prefix = _crc(kernel, data, 0, cut)
    assert _crc(kernel, data, cut, seed=prefix) == crc32c_package.crc32c(data)


@pytest.mark.parametrize("kernel", CRC32)
@given(st.binary(max_size=2000), st.data())
def test_crc32_goes_on_from_a_prefix(kernel: Any, data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    assert _crc(kernel, data, cut, seed=_crc(kernel, data, 0, cut)) == zlib.crc32(data)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_checksums_of_two_ranges_combine(first: bytes, second: bytes) -> None:
    combined = checksums.crc32c_combine(
        crc32c_package.crc32c(first), crc32c_package.crc32c(second), len(second)
    )
    assert combined == crc32c_package.crc32c(first + second)
    combined = checksums.crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(first + second)


@given(*[st.integers(0, 0xFFFFFFFF)] * 3, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_ranges_of_any_size_combine_in_any_order(a: int, b: int, c: int, size_b: int, size_c: int) -> None:
    for combine in (checksums.crc32c_combine, checksums.crc32_combine):
        left_first = combine(combine(a, b, size_b), c, size_c)
        assert left_first == combine(a, combine(b, c, size_c), size_b + size_c)


@given(*[st.integers(0, 0xFFFFFFFF)] * 2)
def test_products_are_the_same_with_and_without_the_instruction(a: int, b: int) -> None:
    expected = 0
    for bit in range(32):
        expected ^= (a << bit) * (b >> bit & 1)
    for product in (checksums.product, checksums.spread_product):
        assert int(_compiled(product)(np.uint64(a), np.uint64(b))) == expected


def test_bytes_outside_the_range_do_not_matter() -> None:
    inside = _bytes(4000)
    one, other = b"\x00" * 64 + inside + b"\x00" * 64, b"\xff" * 64 + inside + b"\xff" * 64
    for kernel in (checksums.crc32c_table, checksums.crc32c_hardware, checksums.crc32, checksums.crc32_table):
        assert _crc(kernel, one, 64, 4064) == _crc(kernel, other, 64, 4064)


def test_the_hardware_kernel_s_plain_form_agrees() -> None:
    data = _bytes(100)
    assert int(checksums.crc32c_hardware.py_func(_array(data), 0, 100)) == crc32c_package.crc32c(data)
