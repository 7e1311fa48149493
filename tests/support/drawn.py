"""How many examples a test draws, and cases it takes: all, or a part where ``KLL_EXAMPLES=3`` asks for it.

A change draws a part twice, with bounds checked and without; ``make test`` draws all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import settings

Case = TypeVar("Case")

_SHARE = int(os.environ.get("KLL_EXAMPLES", "1"))


def part(count: int) -> int:
    return count // _SHARE


def first(count: int, cases: Iterable[Case]) -> list[Case]:
    """All cases, or so many of them where a part is drawn: the others take long and differ little."""
    return list(cases)[: count if _SHARE > 1 else None]


def step_of(step: int) -> int:
    """Every place is tried, or every ``step``-th where a part is drawn."""
    return step if _SHARE > 1 else 1


def examples(count: int, **more: Any) -> settings:
    return settings(max_examples=part(count), **more)
