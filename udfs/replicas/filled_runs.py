"""Base offsets that the batches around them leave one place for.

In a log that is not compacted, batches that lie one behind the other without damage between them fill all
offsets. Two of them that are as far apart in offsets as in the sum of what lies between say where each of
those belongs, though damage has changed several of them by the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from udfs.replicas.entries import BASE_OFFSET, Copy


def place_filled(copy: Copy) -> None:
    """Corrects base offsets in a copy of a log that is not compacted, in place."""
    entries = copy.entries
    at = np.flatnonzero(entries["is_sound"] & (entries["magic"] == 2))
    if not len(at):
        return
    own = entries[at]
    breaks = np.diff(at) != 1
    for name in ("file", "hurt_before"):
        breaks |= np.diff(own[name]) != 0
    begins = np.flatnonzero(np.append(True, breaks))
    sizes = np.diff(np.append(begins, len(own)))
    reached = np.append(0, np.cumsum(own["delta"] + 1))
    begun = np.repeat(reached[begins], sizes)
    origins = own["base"] - (reached[:-1] - begun)  # where the run would begin by each batch
    differ = np.minimum.reduceat(origins, begins) != np.maximum.reduceat(origins, begins)
    for begin, size in zip(begins[differ].tolist(), sizes[differ].tolist(), strict=True):
        run = slice(begin, begin + size)
        first, last = _names(copy, at[run])
        if last is not None:
            last -= int(reached[begin + size] - reached[begin])
        found = _agreed([first, first, *origins[run].tolist(), last, last])[2:-2]
        own["base"][run] += np.array(found) - origins[run]
    moved = own["base"] != entries["base"][at]
    entries["base"][at], entries["last"][at] = own["base"], own["base"] + own["delta"]
    entries["mended"][at[moved]] |= BASE_OFFSET


def _names(copy: Copy, run: np.ndarray) -> tuple[int | None, int | None]:
    """The first offset of a run, and the one behind it, by the names of files; None where it touches none.

    run: places in ``copy.entries``.
    """
    entries = copy.entries
    begin, end = entries[run[0]], run[-1] + 1
    touches = end < len(entries) and entries["position"][end] == 0
    touches &= bool(touches) and entries["hurt_before"][end] == begin["hurt_before"]
    first = int(begin["file_base"]) if begin["position"] == 0 else None
    return first, int(entries["file_base"][end]) if touches else None


def _agreed(origins: Sequence[int | None]) -> list[int | None]:
    """The origins of a run, where those that disagree between two that agree are replaced.

    The first two and the last two are of the files' names, which count twice: none can be below, or above.
    """
    low, *_, high = origins
    found = list(origins)
    is_decided = [False] * len(origins)
    for origin, count in Counter(one for one in origins if one is not None).most_common():
        if count < 2 or (low is not None and origin < low) or (high is not None and origin > high):
            continue
        first = origins.index(origin)
        last = len(origins) - 1 - list(reversed(origins)).index(origin)
        inside = slice(first, last + 1)
        (_, own), *others = Counter(origins[inside]).most_common(2)
        if any(is_decided[inside]) or any(n == own for _, n in others) or own != count:
            continue
        found[inside] = [origin] * (last + 1 - first)
        is_decided[inside] = [True] * (last + 1 - first)
    return found
