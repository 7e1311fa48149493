"""Notes what a worker process reads, so that its parent can name that if the worker is killed."""

from __future__ import annotations

import os
from contextlib import suppress

_MOST = 1 << 12  # bytes of a note
_place = -1  # file descriptor that this process has in common with its parent; -1 if it is no worker


def use(place: int) -> None:
    """Makes this process a worker, whose notes go to a file descriptor."""
    global _place
    _place = place


def note(text: str) -> None:
    """Notes what is read from now on. Does nothing in a process that is no worker, such as one of Spark's."""
    if _place >= 0:
        with suppress(OSError):  # a full disk
            os.pwrite(_place, text.encode(errors="backslashreplace")[: _MOST - 1] + b"\0", 0)


def noted(place: int) -> str:
    """Returns what the worker at the other end has noted last; "" for nothing."""
    return os.pread(place, _MOST, 0).partition(b"\0")[0].decode(errors="replace")
