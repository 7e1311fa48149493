"""A user's packages have the names of our folders: Spark's executors run his and ours."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tests.support.collisions import LOGS, python, write_packages


@pytest.mark.parametrize("way", ["folder", "py_files"])
def test_in_spark(tmp_path: Path, way: str) -> None:
    """Executors run the user's function and ours: his package lies beside the script, or comes in a zip."""
    write_packages(folder := tmp_path)
    with zipfile.ZipFile(folder / "his.zip", "w") as made:
        made.write(folder / "pipelines" / "__init__.py", "pipelines/__init__.py")
    if way == "py_files":
        shutil.rmtree(folder / "pipelines")
    code = f"""
from pyspark.sql import functions as F
from kafka_log_lake import decode_segments, get_session, register
spark = get_session()
spark.sparkContext.addPyFile("his.zip")
import pipelines

@F.udf("string")
def whose(x):
    import pipelines
    return pipelines.whose()

rows = decode_segments(spark, {str(LOGS)!r})
on_workers = rows.select(whose("offset").alias("w")).distinct().collect()[0]["w"]
print(rows.count() > 0, on_workers, pipelines.whose())
print(spark.read.format("kafka_log").load({str(LOGS)!r}).count() == rows.count())
register(spark)
print(spark.sql("SELECT crc32c(CAST('a' AS BINARY)) AS c").collect()[0]["c"])
"""
    first, second, third = python(folder, code).splitlines()[-3:]
    assert first == "True the user the user"
    assert second == "True"
    assert int(third) == 0xC1D04330
