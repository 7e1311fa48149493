"""How many examples a test draws: all, or a part where ``KLL_EXAMPLES=3`` asks for a third.

A change draws a part twice, with bounds checked and without; ``make test`` draws all.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

_SHARE = int(os.environ.get("KLL_EXAMPLES", "1"))


def part(count: int) -> int:
    return count // _SHARE


def step_of(step: int) -> int:
    """Every place is tried, or every ``step``-th where a part is drawn."""
    return step if _SHARE > 1 else 1


def examples(count: int, **more: Any) -> settings:
    return settings(max_examples=part(count), **more)
