"""Helpers of column decoders: the memory of payload columns, and arrays with nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.kernels import texts

# Numbers that a decoder fills at a time, at most: longer columns are decoded in parts
_MOST_VALUES, _LEAST_ROWS = 1 << 22, 64


def offsets_of(array: pa.Array) -> np.ndarray:
    """Returns int32[n + 1]: where each value of a binary, list or map column begins, and the end."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def rows_at(values: Any, rows: np.ndarray) -> Any:
    """Returns the rows ``rows`` (int64[], rising) of an array or table; itself, uncopied, if they are all."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def bytes_at(payloads: pa.BinaryArray, row: int, most: int | None = None) -> bytes:
    """Returns the payload of a row that is not null, or its first ``most`` bytes, copied once."""
    begin, end = offsets_of(payloads)[row : row + 2]
    data = payloads.buffers()[2]
    return b"" if data is None else bytes(memoryview(data)[begin:end][:most])


def payload_spans(payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a column's bytes for a kernel: uint8[], int64[n] begins (-1 for null), int64[n] ends.

    payloads: binary[n]. starts: int64[n], the byte of a payload at which its encoding begins.
    """
    offsets = offsets_of(payloads)
    data = payloads.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    valid = payloads.is_valid().to_numpy(zero_copy_only=False)
    return raw, np.where(valid, offsets[:-1].astype(np.int64) + starts, -1), offsets[1:].astype(np.int64)


def in_parts(
    decode: Callable[[pa.BinaryArray, np.ndarray], tuple[pa.Array, np.ndarray]],
    payloads: pa.BinaryArray,
    starts: np.ndarray,
    columns: int,
) -> tuple[pa.Array, np.ndarray]:
    """Calls ``decode`` for a part of the rows at a time, which bounds its memory; returns the joined results.

    columns: how many numbers a row fills.
    """
    step = max(_LEAST_ROWS, _MOST_VALUES // max(1, columns))
    if len(payloads) <= step:
        return decode(payloads, starts)
    parts = range(0, len(payloads), step)
    decoded = [decode(payloads.slice(at, step), starts[at : at + step]) for at in parts]
    return pa.concat_arrays([part for part, _ in decoded]), np.concatenate([failed for _, failed in decoded])


def gathered(raw: np.ndarray, spans: np.ndarray, target: pa.DataType) -> pa.Array:
    """Returns the bytes of spans (int64[n], ``udfs.kernels.texts``) as an array of string or binary."""
    total = int((spans & ((1 << texts.SPAN_BITS) - 1)).sum())
    offsets, out = np.empty(len(spans) + 1, np.int32), np.empty(total, np.uint8)
    texts.gather(raw, spans, offsets, out)
    return pa.Array.from_buffers(target, len(spans), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def masked(values: pa.Array, valid: np.ndarray) -> pa.Array:
    """Returns the values with null where ``valid`` (bool[n]) is false."""
    if valid.all():
        return values
    if pa.types.is_struct(values.type) and not values.null_count:
        children = [values.field(at) for at in range(values.type.num_fields)]
        return struct_of(values.type, children, len(values), valid)
    return pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))


def struct_of(
    target: pa.StructType, children: list[pa.Array], rows: int, valid: np.ndarray | None
) -> pa.StructArray:
    """Returns a struct array of columns. valid: bool[rows], None for all."""
    bits = None if valid is None else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(target, rows, [bits], children=children)
