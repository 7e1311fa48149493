"""Which segments retention would delete, and what holds the others: as the view ``retention_report``.

A broker deletes from the start of a log: what lies before the log start, then by size, then by time; a
segment waits for those before it (``UnifiedLog.deleteOldSegments``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_log_lake.udfs.batches.clocks import MAX_AHEAD_MS

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
    """retention_ms, retention_bytes: -1 for no limit. deletes: whether cleanup.policy has delete."""

    retention_ms: int = DEFAULT_MS
    retention_bytes: int = NO_LIMIT
    deletes: bool = True


class SegmentTime(NamedTuple):
    """A segment. largest_ms: its highest timestamp; its file's modification time where no record has one."""

    base: int
    length: int
    largest_ms: int


class Retained(NamedTuple):
    """What retention would do with a log. can_go: bytes that it would delete. held_by: what holds the rest;
    held_ms: the timestamp that does, None where it is none.
    """

    can_go: int
    held_by: str
    held_ms: int | None = None


def limits_of(topic: str, settings: Mapping[str, str]) -> Limits:
    """The limits of a topic, by its settings and Kafka's defaults."""
    policy = settings.get("cleanup.policy", "compact" if topic in COMPACTED_TOPICS else "delete")
    default_ms = NO_LIMIT if topic in KEEPING_TOPICS else DEFAULT_MS
    return Limits(
        _number(settings.get("retention.ms"), default_ms),
        _number(settings.get("retention.bytes"), NO_LIMIT),
        "delete" in policy,
    )


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def retained(segments: Sequence[SegmentTime], log_start: int, limits: Limits, now_ms: int) -> Retained:
    """What retention would delete of a log at a time.

    segments: by base offset. log_start: what lies before it is deleted in any case.
    """
    freed = 0
    for at, one in enumerate(segments):
        is_last = at + 1 == len(segments)
        if not is_last and segments[at + 1].base <= log_start:
            freed += one.length
            continue
        rest = segments[at:]
        if not limits.deletes:
            return Retained(freed, POLICY)
        more, held = _by_limits(rest, limits, now_ms)
        return Retained(freed + more, *held)
    return Retained(freed, NOTHING)


def _by_limits(
    segments: Sequence[SegmentTime], limits: Limits, now_ms: int
) -> tuple[int, tuple[str, int | None]]:
    """Bytes that the limits of size and time delete, and what holds the first segment that stays."""
    surplus = sum(one.length for one in segments) - limits.retention_bytes
    at = freed = 0
    while limits.retention_bytes >= 0 and at < len(segments) - 1 and surplus >= segments[at].length:
        surplus, freed, at = surplus - segments[at].length, freed + segments[at].length, at + 1
    while limits.retention_ms >= 0 and at < len(segments):
        one = segments[at]
        if not one.length:
            return freed, (EMPTY, None)
        if now_ms - one.largest_ms <= limits.retention_ms:
            ahead = one.largest_ms > now_ms + MAX_AHEAD_MS
            return freed, (FUTURE if ahead else TOO_YOUNG, one.largest_ms)
        freed, at = freed + one.length, at + 1
    if at == len(segments):
        return freed, (NOTHING, None)
    return freed, (SIZE if limits.retention_bytes >= 0 else NO_LIMITS, None)
