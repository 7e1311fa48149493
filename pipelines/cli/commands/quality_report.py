"""Declares the command ``quality-report``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.pipelines.cli.settings import LakeSettings

QUALITY_REPORT = Command(
    "quality-report",
    "quality_report",
    "Check the data quality of a lake: a table of metrics and one HTML page. Needs no Java.",
    ("lake", "cores", "json"),
    (
        Argument("output", "folder for HTML, Markdown and JSON", metavar="FOLDER", default="quality-report"),
        Argument("thresholds", "YAML file: threshold and severity of each check", metavar="FILE.yml"),
        Argument(
            "at",
            "an earlier state: the id of a run (table runs), or a time in UTC; the lake is not changed",
            metavar="RUN|TIME",
        ),
        Argument(
            "fail_on",
            "exit with code 3 where the verdict is Not sound (error), or where any check fails (warning)",
            choices=("error", "warning", "never", "none"),
        ),
    ),
    extra="report",
    kind=LakeSettings,
)
