"""Counts what a command reads of its sources and of tiered storage, in requests and bytes: stores charge for
both. Only commands with a tier count.

A worker counts what a call reads, and the process that made the call adds it (``udfs.calls``). Not counted
are lists of a store's objects, failed requests, and reads of a task that was killed or, in Spark, failed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

VARIABLE = "KAFKA_LOG_LAKE_TIER_ROOTS"  # places of the tier, a line each; workers and executors get it


class Reads(NamedTuple):
    """Requests and bytes of the sources, and of the tier. A file takes a request for each read."""

    requests: int = 0
    bytes: int = 0
    tier_requests: int = 0
    tier_bytes: int = 0

    def plus(self, other: Reads) -> Reads:
        return Reads(*(one + two for one, two in zip(self, other, strict=True)))

    def less(self, other: Reads) -> Reads:
        return Reads(*(one - two for one, two in zip(self, other, strict=True)))

    def to_json(self) -> dict[str, dict[str, int]] | None:
        """Returns the counts by place; None where nothing of a tier was read."""
        if not self.tier_requests:
            return None
        return {
            "sources": {"requests": self.requests, "bytes": self.bytes},
            "tier": {"requests": self.tier_requests, "bytes": self.tier_bytes},
        }


_counted, _lock = Reads(), Lock()


def counted() -> Reads:
    """Returns what was read since ``reset``."""
    return _counted


def reset() -> None:
    """Begins at zero, as each command does."""
    global _counted
    _counted = Reads()


def add(reads: Reads) -> None:
    """Adds what was read, here or in a worker."""
    global _counted
    with _lock:
        _counted = _counted.plus(reads)


def use_tier_roots(roots: Sequence[str]) -> None:
    """Sets the places of the tier, as URIs, for this process and those that it starts."""
    os.environ[VARIABLE] = "\n".join(root.removeprefix("file://").rstrip("/") + "/" for root in roots)


def is_of_tier(uri: str) -> bool | None:
    """Says whether a URI or path lies in the tier; None where there is none."""
    roots = os.environ.get(VARIABLE)
    return uri.removeprefix("file://").startswith(tuple(roots.split("\n"))) if roots else None


def count(is_tier: bool | None, requests: int, size: int) -> None:
    """Counts requests and the bytes that they brought. is_tier: as ``is_of_tier`` says; None: not counted."""
    if is_tier is not None:
        add(Reads(0, 0, requests, size) if is_tier else Reads(requests, size))
