"""Declares the command ``query``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import AT, LOG
from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.pipelines.cli.settings import LakeSettings

_ENGINE = Argument(
    "engine",
    "query engine, each with its own SQL; auto: DuckDB, without Java, where this machine reads the lake",
    choices=("auto", "duckdb", "spark"),
)
QUERY = Command(
    "query",
    "query",
    "Run one SQL statement over the tables and views of a lake.",
    ("lake", "cores", "driver_memory"),
    (
        Argument("statement", "one SQL statement, in quotes"),
        Argument("format", "how rows are printed", choices=("table", "json", "csv")),
        Argument("full", "do not cut long values", is_switch=True),
        Argument("output", "write the rows to a file, .csv or .parquet, and print none", metavar="FILE"),
        Argument("writes", "whether a statement may change tables", choices=("refuse", "allow")),
        _ENGINE,
        AT,
        LOG,
    ),
    kind=LakeSettings,
    extra="sql",
    example='--lake lake "SELECT topic, records FROM topics"',
)
