"""Runs DuckDB so that Ctrl-C stops it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import duckdb

Result = TypeVar("Result")


def run_apart(
    database: duckdb.DuckDBPyConnection, thread: ThreadPoolExecutor, work: Callable[[], Result]
) -> Result:
    """Returns what a call of DuckDB gives, made in another thread: in this one Ctrl-C would wait for it."""
    try:
        return thread.submit(work).result()
    except (KeyboardInterrupt, SystemExit):
        database.interrupt()
        thread.shutdown()  # the connection is in use until then
        raise
