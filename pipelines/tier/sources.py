"""Lists the tiers that a command's settings name, and joins their segments with those of a listing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kafka_log_lake.pipelines.cli.settings import Reading
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.uris import resolve
from kafka_log_lake.pipelines.tier.candidates import UNNAMED, UNREADABLE
from kafka_log_lake.pipelines.tier.index import RemoteIndex, index_of
from kafka_log_lake.pipelines.tier.join import JoinedLog, with_tier
from kafka_log_lake.pipelines.tier.keys import use_keys
from kafka_log_lake.pipelines.tier.objects import list_tier
from kafka_log_lake.pipelines.tier.places import place_rows
from kafka_log_lake.pipelines.tier.report import report_rows

log = logging.getLogger(__name__)


def joined_listing(settings: Reading, listing: Listing) -> Listing:
    """Returns the listing of the sources joined with the tiers that the settings name; logs what is known of
    it.

    Raises a UserError for a tier or a key that can't be used.
    """
    use_keys(settings.tier_key)
    index = index_of(list_tier(settings.tier), listing.witnesses.remote())
    takes = TopicFilter(settings.topics, settings.exclude_topics)
    joined, logs = with_tier(listing, index, takes, _names_log_dirs(settings, listing))
    joined.tier_report, joined.segment_places = report_rows(listing, index, logs), place_rows(logs)
    for text in _notes(index, logs):
        log.warning("%s", text)
    return joined


def _names_log_dirs(settings: Reading, listing: Listing) -> bool:
    """Says whether sources are whole disks, or there are none: then topics that the tier alone has count
    too.
    """
    roots = set(resolve(settings.source).folders) if settings.source else set()
    return not settings.source or bool(roots & listing.witnesses.log_dirs) or not listing.segments.num_rows


def _notes(index: RemoteIndex, logs: list[JoinedLog]) -> Iterator[str]:
    if unplaced := index.tier.unplaced:
        noun, first = counted_noun(len(unplaced), "segment"), unplaced[0]
        names = first.name if len(unplaced) == 1 else f"{first.name} and others"
        yield f"not read: {noun} of unknown topics in the tier, {names}: {first.problem}"
    if not index.tier.segments:
        kinds = "; ".join(index.tier.others_text()) or "nothing"
        yield f"--tier {', '.join(index.tier.roots)} has no object of a segment: {kinds}"
        return
    if not index.is_named:
        yield (
            "no __remote_log_metadata is on the disks: the names and manifests of the objects in the tier "
            "are the index, and objects of deleted topics or lost leaders may be among them"
        )
    elif not index.is_whole:
        yield (
            "__remote_log_metadata is damaged, or older records of it are gone: objects that it does not "
            "name are taken by their names too"
        )
    unread = [part.of for log in logs for part in log.parts if part.of.rank == UNREADABLE]
    for part in unread[:20]:
        offsets = f"offsets {part.first:,} to {part.last:,}"
        yield f"{offsets} are in {part.name}, which can't be read: {part.problem}"
    if len(unread) > 20:
        yield f"and {counted_noun(len(unread) - 20, 'more object')} that can't be read"
    unnamed = sorted({log.place.topic for log in logs if any(part.of.rank == UNNAMED for part in log.parts)})
    if unnamed and index.is_named:
        yield (
            f"no metadata on the disks name the objects that are used for {first_names(unnamed)}: their "
            "partition of __remote_log_metadata may be on another broker. Objects of deleted topics or lost "
            "leaders may be among them"
        )
    passed = [segment for segment in index.tier.segments if index.is_whole and index.has_passed(segment)]
    if passed:
        topics = first_names(sorted({segment.topic for segment in passed}))
        yield (
            f"not read, as no metadata name them: {counted_noun(len(passed), 'segment')} of {topics} in the "
            "tier, newer than the metadata of their logs; these disks may be older than the tier"
        )
