"""What ``scan`` finds in logs that a test made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog

HOUR = 3_600_000
NOW = 1_700_000_000_000


def found(logs: Path | str, **settings: Any) -> Findings:
    return scan(Settings(source=(str(logs),), **{"cores": 1, **settings}))


def log_of(logs: Path, **settings: Any) -> ScannedLog:
    """The only log."""
    (log,) = found(logs, **settings).logs
    return log
