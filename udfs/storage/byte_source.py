"""Where a segment's bytes come from: a file or object that the worker opens, or chunks that Spark brings.

Every source answers ``read_into(position, view)`` alike: the bytes there, fewer only where the segment
ends. Files are read, never mapped: a mapping of a file that shrinks meanwhile kills the process.
"""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kafka_log_lake.udfs.reads import count, is_of_tier
from kafka_log_lake.udfs.storage.regular_file import RefusedFile, open_regular
from kafka_log_lake.udfs.words import counted_noun

PIECES = ".pieces"  # after a segment's name: the file that lists where its bytes are
MANIFEST = ".rsm-manifest"  # of a remote object: how the bytes of a segment lie in it
_RANGE = re.compile(r"(.+\.(?:log|rsm-manifest))#([0-9]+)-([0-9]+)", re.DOTALL)


class SourceError(Exception):
    """The segment's bytes can't be read as they were planned; nothing of it may be committed."""


class SourceChanged(SourceError):
    """The segment is gone, or shorter than it was when the run was planned."""


class SourceUnreadable(SourceError):
    """The segment can't be opened or read at all: permissions, a file system that fails."""


@dataclass(frozen=True)
class UnreadableRange:
    """A byte range that the storage could not give; it was read as zeros.

    error: errno. reason: what is wrong in words; "" for the words of the errno.
    """

    position: int
    size: int
    error: int
    reason: str = ""


def what_failed(failed: list[UnreadableRange]) -> str:
    """Describes unreadable ranges in words, the first few of them."""
    words = [
        f"{counted_noun(range_.size, 'byte')} at position {range_.position}: "
        + (range_.reason or f"{os.strerror(range_.error)} (errno {range_.error})")
        for range_ in failed[:3]
    ]
    more = f" and {counted_noun(len(failed) - 3, 'range')} more" if len(failed) > 3 else ""
    return "the storage could not read " + ", ".join(words) + more


class ByteSource(Protocol):
    """Random access to the bytes of one segment."""

    def read_into(self, position: int, view: np.ndarray) -> int:
        """Fills ``view`` (uint8) from ``position`` on; returns the bytes read, fewer only at the end."""

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        """Returns the ranges between two positions that were requested and could not be read."""

    def close(self) -> None:
        """Closes what was opened."""


def read_at(source: ByteSource, position: int, view: np.ndarray, length: int) -> int:
    """Fills ``view`` (uint8) from ``position`` on, up to ``length``; returns the bytes read.

    length: bytes of the segment. Raises SourceChanged where it ends before.
    """
    wanted = min(len(view), length - position)
    got = source.read_into(position, view[:wanted])
    if got < wanted:
        raise SourceChanged(f"ends at byte {position + got}, planned with {length}")
    return wanted


def path_of_uri(uri: str) -> str | None:
    """Returns the path of a canonical ``file:///`` URI (not percent-encoded) or plain path; else None."""
    if uri.startswith("file:///"):
        return uri[len("file://") :]
    return None if "://" in uri else uri


def with_range(uri: str, begin: int, end: int) -> str:
    """Returns the URI of the bytes of a segment from ``begin`` up to ``end``, which ``open_source`` opens."""
    return f"{uri}#{begin}-{end}"


def split_range(uri: str) -> tuple[str, int, int] | None:
    """Splits what ``with_range`` returned; None for any other URI."""
    match = _RANGE.fullmatch(uri)
    return (match[1], int(match[2]), int(match[3])) if match else None


def shown_name(uri: str) -> str:
    """Returns the name of the file or object that holds a segment's bytes, for a person."""
    part = split_range(uri)
    name = (part[0] if part else uri).rpartition("/")[2]
    return name.removesuffix(MANIFEST) + ".log" if name.endswith(MANIFEST) else name


# What a failed sector, a wrong checksum of the file system or a failed decryption gives; all else is not of
# the bytes but of the file
_OF_THE_BYTES = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "EUCLEAN", "ENODATA", "EREMOTEIO", "EILSEQ")
    if hasattr(errno, name)
)
_PAGE = 4096
_AHEAD = 8 << 20


class FileSource:
    """A local file, read in place. What its disk can't read is zeros here, and reported by ``unreadable``."""

    def __init__(self, path: str) -> None:
        try:
            self._file = open_regular(path)
        except RefusedFile as error:
            raise SourceUnreadable(str(error.strerror)) from error
        except OSError as error:
            raise _cannot("opened", error) from error
        self._is_tier = is_of_tier(path)
        self._unreadable: dict[int, UnreadableRange] = {}
        self._last = 0, 0  # the range of the last read
        self._requested = 0  # the end of what the system was to read ahead

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def read_into(self, position: int, view: np.ndarray) -> int:
        self._read_ahead(position, position + len(view))
        done = 0
        while done < len(view):
            try:
                got = os.preadv(self._file, [view.data[done:]], position + done)
            except OSError as error:
                if error.errno not in _OF_THE_BYTES:
                    raise _cannot("read", error) from error
                got = self._read_page(position + done, view[done:])
            if got == 0:
                break
            done += got
        if self._is_tier is not None:
            count(self._is_tier, 1, done)
        return done

    def _read_ahead(self, begin: int, end: int) -> None:
        """Has the system read ahead where reads follow each other, while these bytes are decoded.

        Linux reads ahead by itself, but pauses: files that are not in memory came at half the disk's speed.
        """
        before, self._last = self._last, (begin, end)
        if not (before[0] < begin <= before[1]):
            self._requested = end
        elif end + _AHEAD // 2 > self._requested and hasattr(os, "posix_fadvise"):  # macOS has none
            start, self._requested = max(end, self._requested), end + _AHEAD
            with suppress(OSError):  # advice that a file system does not take
                os.posix_fadvise(self._file, start, self._requested - start, os.POSIX_FADV_WILLNEED)

    def _read_page(self, position: int, view: np.ndarray) -> int:
        """Reads to the end of one page; fills in zeros where it can't be read. Returns the bytes read."""
        room = min(len(view), _PAGE - position % _PAGE, self.size() - position)
        if room <= 0:
            return 0
        try:
            return os.preadv(self._file, [view.data[:room]], position)
        except OSError as error:
            if error.errno not in _OF_THE_BYTES:
                raise _cannot("read", error) from error
            view[:room] = 0
            page = position - position % _PAGE
            size = min(_PAGE, self.size() - page)
            self._unreadable[page] = UnreadableRange(page, size, int(error.errno or 0))
            return room

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        pages = sorted(self._unreadable)
        first = bisect_left(pages, position - _PAGE + 1)
        ranges: list[UnreadableRange] = []
        for page in pages[first : bisect_left(pages, end)]:
            last, part = ranges[-1] if ranges else None, self._unreadable[page]
            if last is not None and last.position + last.size == page and last.error == part.error:
                ranges[-1] = UnreadableRange(last.position, last.size + part.size, part.error)
            elif page + part.size > position:
                ranges.append(part)
        return ranges

    def close(self) -> None:
        os.close(self._file)


def _cannot(what: str, error: OSError) -> SourceError:
    gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
    return (SourceChanged if gone else SourceUnreadable)(f"it can't be {what}: {error.strerror}")


class ChunkSource:
    """Chunks (position, bytes) that follow each other, taken as they are needed.

    Chunks that end before the position that ``keep_from`` names are dropped.
    """

    def __init__(self, chunks: Iterator[tuple[int, object]]) -> None:
        self._more = chunks
        self._held: list[tuple[int, np.ndarray]] = []
        self._end = -1
        self._keep = 0

    def keep_from(self, position: int) -> None:
        self._keep = position
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
        if self._end > self._keep:
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

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        return []

    def close(self) -> None:
        self._held.clear()


def reason_of(error: BaseException) -> str:
    """Returns the first line of an error's message; its class name where the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
