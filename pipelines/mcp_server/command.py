"""``kafka-log-lake mcp``: a server of the Model Context Protocol for the sources and the lake that it has.

A client calls the tools scan, find, inspect and query. It can name no path: the tools know what the command
was given. Each call runs a command of this project that only reads, in a process of its own, with bounds.
"""

from __future__ import annotations

import logging
import signal
from functools import partial
from types import FrameType

from kafka_log_lake.pipelines.cli.commands.mcp import MCP
from kafka_log_lake.pipelines.cli.errors import UserError, needs_extra
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.mcp_server.bounded import Bounds, end_all

logger = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"


def run(
    settings: Settings,
    path: list[str] | None = None,
    http: int | None = None,
    max_rows: int = 100,
    max_bytes: int = 262_144,
    max_seconds: int = 60,
) -> None:
    """Serves until standard input ends; with ``http``, a port of the loopback interface, until it is stopped.

    path: as of ``scan``. max_rows, max_bytes, max_seconds: of each answer. Raises a UserError where there is
    neither a source nor a lake.
    """
    sources = (*settings.source, *(path or ()))
    if not sources and settings.lake is None:
        raise UserError("name what clients may read: mcp PATH..., --lake LAKE, or both")
    try:
        from kafka_log_lake.pipelines.mcp_server.server import make_server
    except ModuleNotFoundError as error:
        raise needs_extra("mcp", error) from None
    server = make_server(sources, settings.lake, Bounds(max_rows, max_bytes, max_seconds))
    if http is not None:
        logger.info("listening at http://%s:%s/mcp", LOOPBACK, http)
        server.run("streamable-http", host=LOOPBACK, port=http)
    else:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
        server.run("stdio")
    end_all()


def _end(number: int, frame: FrameType | None) -> None:
    """Ends by a signal at once: Python would wait for the thread that reads standard input."""
    end_all()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


main = partial(run_command, MCP, run, with_spark=False)
