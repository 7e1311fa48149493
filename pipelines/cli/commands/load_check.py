"""Declares the command ``load-check``."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import Argument, Command, Screen
from kafka_log_lake.udfs.values.internal.releases import LOADERS

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
    screen=Screen(
        "PATH... [OPTIONS]",
        "Replay the internal topics of a disk as a broker or a worker of Connect loads them: the record that "
        "stops it, the releases that stop there, and the smallest remedy. Needs no Java; only reads.",
        (
            ("Sources", "PATH: log directory, partition folder, .log file or glob"),
            ("", "source: the same, as an option", "follow_symlinks: follow links inside a source"),
            ("Topics", "topics: only these (whole name)", "exclude_topics"),
            ("Release", "as: 4.1.1 and 4.2.0 have faults that 4.1.2 and 4.2.1 have not"),
            (
                "Output",
                "json: one JSON object",
                "fail_on_damage: exit with 3 unless all was replayed and loads",
            ),
        ),
        ("/var/lib/kafka/data --as 4.4", "/backup/kafka --fail-on-damage"),
        "0 done, 2 nothing to check, 3 with --fail-on-damage.",
    ),
)
