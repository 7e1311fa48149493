"""Shows what a command is doing on standard error: a line that a terminal rewrites, else one now and then.

In a notebook, where standard error is red, progress goes to standard output.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka_log_lake.pipelines.cli.terminal import printable

_REWRITTEN_EVERY = 0.25
_FIRST_AFTER, _EVERY = 3.0, 5.0
_ERASE = "\r\x1b[K"

_lock = threading.Lock()
_is_shown = False


def rewrites() -> bool:
    """Says whether standard error is a terminal on which a line can be rewritten."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def show(text: str) -> None:
    """Writes the status line of a terminal over the one before."""
    global _is_shown
    width = shutil.get_terminal_size().columns
    with _lock:
        print(f"{_ERASE}{printable(text)[: width - 1]}", end="", file=sys.stderr, flush=True)
        _is_shown = True


def _is_of_notebook() -> bool:
    """Says whether the streams are those of a Jupyter kernel, which Databricks has too."""
    return type(sys.stderr).__module__.startswith("ipykernel")


def say(line: str = "", is_progress: bool = False) -> None:
    """Erases the status line, if one is shown, and writes a line that stays; "" for none."""
    global _is_shown
    with _lock:
        if _is_shown:
            print(_ERASE, end="", file=sys.stderr, flush=True)
            _is_shown = False
        if line:
            print(line, file=sys.stdout if is_progress and _is_of_notebook() else sys.stderr, flush=True)


@contextmanager
def phase(name: str, detail: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Shows what the command is doing while the block runs.

    detail: how far it is, called each time the line is written; "" shows the seconds since it began.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_repeat, args=(stop, name, detail), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        say()


def _repeat(stop: threading.Event, name: str, detail: Callable[[], str]) -> None:
    began = time.monotonic()
    is_rewritten = rewrites()
    wait = 0.0 if is_rewritten else _FIRST_AFTER
    while not stop.wait(wait):
        try:
            shown = detail()
        except Exception:  # what is queried may have ended: the block itself says why
            return
        text = f"{name}: {shown or f'{time.monotonic() - began:.0f} s'}"
        if is_rewritten:
            show(text)
        else:
            say(printable(text), is_progress=True)
        wait = _REWRITTEN_EVERY if is_rewritten else _EVERY
