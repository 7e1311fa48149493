"""Declares the command ``mcp``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import number
from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.pipelines.cli.values import count

MCP = Command(
    "mcp",
    "mcp_server",
    "Answer questions of programs, by the Model Context Protocol, about logs and a lake. Only reads.",
    ("source", "lake"),
    (
        Argument("path", "log directory, partition folder, .log file or glob", many=True, is_optional=True),
        number(
            "http", "listen at this port of 127.0.0.1, not on standard input", metavar="PORT", parse=count
        ),
        number("max_rows", "rows of an answer", default="100", parse=count),
        number("max_bytes", "bytes of an answer", default="262144", parse=count),
        number("max_seconds", "seconds of a call", default="60", parse=count),
    ),
    extra="mcp",
    example="/var/lib/kafka/data --lake lake",
)
