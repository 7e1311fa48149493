"""Declares the command ``export``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import AT, LOG
from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.pipelines.cli.settings import LakeSettings

EXPORT_FORMATS = ("parquet", "csv", "xlsx", "duckdb")
EXPORT = Command(
    "export",
    "export",
    "Write the committed records of a topic to one file, for a colleague or a BI tool. Needs no Java.",
    ("lake", "cores"),
    (
        Argument("topic", "the topic, by its whole name", metavar="NAME"),
        Argument("output", "the file (default: the topic's name, in this folder)", metavar="FILE"),
        Argument("format", "auto: by the name of the file", choices=("auto", *EXPORT_FORMATS)),
        Argument(
            "values", "typed: by the topic's typed table, if the lake has one", choices=("typed", "text")
        ),
        Argument("overwrite", "replace a file that is there", is_switch=True),
        AT,
        LOG,
    ),
    kind=LakeSettings,
    extra="export",
    example="--lake lake --topic orders --output orders.xlsx",
)
