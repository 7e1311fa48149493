"""Chunks of segments that are put together by their positions, whatever their order.

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

from kafka_log_lake.udfs.storage.byte_source import Unreadable

_BLOCK = 1 << 20  # bytes of two chunks that are compared at a time
_MOST_WRITTEN = 1 << 30  # by one call of the system


class Contradiction(ValueError):
    """Two chunks hold different bytes for the same range of a segment. begin, end: the range."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(f"two chunks hold different bytes between positions {begin} and {end}")
        self.begin, self.end = begin, end


class _Piece(NamedTuple):
    """Bytes of a segment from ``position`` on. at: where they begin in the bytes of all chunks."""

    position: int
    size: int
    at: int


def _folder() -> str | None:
    """Where Spark lets its tasks keep files; None: where Python does."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((one for one in folders if one and os.access(one, os.W_OK | os.X_OK)), None)


class Chunks(ABC):
    """Gives the bytes of each segment as sources; a subclass says where the bytes of chunks lie."""

    def __init__(self) -> None:
        self._end = 0  # of the bytes of all chunks
        self._pieces: dict[Hashable, list[_Piece]] = {}

    def _place(self, segment: Hashable, position: int, size: int) -> None:
        """Takes a chunk, whose bytes are behind those of all before it."""
        self._pieces.setdefault(segment, []).append(_Piece(position, size, self._end))
        self._end += size

    @abstractmethod
    def read_at(self, at: int, view: np.ndarray) -> int:
        """Fills a view with the bytes from ``at`` on; returns how many, which may be fewer, 0 at the end."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what the chunks take."""

    def segments(self) -> list[Any]:
        """The segments of which there are chunks, in the order in which they came."""
        return list(self._pieces)

    def stretches(self, segment: Hashable) -> Iterator[Stretch]:
        """The ranges of a segment without a gap, ascending. Raises a Contradiction."""
        held: list[_Piece] = []
        for piece in sorted(self._pieces.get(segment, ())):
            end = held[-1].position + held[-1].size if held else piece.position
            if piece.position > end:
                yield Stretch(self, held)
                held, end = [], piece.position
            known = min(end - piece.position, piece.size)
            if known:
                self._compare(Stretch(self, held), piece, known)
            if piece.size > known or not held:
                new = _Piece(piece.position + known, piece.size - known, piece.at + known)
                follows = held and held[-1].at + held[-1].size == new.at
                if follows:
                    held[-1] = held[-1]._replace(size=held[-1].size + new.size)
                else:
                    held.append(new)
        if held:
            yield Stretch(self, held)

    def _compare(self, before: Stretch, piece: _Piece, size: int) -> None:
        """Raises a Contradiction where the first ``size`` bytes of a piece are not those known before."""
        again = Stretch(self, [piece])
        views = np.empty((2, _BLOCK), dtype=np.uint8)
        for begin in range(piece.position, piece.position + size, _BLOCK):
            part = views[:, : min(_BLOCK, piece.position + size - begin)]
            before.read_into(begin, part[0])
            again.read_into(begin, part[1])
            if not np.array_equal(part[0], part[1]):
                raise Contradiction(begin, begin + part.shape[1])


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


class Stretch:
    """A range of a segment, from ``begin`` to ``end``, as a ``ByteSource``."""

    def __init__(self, chunks: Chunks, pieces: list[_Piece]) -> None:
        """pieces: at least one, each beginning where the one before ends."""
        self._chunks, self._pieces = chunks, pieces
        self._begins = [one.position for one in pieces]
        self.begin, self.end = self._begins[0], pieces[-1].position + pieces[-1].size

    def read_into(self, position: int, view: np.ndarray) -> int:
        done = 0
        while done < len(view) and position + done < self.end:
            piece = self._pieces[bisect_right(self._begins, position + done) - 1]
            inside = position + done - piece.position
            part = view[done : done + piece.size - inside]
            got = self._chunks.read_at(piece.at + inside, part)
            if not got:
                break
            done += got
        return done

    def unreadable(self, position: int, end: int) -> list[Unreadable]:
        return []

    def close(self) -> None:
        """Nothing: the bytes are the chunks'."""
