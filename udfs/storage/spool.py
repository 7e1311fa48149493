"""Puts chunks of segments together by their positions, whatever the order in which they come.

Memory holds where the chunks lie, never their bytes: those that come as bytes are kept in a temporary file
until all of a segment are there. A chunk that comes twice counts once.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kafka_log_lake.udfs.storage.byte_source import UnreadableRange

_BLOCK = 1 << 20  # bytes of two chunks that are compared at a time
_MOST_WRITTEN = 1 << 30  # by one call of the system


class ChunkContradiction(ValueError):
    """Two chunks hold different bytes for the same range of a segment. begin, end: the range."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(f"two chunks hold different bytes between positions {begin} and {end}")
        self.begin, self.end = begin, end


class _PlacedChunk(NamedTuple):
    """A chunk of a segment, from ``position`` on. at: where it begins in the bytes of all chunks."""

    position: int
    size: int
    at: int


def _folder() -> str | None:
    """Returns the folder for temporary files that Spark gives its tasks; None: Python's default."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if folder and os.access(folder, os.W_OK | os.X_OK)), None)


class Chunks(ABC):
    """Gives the bytes of each segment as sources; a subclass says where the bytes of chunks lie."""

    def __init__(self) -> None:
        self._end = 0  # of the bytes of all chunks
        self._pieces: dict[Hashable, list[_PlacedChunk]] = {}

    def _place(self, segment: Hashable, position: int, size: int) -> None:
        """Notes a chunk, whose bytes come after those of all chunks before it."""
        self._pieces.setdefault(segment, []).append(_PlacedChunk(position, size, self._end))
        self._end += size

    @abstractmethod
    def read_at(self, at: int, view: np.ndarray) -> int:
        """Fills a view with the bytes from ``at`` on; returns how many, which may be fewer, 0 at the end."""

    @abstractmethod
    def close(self) -> None:
        """Frees the memory and files that the chunks take."""

    def segments(self) -> list[Any]:
        """Returns the segments of which there are chunks, in the order in which they came."""
        return list(self._pieces)

    def ranges(self, segment: Hashable) -> Iterator[ChunkRange]:
        """Yields the ranges of a segment without a gap, ascending. Raises a ChunkContradiction."""
        held: list[_PlacedChunk] = []
        for chunk in sorted(self._pieces.get(segment, ())):
            end = held[-1].position + held[-1].size if held else chunk.position
            if chunk.position > end:
                yield ChunkRange(self, held)
                held, end = [], chunk.position
            known = min(end - chunk.position, chunk.size)
            if known:
                self._compare(ChunkRange(self, held), chunk, known)
            if chunk.size > known or not held:
                new = _PlacedChunk(chunk.position + known, chunk.size - known, chunk.at + known)
                follows = held and held[-1].at + held[-1].size == new.at
                if follows:
                    held[-1] = held[-1]._replace(size=held[-1].size + new.size)
                else:
                    held.append(new)
        if held:
            yield ChunkRange(self, held)

    def _compare(self, before: ChunkRange, chunk: _PlacedChunk, size: int) -> None:
        """Raises a ChunkContradiction if the first ``size`` bytes of a chunk differ from ``before``."""
        again = ChunkRange(self, [chunk])
        views = np.empty((2, _BLOCK), dtype=np.uint8)
        for begin in range(chunk.position, chunk.position + size, _BLOCK):
            part = views[:, : min(_BLOCK, chunk.position + size - begin)]
            before.read_into(begin, part[0])
            again.read_into(begin, part[1])
            if not np.array_equal(part[0], part[1]):
                raise ChunkContradiction(begin, begin + part.shape[1])


class ChunkSpool(Chunks):
    """Chunks that come as bytes, in a temporary file."""

    def __init__(self) -> None:
        """Raises an OSError where no folder takes a temporary file."""
        super().__init__()
        self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115  # closed by ``close``

    def add(self, segment: Hashable, position: int, content: Any) -> None:
        """Keeps one chunk. Raises an OSError where the disk is full."""
        view, at = memoryview(content), self._end
        self._place(segment, position, len(view))
        while len(view):
            written = os.pwrite(self._file.fileno(), view[:_MOST_WRITTEN], at)
            at, view = at + written, view[written:]

    def read_at(self, at: int, view: np.ndarray) -> int:
        return os.preadv(self._file.fileno(), [view.data], at)

    def close(self) -> None:
        self._file.close()


class ChunkRange:
    """A range of a segment without a gap, from ``begin`` to ``end``, as a ``ByteSource``."""

    def __init__(self, chunks: Chunks, pieces: list[_PlacedChunk]) -> None:
        """Takes one piece or more, each beginning where the one before ends."""
        self._chunks, self._pieces = chunks, pieces
        self._begins = [chunk.position for chunk in pieces]
        self.begin, self.end = self._begins[0], pieces[-1].position + pieces[-1].size

    def read_into(self, position: int, view: np.ndarray) -> int:
        done = 0
        while done < len(view) and position + done < self.end:
            chunk = self._pieces[bisect_right(self._begins, position + done) - 1]
            inside = position + done - chunk.position
            part = view[done : done + chunk.size - inside]
            got = self._chunks.read_at(chunk.at + inside, part)
            if not got:
                break
            done += got
        return done

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        return []

    def close(self) -> None:
        """Does nothing: the bytes belong to ``Chunks``."""
