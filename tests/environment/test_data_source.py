"""``spark.read.format("kafka_log")``: the rows of a lake, without one."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, GreaterThanOrEqual, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

import pyspark_kafka_log
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.options import Options
from kafka_log_lake.pipelines.dataframes.slices import plan_read
from kafka_log_lake.pipelines.dataframes.source import requested
from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.udfs.spark.table_rows import ReadFailed, read_table
from tests.support import corpus
from tests.support.data_source import load, message
from tests.support.java import QUICK_ENVIRONMENT
from tests.support.logs import batch, put, two_topics

ROOT = Path(__file__).parents[2]
HOSTILE = corpus.ROOT / "hostile"
HEADERS = "array<struct<key:string,value:binary>>"


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.toArrow().to_pylist()))


_NO_SEGMENTS = ("hostile", "_oracle", "_dump")
SOURCES = {
    "sound": [str(p) for p in sorted(corpus.ROOT.iterdir()) if p.is_dir() and p.name not in _NO_SEGMENTS],
    "hostile": [str(HOSTILE)],
}
LIMIT = 1 << 20  # some hostile batches expand to hundreds of megabytes


@pytest.fixture(scope="module")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Lakes of the sound and of the hostile segments that come with the project."""
    made = {}
    for name, sources in SOURCES.items():
        made[name] = str(tmp_path_factory.mktemp(name))
        settings = Settings(source=tuple(sources), lake=made[name], max_batch_uncompressed=LIMIT)
        decode_batches.run(spark, settings)
    return made


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("slice_bytes", ["128MiB", "2000"])
def test_rows_are_those_of_a_lake(
    spark: SparkSession, lakes: dict[str, str], name: str, slice_bytes: str
) -> None:
    read = spark.read.format("kafka_log").options(sliceBytes=slice_bytes, maxBatchUncompressed=LIMIT)
    for table in ("records", "batches", "quarantine"):
        frame = read.option("table", table).load(SOURCES[name])
        lake = DeltaTable(f"{lakes[name]}/{table}").to_pyarrow_table()
        assert set(lake.column_names) - set(frame.columns) <= {"run_id"}
        assert rows(frame) == sorted(map(repr, lake.select(frame.columns).to_pylist())), table


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return two_topics(tmp_path / "logs")


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_a_large_segment_is_read_by_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, *[batch(offset, 1, text="x" * 100_000) for offset in range(200)])
    read = load(spark, tmp_path, "offset bigint, value binary", sliceBytes="1MiB")
    assert read.rdd.getNumPartitions() > 5
    assert offsets(read) == list(range(200))


def test_a_schema_chooses_columns_and_their_order(spark: SparkSession, logs: Path) -> None:
    schema = f"value binary, OFFSET bigint, timestamp timestamp, headers {HEADERS}, topic string"
    read = load(spark, logs / "b-3", schema)
    assert read.columns == ["value", "OFFSET", "timestamp", "headers", "topic"]
    first = read.orderBy("offset").first()
    assert first is not None
    assert (bytes(first.value), first.OFFSET, first.headers, first.topic) == (b"v0", 0, None, "b")
    assert load(spark, logs, "topic string").distinct().count() == 2


def test_options_choose_topics_and_partitions(spark: SparkSession, logs: Path) -> None:
    put(logs / "a-7", 0, batch(0, 1))

    def found(**options: str) -> set[tuple[str, int]]:
        chosen = load(spark, logs, "topic string, partition int", **options).distinct().collect()
        return {(row.topic, row.partition) for row in chosen}

    assert found() == {("a", 0), ("a", 7), ("b", 3)}
    assert found(topics="a") == {("a", 0), ("a", 7)}
    assert found(excludeTopics="a") == {("b", 3)}
    assert found(partitions="0, 2-5") == {("a", 0), ("b", 3)}


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"startingOffset": 31}, "offset >= 31"),
        ({"endingOffset": 60}, "offset < 60"),
        ({"startingOffset": 59, "endingOffset": 61}, "offset >= 59 AND offset < 61"),
        ({"startingTimestamp": 1060}, "timestamp_ms >= 1060"),
        ({"startingTimestamp": 1050, "endingTimestamp": 1052}, "timestamp_ms BETWEEN 1050 AND 1051"),
        ({"startingOffset": 1000}, "false"),
        ({"startingTimestamp": 1 << 60}, "false"),
    ],
)
def test_bounds_give_the_rows_of_a_filter(
    spark: SparkSession, logs: Path, options: dict[str, Any], condition: str
) -> None:
    assert rows(load(spark, logs, **options)) == rows(load(spark, logs).where(condition))


@pytest.mark.parametrize(
    "options", [{"endingOffset": 60}, {"endingOffset": 40, "startingTimestamp": 1000}, {"topics": "b"}]
)
def test_segments_out_of_bounds_are_not_read(
    spark: SparkSession, logs: Path, options: dict[str, Any]
) -> None:
    damaged = logs / "a-0" / f"{60:020d}.log"
    damaged.write_bytes(b"no batch" * 100)
    assert "is damaged" in message(lambda: load(spark, logs, mode="failfast").collect())
    assert load(spark, logs, mode="failfast", **options).count() > 0


def test_segments_of_older_timestamps_are_not_read(spark: SparkSession, logs: Path) -> None:
    oldest = logs / "a-0" / f"{0:020d}.log"
    data = bytearray(oldest.read_bytes())
    data[-1] ^= 1  # of the last batch's payload: its checksum is wrong, its header is as it was
    oldest.write_bytes(data)
    assert load(spark, logs, mode="failfast", startingTimestamp=1030, topics="a").count() == 90
    assert "crc_mismatch" in message(lambda: load(spark, logs, mode="failfast").collect())


def test_a_file_that_cannot_be_read_is_reported_with_a_starting_timestamp_too(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*given: Any) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "preadv", refusing)
    schema = StructType([StructField("offset", LongType())])
    options, read = requested({"path": str(logs / "b-3"), "startingTimestamp": "0"}, schema)
    (slices,) = plan_read(options)
    with pytest.raises(ReadFailed, match=r"b-3/0+\.log can't be read as it was planned: .* Stale"):
        list(read_table(read, slices))


def test_the_first_read_without_an_option_that_prunes_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("a", "b"):
        put(tmp_path / f"{topic}-0", 0, batch(0))
    plan_read(Options(path=(str(tmp_path),), topics="a|b"))
    plan_read(Options(path=(str(tmp_path / "a-0"),)))
    assert caplog.messages == []
    for _ in range(2):
        plan_read(Options(path=(str(tmp_path),)))
    (said,) = caplog.messages
    assert re.match(r"kafka_log reads all .* of 2 segments in .*: a WHERE skips no file, .* columns", said)


def test_columns_are_an_option_too(spark: SparkSession, logs: Path) -> None:
    read = load(spark, logs, columns="offset, value", topics="a")
    assert read.columns == ["offset", "value"]
    assert rows(read) == rows(load(spark, logs, "offset bigint, value binary", topics="a"))
    assert load(spark, logs, columns="status", table="batches").distinct().collect() == [("ok",)]
    assert "records has no column valeu; did you mean value?" in message(
        lambda: load(spark, logs, columns="valeu")
    )
    other = load(spark, logs, "offset bigint", columns="value")
    assert "give one of them" in message(other.collect)


def test_a_view_reads_it_by_sql(spark: SparkSession, logs: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING kafka_log OPTIONS (path '{logs}', topics 'a')")
    assert spark.sql("SELECT count(*), max(offset) FROM log").first() == (120, 119)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW log (offset bigint, value binary) "
        f"USING kafka_log OPTIONS (path '{logs}')"
    )
    assert spark.sql("SELECT * FROM log WHERE offset = 100").first() == (100, b"v100")
    spark.sql("DROP VIEW log")


def test_a_session_may_register_it(spark: SparkSession, logs: Path) -> None:
    pyspark_kafka_log.register(spark)
    assert load(spark, logs).count() == 126


def test_a_plain_session_finds_it_by_name(logs: Path, tmp_path: Path) -> None:
    """Without Delta and without a job's session: all that it needs is to be importable."""
    code = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"print(spark.read.format('kafka_log').load({str(logs)!r}).count(), 'records')"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))}
    environment = kept | QUICK_ENVIRONMENT | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "126 records" in done.stdout, done.stderr[-3000:]


def test_links_are_followed_only_on_demand(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "b-3").symlink_to(logs / "b-3")
    assert load(spark, tmp_path / "linked", followSymlinks=True).count() == 6
    assert "no segments" in message(lambda: load(spark, tmp_path / "linked").collect())


def test_several_paths_count_a_segment_once(spark: SparkSession, logs: Path) -> None:
    paths = [str(logs / "b-3"), str(logs / "*-3")]
    assert spark.read.format("kafka_log").load(paths).count() == 6


class _Numbers(DataSourceReader):
    """0 to 9, a partition each; filters choose partitions."""

    def __init__(self) -> None:
        self.least = 0

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.least = max((one.value for one in filters if isinstance(one, GreaterThanOrEqual)), default=0)
        return filters

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.least, 10)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class _NumbersSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers_by_filter"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: StructType) -> _Numbers:
        return _Numbers()


def test_spark_keeps_a_filtered_reader(spark: SparkSession) -> None:
    """Why kafka_log takes no filters: Spark plans once a DataFrame, with the filters of its first query.

    If this fails, Spark plans every query by itself: then filters can prune folders and segments.
    """
    spark.dataSource.register(_NumbersSource)
    with configured(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        numbers = spark.read.format("numbers_by_filter").load()
        assert numbers.where("number >= 7").count() == 3
        assert numbers.count() == 3  # of 10


def test_filters_and_later_queries_of_a_frame_are_exact(spark: SparkSession, logs: Path) -> None:
    with configured(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        read = load(spark, logs)
        assert offsets(read.where("topic = 'a' AND offset >= 118")) == [118, 119]
        assert read.count() == 126
        assert read.where("partition = 3").unionAll(read).count() == 132
