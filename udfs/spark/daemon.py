"""Runs Spark's process that forks Python workers, with what our stages import loaded in it.

A worker imports pandas and the decoder before its first row. A fork of this process has them, and
shares their memory with the others. Spark starts it in place of ``pyspark.daemon`` where
``spark.python.daemon.module`` names it.
"""

from __future__ import annotations

import gc

import pandas  # type: ignore[import-untyped]  # noqa: F401  # what Spark imports for mapInArrow
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import kafka_log_lake.udfs.spark.tasks  # noqa: F401

if __name__ == "__main__":
    # After each task pyspark collects garbage: it skips the objects that are there now
    gc.freeze()
    manager()
