"""A tier in an object store: read by ranges, also on a day when the store fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafka_log_lake
import pyspark_kafka_log
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.udfs import reads
from tests.feature.tier import test_tier_in_lakes as lakes
from tests.feature.tier.test_one_log import DATA, truth
from tests.feature.tier.test_tier_in_spark import rows
from tests.support.answers import asked
from tests.support.object_store import BREAK, DROP, ERROR, PASS, Store, uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE = DATA / "encrypted"
KEY = f"key-1={CASE / 'keys' / 'key-1.private.pem'}"


def found(store: Store, capsysbinary: pytest.CaptureFixture[bytes]) -> set[tuple[object, ...]]:
    """The records of the local log and a tier in the store."""
    argv = [str(CASE / "log-dir"), "--tier", uri("tier"), "--tier-key", KEY, "--exclude-topics", "__.*"]
    capsysbinary.readouterr()
    assert find.main([*argv, "--committed", "--format", "json"]) == 0
    out, said = capsysbinary.readouterr()
    assert b"warning" not in said
    rows = [json.loads(line) for line in out.splitlines()]
    names = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
    records = [tuple(row[name] for name in names) for row in rows]
    assert len(records) == len(set(records)), "a record twice"
    return set(records)


def test_a_tier_in_a_store_gives_what_consumers_read(
    store: Store, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    shutil.copytree(CASE / "tier", store.folder / "tier")
    store.reset()
    assert found(store, capsysbinary) == truth("encrypted")
    read = {Path(path.partition("?")[0]).name for method, path in store.paths if method == "GET"}
    small = [one.name for one in (CASE / "tier").rglob("*.log") if "/small-" in str(one)]
    assert set(small) & read
    counted = reads.counted()
    objects = [(how, path) for how, path in store.paths if ".rsm-manifest" in path or ".log" in path]
    assert counted.tier_bytes == sum(
        store.sent[path] for path in {path for how, path in objects if how == "GET"}
    )
    assert counted.tier_requests == len(objects)
    store.meet = lambda number, method, path: (BREAK, DROP, ERROR, PASS, PASS)[number % 5]
    assert found(store, capsysbinary) == truth("encrypted")
    assert store.met[BREAK] + store.met[DROP] + store.met[ERROR] > 5


def test_lakes_and_data_frames_have_the_rows_of_a_tier_in_a_store(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    shutil.copytree(CASE / "tier", store.folder / "of-spark")
    store.reset()
    disk, tier = str(CASE / "log-dir"), uri("of-spark")
    by_processes, by_spark = tmp_path / "processes", tmp_path / "spark"
    argv = ["--source", disk, "--tier", tier, "--tier-key", KEY, "--cores", "2"]
    assert decode_batches.main([*argv, "--lake", str(by_processes)]) == 0
    assert lakes.committed(by_processes) == lakes.truth("encrypted")
    settings = Settings(source=(disk,), tier=(tier,), tier_key=(KEY,), lake=str(by_spark))
    decode_batches.run(spark, settings)
    places = "SELECT * FROM segment_places ORDER BY topic, partition, first_offset, file"
    assert lakes.committed(by_spark) == lakes.truth("encrypted")
    assert asked(by_spark, places) == asked(by_processes, places)
    assert [tier in row for (row,) in asked(by_spark, "SELECT file FROM segment_places")].count(True) == 8
    expected = {row for row in lakes.truth("encrypted") if row[0] == "small"}
    frame = kafka_log_lake.decode_segments(spark, disk, tier=tier, tier_key=KEY, topics="small")
    assert rows(frame) == expected
    pyspark_kafka_log.register(spark)  # which hands on the variables of this process
    options = {"tier": tier, "tierKey": KEY, "topics": "small"}
    assert rows(spark.read.format("kafka_log").options(**options).load(disk)) == expected
    assert {method for method, _ in store.paths} <= {"GET", "HEAD"}  # nothing is written to the tier
    store.meet = lambda number, method, path: (DROP, ERROR, PASS, PASS, PASS)[number % 5]
    assert rows(spark.read.format("kafka_log").options(**options).load(disk)) == expected
