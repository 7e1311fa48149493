"""Reads a segment in an object store by few, large requests, and ahead: each costs some 20 ms."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from kafka_log_lake.udfs.reads import count, is_of_tier
from kafka_log_lake.udfs.storage.byte_source import (
    SourceChanged,
    SourceUnreadable,
    UnreadableRange,
    reason_of,
)
from kafka_log_lake.udfs.storage.store import open_store

BLOCK_BYTES = 16 << 20
_SMALL_BYTES = 1 << 16  # a read up to this size is of a header: most often no other follows near it
# Blocks that are held: that before, for damage is read again, the current one and the next; and small ones,
# with which it is looked where lengths lead, and which take no block away
_HELD, _HELD_SMALL = 3, 16


class ObjectSource:
    """An object, by ranged reads of BLOCK_BYTES; the next block is fetched while one is decoded.

    stop: where a decoder of it ends: nothing after it is fetched ahead. None: the end of the object.
    """

    def __init__(self, uri: str, stop: int | None = None) -> None:
        self._uri = uri
        self._file: Any = _checked(self._open, "opened")
        self._size = int(_checked(self._file.size, "opened"))
        self._is_tier = is_of_tier(uri)
        count(self._is_tier, 1, 0)
        self._stop = self._size if stop is None else min(stop, self._size)
        self._blocks: dict[int, np.ndarray] = {}  # by position, in the order they were fetched
        self._next: tuple[range, Future[np.ndarray]] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def _open(self) -> Any:
        system, path = open_store(self._uri)
        return system.open_input_file(path)

    def size(self) -> int:
        return self._size

    def check_unchanged(self, modified: int) -> None:
        """Raises SourceChanged if the object was replaced since it was listed.

        modified: when it was written, as it was listed: microseconds since 1970 UTC. Whole seconds are
        compared: not every answer of a store has more. (A local file that is open stays the same file.)
        """

        def look() -> Any:
            system, path = open_store(self._uri)
            return system.get_file_info(path)

        info = _checked(look, "read")
        if info.mtime_ns is None:
            raise SourceChanged("it is gone")
        if info.size != self._size or info.mtime_ns // 10**9 != modified // 10**6:
            raise SourceChanged("it was written again since it was listed")

    def read_into(self, position: int, view: np.ndarray) -> int:
        done = 0
        while done < len(view) and position + done < self._size:
            start, block = self._block(position + done, len(view) - done)
            part = block[position + done - start :][: len(view) - done]
            view[done : done + len(part)] = part
            done += len(part)
        return done

    def _block(self, position: int, wanted: int) -> tuple[int, np.ndarray]:
        """Returns where a block with the byte at ``position`` starts, and the block; fetches it if needed."""
        for start, block in reversed(self._blocks.items()):
            if start <= position < start + len(block):
                if len(block) > _SMALL_BYTES and position - start >= len(block) // 2:
                    self._fetch_ahead(start + len(block))
                return start, block
        if self._next is not None and position in self._next[0]:
            start, fetched = self._next[0].start, self._next[1]
            self._next = None
            block = fetched.result()
            if start + len(block) <= position:
                raise SourceChanged(f"ends at byte {start + len(block)}")
        else:
            is_small = wanted <= _SMALL_BYTES and self._size > BLOCK_BYTES // 16
            size = _SMALL_BYTES if is_small else max(self._block_size(position), min(wanted, BLOCK_BYTES))
            large = (start for start, block in self._blocks.items() if len(block) > _SMALL_BYTES)
            following = min((start for start in large if start > position), default=self._size)
            start, block = position, self._fetch(position, min(size, following - position))
            if not len(block):
                raise SourceChanged(f"ends at byte {position}")
        self._hold(start, block)
        return start, block

    def _hold(self, start: int, block: np.ndarray) -> None:
        """Keeps a block; drops the oldest of its kind (small or large) where there are too many."""
        is_small = len(block) <= _SMALL_BYTES
        alike = [at for at, held in self._blocks.items() if (len(held) <= _SMALL_BYTES) == is_small]
        if len(alike) == (_HELD_SMALL if is_small else _HELD):
            del self._blocks[alike[0]]
        self._blocks[start] = block

    def _block_size(self, position: int) -> int:
        """Returns a block's size: to 64 KiB past the end of the decoder's range, at most BLOCK_BYTES."""
        return min(BLOCK_BYTES, max(0, self._stop - position) + _SMALL_BYTES)

    def _fetch_ahead(self, position: int) -> None:
        """Begins to fetch the block at ``position``, unless nothing is to be read there."""
        if position >= self._stop or (self._next is not None and self._next[0].start == position):
            return
        if any(start <= position < start + len(block) for start, block in self._blocks.items()):
            return
        self._thread = self._thread or ThreadPoolExecutor(1)
        size = self._block_size(position)
        self._next = range(position, position + size), self._thread.submit(self._fetch, position, size)

    def _fetch(self, position: int, size: int) -> np.ndarray:
        """Fetches ``size`` bytes (uint8) from ``position`` on, fewer at the end of the object."""
        data = _checked(lambda: self._file.read_at(min(size, self._size - position), position), "read")
        count(self._is_tier, 1, len(data))
        return np.frombuffer(data, dtype=np.uint8)

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        return []

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._blocks.clear()
        self._file.close()


def _checked(ask: Callable[[], Any], what: str) -> Any:
    """Returns what ``ask`` returns; raises its errors as SourceChanged or SourceUnreadable."""
    try:
        return ask()
    except FileNotFoundError as error:
        raise SourceChanged("it is gone") from error
    except (OSError, ValueError) as error:
        raise SourceUnreadable(f"it can't be {what}: {reason_of(error)}") from error
