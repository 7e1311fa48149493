"""Finds the C functions that the wheels of lz4, zstandard and isal export, and allocates their memory.

A wheel may lack one (another backend, another CPU): then its Python interface is used,
or a kernel of our own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
import weakref
import zlib
from typing import Any

import numpy as np

# The function -> the extension module whose file exports it
_EXPORTERS = {
    "LZ4_decompress_safe": "lz4.block._block",
    "ZSTD_createDCtx": "zstandard._cffi",
    "ZSTD_freeDCtx": "zstandard._cffi",
    "ZSTD_decompressDCtx": "zstandard._cffi",
    "ZSTD_findFrameCompressedSize": "zstandard._cffi",
    "isal_inflate_init": "isal.isal_zlib",
    "isal_inflate_stateless": "isal.isal_zlib",
    "crc32_gzip_refl": "isal.isal_zlib",
}


def _find(name: str) -> Any:
    try:
        module = importlib.util.find_spec(_EXPORTERS[name])  # its file is enough: nothing in it is run
        return getattr(ctypes.CDLL(str(module and module.origin)), name)
    except (ImportError, OSError, AttributeError):
        return None


NAMES = tuple(_EXPORTERS)
_FUNCTIONS = {name: _find(name) for name in NAMES}


def has(*names: str) -> bool:
    """Tells whether these functions are there."""
    return all(_FUNCTIONS[name] is not None for name in names)


def function_address(name: str) -> int:
    """Returns the address of the function in memory."""
    return int(ctypes.cast(_FUNCTIONS[name], ctypes.c_void_p).value or 0)


_TEXT = b"0123456789"
# The text as one LZ4 block of literals (token, bytes), and as one zstd frame (RFC 8878, 3.1.1: magic number,
# descriptor, content size; a last raw block of ten bytes)
_LZ4_BLOCK = b"\xa0" + _TEXT
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd\x20\x0a\x51\x00\x00" + _TEXT


def _expands_lz4() -> bool:
    """Tells whether the function is there and expands a block rightly, by trying it."""
    if not has("LZ4_decompress_safe"):
        return False
    out = ctypes.create_string_buffer(16)
    size = _FUNCTIONS["LZ4_decompress_safe"](_LZ4_BLOCK, out, len(_LZ4_BLOCK), len(out))
    return bool(size == len(_TEXT) and out.raw[:size] == _TEXT)


def _expands_zstd() -> bool:
    names = ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx", "ZSTD_findFrameCompressedSize")
    if not has(*names):
        return False
    create, free, expand, measure = (_FUNCTIONS[name] for name in names)
    create.restype, expand.restype, measure.restype = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
    context, out = ctypes.c_void_p(create()), ctypes.create_string_buffer(16)
    frame, most = ctypes.c_size_t(len(_ZSTD_FRAME)), ctypes.c_size_t(len(out))
    size = expand(context, out, most, _ZSTD_FRAME, frame)
    free(context)
    return bool(
        size == len(_TEXT) and out.raw[:size] == _TEXT and measure(_ZSTD_FRAME, frame) == len(_ZSTD_FRAME)
    )


def _computes_crc32() -> bool:
    if not has("crc32_gzip_refl"):
        return False
    found = _FUNCTIONS["crc32_gzip_refl"](ctypes.c_uint32(0), _TEXT, ctypes.c_uint64(len(_TEXT)))
    return bool(found & 0xFFFFFFFF == zlib.crc32(_TEXT))


HAS_LZ4, HAS_ZSTD, HAS_CRC32 = _expands_lz4(), _expands_zstd(), _computes_crc32()

# isal's ``struct inflate_state`` begins so; what follows is tables that only the library knows
INFLATE_STATE = np.dtype(
    [
        ("next_out", "u8"),
        ("avail_out", "u4"),
        ("total_out", "u4"),
        ("next_in", "u8"),
        ("read_in", "u8"),
        ("avail_in", "u4"),
        ("read_in_length", "i4"),
    ]
)
_INFLATE_STATE_BYTES = 1 << 18  # three times what the struct takes


def _inflates() -> bool:
    """Tells whether isal's functions are there, with the structure that we know, by trying them."""
    if not has("isal_inflate_init", "isal_inflate_stateless"):
        return False
    text = b"0123456789" * 9
    packed = np.frombuffer(zlib.compress(text, wbits=-15) + b"behind", dtype=np.uint8)
    out = np.zeros(100, dtype=np.uint8)
    memory = np.zeros(_INFLATE_STATE_BYTES, dtype=np.uint8)
    state = memory[: INFLATE_STATE.itemsize].view(INFLATE_STATE)[0]
    pointer = ctypes.c_void_p(memory.ctypes.data)
    _FUNCTIONS["isal_inflate_init"](pointer)
    state["next_in"], state["avail_in"] = packed.ctypes.data, len(packed)
    state["next_out"], state["avail_out"] = out.ctypes.data, len(out)
    done = _FUNCTIONS["isal_inflate_stateless"](pointer)
    left = (int(state["avail_out"]), int(state["avail_in"]))
    return bool(done == 0 and left == (10, 6) and out[:90].tobytes() == text)


HAS_INFLATE = _inflates()

# What compiled kernels depend on
SIGNATURE = "".join("01"[there] for there in (HAS_LZ4, HAS_ZSTD, HAS_CRC32, HAS_INFLATE))


class Contexts:
    """The memory that zstd and isal work in.

    ``zstd``: a ``ZSTD_DCtx *``, 0 without the library; ``inflate``: uint8[n], an ``inflate_state``.
    """

    def __init__(self) -> None:
        self.zstd = 0
        self.inflate = np.zeros(_INFLATE_STATE_BYTES if HAS_INFLATE else 1, dtype=np.uint8)
        if HAS_ZSTD:
            create, free = _FUNCTIONS["ZSTD_createDCtx"], _FUNCTIONS["ZSTD_freeDCtx"]
            create.restype = ctypes.c_void_p
            self.zstd = create() or 0
            weakref.finalize(self, free, ctypes.c_void_p(self.zstd))


_OF_THREAD = threading.local()


def contexts() -> Contexts:
    """Returns the contexts of zstd and isal of this thread."""
    if not hasattr(_OF_THREAD, "contexts"):
        _OF_THREAD.contexts = Contexts()
    found: Contexts = _OF_THREAD.contexts
    return found
