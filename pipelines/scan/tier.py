"""Says what the objects of tiered storage, its metadata and the disks do not agree on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.cli.text_tables import Section, size_text
from kafka_log_lake.pipelines.scan.findings import Findings
from kafka_log_lake.pipelines.scan.space import space_by_topic
from kafka_log_lake.pipelines.tier.report import PAID_FOR

_LINES = 10
_GB = 10**9
WORDS = {
    "lost": "lost: metadata without object",
    "unreadable": "unreadable object",
    "incomplete": "objects missing",
    "size_differs": "size differs from metadata",
    "orphan": "orphan: metadata do not name it",
    "unfinished_copy": "copy not finished",
    "unfinished_delete": "delete not finished",
    "undeleted": "deleted, and objects are there",
    "deleted_topic": "of a deleted topic",
    "never_uploads": "never uploads",
    "on_disk_too": "on the disk too",
    "foreign": "other files",
}


def section(findings: Findings) -> Section:
    """Returns the ten lines of ``scan``: by kind and topic, the gravest first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in findings.tier_report or ():
        groups[row["kind"], row["topic"] or "-"].append(row)
    order = list(WORDS)
    ordered = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    price = findings.price_per_gb_month
    lines = []
    for (kind, topic), rows in ordered[:_LINES]:
        size = sum(row["bytes"] or 0 for row in rows)
        cost = f"{size * price / _GB:,.2f}" if price is not None and kind in PAID_FOR else "-"
        lines.append(
            (WORDS[kind], printable(topic), f"{len(rows):,}", size_text(size), cost, _first(rows[0]))
        )
    if len(ordered) > _LINES:
        lines.append((f"and {len(ordered) - _LINES} more (--json)", "", "", "", "", ""))
    columns = ("what", "topic", "segments", "bytes", "per month", "first")
    return Section("tiered storage", columns, lines, (2, 3, 4))


def costs(findings: Findings) -> Section:
    """Returns the table of what each topic takes on the disks and in the tier, with what is paid there."""
    price = findings.price_per_gb_month
    lines = []
    for space in space_by_topic(findings):
        if not (space.tier or space.tier_dead):
            continue
        sizes = space.segments, space.tier, space.tier_dead
        cost = f"{(space.tier + space.tier_dead) * price / _GB:,.2f}" if price is not None else "-"
        lines.append((printable(space.topic), *map(size_text, sizes), cost))
    columns = "topic", "on disk", "in the tier", "there, not read", "tier a month"
    return Section("disk and tier", columns, lines, (1, 2, 3, 4))


def _first(row: Mapping[str, Any]) -> str:
    name = (row["object"] or row["segment_id"] or "").rpartition("/")[2]
    return printable(f"{name}: {row['detail']}")


def to_json(findings: Findings) -> list[dict[str, Any]] | None:
    """Returns the rows of ``tier_report``; null without ``--tier``. since: ms since 1970 UTC."""
    if findings.tier_report is None:
        return None
    price = findings.price_per_gb_month
    return [
        {
            **row,
            "since": row["since"] and int(row["since"].timestamp() * 1000),
            "per_month": (row["bytes"] or 0) * price / _GB
            if price is not None and row["kind"] in PAID_FOR
            else None,
        }
        for row in findings.tier_report
    ]
