"""Where a segment's bytes come from: a file or object that the worker opens, or chunks that Spark brings.

Every source answers ``read_into(position, view)`` alike: the bytes there, fewer only where the segment
ends. Files are read, never mapped: a mapping of a file that shrinks meanwhile kills the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np


class SourceChanged(Exception):
    """The segment is gone, unreadable or shorter than it was when the run was planned."""


class ByteSource(Protocol):
    """Random access to the bytes of one segment."""

    def read_into(self, position: int, view: np.ndarray) -> int:
        """Fill ``view`` (uint8) from ``position`` on; the bytes read, fewer than asked only at the end."""

    def close(self) -> None:
        """Let go of what was opened."""


def read_at(source: ByteSource, position: int, view: np.ndarray, length: int) -> int:
    """Fill ``view`` (uint8) from ``position`` on, up to ``length``, the end of the segment; the bytes read.

    Raises SourceChanged where the segment ends before.
    """
    wanted = min(len(view), length - position)
    got = source.read_into(position, view[:wanted])
    if got < wanted:
        raise SourceChanged(f"ends at byte {position + got}, planned with {length}")
    return wanted


def local_path(uri: str) -> str | None:
    """The path of a canonical ``file:///`` URI (no percent-encoding) or of a plain path; else None."""
    if uri.startswith("file:///"):
        return uri[len("file://") :]
    return None if "://" in uri else uri


class FileSource:
    """A local file, read in place."""

    def __init__(self, path: str) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise SourceChanged(f"cannot be opened: {error.strerror}") from error

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def read_into(self, position: int, view: np.ndarray) -> int:
        done = 0
        try:
            while done < len(view):
                got = os.preadv(self._file, [view.data[done:]], position + done)
                if got == 0:
                    break
                done += got
        except OSError as error:
            raise SourceChanged(f"cannot be read: {error.strerror}") from error
        return done

    def close(self) -> None:
        os.close(self._file)


class ObjectSource:
    """An object of a store that pyarrow knows, by ranged reads."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        try:
            system, path = fs.FileSystem.from_uri(uri)
            self._file: Any = system.open_input_file(path)
        except (OSError, ValueError) as error:
            raise SourceChanged(f"cannot be opened: {str(error).splitlines()[0]}") from error

    def size(self) -> int:
        return int(self._file.size())

    def read_into(self, position: int, view: np.ndarray) -> int:
        try:
            data = self._file.read_at(len(view), position)
        except OSError as error:
            raise SourceChanged(f"cannot be read: {str(error).splitlines()[0]}") from error
        view[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        return len(data)

    def close(self) -> None:
        self._file.close()


class ChunkSource:
    """Chunks (position, bytes) that follow each other, taken as they are needed.

    Chunks wholly before the position that ``keep_from`` names are let go.
    """

    def __init__(self, chunks: Iterator[tuple[int, Any]]) -> None:
        self._more = chunks
        self._held: list[tuple[int, np.ndarray]] = []
        self._end = -1

    def keep_from(self, position: int) -> None:
        while self._held and self._held[0][0] + len(self._held[0][1]) <= position:
            self._held.pop(0)

    def _take(self) -> bool:
        chunk = next(self._more, None)
        if chunk is None:
            return False
        position, data = chunk
        if self._end >= 0 and position != self._end:
            raise SourceChanged(f"a chunk is missing at byte {self._end}")
        block = np.frombuffer(data, dtype=np.uint8)
        self._end = position + len(block)
        self._held.append((position, block))
        return True

    def read_into(self, position: int, view: np.ndarray) -> int:
        while (self._end < position + len(view)) and self._take():
            pass
        done = 0
        for start, block in self._held:
            offset = position + done - start
            if 0 <= offset < len(block):
                part = block[offset : offset + len(view) - done]
                view[done : done + len(part)] = part
                done += len(part)
        return done

    def close(self) -> None:
        self._held.clear()


def open_source(uri: str) -> FileSource | ObjectSource:
    """Open a segment by its URI: in place where it is local, else through pyarrow's file systems."""
    path = local_path(uri)
    return FileSource(path) if path is not None else ObjectSource(uri)
