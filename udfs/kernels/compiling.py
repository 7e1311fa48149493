"""Compiles kernels with Numba, and defines the machine operations that Numba lacks.

Imported by the first call of a kernel whose machine code is not kept (``jit``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numba
from llvmlite import ir
from numba import extending, types
from numba.core import caching
from numba.extending import overload, register_jitable, typeof_impl

from kafka_log_lake.udfs.kernels import checksums, jit, libraries, machine_code, native
from kafka_log_lake.udfs.kernels.jit import Kernel, check, int64
from kafka_log_lake.udfs.kernels.native import DECLINED

# Numba gives an intrinsic its typing context itself
intrinsic: Any = extending.intrinsic


class KernelCache(caching.UserProvidedCacheLocator):
    """The place where Numba keeps compiled kernels that others call: by the names of module and function.

    Numba's own locators add the path of the source file, so that what was compiled would be lost with each
    environment that is moved, and with each zip that Spark ships.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path, self._module = machine_code.CACHE, py_func.__module__

    def get_source_stamp(self) -> str:
        return ""  # the folder's name has a hash of the sources

    def get_disambiguator(self) -> str:
        return f"{self._module}-{super().get_disambiguator()}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCache:
        return cls(py_func, py_file)


class _KernelFiles(caching.CompileResultCacheImpl):
    """The files of Numba's cache for kernels; ``code``: the machine code of each signature."""

    _locator_classes: ClassVar = [KernelCache]

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self.code: dict[Any, bytes] = {}

    def reduce(self, result: Any) -> Any:
        held = super().reduce(result)
        self._see(held, result)
        return held

    def rebuild(self, target_context: Any, held: Any) -> Any:
        result = super().rebuild(target_context, held)
        self._see(held, result)
        return result

    def _see(self, held: Any, result: Any) -> None:
        (_, _, (self.code[result.signature.args], _)), *_ = held


class _Cache(caching.FunctionCache):
    _impl_class = _KernelFiles

    def save_overload(self, signature: Any, result: Any) -> None:
        with suppress(OSError):  # a full disk, a mount without renames: the next process compiles it
            super().save_overload(signature, result)


@cache
def dispatcher(kernel: Kernel[..., Any]) -> Any:
    """Returns Numba's form of a kernel, the same one each time."""
    made: Any = numba.njit(kernel.py_func, **kernel.targetoptions)
    if machine_code.CACHE:
        made._cache = _Cache(kernel.py_func)
    return made


@typeof_impl.register(Kernel)
def _type_of_kernel(kernel: Kernel[..., Any], context: Any) -> Any:
    """Returns the type of a kernel that another one calls: Numba's form of it."""
    return types.Dispatcher(dispatcher(kernel))


def compiled(kernel: Kernel[..., Any], args: tuple[Any, ...], file: Path | None) -> Callable[..., Any]:
    """Compiles a kernel for arguments like these, and returns the function.

    Its machine code goes to ``file``; None: it is not kept.
    """
    made = dispatcher(kernel)
    signature = tuple(types.int64 if type(argument) is int else numba.typeof(argument) for argument in args)
    made.compile(signature)
    result = made.overloads[signature]
    if file is not None:
        names = result.fndesc.llvm_cpython_wrapper_name, result.fndesc.env_name
        machine_code.keep(file, *names, made._cache._impl.code[signature])
    found: Callable[..., Any] = result.entry_point
    return found


for _function in jit.CALLABLE:
    register_jitable(_function)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [index])


def _loader(width: int, swapped: bool) -> Any:
    """Returns an intrinsic that loads ``width`` bits, unaligned.

    They become an uint64 as they lie or, ``swapped``, an int64 of the big-endian signed number.
    """

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
    """Gives kernels that call ``function`` the machine's ``load`` of ``size`` bytes."""

    def plain(buf, i):  # type: ignore[no-untyped-def]
        return load(buf, i)

    def checked(buf, i):  # type: ignore[no-untyped-def]
        check(buf, i, size)
        return load(buf, i)

    overload(function)(lambda buf, i: checked if machine_code.CHECKS_BOUNDS else plain)


_offer_load(jit.load_u64, _load_le64, 8)
_offer_load(jit.load_u32, _load_le32, 4)
_offer_load(jit.load_be64, _load_signed64, 8)
_offer_load(jit.load_be32, _load_signed32, 4)
_offer_load(jit.load_be16, _load_signed16, 2)


@overload(jit.store_i32)
def _overload_store_i32(dst, i, value):  # type: ignore[no-untyped-def]
    def checked(dst, i, value):  # type: ignore[no-untyped-def]
        check(dst, i, 4)
        _store_i32(dst, i, value)

    if machine_code.CHECKS_BOUNDS:
        return checked
    return lambda dst, i, value: _store_i32(dst, i, value)


@overload(jit.copy_bytes)
def _copy_bytes(dst, at, src, start, size):  # type: ignore[no-untyped-def]
    def checked(dst, at, src, start, size):  # type: ignore[no-untyped-def]
        check(dst, at, size)
        check(src, start, size)
        _memcpy(dst, at, src, start, size)

    if machine_code.CHECKS_BOUNDS:
        return checked
    return lambda dst, at, src, start, size: _memcpy(dst, at, src, start, size)


@overload(jit.copy_sixteen)
def _overload_copy_sixteen(dst, at, src, start):  # type: ignore[no-untyped-def]
    def checked(dst, at, src, start):  # type: ignore[no-untyped-def]
        check(dst, at, 16)
        check(src, start, 16)
        _copy_sixteen(dst, at, src, start)

    if machine_code.CHECKS_BOUNDS:
        return checked
    return lambda dst, at, src, start: _copy_sixteen(dst, at, src, start)


def _external(name: str, returns: Any, *takes: Any) -> Any:
    """Declares a function of a C library for kernels. Pointers are integers, as ``_address`` gives them."""
    return types.ExternalFunction(f"kafka_log_lake_{name}", returns(*takes))


_place, _size, _int = types.int64, types.int64, types.int32
_lz4 = _external("LZ4_decompress_safe", _int, _place, _place, _int, _int)
_zstd = _external("ZSTD_decompressDCtx", _size, _place, _place, _size, _place, _size)
_zstd_frame_size = _external("ZSTD_findFrameCompressedSize", _size, _place, _size)
_inflate_init = _external("isal_inflate_init", types.void, _place)
_inflate = _external("isal_inflate_stateless", _int, _place)
_crc32 = _external("crc32_gzip_refl", types.uint32, types.uint32, _place, _size)


@overload(native.lz4_block)
def _lz4_block(src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
    checked = machine_code.CHECKS_BOUNDS

    def block(src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
        if checked:
            check(src, at, size)
            check(dst, to, room)
        made = _lz4(_address(src, at), _address(dst, to), size, room)
        return made if made >= 0 else DECLINED

    return block if libraries.HAS_LZ4 else lambda src, at, size, dst, to, room: DECLINED


@overload(native.zstd_frame)
def _zstd_frame(context, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
    checked = machine_code.CHECKS_BOUNDS

    def frame(context, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
        if checked:
            check(src, at, size)
            check(dst, to, room)
        if _zstd_frame_size(_address(src, at), size) != size:
            return DECLINED
        made = _zstd(context, _address(dst, to), room, _address(src, at), size)
        return made if 0 <= made <= room else DECLINED  # an error is a size near 2^64

    return frame if libraries.HAS_ZSTD else lambda context, src, at, size, dst, to, room: DECLINED


@overload(native.inflate)
def _overload_inflate(state, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
    checked = machine_code.CHECKS_BOUNDS
    head, layout = libraries.INFLATE_STATE.itemsize, libraries.INFLATE_STATE

    def stream(state, src, at, size, dst, to, room):  # type: ignore[no-untyped-def]
        if checked:
            check(src, at, size)
            check(dst, to, room)
        if size > 0x7FFFFFFF or room > 0x7FFFFFFF:
            return DECLINED, 0
        pointer = _address(state, 0)
        _inflate_init(pointer)
        fields = state[:head].view(layout)
        fields[0]["next_in"], fields[0]["avail_in"] = _address(src, at), size
        fields[0]["next_out"], fields[0]["avail_out"] = _address(dst, to), room
        if _inflate(pointer) != 0:
            return DECLINED, 0
        return room - int64(fields[0]["avail_out"]), int64(fields[0]["avail_in"])

    if libraries.HAS_INFLATE:
        return stream
    return lambda state, src, at, size, dst, to, room: (DECLINED, 0)


@overload(native.crc32_of)
def _crc32_of(buf, start, end, crc):  # type: ignore[no-untyped-def]
    checked = machine_code.CHECKS_BOUNDS

    def of(buf, start, end, crc):  # type: ignore[no-untyped-def]
        if checked:
            check(buf, start, end - start)
        return _crc32(crc, _address(buf, start), end - start)

    return of


@intrinsic
def _carryless_product(typingctx: Any, a: Any, b: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i8, i32, i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
        pair = ir.VectorType(i64, 2)
        kind = ir.FunctionType(pair, [pair, pair, i8])
        function = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), kind)
        empty, first = ir.Constant(pair, ir.Undefined), ir.Constant(i32, 0)
        pairs = [builder.insert_element(empty, word, first) for word in args]
        return builder.extract_element(builder.call(function, [*pairs, i8(0)]), first)

    return types.uint64(types.uint64, types.uint64), codegen


@overload(checksums.product)
def _overload_product(a, b):  # type: ignore[no-untyped-def]
    if checksums.has_carryless():
        return lambda a, b: _carryless_product(a, b)
    return lambda a, b: checksums.spread_product(a, b)


@intrinsic
def _crc_word(typingctx: Any, state: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        if "x86" in checksums.INSTRUCTION:
            kind = ir.FunctionType(i64, [i64, i64])
            function = builder.module.declare_intrinsic(checksums.INSTRUCTION, (), kind)
            return builder.call(function, args)
        kind = ir.FunctionType(i32, [i32, i64])
        function = builder.module.declare_intrinsic(checksums.INSTRUCTION, (), kind)
        return builder.zext(builder.call(function, [builder.trunc(args[0], i32), args[1]]), i64)

    return types.uint64(types.uint64, types.uint64), codegen


@overload(checksums.crc32c_step)
def _overload_step(state, word):  # type: ignore[no-untyped-def]
    return lambda state, word: _crc_word(state, word)
