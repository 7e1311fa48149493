"""A second copy of ``udfs`` whose kernels are not compiled: the same source, run by the interpreter.

``load()`` imports it next to the compiled one, so that both are in one process. ``StrictDecoder`` holds it
to its arrays: where compiled code would read past an array, and where Python would count a negative index
from the end, it raises IndexError.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

_NAMES = (
    "decoder.segment_decoder",
    "kernels.checksums",
    "kernels.codecs",
    "kernels.framing",
    "kernels.legacy_record",
    "kernels.fast_payloads",
    "kernels.record_builder",
    "decoder.batch_search",
    "decoder.range_checksums",
    "decoder.headers",
    "decoder.resync",
)


class Strict(np.ndarray):
    """An array that takes no negative index; a slice past its end stops there, in compiled code too."""

    def __getitem__(self, key: Any) -> Any:
        _check(key, self.shape)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _check(key, self.shape)
        super().__setitem__(key, value)


def _check(key: Any, shape: tuple[int, ...]) -> None:
    if isinstance(key, tuple):
        for part, size in zip(key, shape, strict=False):
            _check(part, (size,))
        return
    size = shape[0] if shape else 0
    if isinstance(key, slice):
        places = [place for place in (key.start, key.stop) if place is not None]
        if any(place < 0 for place in places):
            raise IndexError(f"slice {key} of {size}")
    elif isinstance(key, int | np.integer) and not 0 <= key < size:
        raise IndexError(f"index {key} of {size}")


@cache
def load() -> dict[str, ModuleType]:
    """The modules of the plain copy, by name, with checksums from C: the plain ones are slow, and tested."""
    compiled = {
        name: module for name, module in sys.modules.items() if name.startswith("kafka_log_lake.udfs")
    }
    for name in compiled:
        del sys.modules[name]
    before = os.environ.get("NUMBA_DISABLE_JIT", "0")
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    try:
        modules = {n.rpartition(".")[2]: importlib.import_module(f"kafka_log_lake.udfs.{n}") for n in _NAMES}
    finally:
        os.environ["NUMBA_DISABLE_JIT"] = before
        for name in [name for name in sys.modules if name.startswith("kafka_log_lake.udfs")]:
            del sys.modules[name]
        sys.modules.update(compiled)
    for module in modules.values():
        for name, function in (("crc32c", _crc32c), ("crc32", _crc32)):
            if hasattr(module, name):
                setattr(module, name, function)
    return modules


def _crc32c(buf: Any, start: int, end: int, crc: int = 0) -> int:
    import crc32c

    return crc32c.crc32c(np.asarray(buf)[_range(buf, start, end)].tobytes(), int(crc))


def _crc32(buf: Any, start: int, end: int, crc: int = 0) -> int:
    import zlib

    return zlib.crc32(np.asarray(buf)[_range(buf, start, end)].tobytes(), int(crc))


def _range(buf: Any, start: int, end: int) -> slice:
    if not 0 <= start <= end <= len(buf):
        raise IndexError(f"bytes {start} to {end} of {len(buf)}")
    return slice(start, end)


def decoder(source: Any, window: int, limit: int, length: int, **how: Any) -> Any:
    """A plain ``SegmentDecoder`` over ``source`` whose arrays are strict."""
    module: Any = load()["segment_decoder"]
    made = type("StrictDecoder", (_Strictly, module.SegmentDecoder), {})
    return made(source, module.Range(length, **how), window, limit)


class _Strictly:
    """Mixed into the plain ``SegmentDecoder``: what kernels read becomes strict before they do."""

    _builder: Any
    _buf: Any
    _scratch: Any

    def _group(self, batches: Any, begin: int, end: int) -> Any:
        self._builder._lines = self._builder._lines.view(Strict)
        kept = self._scratch.data
        self._scratch.data = kept[: self._scratch.used].view(Strict)
        try:
            return super()._group(batches, begin, end)  # type: ignore[misc]
        finally:
            self._scratch.data = kept

    def _fill(self, position: int) -> int:
        self._buf = self._buf.view(Strict)
        return int(super()._fill(position))  # type: ignore[misc]
