"""Escapes text from segments and sources before it is printed: it may contain control sequences."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    r"""The text, with characters that are not printable escaped as in Python: ``\x1b``, ``\u202e``, ``\n``.

    These are Unicode's categories Cc (ESC, BEL, CR, C1), Cf (controls of the writing direction), Cs, Co, Cn,
    Zl, Zp, and all spaces other than U+0020.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted_noun(count: int, noun: str) -> str:
    """``1 segment``, ``2,000 segments``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_names(names: Sequence[str], shown: int = 10) -> str:
    """``a, b and 2,000 more``: the first names, escaped."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(map(printable, names[:shown])) + more
