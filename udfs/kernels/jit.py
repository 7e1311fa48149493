"""Defines the decorators of all kernels, and the few machine operations that Numba lacks.

A kernel takes arrays and integers, gives integers, allocates nothing, raises nothing and checks every bound
itself: Numba checks none. ``NUMBA_DISABLE_JIT=1`` disables compilation. ``NUMBA_BOUNDSCHECK=1`` adds
checks, to array indices and to the operations below: what reads or writes outside its array raises
IndexError. So do these operations in plain Python.

Numba is imported by the first call that finds no machine code in the folder of compiled kernels
(``machine_code``): ``compiling`` defines what the operations are in a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import numpy as np

from kafka_log_lake.udfs.kernels import machine_code

Takes = ParamSpec("Takes")
Gives = TypeVar("Gives", covariant=True)
Plain = TypeVar("Plain", bound=Callable[..., Any])

# Numba's int is an int64: what a kernel widens is an int, to those who read its types too
int64: Callable[[Any], int] = np.int64

# Plain functions that kernels may call
CALLABLE: list[Callable[..., Any]] = []
# NumPy's flags that matter: in C's order, else in Fortran's; aligned; writeable
_IN_ORDER, _OTHER = 0x501, 0x502


def _kind(value: Any) -> Any:
    """Returns what machine code depends on besides an argument's type; None for nothing more.

    Two values of one type and one kind are of one type in Numba.

    Raises a TypeError for a value that kernels do not take.
    """
    kind = type(value)
    if kind is np.ndarray:
        flags = value.flags.num
        return value.dtype, value.ndim, flags & (_IN_ORDER if flags & 1 else _OTHER)
    if kind is np.void:
        return value.dtype
    if isinstance(value, tuple):
        return *map(type, value), *map(_kind, value)
    if value is None or isinstance(value, bool | int | float | np.number | np.bool_):
        return None
    raise TypeError(f"kernels take arrays and numbers, not {kind.__name__}")


class Kernel(Generic[Takes, Gives]):
    """A function that is compiled at its first call.

    ``py_func``: the plain one it is made from; ``targetoptions``: Numba's options.

    It takes arrays, rows of structured arrays, numbers, None and tuples of these. An int is an int64; where
    it is larger, an OverflowError is raised.
    """

    def __init__(self, py_func: Callable[Takes, Gives], inline: bool) -> None:
        self.py_func: Callable[..., Any] = py_func
        self.__doc__, self.__name__, self.__module__ = py_func.__doc__, py_func.__name__, py_func.__module__
        # Without Numba's runtime no references to arrays are counted, which an inlined kernel would do again
        # and again in a loop. Where a kernel allocates, its compilation fails.
        self.targetoptions: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}
        self.targetoptions["inline"] = "always" if inline else "never"
        self._takes = py_func.__code__.co_argcount
        self._defaults: tuple[Any, ...] = py_func.__defaults__ or ()
        # Of the types of the arguments: the places of those that have more to them; of the kinds: the code
        self._shaped: dict[Any, tuple[int, ...]] = {}
        self._code: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Takes.args, **kwargs: Takes.kwargs) -> Gives:
        if kwargs:
            raise TypeError(f"{self.__name__}: kernels take arguments by their places")
        given: tuple[Any, ...] = args
        missing = self._takes - len(given)
        if missing:
            given += self._defaults[-missing:]
        types = tuple(map(type, given))
        shaped = self._shaped.get(types)
        if shaped is None:
            shaped = self._shaped[types] = tuple(
                at for at, each in enumerate(given) if _kind(each) is not None
            )
        kinds = (types, *[_kind(given[at]) for at in shaped])
        code = self._code.get(kinds)
        if code is None:
            code = self._code[kinds] = self._machine_code(kinds, given)
        found: Gives = code(*given)
        return found

    def _machine_code(self, kinds: tuple[Any, ...], args: tuple[Any, ...]) -> Callable[..., Any]:
        """Returns the function for these arguments: kept from another process, else compiled here."""
        file = None
        if self.__module__.startswith("kafka_log_lake."):  # others have no part in the folder's name
            found = machine_code.find(self.__module__, self.__name__, kinds)
            if found is not None:
                return found
            file = machine_code.code_file(self.__module__, self.__name__, kinds)
        # It loads Numba. By name: it imports this module, and kernels of which it has forms of its own
        compiling = import_module("kafka_log_lake.udfs.kernels.compiling")
        made: Callable[..., Any] = compiling.compiled(self, args, file)
        return made


def kernel(function: Callable[Takes, Gives]) -> Kernel[Takes, Gives]:
    """Makes a function a kernel: compiled without objects of Python, run without the interpreter lock."""
    return _kernel(function, inline=False)


def inlined(function: Callable[Takes, Gives]) -> Kernel[Takes, Gives]:
    """Makes a small function a kernel that becomes part of each kernel that calls it."""
    return _kernel(function, inline=True)


def _kernel(function: Any, inline: bool) -> Any:
    return Kernel(function, inline) if machine_code.COMPILES else function


def called_by_kernels(function: Plain) -> Plain:
    """Marks a plain function as one that kernels may call, too, and returns it."""
    CALLABLE.append(function)
    return function


@called_by_kernels
def check(array: Any, at: int, size: int) -> None:
    """Raises IndexError unless ``array[at:at+size]`` lies in the array."""
    if at < 0 or size < 0 or at + size > len(array):
        raise IndexError("bytes outside the array")


def _load(buf: Any, i: int, size: int, order: Literal["little", "big"], kind: Any) -> Any:
    check(buf, i, size)
    return kind(int.from_bytes(bytes(buf[i : i + size]), order, signed=kind is np.int64))


def load_u64(buf: Any, i: int) -> Any:
    """Returns the eight bytes at ``buf[i:i+8]`` as a little-endian uint64.

    The caller has checked the bound.
    """
    return _load(buf, i, 8, "little", np.uint64)


def load_u32(buf: Any, i: int) -> Any:
    """Returns the four bytes at ``buf[i:i+4]``, little-endian, as uint64.

    The caller has checked the bound.
    """
    return np.uint64(_load(buf, i, 4, "little", np.uint32))


def load_be64(buf: Any, i: int) -> int:
    """Returns the big-endian int64 at ``buf[i]``; the caller has checked the bound."""
    return _load(buf, i, 8, "big", np.int64)


def load_be32(buf: Any, i: int) -> int:
    """Returns the big-endian int32 at ``buf[i]`` as int64; the caller has checked the bound."""
    return _load(buf, i, 4, "big", np.int64)


def load_be16(buf: Any, i: int) -> int:
    """Returns the big-endian int16 at ``buf[i]`` as int64; the caller has checked the bound."""
    return _load(buf, i, 2, "big", np.int64)


def store_i32(dst: Any, i: int, value: int) -> None:
    """Writes ``value`` as a little-endian int32 to ``dst[i:i+4]`` (uint8).

    The caller has checked the bound.
    """
    check(dst, i, 4)
    dst[i : i + 4] = np.array([value], dtype="<i4").view(np.uint8)


def copy_bytes(dst: Any, at: int, src: Any, start: int, size: int) -> None:
    """Copies ``src[start:start+size]`` to ``dst[at:at+size]``; the caller has checked both bounds."""
    check(dst, at, size)
    check(src, start, size)
    dst[at : at + size] = src[start : start + size]


def copy_sixteen(dst: Any, at: int, src: Any, start: int) -> None:
    """Copies sixteen bytes, of which the caller may need fewer; it has checked that both arrays have them."""
    copy_bytes(dst, at, src, start, 16)
