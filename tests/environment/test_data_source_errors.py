"""spark.read.format('kafka_log'): what is refused, and what changes under a read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.options import Options
from kafka_log_lake.pipelines.dataframes.slices import list_requested, plan_read
from kafka_log_lake.pipelines.dataframes.source import requested
from kafka_log_lake.udfs.spark.protocol import SLICE_SCHEMA
from kafka_log_lake.udfs.spark.table_rows import ReadFailed, read_table
from tests.support import corpus
from tests.support.data_source import load, message
from tests.support.logs import batch, two_topics

HOSTILE = corpus.ROOT / "hostile"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return two_topics(tmp_path / "logs")


def test_failfast_says_where_and_permissive_reads_the_rest(spark: SparkSession) -> None:
    folder = HOSTILE / "bitflip-payload-v2-zstd-0"
    said = message(lambda: load(spark, folder, mode="FailFast").collect())
    segment = f"file://{folder}/{0:020d}.log"
    assert said.startswith(f"{segment} is damaged: crc_mismatch: 796 bytes at position 3374: ")
    assert load(spark, folder).count() == 87
    (damage,) = load(spark, folder, table="quarantine").collect()
    assert (damage.position, damage.size_bytes, damage.reason) == (3374, 796, "crc_mismatch")


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (None, {"topic": "a"}, "unknown option topic; did you mean topics?"),
        (None, {"color": "red"}, "unknown option color; known options: path, topics, "),
        (None, {"sliceBytes": "big"}, "option sliceBytes must be a number of bytes above 0 and below 8EiB, "),
        (None, {"topics": "("}, "option topics must be a regular expression; '(' does not compile: "),
        (None, {"partitions": "3-1"}, "option partitions must be partitions and ranges of them, "),
        (None, {"startingOffset": "x"}, "option startingOffset must be a whole number, not 'x'"),
        (None, {"followSymlinks": "y"}, "option followSymlinks must be true or false, not 'y'"),
        (None, {"mode": "dropmalformed"}, "option mode must be one of permissive, failfast, not "),
        (None, {"table": "batches", "endingOffset": "1"}, "startingOffset, endingOffset, startingTimes"),
        (None, {"topics": "none"}, "no segment in "),
        ("offse bigint", {}, "records has no column offse; did you mean offset?"),
        ("position bigint", {}, "records has no column position"),
        ("run_id string", {}, "records has no column run_id"),
        ("offset int", {}, "column offset is bigint, the schema says int"),
        ("value binary NOT NULL", {}, "column value must be nullable in the schema: leave out NOT NULL"),
    ],
)
def test_wrong_options_and_schemas_give_one_line(
    spark: SparkSession, logs: Path, schema: str | None, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        load(spark, logs, schema, **options).collect()
    assert len(str(raised.value).splitlines()) <= 6
    assert message(lambda: load(spark, logs, schema, **options).collect()).startswith(said)


def test_a_folder_that_cannot_be_listed_is_reported(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path).endswith("a-0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UserError, match=r"/a-0 can't be read: Permission denied"):
        list_requested(Options(path=(str(logs),)))
    assert len(list_requested(Options(path=(str(logs),), topics="b"))) == 1


def test_paths_that_hold_nothing_give_one_line(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.mkdir()
    assert message(lambda: load(spark, missing)) == f"no such path: {missing}"  # before anything is read
    assert message(lambda: load(spark, empty).collect()).startswith("no segments (")
    assert message(lambda: load(spark, logs / "a-0" / "x.log")).startswith("no such path")
    remote = message(lambda: load(spark, "hdfs://host/logs").collect())
    assert remote.startswith("hdfs://host/logs can't be listed without Spark: ")
    assert message(lambda: spark.read.format("kafka_log").load()).startswith("no path: ")


def test_a_segment_that_changed_since_it_was_planned_is_reported(spark: SparkSession, logs: Path) -> None:
    frame = load(spark, logs / "b-3")
    assert frame.count() == 6
    segment = logs / "b-3" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-10])
    assert message(frame.collect).startswith(f"file://{segment} can't be read as it was planned: it has ")


def test_a_file_that_took_the_name_between_two_tasks_is_reported(logs: Path) -> None:
    segment = logs / "a-0" / f"{60:020d}.log"
    options, read = requested(
        {"path": str(segment), "sliceBytes": "1000"}, StructType([StructField("offset", LongType())])
    )
    slices = pa.Table.from_batches(plan_read(options)).to_pylist()
    assert len(slices) > 1
    other = b"".join(batch(60 + 3 * i, 3, text="w") for i in range(20))
    assert len(other) == segment.stat().st_size
    segment.write_bytes(other)
    for row in slices:
        one = pa.RecordBatch.from_pylist([row], schema=SLICE_SCHEMA)
        with pytest.raises(ReadFailed, match="it does not begin as what was decoded of it before"):
            list(read_table(read, one))
    segment.unlink()
    with pytest.raises(ReadFailed, match=r"it can't be opened: No such file or directory"):
        list(read_table(read, one))


def test_a_slice_that_ends_elsewhere_than_planned_is_reported(logs: Path) -> None:
    schema = StructType([StructField("offset", LongType())])
    options, read = requested({"path": str(logs / "b-3")}, schema)
    (slices,) = plan_read(options)
    assert sum(part.num_rows for part in read_table(read, slices)) == 6
    (row,) = slices.to_pylist()
    end = len(batch(0, 3))
    wrong = pa.RecordBatch.from_pylist([{**row, "stop": end - 1}], schema=slices.schema)
    with pytest.raises(ReadFailed, match=rf"from position 0 on end at {end}, planned at {end - 1}: the file"):
        list(read_table(read, wrong))
