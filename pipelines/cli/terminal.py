"""Formats words and names for a person. Text from segments is escaped: it may contain control sequences."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta

from kafka_log_lake.udfs.words import counted_noun as counted_noun

COMMAND = "kafka-log-lake"


def printable(text: str) -> str:
    r"""Returns the text with characters that are not printable escaped as in Python.

    For example ``\x1b``, ``\u202e``, ``\n``: Unicode's categories Cc (ESC, BEL, CR, C1), Cf (controls of the
    writing direction), Cs, Co, Cn, Zl, Zp, and all spaces other than U+0020.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def time_text(milliseconds: int, timespec: str = "seconds") -> str:
    """Returns a time in UTC as a person writes it; one outside the years 1 to 9999 as ``N ms``.

    milliseconds: since 1970 UTC. timespec: as ``datetime.isoformat`` has it.
    """
    try:
        at = datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return at.isoformat(" ", timespec)


def width_of(text: str) -> int:
    """Returns the columns that a text takes on a terminal: 2 for CJK and emoji, 0 for a combining mark."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # executors, which print nothing, have no rich

    return cell_len(text)


def aligned(text: str, width: int, to_right: bool = False) -> str:
    """Returns the text with blanks up to a width in columns, after it or, if to_right, before it."""
    blanks = " " * (width - width_of(text))
    return blanks + text if to_right else text + blanks


def shortened_to(text: str, width: int) -> str:
    """Returns the text; its beginning and an ellipsis where it is wider than a width in columns."""
    if width_of(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def room_of_lines(is_full: bool = False) -> int | None:
    """Returns the columns of the terminal that standard output is.

    None if it is no terminal; 0 if is_full, where no line is cut.
    """
    if is_full:
        return 0
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wants_colour() -> bool:
    """Says whether the user wants escape sequences for colours: not with NO_COLOR (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def first_names(names: Sequence[str], shown: int = 10) -> str:
    """Returns the first names, escaped, as ``a, b and 2,000 more``."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(map(printable, names[:shown])) + more


def first_lines(lines: Sequence[str], rest: str) -> list[str]:
    """Returns the first 10 lines.

    Where there are others also one that counts them: ``and 2,000 more <rest>``.
    """
    left = len(lines) - 10
    return [*lines[:10], f"and {left:,} more {rest}"] if left > 0 else list(lines)


def invocation() -> str:
    """Returns how this project's commands are called from here, to be pasted before a command's name.

    It is the way this command was called; after ``python -m`` the installed command next to this interpreter.
    """
    called = sys.argv[0] if os.path.basename(sys.argv[0]) == COMMAND else None
    command = called or os.path.join(os.path.dirname(sys.executable), COMMAND)
    if os.path.isfile(command):
        on_path = shutil.which(COMMAND)
        if on_path and os.path.samefile(on_path, command):
            return COMMAND
        return shlex.quote(_shortest(os.path.abspath(command)))
    return COMMAND if called else f"{shlex.quote(_interpreter())} -m kafka_log_lake"


def _interpreter() -> str:
    """Returns ``python`` if that is this interpreter, else its path, relative if below the working folder."""
    return "python" if shutil.which("python") == sys.executable else _shortest(sys.executable)


def _shortest(path: str) -> str:
    below = os.path.relpath(path)
    return path if below.startswith("..") else below
