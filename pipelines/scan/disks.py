"""Builds the parts of a scan report about the disks: last leaders, clusters, and use of space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kafka_log_lake.pipelines.cli.terminal import printable, time_text
from kafka_log_lake.pipelines.cli.text_tables import Section, size_text
from kafka_log_lake.pipelines.scan.findings import Findings
from kafka_log_lake.pipelines.scan.space import Space, space_by_topic, volumes
from kafka_log_lake.udfs.batches.retention import NOTHING


def leaders(findings: Findings) -> Iterator[Section]:
    """Yields per cluster a table of the last leaders by its metadata log, missing copies first."""
    for found in findings.placements.values():
        rows = sorted(found.rows.values(), key=lambda one: (not one.missing, one.has_leader))
        said = f"by __cluster_metadata of {found.disk}, up to offset {found.state.reached:,}"
        notes = [said, found.missing_text, found.state.unread_text]
        yield Section(
            f"leaders ({printable('; '.join(filter(None, notes)))})",
            ("topic-partition", "last leader", "epoch", "now", "ISR", "replicas", "copies missing"),
            [_leader(one) for one in rows],
            (1, 2),
        )


def _leader(one: Any) -> tuple[str, ...]:
    """Returns the row of a ``Placement``."""
    return (
        printable(f"{one.topic}-{one.partition}"),
        str(one.leader),
        str(one.leader_epoch),
        "leads" if one.has_leader else "no leader",
        *(", ".join(map(str, nodes)) or "-" for nodes in (one.isr, one.replicas, one.missing)),
    )


def clusters(findings: Findings) -> Section:
    """Returns the table of clusters; without rows if there is only one."""
    rows = [(printable(one), printable(path)) for one, paths in findings.clusters.items() for path in paths]
    return Section(
        "clusters: topics of two clusters are not copies of each other",
        ("cluster id", "log directory"),
        rows if len(findings.clusters) > 1 else [],
    )


def room(findings: Findings) -> Section:
    """Returns the table of disk space by topic, and what retention could free now."""
    free = [(size_text(one.free), size_text(one.size), one.log_dirs[0]) for one in volumes(findings)]
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
        [_room(one) for one in space_by_topic(findings)],
        (1, 2, 3, 4, 5),
    )


def _room(one: Space) -> tuple[str, ...]:
    held = one.held_by
    words = (
        (NOTHING if one.held else "local retention decides: it is in remote storage too")
        if held is None
        else held.held_by
    )
    if held is not None and held.held_ms is not None:
        words = f"{words}: {time_text(held.held_ms)}"
    sizes = (one.segments, one.indexes, one.deleted, one.leftovers, one.can_go)
    return (printable(one.topic), *(size_text(size) for size in sizes), words)


def objects(findings: Findings) -> dict[str, Any]:
    """Returns the clusters, leaders, volumes and room for ``--json``."""
    return {
        "clusters": findings.clusters,
        "leaders": [
            {
                "cluster_id": cluster_id,
                "disk": found.disk,
                "reached": found.state.reached,
                "unread": dict(found.state.unread),
                "partitions": [one._asdict() for one in found.rows.values()],
            }
            for cluster_id, found in findings.placements.items()
        ],
        "volumes": [asdict(one) for one in volumes(findings)],
        "room": [_room_object(one) for one in space_by_topic(findings)],
    }


def _room_object(one: Space) -> dict[str, Any]:
    held = one.held_by
    return {
        "topic": one.topic,
        "segments_bytes": one.segments,
        "index_bytes": one.indexes,
        "deleted_bytes": one.deleted,
        "leftover_bytes": one.leftovers,
        "retention_frees_bytes": one.can_go,
        "held_by": held.held_by if held is not None else None,
        "held_ms": held.held_ms if held is not None else None,
    }
