"""Counts with their nouns, for messages."""

from __future__ import annotations


def counted_noun(count: int, noun: str) -> str:
    """Returns a count with separators and its noun: ``1 segment``, ``2,000 segments``."""
    return f"{count:,} {_agreeing(count, noun)}"


def count_of(count: int, noun: str) -> str:
    """Returns a count without separators, as positions are written, and its noun: ``2000 bytes``."""
    return f"{count} {_agreeing(count, noun)}"


def _agreeing(count: int, noun: str) -> str:
    return noun if count == 1 else plural(noun)


def plural(noun: str) -> str:
    """Returns the plural of a noun: ``batches``, ``epochs``, ``copies``, ``keys``."""
    if noun.endswith("y") and not noun.endswith("ey"):
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith('tch') else 's'}"
