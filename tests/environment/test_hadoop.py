"""Hadoop's settings with which Spark opens buckets of S3; HDFS where Java alone opens it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.listing import hadoop
from kafka_log_lake.udfs.storage import store
from kafka_log_lake.udfs.storage.store import S3_VARIABLES, hadoop_options
from tests.support.logs import batch, put, rows, two_topics

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
        "fs.hdfs.impl.disable.cache": "true",  # each test mounts a folder of its own
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


@pytest.fixture
def only_java(
    spark: SparkSession, namenode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URI of an empty folder that only Java opens: by buffers of 4 KiB, in splits of 64 KiB if it may."""
    for folder in (tmp_path / "logs").iterdir():
        shutil.rmtree(folder)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.delenv("ARROW_LIBHDFS_DIR", raising=False)
    store._has_libhdfs.cache_clear()
    context: Any = spark.sparkContext
    context._jsc.hadoopConfiguration().set("io.file.buffer.size", "4096")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "64k")
    yield namenode
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    context._jsc.hadoopConfiguration().unset("io.file.buffer.size")
    store._has_libhdfs.cache_clear()


def landed(spark: SparkSession, source: str, lake: Path, most: int) -> tuple[dict[str, bytes], list[str]]:
    """The bytes that the lake has of each file, and the warnings of the run that landed them."""
    settings = Settings(lake=str(lake), source=(source,), max_content=most)
    warnings = ingest_raw.run(spark, settings).warnings
    found: dict[str, bytes] = {}
    chunks = rows(str(lake), "raw_segments") if (lake / "raw_segments").exists() else []
    for chunk in sorted(chunks, key=lambda one: one["chunk_position"]):
        name = chunk["segment"].rpartition("/")[2]
        assert chunk["chunk_position"] == len(found.get(name, b""))
        found[name] = found.get(name, b"") + chunk["content"]
    return found, warnings


def test_any_bytes_that_only_java_reads_are_landed_as_they_are(
    spark: SparkSession, only_java: str, tmp_path: Path
) -> None:
    draw = random.Random(1)
    runs = b"".join(
        bytes(draw.randrange(8)) + draw.choice((b"\1", b"\xff\xfe", b"\n")) for _ in range(80_000)
    )
    at_bounds = bytes(4094) + b"".join(b"\1" * (4096 - zeros) + bytes(zeros) for zeros in range(1, 9)) * 3
    middle = b"".join((runs, at_bounds, bytes(50_001), b"\1" * 500_000, b"\xef\xbb\xbf", at_bounds, runs))
    content = [bytes(n) + middle + b"\1" + bytes(m) for n, m in ((0, 1), (1, 2), (8, 3))]
    content.append(bytes(300_001))
    files = {f"{number:020d}.log": one for number, one in enumerate(content)}
    for name, one in files.items():
        (folder := tmp_path / "logs" / f"t-{int(name[:20])}").mkdir()
        (folder / name).write_bytes(one)
    found, warnings = landed(spark, only_java, tmp_path / "lake", 100_000)
    assert warnings == []
    assert {name: found[name] == one for name, one in files.items()} == dict.fromkeys(files, True)


def test_what_java_alone_cannot_bring_whole_is_left_with_a_line(
    spark: SparkSession, only_java: str, tmp_path: Path
) -> None:
    for number, one in enumerate((b"\xef\xbb\xbf" + bytes(200_000), bytes(9) + b"\1" * (2 << 20) + bytes(9))):
        (folder := tmp_path / "logs" / f"t-{number}").mkdir()
        (folder / f"{number:020d}.log").write_bytes(one)
    found, warnings = landed(spark, only_java, tmp_path / "lake", 100_000)
    assert found == {}
    assert [("t-0/" in one, "Spark did not bring its bytes from" in one) for one in sorted(warnings)] == [
        (True, True),
        (False, True),
    ]


def test_a_large_segment_that_only_java_reads_is_landed_and_decoded(
    spark: SparkSession, only_java: str, tmp_path: Path
) -> None:
    text = random.Random(1).randbytes(1 << 19).hex()
    segment = put(tmp_path / "logs" / "t-0", 0, *(batch(one, 1, text=text) for one in range(41)))
    found, warnings = landed(spark, only_java, tmp_path / "lake", 2 << 20)
    assert (warnings, found.keys()) == ([], {segment.name})
    assert found[segment.name] == segment.read_bytes()
    done = decode_batches.run(spark, Settings(lake=str(tmp_path / "lake"), from_raw=True))
    assert (done.records, done.warnings) == (41, [])


def test_a_value_above_an_arrow_batch_without_a_separator_is_landed_or_refused(
    spark: SparkSession, only_java: str, tmp_path: Path
) -> None:
    """Where ``--max-content`` allows lines above 64 MiB: Spark's heap has to hold twelve of them."""
    value = b"\1" * (66 << 20)
    segment = put(tmp_path / "logs" / "t-0", 0, batch(0), value, batch(9), value)
    found, warnings = landed(spark, only_java, tmp_path / "lake", 67 << 20)
    assert warnings == []
    assert found[segment.name] == segment.read_bytes()
    with segment.open("ab") as file:
        file.truncate(200 << 20)
    with pytest.raises(
        UserError, match=r"209715200 bytes of .* one value in Spark, which needs a heap of 3g: "
    ):
        landed(spark, only_java, tmp_path / "refused", 256 << 20)
