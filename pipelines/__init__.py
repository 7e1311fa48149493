"""The driver's side, from segment files to tables.

``register(spark, lake)`` makes the functions for SQL, and views of the tables; ``register(spark)`` makes the
functions alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession, lake: str | None = None) -> None:
    """Creates temporary functions in this session, and temporary views over a lake's tables and views.

    lake: without one the functions alone are created.
    """
    if lake is None:
        from pipelines.functions.register import register_functions

        register_functions(spark)
        return
    from pipelines.views.register import register as register_views

    register_views(spark, lake)
