"""Gives kernels functions of the C libraries: no Python between one batch and the next.

A compiled kernel keeps the function's name; its address is set anew in each process. Where a
library has no such function, and in plain Python, the decompressors here decline.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from llvmlite import binding as llvm

from kafka_log_lake.udfs.kernels import libraries

DECLINED = -1

for _name in libraries.NAMES:
    if libraries.has(_name):
        llvm.add_symbol(f"kafka_log_lake_{_name}", libraries.function_address(_name))


def lz4_block(src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int) -> int:
    """Expands one lz4 block ``src[at:at+size]`` into ``dst[to:to+room]`` in compiled kernels.

    Returns the bytes made, or DECLINED, as it does in plain Python.
    """
    return DECLINED


def zstd_frame(context: int, src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int) -> int:
    """Expands the one zstd frame ``src[at:at+size]`` into ``dst[to:to+room]``.

    Returns the bytes, or DECLINED. ``context``: a ``ZSTD_DCtx *`` of this thread. Also declined: a frame with
    anything after it.
    """
    return DECLINED


def inflate(
    state: Any, src: np.ndarray, at: int, size: int, dst: np.ndarray, to: int, room: int
) -> tuple[int, int]:
    """Expands one deflate stream from ``src[at:at+size]`` into ``dst[to:to+room]``.

    ``state``: uint8[n], an ``inflate_state`` of this thread. Returns (the bytes made or DECLINED, the bytes
    of ``src`` left after the stream).
    """
    return DECLINED, 0


def crc32_of(buf: np.ndarray, start: int, end: int, crc: Any) -> int:
    """Returns CRC-32 of ``buf[start:end]`` (uint8); ``crc``: that of the bytes before. Both are uint32."""
    return zlib.crc32(buf[start:end].tobytes(), int(crc))
