"""Sets up standard output and standard error of a command: always UTF-8, with errors that name them."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from kafka_log_lake.pipelines.cli.errors import JobError, writing

_NUMBERS = {"stdin": 0, "stdout": 1, "stderr": 2}


class _Output(io.FileIO):
    """Standard output. A write that fails is a JobError: a bare OSError could be about any other file."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            drop_output()
            raise JobError(f"cannot write to standard output: {error.strerror}") from None


class _OutputFile(io.FileIO):
    """A file for output. A write that fails is a UserError that names the place: an option and its path."""

    def __init__(self, path: str, place: str, mode: str = "w") -> None:
        self._place = place
        with writing(place):
            super().__init__(path, mode)

    def write(self, content: Any, /) -> int:
        with writing(self._place):
            return super().write(content)


@contextmanager
def replaced_file(path: str, option: str) -> Iterator[BinaryIO]:
    """Yields a file for output that appears whole or not at all: until then the previous one stays.

    A pipe or a device gets what is written as it comes. option: the option that names the path, for errors.
    """
    place, where = os.path.realpath(path), f"{option} {path}"
    if os.path.exists(path) and not os.path.isfile(path):
        with io.BufferedWriter(_OutputFile(path, where)) as file:
            yield file
        return
    temporary = f"{place}.{os.urandom(4).hex()}.tmp"
    made = _OutputFile(temporary, where, "x")
    try:
        with io.BufferedWriter(made) as file:
            yield file
            file.flush()
            with writing(where):
                os.fsync(made.fileno())
        with writing(where):
            replace_file(temporary, place)
    finally:
        with suppress(FileNotFoundError):
            os.remove(temporary)


def replace_file(made: str | os.PathLike[str], place: str | os.PathLike[str]) -> None:
    """Moves a file to a place, whose file it replaces. Where nothing can be renamed, the content is copied.

    A FUSE mount over an object store may rename nothing; there a file appears whole when it is closed.
    """
    try:
        os.replace(made, place)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        shutil.copyfile(made, place)
        os.remove(made)


class _Messages(io.FileIO):
    """Standard error. What it does not take is dropped: no job fails for its messages."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(content)


def set_up_streams() -> None:
    """Makes the streams of this process fit for a command. A second call changes nothing.

    A stream that the caller closed leads nowhere, and its number is taken: the next file that is opened would
    get it, and with it what is printed. Streams that a notebook or a test put in place stay.
    """
    for name, number in _NUMBERS.items():
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))
    if sys.stdin is sys.__stdin__ and isinstance(sys.stdin, io.TextIOWrapper):
        with suppress(io.UnsupportedOperation):  # who has read from it calls a command as a function
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    for name, kind in (("stdout", _Output), ("stderr", _Messages)):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            stream.flush()
            raw = kind(_NUMBERS[name], "w", closefd=False)
            kept: dict[str, Any] = {
                "line_buffering": stream.line_buffering,
                "write_through": stream.write_through,
            }
            # with PYTHONUNBUFFERED, as spark-submit sets it, lines of both streams stay in their order
            buffered: Any = raw if stream.write_through else io.BufferedWriter(raw)
            setattr(sys, name, io.TextIOWrapper(buffered, "utf-8", "backslashreplace", **kept))


def drop_output() -> None:
    """Drops what is still buffered for standard output, which nobody reads: Python would fail at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
