"""A Volume of Databricks, which Spark's JVM knows by another name than Python: the rows are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_log_lake import decode_frame
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.udfs.storage import store
from tests.support.logs import batches, put, rows


@pytest.fixture
def jvm_of_databricks(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as Python's mount ``/Volumes``. Hadoop's ``dbfs:/Volumes`` is the folder ``jvm`` beside it."""
    volumes = tmp_path / "Volumes"
    volumes.mkdir()
    view = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    settings = {
        "fs.dbfs.impl": view,
        "fs.dbfs.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        "fs.viewfs.mounttable.default.link./Volumes": (tmp_path / "jvm").as_uri(),
    }
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in settings.items():
        hadoop.set(name, value)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    monkeypatch.delitem(store.MOUNTS, "file:///Volumes/")
    monkeypatch.delitem(store.MOUNTS, "file:///dbfs/")
    monkeypatch.setitem(store.MOUNTS, f"file://{volumes}/", "dbfs:/Volumes/")
    yield volumes
    for name in settings:
        hadoop.unset(name)


def test_spark_reads_a_volume_by_its_own_name_and_the_rows_are_the_same(
    spark: SparkSession, jvm_of_databricks: Path, tmp_path: Path
) -> None:
    put(jvm_of_databricks / "main" / "a-0", 0, *batches(0, 3))
    put(tmp_path / "jvm" / "main" / "a-0", 0, *batches(1, 3))  # of the same size: who read it shows
    for place in (jvm_of_databricks, tmp_path / "jvm"):
        put(place / "main" / "b-0", 0, *batches(0, 30))
    whole = Settings(source=(str(jvm_of_databricks),), lake=str(tmp_path / "lake"), read="binary")
    found = decode_batches.run(spark, whole)
    assert (found.segments, found.records) == (2, 99)
    offsets = {row["offset"] for row in rows(str(tmp_path / "lake"), "records") if row["topic"] == "a"}
    assert offsets == set(range(1, 10))
    segments = {row["segment"] for row in rows(str(tmp_path / "lake"), "segments")}
    assert segments == {f"file://{path}" for path in jvm_of_databricks.rglob("*.log")}
    in_parts = Settings(source=whole.source, lake=str(tmp_path / "raw"), read="binary", max_content=1000)
    assert ingest_raw.run(spark, in_parts).segments == 2
    files = spark.read.format("binaryFile").load("dbfs:/Volumes/main/*/*.log")
    assert files.select("path").first()["path"].startswith("dbfs:/Volumes/")  # type: ignore[index]
    names = decode_frame(files, columns=["segment"]).distinct().collect()
    assert {row.segment for row in names} == segments
