"""Declares the command ``load-check``."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.udfs.values.internal.definitions import LOADERS

LOAD_CHECK = Command(
    "load-check",
    "load_check",
    "Replay the internal topics of a disk as Kafka loads them: which record stops which release.",
    ("source", "topics", "exclude_topics", "follow_symlinks", "fail_on_damage", "json"),
    (
        Argument("path", "log directory, partition folder, .log file or glob", many=True, is_optional=True),
        Argument(
            "as",
            "load as this release; 4.1.1 and 4.2.0 have faults that 4.1.2 and 4.2.1 have not",
            choices=("all", *LOADERS),
        ),
    ),
    extra="",
    example="/var/lib/kafka/data --as 4.4",
)
