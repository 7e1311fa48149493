"""Buffers between pages that must not be touched: a read or write outside kills the process at once.

NumPy and Numba see ordinary arrays. The memory is a file, so that another process can read what lay in it
when this one died.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kafka_log_lake.udfs.decoder.decoded import Group, Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.kernels.codecs import Scratch
from tests.support.fast import BytesSource

PAGE = mmap.PAGESIZE
_NO_ACCESS = 0  # PROT_NONE


class Guarded:
    """At least ``size`` bytes, whole pages, with a page of no access before and after them."""

    def __init__(self, size: int, path: Path | None = None) -> None:
        size = -(-size // PAGE) * PAGE
        if path is None:
            descriptor, name = tempfile.mkstemp(prefix="guarded-")
            os.unlink(name)
        else:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, size + 2 * PAGE)
        self._memory = mmap.mmap(descriptor, size + 2 * PAGE, mmap.MAP_SHARED)
        os.close(descriptor)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for page in (address, address + PAGE + size):
            if protect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.data = np.frombuffer(self._memory, dtype=np.uint8, count=size, offset=PAGE)

    def at_end(self, size: int) -> np.ndarray:
        """The last ``size`` bytes: what follows them must not be touched."""
        return self.data[len(self.data) - size :]

    def at_start(self, size: int) -> np.ndarray:
        """The first ``size`` bytes: what lies before them must not be touched."""
        return self.data[:size]


class GuardedDecoder(SegmentDecoder):
    """The decoder with each buffer that a kernel reads payloads from ending at a guard page.

    The window is as large as the segment, or as small as requested; expanded payloads are moved to
    the end of a buffer of their own before they are read.
    """

    windows: Guarded
    expanded: Guarded

    @classmethod
    def over(
        cls, data: bytes, limit: int, window: int, windows: Guarded, expanded: Guarded, **how: Any
    ) -> GuardedDecoder:
        window = min(window, len(windows.data), max(1, len(data)))
        decoder = cls(BytesSource(data), Range(len(data), **how), window, limit)
        decoder.windows, decoder.expanded = windows, expanded
        decoder._buf = windows.at_end(window)
        return decoder

    def _group(self, batches: np.ndarray, begin: int, end: int) -> tuple[int, Group]:
        kept = self._move_expanded()
        try:
            return super()._group(batches, begin, end)
        finally:
            self._scratch.data = kept

    def _move_expanded(self) -> Any:
        scratch: Scratch = self._scratch
        kept = scratch.data
        if 0 < scratch.used <= len(self.expanded.data):
            scratch.data = self.expanded.at_end(scratch.used)
            scratch.data[:] = kept[: scratch.used]
        return kept
