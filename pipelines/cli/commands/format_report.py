"""Declares the command ``format-report``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.setting_names import COST_NAMES
from kafka_log_lake.pipelines.cli.settings import CostSettings

FORMAT_REPORT = Command(
    "format-report",
    "format_report",
    "Measure the size and the cost of a lake's records in each message format and codec.",
    COST_NAMES,
    kind=CostSettings,
)
