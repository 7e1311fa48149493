"""Functions of a column that return one number, or one binary value, a row.

Bytes that a function cannot read give null. What each promises is in ``docs/functions.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.functions.columns import BinaryColumn, binary_column, numbers
from kafka_log_lake.udfs.kernels import column_functions as kernels
from kafka_log_lake.udfs.kernels.codecs import Scratch, expand

# The codecs by the names of ``batches.compression``, and by the code in the attributes of a batch
_CODECS = {name: code for code, name in enumerate(f.CODEC_NAMES) if name != "unknown"}
_CODECS |= {str(code): code for code in _CODECS.values()}

_OUTPUT_BYTES = 64 << 20  # of an array of results, after which it is cut


def crc32c(column: pa.Array) -> pa.Array:
    """Returns the CRC-32C (Castagnoli) of each value, unsigned, as int64; null for null."""
    values = binary_column("crc32c", column)
    out = np.zeros(len(values), dtype=np.int64)
    kernels.crc32c_of_each(values.data, values.offsets, out)
    return numbers(out, values.valid)


def kafka_varint(column: pa.Array) -> pa.Array:
    """Returns the zigzag varint at the start of each value as int64; null if it is cut or too long.

    It is Kafka's ``ByteUtils.readVarlong``.
    """
    values = binary_column("kafka_varint", column)
    out, valid = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    kernels.varint_of_each(values.data, values.offsets, out, valid)
    return numbers(out, values.valid, valid)


def _schema_ids(values: BinaryColumn) -> tuple[np.ndarray, np.ndarray]:
    out, valid = np.zeros(len(values), dtype=np.int32), np.zeros(len(values), dtype=np.bool_)
    kernels.schema_id_of_each(values.data, values.offsets, out, valid)
    return out, valid & values.valid


def confluent_schema_id(column: pa.Array) -> pa.Array:
    """Returns the schema id of each value in Confluent's wire format; null for other values."""
    return numbers(*_schema_ids(binary_column("confluent_schema_id", column)))


def confluent_payload(column: pa.Array) -> pa.Array:
    """Returns the bytes after the schema id of each value in Confluent's wire format; null for other values.

    Null for other values.
    """
    values = binary_column("confluent_payload", column)
    _, valid = _schema_ids(values)
    sizes = np.where(valid, np.diff(values.offsets) - kernels.CONFLUENT_HEADER_SIZE, 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    out = pa.allocate_buffer(int(starts[-1]))
    kernels.gather(values.data, starts, values.offsets[1:], np.frombuffer(out, dtype=np.uint8))
    buffers = [numbers(sizes, valid).buffers()[0], pa.py_buffer(starts), out]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def kafka_partition(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    """Returns the partition that Kafka's Java producer chooses for each key, as int32.

    Null if the key is null, or partitions is null or below 1. Raises a TypeError if partitions is no integer.
    """
    values = binary_column("kafka_partition", keys)
    if not pa.types.is_integer(partitions.type) and not pa.types.is_null(partitions.type):
        raise TypeError(f"kafka_partition: expected a number of partitions, found {partitions.type}")
    counts = pc.fill_null(partitions.cast(pa.int64()), 0).to_numpy()
    out, valid = np.zeros(len(values), dtype=np.int32), np.zeros(len(values), dtype=np.bool_)
    kernels.partition_of_each(values.data, values.offsets, counts, out, valid)
    return numbers(out, values.valid, valid)


def kafka_decompress(columns: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
    """Yields payloads, expanded as Kafka's reader does; null if they do not, or to more than 256 MiB."""
    scratch = Scratch()
    for codecs, payloads in columns:
        values = binary_column("kafka_decompress", payloads)
        results: list[bytes | None] = []
        size = 0
        for i, codec in enumerate(codecs.cast(pa.string()).to_pylist()):
            result = _expanded(codec, values, i, scratch)
            results.append(result)
            size += len(result or b"")
            if size > _OUTPUT_BYTES:
                yield pa.array(results, pa.binary())
                results, size = [], 0
        yield pa.array(results, pa.binary())
        scratch.shrink(_OUTPUT_BYTES)


def _expanded(codec: str | None, values: BinaryColumn, i: int, scratch: Scratch) -> bytes | None:
    code = _CODECS.get(codec.lower(), -1) if codec is not None and values.valid[i] else -1
    if code < 0:
        return None
    payload = values.data[values.offsets[i] : values.offsets[i + 1]]
    if code == f.CODEC_NONE:
        return payload.tobytes()
    # Which magic a payload is of is not known: writers of magic 0 compute the header checksum of an lz4 frame
    # wrongly, so any is accepted, as Kafka's reader accepts it of them
    magic = f.MAGIC_V0 if code == f.CODEC_LZ4 else f.MAGIC_V2
    size = expand(code, magic, payload, scratch, MAX_BATCH_UNCOMPRESSED)
    return scratch.data[:size].tobytes() if size >= 0 else None
