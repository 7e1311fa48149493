"""Hadoop's settings with which Spark opens buckets of S3; HDFS where Java alone opens it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from pipelines import decode_batches, ingest_raw
from pipelines.command.settings import Settings
from pipelines.source import hadoop
from tests.support.logs import rows, two_topics
from udfs.source import store
from udfs.source.store import S3_VARIABLES, hadoop_options

REGIONS = {"bucket-of-logs": "eu-central-1", "bucket-of-lakes": "us-west-2"}


@pytest.fixture
def settings(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Hadoop's settings of the session, where Amazon tells the region of each bucket.

    A class of Spark's own stands for Hadoop's client of S3, which is no part of the environment.
    """
    for name in S3_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fs, "resolve_s3_region", REGIONS.__getitem__)
    client = {"fs.s3.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}
    monkeypatch.setattr(hadoop, "hadoop_options", lambda uri: hadoop_options(uri) | client)
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    before = set(spark.conf.getAll)
    yield configuration
    for name in set(spark.conf.getAll) - before:
        spark.conf.unset(name)
        configuration.unset(name)
    configuration.unset("fs.s3.impl")


def region(settings: Any, bucket: str) -> str | None:
    """The region that Hadoop's client of S3 takes for a bucket."""
    everywhere = settings.get("fs.s3a.endpoint.region")
    found: str | None = settings.get(f"fs.s3a.bucket.{bucket}.endpoint.region", everywhere)
    return found


def test_each_bucket_is_opened_in_its_own_region(spark: SparkSession, settings: Any) -> None:
    for bucket in REGIONS:
        hadoop.open_to_spark(spark, f"s3://{bucket}/kafka")
    assert {bucket: region(settings, bucket) for bucket in REGIONS} == REGIONS


@pytest.mark.parametrize("name", ["fs.s3a.endpoint.region", "fs.s3a.bucket.bucket-of-logs.endpoint.region"])
def test_a_region_that_the_session_names_stays(spark: SparkSession, settings: Any, name: str) -> None:
    spark.conf.set(f"spark.hadoop.{name}", "eu-north-1")
    settings.set(name, "eu-north-1")
    hadoop.open_to_spark(spark, "s3://bucket-of-logs/kafka")
    assert region(settings, "bucket-of-logs") == "eu-north-1"
    settings.unset(name)


def test_a_session_with_a_client_of_its_own_is_left_as_it_is(spark: SparkSession, settings: Any) -> None:
    settings.set("fs.s3.impl", "com.amazon.ws.emr.hadoop.fs.EmrFileSystem")
    hadoop.open_to_spark(spark, "s3://bucket-of-logs/kafka")
    assert settings.get("fs.s3.impl") == "com.amazon.ws.emr.hadoop.fs.EmrFileSystem"
    assert region(settings, "bucket-of-logs") is None


@pytest.fixture
def namenode(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The URI of logs in Hadoop's file system ``hdfs``, which is a view of a local folder here."""
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    given = {
        "fs.hdfs.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        "fs.viewfs.mounttable.namenode.link./kafka": f"file://{two_topics(tmp_path / 'logs')}",
    }
    for name, value in given.items():
        configuration.set(name, value)
    yield "hdfs://namenode/kafka"
    for name in given:
        configuration.unset(name)


@pytest.mark.parametrize("has_library", [False, True])
def test_hdfs_is_read_by_spark_where_hadoop_s_library_in_c_is_missing(
    spark: SparkSession, namenode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_library: bool
) -> None:
    home = tmp_path / "hadoop"
    (home / "lib" / "native").mkdir(parents=True)
    if has_library:
        (home / "lib" / "native" / "libhdfs.so").touch()
    monkeypatch.setenv("HADOOP_HOME", str(home))
    monkeypatch.delenv("ARROW_LIBHDFS_DIR", raising=False)
    store._has_libhdfs.cache_clear()
    assert store.worker_opens(namenode) == has_library
    if not has_library:
        for name, most in (("whole", 1 << 20), ("in lines", 100)):
            settings = Settings(lake=(lake := str(tmp_path / name)), source=(namenode,), max_content=most)
            assert ingest_raw.run(spark, settings).warnings == []
            landed = {r["segment"].removeprefix(namenode): r["content"] for r in rows(lake, "raw_segments")}
            logs = tmp_path / "logs"
            assert landed == {f"/{p.relative_to(logs)}": p.read_bytes() for p in logs.rglob("*.log")}
            done = decode_batches.run(spark, settings)
            assert (done.records, done.warnings) == (126, [])
    store._has_libhdfs.cache_clear()
