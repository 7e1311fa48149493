"""Numbers of things in words, for messages."""

from __future__ import annotations


def counted_noun(count: int, noun: str) -> str:
    """``1 segment``, ``2,000 segments``."""
    return f"{count:,} {_agreeing(count, noun)}"


def count_of(count: int, noun: str) -> str:
    """``1 byte``, ``2000 bytes``: in texts with positions, which have no separators."""
    return f"{count} {_agreeing(count, noun)}"


def _agreeing(count: int, noun: str) -> str:
    return noun if count == 1 else plural(noun)


def plural(noun: str) -> str:
    """``batches`` of batch, ``epochs`` of epoch, ``copies`` of copy, ``keys`` of key."""
    if noun.endswith("y") and not noun.endswith("ey"):
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith('tch') else 's'}"
