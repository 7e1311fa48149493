"""Bombs: payloads that expand a thousandfold cost the limit in memory, and a row that says so."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import snappy
import zstandard

from tests.support.segment_maker import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    Batch,
    Message,
    Record,
    compress,
    varint,
)

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
BOMB = 300 * MIB
LIMIT = 64 * MIB
# What expanding may take besides the limit: the libraries' windows, and a buffer that moves as it grows
BESIDE = 48


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(BOMB // MIB)) + packer.flush()


def snappy_bomb() -> bytes:
    block = snappy.compress(bytes(32 << 10))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (BOMB >> 15)


def raw_snappy_bomb() -> bytes:
    return bytes(snappy.compress(bytes(BOMB)))


def lz4_bomb() -> bytes:
    frame = compress(LZ4, bytes(64 << 10))
    return frame[:7] + frame[7:-4] * (BOMB >> 16) + frame[-4:]


def zstd_bomb() -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join(packer.compress(bytes(MIB)) for _ in range(BOMB // MIB)) + packer.flush()


def sized_zstd_bomb() -> bytes:
    return zstandard.compress(bytes(BOMB))


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, gzip_bomb),
    "snappy": (SNAPPY, snappy_bomb),
    "snappy raw": (SNAPPY, raw_snappy_bomb),
    "lz4": (LZ4, lz4_bomb),
    "zstd": (ZSTD, zstd_bomb),
    "zstd sized": (ZSTD, sized_zstd_bomb),
}


def decoded(path: Path, limit: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.peak_memory", "--limit", str(limit), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize(
    ("kind", "magic"), [*((kind, 2) for kind in BOMBS), ("gzip", 1), ("snappy", 1), ("lz4", 0)]
)
def test_a_bomb_costs_the_limit_and_is_reported(tmp_path: Path, kind: str, magic: int) -> None:
    codec, make = BOMBS[kind]
    payload = make()
    bomb = Batch(codec=codec, stored=payload, count=1).encode()
    if magic < 2:
        bomb = Message(magic=magic, value=payload, attributes=codec).encode()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(bomb)
    said = decoded(path, LIMIT)
    assert said["damages"] == {"decompressed_too_large": 1}
    assert said["records"] == 0
    assert said["peak_mib"] - said["before_mib"] < LIMIT / MIB + BESIDE


def test_millions_of_records_of_seven_bytes_are_rows_a_chunk_at_a_time(tmp_path: Path) -> None:
    count = 4_000_000
    record = b"\x0c\x00\x00\x00\x01\x01\x00"  # its length, attributes, two deltas, two nulls, no headers
    payload = zstandard.compress(record * count)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(Batch(codec=ZSTD, stored=payload, count=count).encode())
    said = decoded(path, LIMIT)
    assert (said["damages"], said["records"]) == ({}, count)
    columns_at_once = 500  # MiB
    assert said["peak_mib"] - said["before_mib"] < columns_at_once / 2


def test_millions_of_header_keys_that_are_no_text_cost_a_few_times_their_bytes(tmp_path: Path) -> None:
    count = 8_000_000
    headers = varint(count) + (varint(1) + b"\xff" + varint(-1)) * count
    body = b"\x00" + varint(0) * 2 + varint(-1) * 2 + headers
    payload = compress(ZSTD, varint(len(body)) + body)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(Batch(codec=ZSTD, stored=payload, count=1).encode())
    said = decoded(path, LIMIT)
    assert (said["damages"], said["records"]) == ({}, 1)
    assert said["peak_mib"] - said["before_mib"] < 12 * len(body) / MIB


def test_one_very_large_batch_is_held_once_and_its_columns_a_chunk_at_a_time(tmp_path: Path) -> None:
    size = 600 * MIB
    record = Record(value=bytes(20 * MIB)).encode()
    count = size // len(record)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(Batch(stored=record * count, count=count).encode())
    said = decoded(path, LIMIT)
    assert (said["damages"], said["records"]) == ({}, count)
    assert said["peak_mib"] - said["before_mib"] < 1.5 * size / MIB


def test_values_of_a_batch_may_pass_two_gibibytes_where_the_limit_lets_them(tmp_path: Path) -> None:
    record = Record(value=bytes(100 * MIB)).encode()
    count = 22
    payload = compress(ZSTD, record * count)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(Batch(codec=ZSTD, stored=payload, count=count).encode())
    said = decoded(path, 3 << 30)
    assert (said["damages"], said["records"]) == ({}, count)
    assert decoded(path, 2 << 30)["damages"] == {"decompressed_too_large": 1}
