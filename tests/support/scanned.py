"""What ``scan`` finds in logs that a test made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.command.settings import Settings
from pipelines.scan import scan
from pipelines.scanning.findings import Findings, Log

HOUR = 3_600_000
NOW = 1_700_000_000_000


def found(logs: Path | str, **settings: Any) -> Findings:
    return scan(Settings(source=(str(logs),), **{"cores": 1, **settings}))


def log_of(logs: Path, **settings: Any) -> Log:
    """The only log."""
    (log,) = found(logs, **settings).logs
    return log
