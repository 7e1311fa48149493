"""The one decorator of all kernels, and the few machine operations Numba has no word for.

A kernel takes arrays and integers, gives integers, raises nothing and checks every bound itself: Numba
checks none. ``NUMBA_DISABLE_JIT=1`` switches compilation off. ``NUMBA_BOUNDSCHECK=1`` adds checks, to array
indices and to the operations below: what reads or writes outside its array raises IndexError. So do these
operations in plain Python.

Numba's own cache notices a change of a kernel's file, but not of the kernels that it calls. So the
cache lies in a folder named after the bytes of all of them, after the C functions they can call, and after
whether bounds are checked.
"""

from __future__ import annotations

import hashlib
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic, overload, register_jitable

from udfs import libraries

_KERNEL_MODULES = (
    "jit",
    "format",
    "libraries",
    "native",
    "checksums",
    "vectorized_varint",
    "framing",
    "codecs",
    "record_index",
    "regular_payloads",
    "entry_search",
    "resync",
    "record_columns",
)


def _cache_folder() -> str:
    """Beside the sources where that can be written, else in the user's cache; named by the sources."""
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).resolve().parent
    for name in _KERNEL_MODULES:
        digest.update(pkgutil.get_data("udfs", f"{name}.py") or b"")
    leaf = f"numba-{sys.version_info[0]}{sys.version_info[1]}-{digest.hexdigest()[:16]}"
    leaf += f"-{libraries.SIGNATURE}" + ("-checked" if config.BOUNDSCHECK else "")
    beside = package / "__pycache__" / leaf
    try:
        beside.mkdir(parents=True, exist_ok=True)
        return str(beside)
    except OSError:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        for root in (home, tempfile.gettempdir()):
            folder = Path(root) / "kafka-log-tables" / leaf
            try:
                folder.mkdir(parents=True, exist_ok=True)
                return str(folder)
            except OSError:
                continue
    return ""


_CACHE = _cache_folder() if not config.CACHE_DIR else config.CACHE_DIR


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: nopython, without the interpreter lock, cached on disk."""
    return _compiled(function, inline=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small kernel that becomes part of each kernel that calls it."""
    return _compiled(function, inline=True)


def _lasting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as if its module were a file beside the cache, where it came out of a zip.

    Numba keeps what it compiled from a zip under the zip's path, which Spark changes from job to job.
    """
    code, source = function.__code__, Path(function.__code__.co_filename)
    if _CACHE and not source.exists():
        copy = Path(_CACHE) / source.name
        if not copy.exists():
            part = copy.with_name(f"{source.name}.{os.getpid()}")
            part.write_bytes(pkgutil.get_data("udfs", source.name) or b"")
            part.replace(copy)
        function.__code__ = code.replace(co_filename=str(copy))
    return function


def _compiled(function: Callable[..., Any], inline: bool) -> Any:
    before = config.CACHE_DIR
    config.CACHE_DIR = _CACHE
    try:
        return numba.njit(
            _lasting(function),
            cache=bool(_CACHE),
            nogil=True,
            error_model="numpy",
            inline="always" if inline else "never",
        )
    finally:
        config.CACHE_DIR = before


@register_jitable
def check(array: Any, at: int, size: int) -> None:
    """Raise IndexError unless ``array[at:at+size]`` lies in the array."""
    if at < 0 or size < 0 or at + size > len(array):
        raise IndexError("bytes outside the array")


def checks_bounds() -> bool:
    """Whether kernels are compiled with checks (NUMBA_BOUNDSCHECK=1)."""
    return bool(config.BOUNDSCHECK)


def _load(buf: Any, i: int, size: int, order: str, kind: Any) -> Any:
    check(buf, i, size)
    return kind(int.from_bytes(bytes(buf[i : i + size]), order, signed=kind is np.int64))


def load_u64(buf: Any, i: int) -> Any:
    """The eight bytes at ``buf[i:i+8]`` as a little-endian uint64; the caller has checked the bound."""
    return _load(buf, i, 8, "little", np.uint64)


def load_u32(buf: Any, i: int) -> Any:
    """The four bytes at ``buf[i:i+4]`` as a little-endian uint64; the caller has checked the bound."""
    return np.uint64(_load(buf, i, 4, "little", np.uint32))


def load_be64(buf: Any, i: int) -> int:
    """Big-endian int64 at ``i``; the caller has checked the bound."""
    return _load(buf, i, 8, "big", np.int64)


def load_be32(buf: Any, i: int) -> int:
    """Big-endian int32 at ``i`` as int64; the caller has checked the bound."""
    return _load(buf, i, 4, "big", np.int64)


def load_be16(buf: Any, i: int) -> int:
    """Big-endian int16 at ``i`` as int64; the caller has checked the bound."""
    return _load(buf, i, 2, "big", np.int64)


def copy_bytes(dst: Any, at: int, src: Any, start: int, size: int) -> None:
    """``dst[at:at+size] = src[start:start+size]``; the caller has checked both bounds."""
    check(dst, at, size)
    check(src, start, size)
    dst[at : at + size] = src[start : start + size]


def copy_sixteen(dst: Any, at: int, src: Any, start: int) -> None:
    """Copy sixteen bytes, of which the caller may need fewer; it has checked that both have them."""
    copy_bytes(dst, at, src, start, 16)


def borrowed(array: Any) -> Any:
    """The same array without a reference count, for the time of the kernel that was called with it.

    Where a kernel is inlined into a loop Numba counts references to its arguments there, one locked
    instruction after the other; on a borrowed array that costs next to nothing.
    """
    return array


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [index])


def _loader(width: int, swapped: bool) -> Any:
    """An unaligned load of ``width`` bits: as they lie (uint64), or byte-swapped and signed (int64)."""

    @intrinsic
    def load(typingctx: Any, buf: Any, i: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind, wide = ir.IntType(width), ir.IntType(64)
            at = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(at, kind.as_pointer()))
            value.align = 1
            if swapped:
                value = builder.bswap(value)
            if width < 64:
                value = builder.sext(value, wide) if swapped else builder.zext(value, wide)
            return value

        return (types.int64 if swapped else types.uint64)(buf, types.int64), codegen

    return load


_load_le64 = _loader(64, False)
_load_le32 = _loader(32, False)
_load_signed64 = _loader(64, True)
_load_signed32 = _loader(32, True)
_load_signed16 = _loader(16, True)


@intrinsic
def _address(typingctx: Any, array: Any, i: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.ptrtoint(at, ir.IntType(64))

    return types.int64(array, types.int64), codegen


# Where ``array[i]`` (uint8) lies in memory, as int64: what a function of a C library is given
address: Any = _address


@intrinsic
def _copy_sixteen(typingctx: Any, dst: Any, at: Any, src: Any, start: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128).as_pointer()
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        of = _pointer(context, builder, signature.args[2], args[2], args[3])
        value = builder.load(builder.bitcast(of, wide))
        value.align = 1
        store = builder.store(value, builder.bitcast(to, wide))
        store.align = 1
        return context.get_dummy_value()

    return types.void(dst, types.int64, src, types.int64), codegen


@intrinsic
def _memcpy(typingctx: Any, dst: Any, at: Any, src: Any, start: Any, size: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        of = _pointer(context, builder, signature.args[2], args[2], args[3])
        i8p, i64 = ir.IntType(8).as_pointer(), ir.IntType(64)
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [i8p, i8p, i64])
        builder.call(memcpy, [to, of, args[4], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(dst, types.int64, src, types.int64, types.int64), codegen


@intrinsic
def _borrow(typingctx: Any, array: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        # A null that the optimizer cannot see: from a visible one it concludes more than is true
        word = ir.IntType(64)
        hidden = builder.asm(ir.FunctionType(word, [word]), "", "=r,0", [word(0)], True)
        view.meminfo = builder.inttoptr(hidden, view.meminfo.type)
        return view._getvalue()

    return array(array), codegen


@overload(borrowed)
def _borrowed(array):  # type: ignore[no-untyped-def]
    return lambda array: _borrow(array)


def _offer_load(function: Any, load: Any, size: int) -> None:
    """Kernels that call ``function`` get the machine's ``load`` of ``size`` bytes."""

    def plain(buf, i):  # type: ignore[no-untyped-def]
        return load(buf, i)

    def checked(buf, i):  # type: ignore[no-untyped-def]
        check(buf, i, size)
        return load(buf, i)

    overload(function)(lambda buf, i: checked if checks_bounds() else plain)


_offer_load(load_u64, _load_le64, 8)
_offer_load(load_u32, _load_le32, 4)
_offer_load(load_be64, _load_signed64, 8)
_offer_load(load_be32, _load_signed32, 4)
_offer_load(load_be16, _load_signed16, 2)


@overload(copy_bytes)
def _copy_bytes(dst, at, src, start, size):  # type: ignore[no-untyped-def]
    def checked(dst, at, src, start, size):  # type: ignore[no-untyped-def]
        check(dst, at, size)
        check(src, start, size)
        _memcpy(dst, at, src, start, size)

    if checks_bounds():
        return checked
    return lambda dst, at, src, start, size: _memcpy(dst, at, src, start, size)


@overload(copy_sixteen)
def _overload_copy_sixteen(dst, at, src, start):  # type: ignore[no-untyped-def]
    def checked(dst, at, src, start):  # type: ignore[no-untyped-def]
        check(dst, at, 16)
        check(src, start, 16)
        _copy_sixteen(dst, at, src, start)

    if checks_bounds():
        return checked
    return lambda dst, at, src, start: _copy_sixteen(dst, at, src, start)
