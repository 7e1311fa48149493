"""Finds which objects of a tier are of which log: by ``__remote_log_metadata``, else by names and
manifests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kafka_log_lake.pipelines.listing.naming import PartitionFolder
from kafka_log_lake.pipelines.listing.remote_metadata import (
    FINISHED,
    STARTED,
    RemoteMetadata,
    RemoteSegment,
    agree,
)
from kafka_log_lake.pipelines.tier.candidates import (
    MISSING,
    REMOTE,
    UNFINISHED,
    UNNAMED,
    UNREADABLE,
    Candidate,
)
from kafka_log_lake.pipelines.tier.objects import PLUGIN, Tier, TierSegment
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX, file_name
from kafka_log_lake.udfs.storage.byte_source import MANIFEST, with_range

TopicId = str | None
_SURE_MS = 24 * 3600 * 1000  # clocks of brokers and stores differ less, and a copy takes less


@dataclass
class OfLog:
    """The remote segments of one log. named: those that count by the metadata; others: copies that did not
    finish, and objects that no metadata name where these are not whole.
    """

    named: list[Candidate] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)
    newest: int = -1  # time of the last change, to choose between topic ids


@dataclass
class RemoteIndex:
    """The objects of a tier by log, and what metadata say of them.

    is_named: whether metadata were found; is_whole: and could be read whole, and copies of them agree.
    deleted: (topic id, partition) that are marked as deleted. newest: (topic id, partition) of each log that
    the metadata name -> time of their newest record of a segment, ms since 1970 UTC; -1 without one that is
    past and committed. uncommitted: as ``RemoteMetadata`` has it.
    """

    tier: Tier
    named: dict[str, RemoteSegment]
    deleted: set[tuple[str, int]]
    newest: dict[tuple[TopicId, int], int]
    uncommitted: set[str | tuple[str, int]]
    is_named: bool
    is_whole: bool
    logs: dict[PartitionFolder, dict[TopicId, OfLog]]

    def of(self, place: PartitionFolder, topic_id: TopicId) -> OfLog:
        """Returns the remote segments of a log. topic_id: None where its folder has none: then of the
        newest.
        """
        by_id = self.logs.get(place, {})
        if topic_id is not None:
            of_id, plain = by_id.get(topic_id, OfLog()), by_id.get(None, OfLog())
            return OfLog([*of_id.named, *plain.named], [*of_id.others, *plain.others])
        return max(by_id.values(), key=lambda log: (bool(log.named), log.newest), default=OfLog())

    def is_settled(self, topic_id: TopicId, partition: int, at: int) -> bool:
        """Says whether the metadata have all that was noted of a log up to a time (ms since 1970 UTC).

        So where they were read whole, and have committed records of the log that are a day newer.
        """
        return self.is_whole and 0 < at < self.newest.get((topic_id, partition), -1) - _SURE_MS

    def is_final(self, of: str | tuple[str, int]) -> bool:
        """Says whether the deletion of a segment, or of a (topic id, partition), is never taken back."""
        return self.is_whole and of not in self.uncommitted

    def has_passed(self, segment: TierSegment) -> bool:
        """Says whether objects that the metadata of their log do not name are newer than these."""
        log = segment.topic_id, segment.partition
        is_of_log = log in self.newest and log not in self.deleted and segment.segment_id not in self.named
        return is_of_log and self.newest[log] < segment.changed // 1000


def merged(metadata: Iterable[RemoteMetadata]) -> dict[str, RemoteSegment]:
    """Returns the segments of all log directories by id, each in the state that went furthest."""
    segments: dict[str, RemoteSegment] = {}
    for of_disk in metadata:
        for name, segment in of_disk.segments.items():
            new, old = segment, segments.get(name, segment)
            if old.state > new.state:
                new, old = old, new
            if new.start is None:
                new = replace(new, start=old.start, end=old.end, size=old.size, epochs=old.epochs)
            segments[name] = new
    return segments


def index_of(tier: Tier, metadata: Sequence[RemoteMetadata]) -> RemoteIndex:
    """Joins the objects of a tier with the metadata, by segment id, wherever the objects lie.

    Of a log that the metadata do not name, the names of the objects are the index.
    """
    named = merged(metadata)
    is_whole = bool(metadata) and all(of_disk.is_whole for of_disk in metadata) and agree(metadata)
    uncommitted = {name for of_disk in metadata for name in of_disk.uncommitted}
    deleted = {place for of_disk in metadata for place in of_disk.deleted}
    now, newest = int(datetime.now(UTC).timestamp() * 1000), dict[tuple[TopicId, int], int]()
    objects = {
        stored.segment_id: stored
        for stored in tier.segments
        if stored.segment_id and stored.segment_id in named
    }
    logs: dict[PartitionFolder, dict[TopicId, OfLog]] = defaultdict(lambda: defaultdict(OfLog))
    for name, segment in named.items():
        log = segment.topic_id, segment.partition
        is_sure = segment.since <= now and name not in uncommitted
        newest[log] = max(newest.get(log, -1), segment.since if is_sure else -1)
        if log in deleted or segment.state not in (STARTED, FINISHED):
            continue
        of = logs[PartitionFolder(segment.topic, segment.partition)][segment.topic_id]
        of.newest = max(of.newest, segment.since)
        stored_ = objects.get(name)
        if segment.state == FINISHED and segment.start is not None:
            of.named.append(_named(segment, stored_, tier))
        elif stored_ is not None and SEGMENT_SUFFIX in stored_.files:
            of.others.append(_unnamed(stored_, UNFINISHED))
    for stored in tier.segments:
        log_id = stored.topic_id, stored.partition
        if stored.segment_id in named or SEGMENT_SUFFIX not in stored.files:
            continue
        if log_id in deleted or (is_whole and log_id in newest):
            continue
        of = logs[PartitionFolder(stored.topic, stored.partition)][stored.topic_id]
        of.newest = max(of.newest, stored.modified // 1000)
        of.others.append(_unnamed(stored, UNNAMED))
    return RemoteIndex(tier, named, deleted, newest, uncommitted, bool(metadata), is_whole, logs)


def _named(segment: RemoteSegment, stored: TierSegment | None, tier: Tier) -> Candidate:
    """Returns the candidate of a segment that counts. stored: its objects; None where the tier has none."""
    assert segment.start is not None
    assert segment.end is not None
    candidate = Candidate(
        REMOTE,
        _missing_uri(segment, tier) if stored is None else stored.uri or _log_of(stored),
        segment.start,
        segment.size or 0,
        segment.since * 1000 if stored is None else stored.modified,
        segment.start,
        segment.end,
        segment.epochs,
    )
    candidate.segment_id, candidate.stored_bytes = (
        segment.segment_id,
        stored.stored_bytes if stored is not None else 0,
    )
    candidate.name = candidate.uri.removesuffix(MANIFEST).removesuffix(SEGMENT_SUFFIX) + SEGMENT_SUFFIX
    if stored is None or SEGMENT_SUFFIX not in stored.files:
        candidate.problem = MISSING
    elif stored.problem is not None:
        candidate.problem = stored.problem
    if candidate.problem is not None:
        candidate.rank = UNREADABLE
        return candidate
    assert stored is not None
    wanted, candidate.length = segment.size or stored.length, stored.length
    if candidate.length > wanted:  # segmentSizeInBytes tells where the segment ends
        candidate.whole = candidate.uri, candidate.length
        candidate.uri, candidate.length = with_range(candidate.uri, 0, wanted), wanted
    candidate.is_cut = candidate.length < wanted
    return candidate


def _unnamed(stored: TierSegment, rank: int) -> Candidate:
    """Returns the candidate of objects whose offsets only their manifest or their content tells."""
    candidate = Candidate(
        rank, stored.uri or "", stored.base, stored.length, stored.modified, stored.base, name=stored.name
    )
    candidate.segment_id, candidate.stored_bytes = stored.segment_id, stored.stored_bytes
    if stored.manifest is not None and stored.manifest.reach is not None:
        candidate.last, candidate.epochs = stored.manifest.reach
    if stored.problem is not None:
        candidate.rank, candidate.problem = UNREADABLE, stored.problem
    return candidate


def _log_of(stored: TierSegment) -> str:
    """Returns the URI that the ``.log`` object would have."""
    uri, _ = next(iter(stored.files.values()))
    folder, _, name = uri.rpartition("/")
    log = f"{folder}/{name[:43]}{SEGMENT_SUFFIX}"  # 20 digits, a dash, 22 characters
    return log.removesuffix(SEGMENT_SUFFIX) + MANIFEST if stored.layout == PLUGIN else log


def _missing_uri(segment: RemoteSegment, tier: Tier) -> str:
    """Returns where the objects of a segment should lie, by the layout of the others."""
    root = tier.roots[0] if tier.roots else ""
    name = f"{file_name(segment.start or 0, '')}-{segment.segment_id}"
    if tier.layouts[PLUGIN]:
        return f"{root}/{segment.topic}-{segment.topic_id}/{segment.partition}/{name}{MANIFEST}"
    return f"{root}/{segment.topic}-{segment.partition}-{segment.topic_id}/{name}{SEGMENT_SUFFIX}"
