"""Defines kernels over a binary column: the bytes of all values in one array, and where each begins.

``data``: uint8; ``offsets``: int64[n + 1], value i is ``data[offsets[i]:offsets[i + 1]]``. Each kernel fills
``out`` with one number a value; ``valid`` (bool[n]) says where there is one.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.kernels.framing import batch_size, is_sound
from kafka_log_lake.udfs.kernels.jit import copy_bytes, int64, kernel, load_be32, load_u32
from kafka_log_lake.udfs.vectorized_varint import read_varlong

# Confluent's wire format: the byte 0, then the schema id
CONFLUENT_MAGIC = 0
CONFLUENT_HEADER_SIZE = 1 + 4

_MASK = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995


@kernel
def crc32c_of_each(data: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """Writes CRC-32C of each value into ``out`` (int64[n]), unsigned."""
    for i in range(len(out)):
        out[i] = crc32c(data, offsets[i], offsets[i + 1], 0)


@kernel
def varint_of_each(data: np.ndarray, offsets: np.ndarray, out: np.ndarray, valid: np.ndarray) -> None:
    """Writes the zigzag varint at the start of each value (``read_varlong``) into ``out`` (int64[n])."""
    for i in range(len(out)):
        value, end = read_varlong(data, offsets[i], offsets[i + 1])
        out[i] = value
        valid[i] = end >= 0


@kernel
def schema_id_of_each(data: np.ndarray, offsets: np.ndarray, out: np.ndarray, valid: np.ndarray) -> None:
    """Writes the schema id of each value in Confluent's wire format into ``out`` (int32[n]); 0: none."""
    for i in range(len(out)):
        at = offsets[i]
        valid[i] = offsets[i + 1] - at >= CONFLUENT_HEADER_SIZE and data[at] == CONFLUENT_MAGIC
        out[i] = load_be32(data, at + 1) if valid[i] else 0


@kernel
def gather(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """Copies ``data[ends[i] - size:ends[i]]`` one after the other into ``out`` (uint8).

    ``starts``: int64[n + 1], where each begins in ``out``; ``ends``: int64[n], where each ends in ``data``.
    """
    for i in range(len(ends)):
        size = starts[i + 1] - starts[i]
        copy_bytes(out, starts[i], data, ends[i] - size, size)


@kernel
def murmur2(data: np.ndarray, at: int, end: int) -> int:
    """Returns Kafka's ``Utils.murmur2`` of ``data[at:end]``, as an unsigned 32-bit number."""
    h = (_MURMUR2_SEED ^ (end - at)) & _MASK
    while at + 4 <= end:
        k = (int64(load_u32(data, at)) * _MURMUR2_M) & _MASK
        k ^= k >> 24
        h = ((h * _MURMUR2_M) & _MASK) ^ ((k * _MURMUR2_M) & _MASK)
        at += 4
    if at < end:
        for i in range(end - at):
            h ^= int64(data[at + i]) << (8 * i)
        h = (h * _MURMUR2_M) & _MASK
    h ^= h >> 13
    h = (h * _MURMUR2_M) & _MASK
    return h ^ (h >> 15)


@kernel
def partition_of_each(
    data: np.ndarray, offsets: np.ndarray, partitions: np.ndarray, out: np.ndarray, valid: np.ndarray
) -> None:
    """Writes the partition of each key: ``toPositive(murmur2(key)) % partitions`` (int64[n]).

    ``out``: int32[n]. Not valid where partitions is not an int32 above 0.
    """
    for i in range(len(out)):
        valid[i] = 0 < partitions[i] <= 0x7FFFFFFF
        hashed = murmur2(data, offsets[i], offsets[i + 1]) & 0x7FFFFFFF
        out[i] = hashed % partitions[i] if valid[i] else 0


@kernel
def are_framed(data: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """Notes in ``out`` (bool[n]) whether a value is nothing but batches with right checksums."""
    for i in range(len(out)):
        at, end = offsets[i], offsets[i + 1]
        out[i] = True
        while at < end and out[i]:
            size = batch_size(data, at, end)
            out[i] = 0 < size <= end - at and is_sound(data, at, size)
            at += size


@kernel
def batches_of_each(offsets: np.ndarray, batches: np.ndarray, first: np.ndarray, count: np.ndarray) -> None:
    """Finds which of ``batches`` belong to which value, where values were decoded as one range of bytes.

    ``batches``: BATCH[m]. ``first``, ``count``: int64[n], filled with the value's first batch and the number
    of its batches; count is -1 where one of them has a fault, or is missing.
    """
    k = 0
    for i in range(len(first)):
        first[i] = k
        at, end = offsets[i], offsets[i + 1]
        sound = True
        while k < len(batches) and batches[k]["position"] < end:
            sound = sound and batches[k]["fault"] == 0
            at += batches[k]["size"]
            k += 1
        count[i] = k - first[i] if sound and at == end else -1
