"""The data source ``kafka_log``: Spark finds a module named ``pyspark_*`` by itself.

spark.read.format("kafka_log").load("/var/lib/kafka/data")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.dataframes.source import KafkaLogSource as DefaultSource
from kafka_log_lake.pipelines.dataframes.source import sent_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]


def register(spark: SparkSession) -> None:
    """Makes ``kafka_log`` known to a session that looked for data sources before it was installed."""
    from kafka_log_lake.pipelines.engine.driver import driver_of

    driver = driver_of(spark)
    driver.share_code()
    spark.dataSource.register(DefaultSource if driver.has_jvm else sent_source())
