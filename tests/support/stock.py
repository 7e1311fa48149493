"""Spark with its own settings, as a notebook or another program has it: a job, then views.

``python -m tests.support.stock --views=NAME,... LAKE SOURCE...`` prints which settings there were, once each
view gave the rows that DuckDB gives. Only what Delta needs is set.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from kafka_log_lake import Settings, connect, decode, register
from kafka_log_lake.pipelines.engine.session import ANYWHERE
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from tests.support.answers import all_rows, same_in_both

OF_DELTA = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
SHOWN = ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")


def main(option: str, lake: str, *sources: str) -> None:
    named = option.removeprefix("--views=").split(",")
    chosen = [view for view in SESSION_VIEWS if view.name in named]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for name in OF_DELTA:
        builder = builder.config(name, ANYWHERE[name])
    # Delta's log of a few files; 50 parts, its default, take longer than the views
    builder = builder.config("spark.databricks.delta.snapshotPartitions", 2)
    spark = builder.getOrCreate()
    decoded = decode(spark, Settings(source=sources, lake=lake))
    register(spark, lake)
    database = connect(lake)
    views = {view.name: same_in_both(spark, database, all_rows(view)) for view in chosen}
    shown = {name: spark.conf.get(name) for name in SHOWN}
    print(json.dumps({"records": decoded.records, "settings": shown, "views": views}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
