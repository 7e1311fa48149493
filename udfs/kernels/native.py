"""Functions of the C libraries as kernels call them: no Python between one batch and the next.

A compiled kernel keeps the function's name; what the name stands for is set anew in each process. Where a
library has no such function, and in plain Python, the decompressors here decline.
"""

from __future__ import annotations

import zlib
from typing import Any

from llvmlite import binding as llvm
from numba import types
from numba.extending import overload

from udfs.kernels import libraries
from udfs.kernels.jit import address, check, checks_bounds, int64

DECLINED = -1


def _external(name: str, returns: Any, *takes: Any) -> Any:
    """The function as kernels call it. Pointers are integers, as ``address`` gives them."""
    symbol = f"kafka_log_lake_{name}"
    if libraries.has(name):
        llvm.add_symbol(symbol, libraries.function_address(name))
    return types.ExternalFunction(symbol, returns(*takes))


_pointer, _size, _int = types.int64, types.int64, types.int32
_lz4 = _external("LZ4_decompress_safe", _int, _pointer, _pointer, _int, _int)
_zstd = _external("ZSTD_decompressDCtx", _size, _pointer, _pointer, _size, _pointer, _size)
_zstd_frame_size = _external("ZSTD_findFrameCompressedSize", _size, _pointer, _size)
_inflate_init = _external("isal_inflate_init", types.void, _pointer)
_inflate = _external("isal_inflate_stateless", _int, _pointer)
_crc32 = _external("crc32_gzip_refl", types.uint32, types.uint32, _pointer, _size)


def lz4_block(src: Any, at: int, size: int, dst: Any, to: int, room: int) -> int:
    """One lz4 block ``src[at:at+size]`` into ``dst[to:to+room]`` (uint8); the bytes made, or DECLINED."""
    return DECLINED


@overload(lz4_block)
def _lz4_block(src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
    checked = checks_bounds()

    def block(src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
        if checked:
            check(src, at, size)
            check(dst, to, room)
        made = _lz4(address(src, at), address(dst, to), size, room)
        return made if made >= 0 else DECLINED

    return block if libraries.HAS_LZ4 else lambda src, at, size, dst, to, room: DECLINED


def zstd_frame(context: int, src: Any, at: int, size: int, dst: Any, to: int, room: int) -> int:
    """The one zstd frame ``src[at:at+size]`` into ``dst[to:to+room]``; the bytes made, or DECLINED.

    ``context``: a ``ZSTD_DCtx *`` of this thread. Also declined: a frame with anything behind it.
    """
    return DECLINED


@overload(zstd_frame)
def _zstd_frame(context, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
    checked = checks_bounds()

    def frame(context, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
        if checked:
            check(src, at, size)
            check(dst, to, room)
        if _zstd_frame_size(address(src, at), size) != size:
            return DECLINED
        made = _zstd(context, address(dst, to), room, address(src, at), size)
        return made if 0 <= made <= room else DECLINED  # an error is a size near 2^64

    return frame if libraries.HAS_ZSTD else lambda context, src, at, size, dst, to, room: DECLINED


def inflate(state: Any, src: Any, at: int, size: int, dst: Any, to: int, room: int) -> tuple[int, int]:
    """One deflate stream from ``src[at:at+size]`` into ``dst[to:to+room]``.

    ``state``: uint8[n], an ``inflate_state`` of this thread. Returns (the bytes made or DECLINED, the bytes
    of ``src`` left behind the stream).
    """
    return DECLINED, 0


@overload(inflate)
def _overload_inflate(state, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
    checked = checks_bounds()
    head, layout = libraries.INFLATE_STATE.itemsize, libraries.INFLATE_STATE

    def stream(state, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
        if checked:
            check(src, at, size)
            check(dst, to, room)
        if size > 0x7FFFFFFF or room > 0x7FFFFFFF:
            return DECLINED, 0
        pointer = address(state, 0)
        _inflate_init(pointer)
        fields = state[:head].view(layout)
        fields[0]["next_in"], fields[0]["avail_in"] = address(src, at), size
        fields[0]["next_out"], fields[0]["avail_out"] = address(dst, to), room
        if _inflate(pointer) != 0:
            return DECLINED, 0
        return room - int64(fields[0]["avail_out"]), int64(fields[0]["avail_in"])

    if libraries.HAS_INFLATE:
        return stream
    return lambda state, src, at, size, dst, to, room: (DECLINED, 0)


def crc32_of(buf: Any, start: int, end: int, crc: Any) -> int:
    """CRC-32 of ``buf[start:end]`` (uint8); ``crc``: of what came before. Both are uint32."""
    return zlib.crc32(buf[start:end].tobytes(), int(crc))


@overload(crc32_of)
def _crc32_of(buf, start, end, crc):  # type: ignore[no-untyped-def]
    checked = checks_bounds()

    def of(buf, start, end, crc):  # type: ignore[no-untyped-def]
        if checked:
            check(buf, start, end - start)
        return _crc32(crc, address(buf, start), end - start)

    return of
