"""Prepares binary columns for kernels, and builds columns of numbers from their results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TAKEN = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null),
)


@dataclass(frozen=True)
class BinaryColumn:
    """A column of n values, of which value i is ``data[offsets[i]:offsets[i + 1]]``, empty where it is null.

    array: large_binary[n] of the same values. data: uint8; offsets: int64[n + 1]; valid: bool[n].
    """

    array: pa.Array
    data: np.ndarray
    offsets: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.valid)


def binary_column(name: str, column: pa.Array | pa.ChunkedArray) -> BinaryColumn:
    """Returns the argument ``name`` of a function as kernels take it: binary, or text as its UTF-8 bytes.

    Raises a TypeError for other types.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not any(takes(column.type) for takes in _TAKEN):
        raise TypeError(f"{name}: expected binary, found {column.type}")
    for kind in (pa.binary(), pa.large_binary()):  # what is not binary yet becomes it in two steps
        if kind == pa.large_binary() or not pa.types.is_large_binary(column.type):
            column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else kind)
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    # A null may have bytes, which are nobody's: fill_null leaves them out
    filled = pc.fill_null(column, b"") if column.null_count else column
    offsets, data = np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    if len(filled):
        _, ends, content = filled.buffers()
        offsets = np.frombuffer(ends, dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
        if content is not None:
            data = np.frombuffer(content, dtype=np.uint8)
    return BinaryColumn(column, data, offsets, valid)


def numbers(values: np.ndarray, *valid: object) -> pa.Array:
    """Returns values as an Arrow array, null where one of ``valid`` (bool[n]) is false."""
    return pa.array(values, mask=~np.logical_and.reduce(valid))
