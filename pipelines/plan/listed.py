"""Lists the sources that a command's settings name, and yields their segments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from kafka_log_lake.pipelines.cli.settings import Reading
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan.headers import end_of_batches
from kafka_log_lake.pipelines.plan.slices import Segment


def list_sources(settings: Reading, **others: object) -> Listing:
    """Lists the sources of ``settings`` by ``list_segments``.

    others: its other arguments; they win.
    """
    named = {
        name: getattr(settings, name)
        for name in ("follow_symlinks", "topics", "exclude_topics", "topic", "partition")
    }
    read_end = end_of_batches if settings.include_swap else None
    named["include_deleted"] = settings.include_deleted
    if not settings.tier:
        return list_segments(settings.source, read_end=read_end, **{**named, **others})
    from kafka_log_lake.pipelines.tier.sources import joined_listing  # decoders, which few listings need

    listing = list_segments(settings.source, read_end=read_end, **{**named, **others, "may_be_empty": True})
    return joined_listing(settings, listing)


def listed_segments(listing: Listing) -> Iterator[tuple[Segment, bool]]:
    """Yields all segments of a listing by folder and base offset, and whether each is wanted.

    The segments have their file_limit.
    """
    rows = listing.segments.to_pylist()
    for row, following in zip_longest(rows, rows[1:]):
        wanted = row.pop("wanted")
        if following is not None and following["partition_dir"] == row["partition_dir"]:
            row["file_limit"] = following["file_base_offset"]
        yield Segment(**row), wanted
