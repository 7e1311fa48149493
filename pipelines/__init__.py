"""The driver's side, from segment files to tables. ``register(spark, lake)`` makes views of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession, lake: str) -> None:
    """Creates temporary views over all tables of a lake, and the lake's own views, in this session."""
    from pipelines.views.register import register as register_views

    register_views(spark, lake)
