"""Declares the command ``sql``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import AT, LOG
from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.settings import LakeSettings

SQL = Command(
    "sql",
    "sql_shell",
    "Open a SQL shell over the tables and views of a lake.",
    ("lake", "cores"),
    (AT, LOG),
    kind=LakeSettings,
    extra="sql",
)
