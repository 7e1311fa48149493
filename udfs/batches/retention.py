"""Finds which segments retention would delete, and what holds the others: as the view ``retention_report``.

A broker deletes from the start of a log: what lies before the log start, then by size, then by time; a
segment waits for those before it (``UnifiedLog.deleteOldSegments``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_log_lake.udfs.batches.clocks import MAX_AHEAD_MS
from kafka_log_lake.udfs.format.varints import int64

DEFAULT_MS, NO_LIMIT = 7 * 24 * 3_600_000, -1  # retention.ms, retention.bytes of Kafka
SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")  # of topics, that limit what is kept
# Internal topics, as brokers create them
KEEPING_TOPICS = ("__cluster_metadata", "__share_group_state", "__remote_log_metadata")
COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state")
# What holds the first segment that stays
NOTHING, EMPTY = "nothing", "the last segment is empty"
NO_LIMITS, POLICY, SIZE = "no limit", "cleanup.policy has no delete", "retention.bytes is not reached"
FUTURE, TOO_YOUNG = "a timestamp in the future", "its timestamps are too young"


class Limits(NamedTuple):
    """The retention limits of a topic; -1 for no limit. deletes: whether cleanup.policy has delete."""

    retention_ms: int = DEFAULT_MS
    retention_bytes: int = NO_LIMIT
    deletes: bool = True


class SegmentTime(NamedTuple):
    """A segment's base offset, size in bytes and highest timestamp.

    largest_ms: the modification time of its file where no record has a timestamp.
    """

    base: int
    length: int
    largest_ms: int


class Retained(NamedTuple):
    """What retention would delete of a log, and what holds the rest.

    can_go: bytes that it would delete. held_by: what holds the first segment that stays; held_ms: the
    timestamp that holds it, None where it is no timestamp.
    """

    can_go: int
    held_by: str
    held_ms: int | None = None


def limits_of(topic: str, settings: Mapping[str, str]) -> Limits:
    """Returns the limits of a topic, by its settings and Kafka's defaults."""
    policy = settings.get("cleanup.policy", "compact" if topic in COMPACTED_TOPICS else "delete")
    default_ms = NO_LIMIT if topic in KEEPING_TOPICS else DEFAULT_MS
    return Limits(
        _number(settings.get("retention.ms"), default_ms),
        _number(settings.get("retention.bytes"), NO_LIMIT),
        "delete" in policy,
    )


def _number(text: str | None, default: int) -> int:
    """Returns a setting as an int; the default where it is not set or no int."""
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def retained(segments: Sequence[SegmentTime], log_start: int, limits: Limits, now_ms: int) -> Retained:
    """Returns what retention would delete of a log at ``now_ms``.

    segments: by base offset. log_start: what lies before it is deleted in any case.
    """
    starts = [following.base for following in segments[1:]]
    at = sum(start <= log_start for start in starts)
    freed, rest = sum(segment.length for segment in segments[:at]), segments[at:]
    if rest and not limits.deletes:
        return Retained(freed, POLICY)
    more, held = _by_limits(rest, limits, now_ms)
    return Retained(freed + more, *held)


def _by_limits(
    segments: Sequence[SegmentTime], limits: Limits, now_ms: int
) -> tuple[int, tuple[str, int | None]]:
    """Returns the bytes that limits of size and time delete, and what (with its timestamp) holds the rest."""
    surplus = sum(segment.length for segment in segments) - limits.retention_bytes
    end = len(segments) - bool(segments and not segments[-1].length)  # an empty last segment stays
    at = freed = 0
    while limits.retention_bytes >= 0 and at < end and surplus >= segments[at].length:
        surplus, freed, at = surplus - segments[at].length, freed + segments[at].length, at + 1
    while limits.retention_ms >= 0 and at < end:
        segment = segments[at]
        age_ms = int64(now_ms - segment.largest_ms)  # as a broker's 64 bits
        if age_ms <= limits.retention_ms:
            ahead = segment.largest_ms > now_ms + MAX_AHEAD_MS
            return freed, (FUTURE if ahead else TOO_YOUNG, segment.largest_ms)
        freed, at = freed + segment.length, at + 1
    if at == len(segments):
        return freed, (NOTHING, None)
    if at == end:
        return freed, (EMPTY, None)
    return freed, (SIZE if limits.retention_bytes >= 0 else NO_LIMITS, None)
