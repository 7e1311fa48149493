"""Opens files that others made: regular files alone, without waiting, and with bounded reads.

A disk that is looked at may hold a pipe, a device or a link under any name of Kafka's. A pipe that is opened
is waited for without an end, some devices act when they are opened, and others never end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

# Of files next to segments: segment.index.bytes is 10 MiB unless it is set
MOST_INDEX_BYTES = 64 << 20
MOST_SMALL_BYTES = 1 << 20  # of files of a few lines: partition.metadata, meta.properties, quorum-state
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link (--follow-symlinks)"),
    (stat.S_ISDIR, "a folder"),
)
_BLOCK = 1 << 20


class RefusedFile(OSError):
    """A file that is not read, for what it is and not for an error of the disk; ``strerror`` says why."""


def what_it_is(mode: int) -> str | None:
    """Names what a file is, by its ``st_mode``: ``a pipe``; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((words for is_it, words in _KINDS if is_it(mode)), "no regular file")


def _check(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    kind = what_it_is(mode)
    if kind is not None:
        raise RefusedFile(errno.EINVAL, f"it is {kind}", os.fspath(path))


def open_regular(path: str | os.PathLike[str], follow: bool = True) -> int:
    """Opens a file for reading; returns its descriptor. follow: whether it may be a link.

    Raises a RefusedFile for what is no regular file, and an OSError.
    """
    status = os.stat(path) if follow else os.lstat(path)
    _check(status.st_mode, path)  # before it is opened: a device may act
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    file = os.open(path, flags)
    try:
        _check(os.fstat(file).st_mode, path)
    except OSError:
        os.close(file)
        raise
    return file


@contextmanager
def opened_regular(path: str | os.PathLike[str], follow: bool = True) -> Iterator[int]:
    """Yields the descriptor of ``open_regular`` in a ``with`` statement, and closes it at the end."""
    file = open_regular(path, follow)
    try:
        yield file
    finally:
        os.close(file)


def read_regular(path: str | os.PathLike[str], most: int, follow: bool = True) -> bytes:
    """Reads a whole file. most: bytes that it may have; follow: whether it may be a link.

    Raises a RefusedFile for what is no regular file and for a larger one, and an OSError.
    """
    with opened_regular(path, follow) as file:
        parts: list[bytes] = []
        left = most + 1
        if os.fstat(file).st_size <= most:
            while left and (part := os.read(file, min(left, _BLOCK))):
                parts.append(part)
                left -= len(part)
            if left:
                return b"".join(parts)
    raise RefusedFile(errno.EFBIG, f"it is larger than {most >> 20} MiB", os.fspath(path))


def refused_beside(segment: str, names: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each file next to a segment that is not read, as it is no regular file."""
    for name in names:
        path = os.path.join(os.path.dirname(segment), name)
        with suppress(OSError):
            mode = (os.stat if os.path.islink(segment) else os.lstat)(path).st_mode
            if (kind := what_it_is(mode)) is not None:
                yield f"{path}: not read: it is {kind}"


def read_beside(segment: str, name: str, most: int) -> bytes:
    """Reads a file next to a segment, by its name; it may be a link where the segment is one.

    A segment that is a link was asked for (``--follow-symlinks``), and so are the files of its folder. Raises
    as ``read_regular``.
    """
    return read_regular(os.path.join(os.path.dirname(segment), name), most, os.path.islink(segment))
