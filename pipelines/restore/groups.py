"""Committed offsets of groups, translated by the map of offsets."""

from __future__ import annotations

import duckdb

from kafka_log_lake.pipelines.restore.offset_map import Translator
from kafka_log_lake.pipelines.restore.request import Request


def restore_groups(
    request: Request, database: duckdb.DuckDBPyConnection, translator: Translator
) -> list[object]:
    """Commits the offsets of groups in the target."""
    return []
