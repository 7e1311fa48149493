"""Why DuckDB does not answer a statement."""

from __future__ import annotations


class Unsupported(Exception):
    """No test shows that DuckDB gives Spark's rows for something in the statement: the message names it."""
