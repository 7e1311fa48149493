"""Groups the logs of a scan by topic, in the order of ``--sort``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog
from kafka_log_lake.pipelines.tasks.slice_scan import Format, FormatCount

# By the name of --sort: the lowest first; topics that are equal by it follow each other by name
_SORTS: dict[str, Callable[[Sequence[ScannedLog]], int]] = {
    "bytes": lambda logs: -sum(log.bytes for log in logs),
    "name": lambda logs: 0,
    "records": lambda logs: -sum(log.records for log in logs),
    "segments": lambda logs: -sum(log.segments for log in logs),
    "partitions": lambda logs: -len({log.partition for log in logs}),
    "damage": lambda logs: -sum(len(log.damages) + len(log.contradictions) + _lost(log) for log in logs),
    "last": lambda logs: -max((log.last_timestamp or -1 for log in logs), default=-1),
}


def _lost(log: ScannedLog) -> int:
    return sum(range_.is_lost for range_ in log.account.unseen)


def by_topic(findings: Findings) -> list[tuple[str, str, list[ScannedLog]]]:
    """Returns each topic with its cluster (``Findings.cluster_of``) and its logs, in the order of --sort."""
    logs_of: dict[tuple[str, str], list[ScannedLog]] = defaultdict(list)
    for log in findings.logs:
        logs_of[log.topic, findings.cluster_of(log)].append(log)
    ordered = sorted(logs_of.items(), key=lambda each: (_SORTS[findings.sort](each[1]), each[0]))
    return [(topic, cluster, logs) for (topic, cluster), logs in ordered]


def formats_of(logs: Sequence[ScannedLog]) -> dict[Format, FormatCount]:
    """Returns the totals of logs' batches by format, the format with most bytes first."""
    formats: dict[Format, FormatCount] = {}
    for log in logs:
        for key, count in log.formats.items():
            formats.setdefault(key, FormatCount()).add(count)
    return dict(sorted(formats.items(), key=lambda each: -each[1].bytes))


def first_time(logs: Sequence[ScannedLog]) -> int | None:
    """Returns the first timestamp of logs, ms since 1970 UTC; None without one."""
    return min((log.first_timestamp for log in logs if log.first_timestamp is not None), default=None)


def last_time(logs: Sequence[ScannedLog]) -> int | None:
    """Returns the last timestamp of logs, ms since 1970 UTC; None without one."""
    return max((log.last_timestamp for log in logs if log.last_timestamp is not None), default=None)


def topic_object(topic: str, cluster: str, logs: Sequence[ScannedLog]) -> dict[str, object]:
    """Returns the object of a topic in ``--json``. cluster: see ``by_topic``."""
    return {
        "topic": topic,
        **({"cluster_id": cluster} if cluster else {}),
        "partitions": len({log.partition for log in logs}),
        "segments": sum(log.segments for log in logs),
        "bytes": sum(log.bytes for log in logs),
        "records": sum(log.records for log in logs),
        "control_records": sum(log.control_records for log in logs),
        "damaged": sum(len(log.damages) for log in logs),
        "is_sound": all(log.account.is_sound for log in logs),
        "first_timestamp": first_time(logs),
        "last_timestamp": last_time(logs),
        "formats": [f"v{magic} {codec}" for magic, codec in formats_of(logs)],
    }
