"""Computes CRC-32C of record batches (magic 2) and CRC-32 of messages (magic 0 and 1).

CRC-32C runs on the CPU's own instruction where there is one, in three streams that hide its latency
(after Mark Adler's scheme), else on tables. CRC-32 (the zlib polynomial) is isal's where its wheel is, which
multiplies without carries; else it runs on tables, too, sixteen bytes a step. Checksums of ranges combine by
a product, without carries where the CPU can. Both polynomials are in reflected form; a checksum of a prefix
is the seed of the rest.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding as llvm

from kafka_log_lake.udfs.kernels import libraries
from kafka_log_lake.udfs.kernels.jit import called_by_kernels, int64, kernel, load_u64
from kafka_log_lake.udfs.kernels.native import crc32_of

CRC32C_POLYNOMIAL = 0x82F63B78
CRC32_POLYNOMIAL = 0xEDB88320
_STREAM_LOG2 = 9
_STREAM = 1 << _STREAM_LOG2  # bytes a stream: three of them are folded at once


def _tables(polynomial: int, slices: int) -> np.ndarray:
    """Returns uint32[slices * 256]: row k holds the checksum of a byte followed by k zero bytes."""
    rows = np.zeros((slices, 256), dtype=np.uint32)
    value = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        value = np.where(value & 1, (value >> 1) ^ np.uint32(polynomial), value >> 1).astype(np.uint32)
    rows[0] = value
    for k in range(1, slices):
        rows[k] = (rows[k - 1] >> 8) ^ rows[0][rows[k - 1] & 0xFF]
    return rows.reshape(-1)


_CRC32C_TABLES = _tables(CRC32C_POLYNOMIAL, 16)
_CRC32_TABLES = _tables(CRC32_POLYNOMIAL, 16)


@kernel
def _by_table(tables: np.ndarray, buf: np.ndarray, start: int, end: int, crc: int) -> int:
    """Returns the checksum of ``buf[start:end]`` (uint8) by ``tables`` (uint32[16 * 256]).

    Each step takes sixteen bytes. ``crc``: the checksum of the bytes before.
    """
    state = np.uint32(~np.uint32(crc))
    i = start
    while i + 16 <= end:
        low = load_u64(buf, i) ^ np.uint64(state)
        high = load_u64(buf, i + 8)
        state = np.uint32(0)
        for k in range(8):
            state ^= tables[(15 - k) * 256 + int64((low >> np.uint64(8 * k)) & np.uint64(0xFF))]
            state ^= tables[(7 - k) * 256 + int64((high >> np.uint64(8 * k)) & np.uint64(0xFF))]
        i += 16
    while i < end:
        index = int64((state ^ np.uint32(buf[i])) & np.uint32(0xFF))
        state = np.uint32((state >> np.uint32(8)) ^ tables[index])
        i += 1
    return int64(np.uint32(~state))


@kernel
def crc32c_table(buf: np.ndarray, start: int, end: int, crc: int = 0) -> int:
    """Returns CRC-32C of ``buf[start:end]`` (uint8) on any CPU, unsigned, as int64.

    ``crc``: the checksum of the bytes before, 0 without any.
    """
    return _by_table(_CRC32C_TABLES, buf, start, end, crc)


@kernel
def crc32_table(buf: np.ndarray, start: int, end: int, crc: int = 0) -> int:
    """Returns CRC-32 (zlib's) of ``buf[start:end]`` (uint8) on any CPU, unsigned, as int64.

    ``crc``: the checksum of the bytes before, 0 without any.
    """
    return _by_table(_CRC32_TABLES, buf, start, end, crc)


@kernel
def crc32_library(buf: np.ndarray, start: int, end: int, crc: int = 0) -> int:
    """Returns CRC-32 by isal; arguments and result as for ``crc32_table``."""
    return int64(crc32_of(buf, start, end, np.uint32(crc)))


crc32 = crc32_library if libraries.HAS_CRC32 else crc32_table


@called_by_kernels
def _shifted(tables: np.ndarray, register: Any) -> Any:
    """Returns a register (uint64 below 2^32) after some zero bytes.

    ``tables``: what they make of each byte.
    """
    low = int64(register)
    halves = tables[low & 0xFF] ^ tables[256 + ((low >> 8) & 0xFF)]
    return np.uint64(halves ^ tables[512 + ((low >> 16) & 0xFF)] ^ tables[768 + ((low >> 24) & 0xFF)])


# Four zero bytes, for ``_shifted``
_CRC32C_BY_FOUR = _CRC32C_TABLES[: 4 * 256].reshape(4, 256)[::-1].reshape(-1)
_CRC32_BY_FOUR = _CRC32_TABLES[: 4 * 256].reshape(4, 256)[::-1].reshape(-1)
_EVERY_FOURTH = np.uint64(0x1111111111111111)


@called_by_kernels
def spread_product(a: Any, b: Any) -> Any:
    """Returns the product of two polynomials over GF(2) of 32 bits each (uint64), by integer multiplications.

    Where only every fourth bit of both is set, carries stay in the bits between (BearSSL,
    "Constant-Time Mul").
    """
    whole = np.uint64(0)
    for k in range(4):
        part = np.uint64(0)
        for i in range(4):
            part = part ^ (a & _EVERY_FOURTH << np.uint64(i)) * (b & _EVERY_FOURTH << np.uint64((k - i) & 3))
        whole = whole | (part & _EVERY_FOURTH << np.uint64(k))
    return whole


def product(a: Any, b: Any) -> Any:
    """Returns the product of two polynomials over GF(2).

    Kernels use the CPU's instruction where there is one.
    """
    return spread_product(a, b)


def has_carryless() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64") and bool(
        llvm.get_host_cpu_features().get("pclmul")
    )


@called_by_kernels
def _multiply(a: Any, b: Any, by_four: np.ndarray) -> Any:
    """Returns the product of two polynomials over GF(2), modulo the one of ``by_four``.

    Both and the product are reflected, of 32 bits, uint64.
    """
    both = product(a, b) << np.uint64(1)
    # The lower half of the 64 bits is to be multiplied by x^32: four zero bytes follow it
    return (both >> np.uint64(32)) ^ _shifted(by_four, both & np.uint64(0xFFFFFFFF))


_DIGIT = 11  # bits of the size of a shift that one product serves
_DIGITS = 4  # up to 16 TiB


def _shifts(by_four: np.ndarray) -> np.ndarray:
    """Returns uint64[_DIGITS, 1 << _DIGIT]: at [k, n] x^(8 * n * 2048^k) modulo the polynomial.

    A checksum register times such a power is the register after that many zero bytes.
    """
    powers = [np.uint64(1 << 23)]  # x^8
    for _ in range(_DIGIT * _DIGITS - 1):
        powers.append(_multiply(powers[-1], powers[-1], by_four))
    by_digit = np.array(powers).reshape(_DIGITS, _DIGIT)
    table = np.full((_DIGITS, 1), 1 << 31, dtype=np.uint64)  # x^0
    for bit in range(_DIGIT):
        table = np.hstack([table, _multiply(by_digit[:, bit : bit + 1], table, by_four)])
    return table


_CRC32C_SHIFTS = _shifts(_CRC32C_BY_FOUR)
_CRC32_SHIFTS = _shifts(_CRC32_BY_FOUR)


@kernel
def _shift(crc: int, size: int, by_four: np.ndarray, shifts: np.ndarray) -> int:
    """Returns the checksum register after ``size`` zero bytes, at most 16 TiB of them."""
    register = np.uint64(crc)
    for k in range(_DIGITS):
        digit = size >> _DIGIT * k & (1 << _DIGIT) - 1
        if digit:
            register = _multiply(shifts[k, digit], register, by_four)
    return int64(register)


@kernel
def crc32c_combine(first: int, second: int, second_size: int) -> int:
    """Returns CRC-32C of two ranges in a row, from that of each and the second one's size in bytes."""
    return _shift(first, second_size, _CRC32C_BY_FOUR, _CRC32C_SHIFTS) ^ second


@kernel
def crc32_combine(first: int, second: int, second_size: int) -> int:
    """Returns CRC-32 of two ranges in a row, from that of each and the second one's size in bytes."""
    return _shift(first, second_size, _CRC32_BY_FOUR, _CRC32_SHIFTS) ^ second


def _shift_tables(doublings: int) -> np.ndarray:
    """Returns uint32[4 * 256]: what ``2 ** doublings`` zero bytes make of each byte of a CRC-32C register."""
    bytes_of = np.arange(256, dtype=np.uint64) << np.arange(0, 32, 8, dtype=np.uint64)[:, None]
    products = _multiply(_CRC32C_SHIFTS[0, 1 << doublings], bytes_of, _CRC32C_BY_FOUR)
    return np.asarray(products, dtype=np.uint32).reshape(-1)


def _instruction() -> str:
    """Returns the name of the CPU's CRC-32C instruction in LLVM, or "" where there is none."""
    machine = platform.machine().lower()
    features = llvm.get_host_cpu_features()
    if machine in ("x86_64", "amd64") and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64"
    if machine in ("aarch64", "arm64") and features.get("crc"):
        return "llvm.aarch64.crc32cx"
    return ""


INSTRUCTION = _instruction()


def crc32c_step(state: Any, word: Any) -> Any:
    """Returns a CRC-32C register (uint64) after eight more bytes (uint64)."""
    value = int(state) ^ int(word)
    for _ in range(64):
        value = (value >> 1) ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
    return np.uint64(value)


_SHIFT_1 = _shift_tables(_STREAM_LOG2)
_SHIFT_2 = _shift_tables(_STREAM_LOG2 + 1)


@kernel
def crc32c_hardware(buf: np.ndarray, start: int, end: int, crc: int = 0) -> int:
    """Returns CRC-32C by the CPU's instruction; arguments and result as for ``crc32c_table``."""
    state = np.uint64(~np.uint32(crc))
    i = start
    while i + 3 * _STREAM <= end:
        second = np.uint64(0)
        third = np.uint64(0)
        stop = i + _STREAM
        while i < stop:
            state = crc32c_step(state, load_u64(buf, i))
            second = crc32c_step(second, load_u64(buf, i + _STREAM))
            third = crc32c_step(third, load_u64(buf, i + 2 * _STREAM))
            i += 8
        state = _shifted(_SHIFT_2, state) ^ _shifted(_SHIFT_1, second) ^ third
        i += 2 * _STREAM
    while i + 8 <= end:
        state = crc32c_step(state, load_u64(buf, i))
        i += 8
    narrow = np.uint32(state)
    while i < end:
        index = int64((narrow ^ np.uint32(buf[i])) & np.uint32(0xFF))
        narrow = np.uint32((narrow >> np.uint32(8)) ^ _CRC32C_TABLES[index])
        i += 1
    return int64(np.uint32(~narrow))


crc32c = crc32c_hardware if INSTRUCTION else crc32c_table
