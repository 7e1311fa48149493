"""Schemas of ``_schemas``, restored into a registry."""

from __future__ import annotations

import duckdb

from kafka_log_lake.pipelines.restore.request import Request


def restore_schemas(request: Request, database: duckdb.DuckDBPyConnection) -> list[object]:
    """Registers the schemas of the lake in a registry, with their ids."""
    return []
