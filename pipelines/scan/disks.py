"""Builds the parts of a scan report about the disks: last leaders, clusters, and use of space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kafka_log_lake.pipelines.cli.terminal import printable, time_text
from kafka_log_lake.pipelines.cli.text_tables import Section, size_text
from kafka_log_lake.pipelines.scan.findings import Findings
from kafka_log_lake.pipelines.scan.space import Space, space_by_topic, volumes
from kafka_log_lake.udfs.batches.retention import NOTHING

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.recover.placement import Placement


def leaders(findings: Findings) -> Iterator[Section]:
    """Yields per cluster a table of the last leaders by its metadata log, missing copies first."""
    for placement in findings.placements.values():
        rows = sorted(placement.rows.values(), key=lambda row: (not row.missing, row.has_leader))
        said = f"by __cluster_metadata of {placement.disk}, up to offset {placement.state.reached:,}"
        notes = [said, placement.missing_text, placement.state.unread_text]
        yield Section(
            f"leaders ({printable('; '.join(filter(None, notes)))})",
            ("topic-partition", "last leader", "epoch", "now", "ISR", "replicas", "copies missing"),
            [_leader(row) for row in rows],
            (1, 2),
        )


def _leader(row: Placement) -> tuple[str, ...]:
    return (
        printable(f"{row.topic}-{row.partition}"),
        str(row.leader),
        str(row.leader_epoch),
        "leads" if row.has_leader else "no leader",
        *(", ".join(map(str, nodes)) or "-" for nodes in (row.isr, row.replicas, row.missing)),
    )


def clusters(findings: Findings) -> Section:
    """Returns the table of clusters; without rows if there is only one."""
    rows = [(printable(name), printable(path)) for name, paths in findings.clusters.items() for path in paths]
    return Section(
        "clusters: topics of two clusters are not copies of each other",
        ("cluster id", "log directory"),
        rows if len(findings.clusters) > 1 else [],
    )


def room(findings: Findings) -> Section:
    """Returns the table of disk space by topic, and what retention could free now."""
    free = [
        (size_text(volume.free), size_text(volume.size), volume.log_dirs[0]) for volume in volumes(findings)
    ]
    disks = [f"{left} of {size} free at {log_dir}" for left, size, log_dir in free]
    # a broker's own file may set other defaults: log.retention.*
    rule = "retention by __cluster_metadata, else Kafka's defaults"
    return Section(
        f"room ({printable('; '.join([*disks, rule]))})",
        (
            "topic",
            "segments",
            "indexes",
            ".deleted",
            "leftovers",
            "retention frees",
            "what holds the rest",
        ),
        [_room(space) for space in space_by_topic(findings)],
        (1, 2, 3, 4, 5),
    )


def _room(space: Space) -> tuple[str, ...]:
    held = space.held_by
    words = (
        (NOTHING if space.held else "local retention decides: it is in remote storage too")
        if held is None
        else held.held_by
    )
    if held is not None and held.held_ms is not None:
        words = f"{words}: {time_text(held.held_ms)}"
    sizes = (space.segments, space.indexes, space.deleted, space.leftovers, space.can_go)
    return (printable(space.topic), *(size_text(size) for size in sizes), words)


def objects(findings: Findings) -> dict[str, Any]:
    """Returns the clusters, leaders, volumes and room for ``--json``."""
    return {
        "clusters": findings.clusters,
        "leaders": [
            {
                "cluster_id": cluster_id,
                "disk": placement.disk,
                "reached": placement.state.reached,
                "unread": dict(placement.state.unread),
                "partitions": [row._asdict() for row in placement.rows.values()],
            }
            for cluster_id, placement in findings.placements.items()
        ],
        "volumes": [asdict(volume) for volume in volumes(findings)],
        "room": [_room_object(space) for space in space_by_topic(findings)],
    }


def _room_object(space: Space) -> dict[str, object]:
    held = space.held_by
    return {
        "topic": space.topic,
        "segments_bytes": space.segments,
        "index_bytes": space.indexes,
        "deleted_bytes": space.deleted,
        "leftover_bytes": space.leftovers,
        "tier_bytes": space.tier,
        "tier_dead_bytes": space.tier_dead,
        "retention_frees_bytes": space.can_go,
        "held_by": held.held_by if held is not None else None,
        "held_ms": held.held_ms if held is not None else None,
    }
