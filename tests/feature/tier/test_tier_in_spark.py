"""Disk and tier as one log in Spark: as a DataFrame, and by the data source."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import kafka_log_lake
from tests.feature.tier.test_tier_in_lakes import DATA, Row, truth

CASE = DATA / "encrypted"
TIER, KEY = str(CASE / "tier"), f"key-1={CASE / 'keys' / 'key-1.private.pem'}"
COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")


def rows(frame: DataFrame) -> set[Row]:
    found = frame.select(*COLUMNS).collect()
    return {
        (*row[:4], *(None if one is None else bytes(one) for one in (row.key, row.value))) for row in found
    }


def test_both_reads_give_what_consumers_read(spark: SparkSession, tmp_path: Path) -> None:
    expected = {row for row in truth("encrypted") if row[0] == "small"}
    disk = str(CASE / "log-dir")
    frame = kafka_log_lake.decode_segments(spark, disk, tier=TIER, tier_key=KEY, topics="small")
    assert rows(frame) == expected
    options = {"tier": TIER, "tierKey": KEY, "topics": "small"}
    assert rows(spark.read.format("kafka_log").options(**options).load(disk)) == expected
