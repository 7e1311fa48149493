"""What decoders of columns share: where payloads lie in memory, and nulls in what was made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def offsets_of(array: pa.Array) -> np.ndarray:
    """int32[n + 1]: where the bytes or items of a binary, list or map column begin, and the end."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def rows_at(values: Any, rows: np.ndarray) -> Any:
    """The rows of an array or a table that rise in ``rows``: all of them are itself, without a copy."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def payload_spans(payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of a column for a kernel: (uint8[], int64[n] begins, int64[n] ends); a begin of null is -1.

    payloads: binary[n]. starts: int64[n], the byte of a payload at which its encoding begins.
    """
    offsets = offsets_of(payloads)
    data = payloads.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    valid = payloads.is_valid().to_numpy(zero_copy_only=False)
    return raw, np.where(valid, offsets[:-1].astype(np.int64) + starts, -1), offsets[1:].astype(np.int64)


def masked(values: pa.Array, valid: np.ndarray) -> pa.Array:
    """The same with null where a value is not valid."""
    if valid.all():
        return values
    if pa.types.is_struct(values.type) and not values.null_count:
        children = [values.field(at) for at in range(values.type.num_fields)]
        return struct_of(values.type, children, len(values), valid)
    return pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))


def struct_of(
    target: pa.StructType, children: list[pa.Array], rows: int, valid: np.ndarray | None
) -> pa.StructArray:
    """A struct of columns. valid: bool[rows], None for all."""
    bits = None if valid is None else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(target, rows, [bits], children=children)
