"""Compiles the regular expressions that people give for names of topics and folders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex


def compiled(expression: str) -> regex.Pattern[str] | re.Pattern[str]:
    """Compiles a regular expression. Raises a ValueError if it does not compile.

    The package ``regex`` takes no time without end for nested repetitions such as ``(a+)+b``.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]+", expression):  # a name means the same to both packages
        return re.compile(expression)
    import regex  # takes 0.03 s

    try:
        return regex.compile(expression, regex.DOTALL)  # the name of a folder may contain a newline
    except (regex.error, RecursionError) as error:
        shown = expression if len(expression) <= 100 else f"{expression[:100]}..."
        raise ValueError(f"must be a regular expression; {shown!r} does not compile: {error}") from None
