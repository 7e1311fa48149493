"""Gives the findings of a scan as JSON, for a program."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from kafka_log_lake.pipelines.scan import disks, losses, tier
from kafka_log_lake.pipelines.scan.findings import Findings
from kafka_log_lake.pipelines.scan.losses import next_steps
from kafka_log_lake.pipelines.scan.topics import by_topic, topic_object
from kafka_log_lake.udfs import reads
from kafka_log_lake.udfs.batches.account import Account


def to_json(findings: Findings) -> dict[str, Any]:
    """Returns the object of ``--json``. Timestamps are ms since 1970 UTC, null for none."""
    logs = [
        {
            **{
                name: value
                for name, value in asdict(log).items()
                if name not in ("formats", "account", "missing", "segment_times")
            },
            "account": _account(log.account),
            "missing": [unseen.to_json() for unseen in log.missing],
            "damages": [
                {**asdict(damage), "first_lost": damage.first_lost, "last_lost": damage.last_lost}
                for damage in log.damages
            ],
            "formats": [
                {"magic": magic, "compression": codec, **asdict(count)}
                for (magic, codec), count in sorted(log.formats.items())
            ],
            "last_stable_offset": log.last_stable_offset,
            "clock": {
                **asdict(log.clock),
                "now_ms": log.clock.now_ms,
                "witness": log.clock.witness,
                "certainty": log.clock.certainty,
            },
            "hanging_transactions": [
                asdict(transaction) for transaction in log.open_transactions if transaction.is_hanging
            ],
        }
        for log in findings.logs
    ]
    return {
        "segments": sum(log.segments for log in findings.logs),
        "bytes": sum(log.bytes for log in findings.logs),
        "records": sum(log.records for log in findings.logs),
        "control_records": sum(log.control_records for log in findings.logs),
        "damaged": len(findings.damages),
        "seconds": round(findings.seconds, 3),
        "topics": [topic_object(*each) for each in by_topic(findings)],
        "logs": logs,
        "payloads": [asdict(payload) for payload in findings.payloads],
        **({"replicas": [_plain(row) for row in findings.replicas]} if findings.replicas else {}),
        **disks.objects(findings),
        "prepared_transactions": [
            {**asdict(transaction), "partitions": sorted(transaction.partitions)}
            for transaction in findings.prepared
        ],
        "swap_files": findings.swap_files,
        "tier_report": tier.to_json(findings),
        "reads": reads.counted().to_json(),
        "skipped": dict(sorted(findings.skipped.items())),
        "passed_over": [file._asdict() for file in findings.passed_over],
        "unreadable": findings.unreadable,
        "unloadable": [entry.to_json() for entry in findings.unloadable],
        "warnings": findings.warnings,
        "verdict": losses.verdict(findings).sentence,
        "next": next_steps(findings),
    }


def _account(account: Account) -> dict[str, object]:
    """Returns what files name of a log's offsets, and which of these were not read soundly."""
    return {
        "start": account.start,
        "end": account.end,
        "is_sound": account.is_sound,
        "is_whole": account.is_whole,
        "unseen": [unseen.to_json() for unseen in account.unseen],
        "unexplained": account.unexplained,
        "aside": [file._asdict() for file in account.aside],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with times as ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
