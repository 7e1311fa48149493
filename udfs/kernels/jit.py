"""The one decorator of all kernels, and the few machine operations Numba has no word for.

A kernel takes arrays and integers, gives integers, allocates nothing, raises nothing and checks every bound
itself: Numba checks none. ``NUMBA_DISABLE_JIT=1`` switches compilation off. ``NUMBA_BOUNDSCHECK=1`` adds
checks, to array indices and to the operations below: what reads or writes outside its array raises
IndexError. So do these operations in plain Python.

Numba's own cache notices a change of a kernel's file, but not of the kernels that it calls. So the cache
lies in a folder named after the bytes of all of them, after the C functions they can call, and after whether
bounds are checked. The folder belongs to this user alone; where there is none that can, kernels are compiled
anew in each process and nothing is kept. What lies in the folder can be moved with the environment: it is
found by the names of modules, and loaded by the same CPU with the same Numba.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, ParamSpec, Protocol, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import caching
from numba.core import config as numba_config
from numba.core.runtime.nrt import rtsys
from numba.extending import overload, register_jitable

from udfs.kernels import libraries
from udfs.package_files import package_files

Takes = ParamSpec("Takes")
Gives = TypeVar("Gives", covariant=True)

# Numba's int is an int64: what a kernel widens is an int, to those who read its types too
int64: Callable[[Any], int] = np.int64  # type: ignore[assignment]
# Numba gives an intrinsic its typing context itself, and sets options of a module as it is imported
intrinsic: Any = extending.intrinsic
config: Any = numba_config

# Where kernels lie, and what they are compiled from
KERNEL_ROOMS = ("format", "kernels", "recovery", "vectorized_varint.py")
_PACKAGE = "kafka-log-lake"


def _cache_name() -> str:
    """A folder name made of everything that compiled kernels depend on."""
    digest = hashlib.sha256(numba.__version__.encode())
    for room in KERNEL_ROOMS:
        for path, source in package_files(resources.files("udfs").joinpath(room), room):
            if path.endswith(".py"):
                digest.update(f"\0{path}\0{len(source)}\0".encode() + source)
    name = f"numba-{sys.version_info[0]}{sys.version_info[1]}-{digest.hexdigest()[:16]}"
    return f"{name}-{libraries.SIGNATURE}" + ("-checked" if config.BOUNDSCHECK else "")


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user (and root) can put a file there. Numba's index is a pickle: code."""
    own = folder.lstat()
    if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.geteuid() or own.st_mode & 0o077:
        return False
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    for above in folder.resolve().parents:
        found = above.stat()
        open_to_all = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or open_to_all:
            return False
    return True


def _private(folder: Path) -> bool:
    """Makes the folder where it is missing; whether it may hold the cache."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        return _is_private(folder)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, or no home
        return False


def _cache_folder() -> str:
    """NUMBA_CACHE_DIR, else beside the sources, else the user's cache; "" where none is this user's alone."""
    roots = [config.CACHE_DIR] if config.CACHE_DIR else [Path(__file__).parent / "__pycache__"]
    if not config.CACHE_DIR:
        with suppress(RuntimeError):
            roots.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _PACKAGE)
    name = _cache_name()
    return next((str(Path(root) / name) for root in roots if _private(Path(root) / name)), "")


# The folder of compiled kernels; "" for none
CACHE = _cache_folder()


class Kernel(Protocol[Takes, Gives]):
    """A compiled function. ``py_func``: the plain one it is made from."""

    py_func: Callable[..., Any]

    def __call__(self, *args: Takes.args, **kwargs: Takes.kwargs) -> Gives: ...


def kernel(function: Callable[Takes, Gives]) -> Kernel[Takes, Gives]:
    """Compile a kernel: nopython, without the interpreter lock, cached on disk."""
    return _compiled(function, inline=False)


def inlined(function: Callable[Takes, Gives]) -> Kernel[Takes, Gives]:
    """Compile a small kernel that becomes part of each kernel that calls it."""
    return _compiled(function, inline=True)


class KernelCache(caching.UserProvidedCacheLocator):
    """Where Numba keeps a compiled kernel: in the folder, under the names of its module and function.

    Numba's own locators add the path of the source file, so that what was compiled would be lost with each
    environment that is moved, and with each zip that Spark ships.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path, self._module = CACHE, py_func.__module__

    def get_source_stamp(self) -> str:
        return ""  # the folder's name has a hash of the sources

    def get_disambiguator(self) -> str:
        return f"{self._module}-{super().get_disambiguator()}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCache:
        return cls(py_func, py_file)


class _KernelFiles(caching.CompileResultCacheImpl):
    _locator_classes: ClassVar = [KernelCache]  # type: ignore[misc]


class _Kept(caching.FunctionCache):
    """Loads a compiled kernel without the rules that Numba compiles by.

    They take 0.1 s of each process; a compilation loads them itself.
    """

    _impl_class = _KernelFiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # what compiled code calls of Numba's C functions
        return self._load_overload(sig, target_context)


def _compiled(function: Callable[..., Any], inline: bool) -> Any:
    # Without Numba's runtime no references to arrays are counted, which an inlined kernel would do again and
    # again in a loop. Where a kernel allocates, its compilation fails.
    uncounted: dict[str, Any] = {"_nrt": False}
    compiled: Any = numba.njit(
        function, nogil=True, **uncounted, error_model="numpy", inline="always" if inline else "never"
    )
    if CACHE and not config.DISABLE_JIT:
        compiled._cache = _Kept(function)
    return compiled


@register_jitable
def check(array: Any, at: int, size: int) -> None:
    """Raise IndexError unless ``array[at:at+size]`` lies in the array."""
    if at < 0 or size < 0 or at + size > len(array):
        raise IndexError("bytes outside the array")


def checks_bounds() -> bool:
    """Whether kernels are compiled with checks (NUMBA_BOUNDSCHECK=1)."""
    return bool(config.BOUNDSCHECK)


def _load(buf: Any, i: int, size: int, order: Literal["little", "big"], kind: Any) -> Any:
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


def store_i32(dst: Any, i: int, value: int) -> None:
    """``value`` as a little-endian int32 at ``dst[i:i+4]`` (uint8); the caller has checked the bound."""
    check(dst, i, 4)
    dst[i : i + 4] = np.array([value], dtype="<i4").view(np.uint8)


def copy_bytes(dst: Any, at: int, src: Any, start: int, size: int) -> None:
    """``dst[at:at+size] = src[start:start+size]``; the caller has checked both bounds."""
    check(dst, at, size)
    check(src, start, size)
    dst[at : at + size] = src[start : start + size]


def copy_sixteen(dst: Any, at: int, src: Any, start: int) -> None:
    """Copy sixteen bytes, of which the caller may need fewer; it has checked that both have them."""
    copy_bytes(dst, at, src, start, 16)


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


@intrinsic
def _store_i32(typingctx: Any, dst: Any, i: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.IntType(32)
        at = _pointer(context, builder, signature.args[0], args[0], args[1])
        store = builder.store(builder.trunc(args[2], kind), builder.bitcast(at, kind.as_pointer()))
        store.align = 1
        return context.get_dummy_value()

    return types.void(dst, types.int64, types.int64), codegen


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


@overload(store_i32)
def _overload_store_i32(dst, i, value):  # type: ignore[no-untyped-def]
    def checked(dst, i, value):  # type: ignore[no-untyped-def]
        check(dst, i, 4)
        _store_i32(dst, i, value)

    if checks_bounds():
        return checked
    return lambda dst, i, value: _store_i32(dst, i, value)


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
