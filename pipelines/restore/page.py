"""The page of a restore: what was restored, what was held back, groups before and after."""

from __future__ import annotations

from kafka_log_lake.pipelines.restore.summary import Summary


def write_page(folder: str, summary: Summary) -> None:
    """Writes the page and its CSV files into a folder."""
