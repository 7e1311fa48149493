"""Keeps compiled kernels in files, and loads them into a process without Numba.

Numba compiles a kernel (``udfs.kernels.compiling``); its import alone takes longer than a command on a small
log. So the machine code of a kernel, for each kind of arguments, is kept in a file, and LLVM links it into a
process. The function that is called is Numba's wrapper: it takes and returns objects of Python.

Numba's own cache notices a change of a kernel's file, but not of the kernels that it calls. So both lie in a
folder named after the bytes of all of them, after the C functions they can call, and after whether bounds
are checked. The folder belongs to this user alone; where there is none that can, kernels are compiled anew in
each process and nothing is kept. What lies in the folder can be moved with the environment: it is found by
the names of modules, and used by the same CPU with the same Numba. Other environments of the same user take
copies of it (``decoder.compile_kernels``).

The wheel brings machine code too (``tools.package``), for levels of x86-64 instead of one CPU: it is used
where Python, Numba and the C functions are those that it was made with. Elsewhere kernels are compiled.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import os
import platform
import stat
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import machinery, resources, util
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

from kafka_log_lake.udfs.kernels import libraries
from kafka_log_lake.udfs.package_files import code_digest, package_files

# Numba's own switches: no compilation at all, and checks of array indices
COMPILES = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
CHECKS_BOUNDS = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")

# The sources of kernels, and of all that they are compiled from
KERNEL_ROOMS = (
    "format",
    "kernels",
    "decoder/batch_search.py",
    "decoder/headers.py",
    "decoder/range_checksums.py",
    "vectorized_varint.py",
)
_PACKAGE = "kafka-log-lake"

# Machine code in the wheel: level -> the features of a CPU that it needs, as LLVM names them. Checksums
# multiply without carry, which no level includes
PRODUCT = "pclmul"
_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3", PRODUCT)
LEVELS = {
    "x86-64-v3": (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v2": _V2,
}
COMPILED = "compiled"  # its folder in ``udfs``: <cache name>/<level>/<file>
_LOCK = threading.Lock()


def _numba() -> Path:
    """Returns the folder of Numba's package, without its import.

    Raises an ImportError where it is missing.
    """
    package = util.find_spec("numba")
    if package is None or package.origin is None:
        raise ImportError("No module named 'numba'", name="numba")
    return Path(package.origin).parent


@cache
def _cache_name() -> str:
    """Returns a folder name made of everything that compiled kernels depend on."""
    udfs = resources.files("kafka_log_lake.udfs")
    sources = (one for room in KERNEL_ROOMS for one in package_files(udfs.joinpath(room), room))
    digest = code_digest(sources, (_numba() / "_version.py").read_bytes())
    name = f"numba-{sys.version_info[0]}{sys.version_info[1]}-{digest[:16]}"
    return f"{name}-{libraries.SIGNATURE}" + ("-checked" if CHECKS_BOUNDS else "")


def _is_private(folder: Path) -> bool:
    """Tells whether nobody but this user (and root) can put a file there: it would be run as code."""
    folder_stat = folder.lstat()
    if (
        not stat.S_ISDIR(folder_stat.st_mode)
        or folder_stat.st_uid != os.geteuid()
        or folder_stat.st_mode & 0o077
    ):
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
    """Creates the folder where it is missing; tells whether it may hold the cache."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        return _is_private(folder)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, or no home
        return False


def _users_folder() -> Path | None:
    """Returns the folder in the user's own cache; None for a user without a home."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return root / _PACKAGE / _cache_name()


def _places() -> Iterator[Path]:
    """Yields the folders that may hold the cache, the best first.

    They are in NUMBA_CACHE_DIR if that is set, else beside the sources, in the user's cache, and for a user
    without a home in the temporary folder.
    """
    wanted = os.environ.get("NUMBA_CACHE_DIR")
    if wanted:
        yield Path(wanted) / _cache_name()
        return
    yield Path(__file__).parent / "__pycache__" / _cache_name()
    users = _users_folder()
    if users is not None:
        yield users
    # Directly in it: there nobody else can replace a folder of ours (sticky bit)
    with suppress(FileNotFoundError):  # no temporary folder can be written
        yield Path(tempfile.gettempdir()) / f"{_PACKAGE}-{_cache_name()}-{os.geteuid()}"


# The folder of compiled kernels; "" where none is this user's alone
CACHE = next((str(place) for place in _places() if _private(place)), "")


def shared_folder() -> Path | None:
    """Returns the folder that all environments of this user share; None without one, or if it is CACHE."""
    users = None if os.environ.get("NUMBA_CACHE_DIR") else _users_folder()
    return users if users is not None and str(users) != CACHE and _private(users) else None


@cache
def _cpu() -> str:
    """Returns the CPU that kernels are compiled for, as text; NUMBA_CPU_NAME names another one."""
    if "NUMBA_CPU_NAME" in os.environ:
        return os.environ["NUMBA_CPU_NAME"]
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def level_of(features: dict[str, bool]) -> str | None:
    """Returns the best of LEVELS that a CPU with these features has; None: none of them."""
    return next((level for level, needed in LEVELS.items() if all(map(features.get, needed))), None)


@cache
def _brought() -> tuple[str, Any] | None:
    """Returns level and folder of the machine code that the wheel brings for this process; None: none."""
    if CHECKS_BOUNDS or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None
    level = level_of(llvm.get_host_cpu_features())
    if level is None or "NUMBA_CPU_NAME" in os.environ:
        return None
    folder = resources.files("kafka_log_lake.udfs").joinpath(COMPILED, _cache_name(), level)
    return (level, folder) if folder.is_dir() else None


def cpu_name() -> str:
    """Returns a name for the CPU that kernels are compiled for, which can be a part of a file's name."""
    return hashlib.sha256(_cpu().encode()).hexdigest()[:16]


def is_brought() -> bool:
    """Tells whether this process takes kernels from the wheel."""
    return _brought() is not None


def _file_name(module: str, name: str, kinds: Any, cpu: str) -> str:
    digest = hashlib.sha256(f"{kinds!r} {cpu}".encode()).hexdigest()
    return f"{module}.{name}-{digest[:24]}.o"


def code_file(module: str, name: str, kinds: Any) -> Path | None:
    """Returns the file of a kernel's code for arguments of these kinds, on this CPU; None: it is not kept.

    Code that checks bounds is not: it raises exceptions, which Numba makes.
    """
    if not CACHE or CHECKS_BOUNDS:
        return None
    return Path(CACHE) / _file_name(module, name, kinds, _cpu())


def find(module: str, name: str, kinds: Any) -> Callable[..., Any] | None:
    """Returns a kernel's function for arguments of these kinds, from the wheel or from what is kept.

    Returns None where neither has it.
    """
    brought, file = _brought(), code_file(module, name, kinds)
    found = None
    if brought is not None:
        level, folder = brought
        found = load(folder.joinpath(_file_name(module, name, kinds, level)))
    return found or (load(file) if file is not None else None)


def keep(file: Path, wrapper: str, environment: str, code: bytes) -> None:
    """Writes the machine code (an object file) of a kernel. wrapper: its function that Python calls.

    environment: the variable that holds what Numba's wrappers take from their module.
    """
    content = f"{wrapper}\n{environment}\n".encode() + code
    with suppress(OSError):  # a full disk: the next process compiles it. What is torn has a wrong checksum
        file.write_bytes(b"%08x\n" % zlib.crc32(content) + content)


def load(file: Any) -> Callable[..., Any] | None:
    """Loads the function that a file or resource holds; None without one, or if a crash lost its bytes."""
    try:
        checksum, _, content = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    if checksum != b"%08x" % zlib.crc32(content):
        return None
    wrapper, environment, code = content.split(b"\n", 2)
    with _LOCK:
        return _linker().function(file.name, wrapper.decode(), environment.decode(), code)


class _Linker:
    """LLVM's linker in this process, with the C functions that Numba's wrappers call."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._functions = _extension("_dynfunc")
        for module in (_extension("_helperlib"), self._functions):
            for name, place in module.c_helpers.items():
                llvm.add_symbol(f"numba_{name}", place)
        # Numba's wrappers name these objects themselves, not C's variables that point to them
        llvm.add_symbol("_Py_NoneStruct", id(None))
        for value in vars(builtins).values():
            if isinstance(value, type) and issubclass(value, BaseException):
                llvm.add_symbol(f"PyExc_{value.__name__}", id(value))
        target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)

    def function(self, name: str, wrapper: str, environment: str, code: bytes) -> Callable[..., Any]:
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        held = self._functions.Environment({})
        place = ctypes.c_void_p.from_address(self._engine.get_global_value_address(environment))
        place.value = id(held)
        start = self._engine.get_function_address(wrapper)
        made: Callable[..., Any] = self._functions.make_function(
            sys.modules[__name__], name, "", start, held, self
        )
        return made


_linker = cache(_Linker)


def _extension(name: str) -> Any:
    """Loads a C extension of Numba's package without the package, whose import takes long."""
    files = [_numba() / f"{name}{suffix}" for suffix in machinery.EXTENSION_SUFFIXES]
    spec = util.spec_from_file_location(f"numba.{name}", next(file for file in files if file.is_file()))
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
