"""Sums the disk space of each topic, and what retention could free now."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.listing.naming import TO_DELETE
from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog
from kafka_log_lake.pipelines.tier.report import PAID_FOR
from kafka_log_lake.udfs.batches.retention import (
    FUTURE,
    NOTHING,
    SETTINGS,
    Limits,
    Retained,
    limits_of,
    retained,
)
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.listing.cluster_state import ClusterState

_INDEXES = (".index", ".timeindex", ".txnindex", ".snapshot")
_BLOCK = 512  # bytes of a unit of st_blocks


@dataclass
class Space:
    """The disk space of one topic, in bytes.

    indexes: as allocated on the disk: a broker preallocates those of the last segment. deleted: of
    ``.log.deleted`` files. leftovers: of folders ending -delete, -stray, -future. can_go: what retention
    would delete now. held: of each log that keeps something, why. tier: of objects of segments that count in
    tiered storage; tier_dead: of others there.
    """

    topic: str
    segments: int = 0
    indexes: int = 0
    deleted: int = 0
    leftovers: int = 0
    can_go: int = 0
    tier: int = 0
    tier_dead: int = 0
    held: list[Retained] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.segments + self.indexes + self.deleted + self.leftovers

    @property
    def held_by(self) -> Retained | None:
        """Returns what keeps most logs from deletion, a future timestamp before all else; None: nothing."""
        rest = [retained for retained in self.held if retained.held_by != NOTHING]
        reasons = [retained.held_by for retained in rest]
        return max(
            rest,
            key=lambda retained: (
                retained.held_by == FUTURE,
                reasons.count(retained.held_by),
                retained.held_ms or 0,
            ),
            default=None,
        )


@dataclass
class Volume:
    """The file system of log directories. free: bytes that are left of ``size``."""

    log_dirs: list[str]
    size: int
    free: int


def volumes(findings: Findings) -> list[Volume]:
    """Returns the file systems of the log directories that were scanned."""
    by_device: dict[int, Volume] = {}
    for log_dir in sorted({os.path.dirname(path) for path in _folders(findings.logs)}):
        try:
            device, usage = os.stat(log_dir).st_dev, os.statvfs(log_dir)
        except OSError:
            continue
        size, free = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
        by_device.setdefault(device, Volume([], size, free)).log_dirs.append(log_dir)
    return list(by_device.values())


def space_by_topic(findings: Findings, now_ms: int | None = None) -> list[Space]:
    """Returns the space of each topic, the largest first. now_ms: when retention is judged; None: now."""
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    by_topic = _in_tier(findings)
    states: dict[str, ClusterState | None] = {}
    joined = {row["segment"].rpartition("/")[0] for row in findings.segment_places if row["segment"]}
    for log in findings.logs:
        space = by_topic.setdefault(log.topic, Space(log.topic))
        space.segments += log.bytes if log.partition_dir not in joined else 0
        space.indexes += sum(map(_index_bytes, _folders([log])))
        if log.account.witnesses.is_tiered or log.partition_dir in joined:
            continue  # what local retention does is the remote log manager's
        log_dir = os.path.dirname(path_of_uri(log.partition_dir) or "")
        if log_dir not in states:
            states[log_dir] = _state_of(findings, log_dir)
        limits = _limits(log.topic, states[log_dir])
        kept = retained(log.segment_times, log.account.start, limits, now_ms)
        space.can_go += kept.can_go
        space.held.append(kept)
    for passed in findings.passed_over:
        space = by_topic.setdefault(passed.topic, Space(passed.topic))
        if passed.reason == TO_DELETE:
            space.deleted += passed.bytes
        else:
            space.leftovers += passed.bytes
    return sorted(by_topic.values(), key=lambda space: (-space.total, space.topic))


def _in_tier(findings: Findings) -> dict[str, Space]:
    """Returns the topics of which a tier has something: what lies there, and on the disks of their logs."""
    by_topic: dict[str, Space] = {}
    for row in findings.segment_places:
        space = by_topic.setdefault(row["topic"], Space(row["topic"]))
        if row["place"] == "disk":
            space.segments += row["bytes"]
        else:
            space.tier += row["bytes"]
    for row in findings.tier_report or ():
        if row["kind"] in PAID_FOR and row["topic"] is not None:
            by_topic.setdefault(row["topic"], Space(row["topic"])).tier_dead += row["bytes"] or 0
    return by_topic


def _folders(logs: Iterable[ScannedLog]) -> Iterable[str]:
    return (path for log in logs if (path := path_of_uri(log.partition_dir)) is not None)


def _index_bytes(folder: str) -> int:
    try:
        with os.scandir(folder) as entries:
            indexes = [entry for entry in entries if entry.name.endswith(_INDEXES)]
        return sum(entry.stat(follow_symlinks=False).st_blocks * _BLOCK for entry in indexes)
    except OSError:
        return 0


def _limits(topic: str, state: ClusterState | None) -> Limits:
    known = {} if state is None else {name: state.setting(topic, name) for name in SETTINGS}
    return limits_of(topic, {name: setting[1] for name, setting in known.items() if setting is not None})


def _state_of(findings: Findings, log_dir: str) -> ClusterState | None:
    """Returns the state of a log directory's cluster by its metadata log; None if it has none.

    For a directory that names no cluster, the state by the only metadata log; None if there are several.
    """
    cluster = next((name for name, paths in findings.clusters.items() if log_dir in paths), None)
    known = findings.placements
    placements = known.get(cluster) or (
        next(iter(known.values())) if len(known) == 1 and not cluster else None
    )
    return placements.state if placements is not None else None
