"""The listing of the sources that a command's settings name."""

from __future__ import annotations

from typing import Any

from pipelines.command.settings import Reading
from pipelines.plan.headers import end_of_batches
from pipelines.source.listing import Listing, list_segments


def list_sources(settings: Reading, **others: Any) -> Listing:
    """``list_segments`` for ``settings``. others: its other arguments; they win."""
    named = {
        name: getattr(settings, name)
        for name in ("follow_symlinks", "topics", "exclude_topics", "topic", "partition")
    }
    read_end = end_of_batches if settings.include_swap else None
    return list_segments(settings.source, read_end=read_end, **{**named, **others})
