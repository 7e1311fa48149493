"""``decode_frame``: bytes that lie in a DataFrame give the rows that their files give."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_log_lake import decode_frame, decode_segments
from kafka_log_lake.pipelines import ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.options import TABLE_COLUMNS, Options
from kafka_log_lake.pipelines.dataframes.slices import list_requested
from kafka_log_lake.pipelines.plan.headers import headers
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, to_arrow
from kafka_log_lake.udfs.spark.frame_rows import decode_rows
from kafka_log_lake.udfs.spark.protocol import FRAME_SCHEMA, FrameRead, StageOptions, TableRead
from kafka_log_lake.udfs.spark.table_rows import ReadFailed, read_table
from kafka_log_lake.udfs.storage.byte_source import FileSource, path_of_uri
from kafka_log_lake.udfs.storage.spool import ChunkContradiction, ChunkSpool
from tests.support import corpus
from tests.support.logs import batch, batches, put

OPTIONS = StageOptions("", 0, 1 << 16, 16 << 20, 1 << 20, "", "")
CASES = (
    *("v0-codec-gzip", "v1-codec-lz4", "v2-headers", "v2-txn-interleaved", "mixed-magic"),
    *("hostile/bitflip-payload-v2-zstd-0", "hostile/magic-3-0", "hostile/random-bytes-0"),
    *("hostile/zero-tail-v0-none-0", "hostile/trunc-mid-batch-v2-none-0", "hostile/zstd-corrupt-middle-0"),
)


def reading(table: str = "records", **how: Any) -> FrameRead:
    columns = TABLE_COLUMNS[table]
    schema = pa.schema([(column.name, column.arrow_type) for column in columns])
    failfast = how.pop("failfast", False)
    return FrameRead(table, tuple(schema.names), schema, failfast, OPTIONS, warns=False, **how)


def frame(values: list[tuple[Any, ...]], together: int = 5) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(values), together):
        part = [dict(zip(FRAME_SCHEMA.names, row, strict=True)) for row in values[begin : begin + together]]
        yield pa.RecordBatch.from_pylist(part, FRAME_SCHEMA)


def texts(batches_: Iterator[pa.RecordBatch], *without: str) -> list[str]:
    rows = [row for one in batches_ for row in one.to_pylist()]
    return sorted(repr({name: row[name] for name in row if name not in without}) for row in rows)


def decoded(values: list[tuple[Any, ...]], table: str = "records", **how: Any) -> list[dict[str, Any]]:
    made = decode_rows(reading(table, **how))(frame(values))
    return [row for one in made for row in one.to_pylist()]


def content(segment: Segment) -> bytes:
    return Path(path_of_uri(segment.segment) or "").read_bytes()


@pytest.fixture(scope="module", params=CASES)
def segments(request: pytest.FixtureRequest) -> list[Segment]:
    found = list_requested(Options(path=(str(corpus.ROOT / request.param),)))
    return [replace(one, has_successor=True) for one in found]  # a frame does not tell that a tail may grow


@pytest.mark.parametrize("table", TABLE_COLUMNS)
def test_whole_segments_and_their_chunks_give_what_files_give(segments: list[Segment], table: str) -> None:
    read = reading(table)
    of_files = TableRead(table, read.names, read.schema, False, OPTIONS)
    slices = to_arrow([Slice(0, one, 0, one.length, True) for one in segments]).combine_chunks()
    expected = texts(read_table(of_files, slices.to_batches()[0]))
    whole = [(one.topic, one.partition, one.segment, None, content(one)) for one in segments]
    assert texts(decode_rows(read)(frame(whole))) == expected
    opened = [(*row[:3], len(row[4]), None) for row in whole]
    assert texts(decode_rows(reading(table, are_files=True))(frame(opened))) == expected
    size = 997 if max(one.length for one in segments) < 1 << 20 else 65_537
    chunks = [
        (one.topic, one.partition, one.segment, at, content(one)[at : at + size])
        for one in segments
        for at in range(0, max(1, one.length), size)
    ]
    random.Random(55).shuffle(chunks)
    chunks += chunks[:2]  # twice
    assert texts(decode_rows(reading(table, is_chunked=True))(frame(chunks))) == expected


@pytest.mark.parametrize("table", ["records", "batches"])
def test_single_batches_give_the_same_records(segments: list[Segment], table: str) -> None:
    """But for their place: a batch that stands by itself begins at byte 0."""
    values, expected = [], []
    for one in segments:
        source = FileSource(path_of_uri(one.segment) or "")
        cuts = [(header.position, header.end) for header in headers(source, 0, one.length)]
        source.close()
        sound = content(one)[: cuts[-1][1] if cuts else 0]
        values += [(one.topic, one.partition, None, None, sound[begin:end]) for begin, end in cuts]
        expected.append((one.topic, one.partition, None, None, sound))
    place = ("batch_position", "position", "error")  # an error names the byte
    alone = decode_rows(reading(table))(frame(values, 1))
    together = decode_rows(reading(table))(frame(values, 1000))
    assert texts(together) == texts(decode_rows(reading(table))(frame(values, 1)))
    assert texts(alone, *place) == texts(decode_rows(reading(table))(frame(expected)), *place)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_every_cut_of_a_value_is_a_row_of_quarantine_and_loses_no_batch_before_it(is_chunked: bool) -> None:
    whole, first = batch(0) + batch(3), len(batch(0))
    for size in range(first, len(whole)):
        values = [("a", 0, "s", 0, whole[:size])]
        assert [row["offset"] for row in decoded(values, is_chunked=is_chunked)] == [0, 1, 2]
        damaged = decoded(values, "quarantine", is_chunked=is_chunked)
        found = [(row["position"], row["size_bytes"], row["reason"]) for row in damaged]
        assert found == ([(first, size - first, "truncated")] if size > first else [])


def test_a_null_value_is_a_row_of_quarantine() -> None:
    values = [("a", 0, "s", None, batch(0)), ("a", 0, "t", None, None), ("a", 0, "u", None, batch(3))]
    assert [row["offset"] for row in decoded(values)] == list(range(6))
    (row,) = decoded(values, "quarantine")
    assert (row["segment"], row["reason"], row["size_bytes"]) == ("t", "unreadable", 0)
    assert row["detail"].startswith("column content is null")


def test_a_missing_chunk_is_a_row_of_quarantine_and_no_batch_beside_it_is_lost() -> None:
    made = batches(0, 3)
    one = len(made[0])
    chunks = [("a", 0, "s", at * one, made[at]) for at in (0, 2)]
    assert [row["offset"] for row in decoded(chunks, is_chunked=True)] == [*range(3), *range(6, 9)]
    (row,) = decoded(chunks, "quarantine", is_chunked=True)
    assert (row["position"], row["next_position"], row["reason"]) == (one, 2 * one, "unreadable")
    null = [*chunks, ("a", 0, "s", one, None)]
    (row,) = decoded(null, "quarantine", is_chunked=True)
    assert row["detail"].startswith("column content is null at position")


def test_what_contradicts_itself_fails_in_one_line_that_names_column_segment_and_cure() -> None:
    def failing(values: list[tuple[Any, ...]], **how: Any) -> str:
        with pytest.raises(ReadFailed) as raised:
            decoded(values, **how)
        return str(raised.value)

    mixed = [("a", 0, "s", 0, batch(0)), ("a", 0, "s", 0, batch(3))]
    assert "s: two rows hold different bytes" in failing(mixed, is_chunked=True)
    assert [row["offset"] for row in decoded([mixed[0], ("a", 1, *mixed[1][2:])], is_chunked=True)]
    assert "column segment is null" in failing([("a", 0, None, 0, batch(0))], is_chunked=True)
    assert "column at is None in a row of s" in failing(
        [("a", 0, "s", None, b"x")], is_chunked=True, position="at"
    )
    assert failing([("a", 0, "s", None, batch(0)[:-1])], failfast=True).startswith("damage in s: truncated")


def test_a_file_that_is_not_there_fails_in_one_line_that_names_the_cure() -> None:
    row = ("a", 0, "file:///nowhere/a-0/00000000000000000000.log", 9, None)
    with pytest.raises(ReadFailed, match=r"^file:///nowhere/.*: its bytes can't be read: .*column content$"):
        decoded([row], are_files=True)


def test_chunks_that_overlap_are_compared() -> None:
    spool = ChunkSpool()
    data = os.urandom(3 << 20)
    for begin, end in ((0, 100), (50, 2_000_000), (40, 60), (1_999_999, len(data)), (0, 100)):
        spool.add("s", begin, data[begin:end])
    (range_,) = spool.ranges("s")
    found = np.empty(len(data) + 9, dtype=np.uint8)
    assert (range_.begin, range_.end) == (0, len(data))
    assert range_.read_into(0, found) == len(data)
    assert found[: len(data)].tobytes() == data
    spool.add("s", 10, b"other")
    with pytest.raises(ChunkContradiction):
        list(spool.ranges("s"))
    spool.close()


def rows(found: DataFrame) -> list[str]:
    return sorted(map(repr, found.toArrow().to_pylist()))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("frame") / "logs"
    put(root / "a-0", 0, *batches(0, 4))
    put(root / "a-0", 12, *batches(12, 2))
    put(root / "b.c-3", 0, batch(0), b"\xff" * 30, batch(3))
    put(root / "gone-0.0123456789abcdef-delete", 0, batch(0))
    (root / "a-0" / f"{0:020d}.index").write_bytes(bytes(100))
    (root / "meta.properties").write_text("version=1\n")
    return root


def files(spark: SparkSession, logs: Path) -> DataFrame:
    return spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(logs))


@pytest.mark.spark
def test_files_that_spark_reads_need_no_argument(spark: SparkSession, logs: Path) -> None:
    found = decode_frame(files(spark, logs))
    assert rows(found) == rows(decode_segments(spark, str(logs)))
    assert found.schema.simpleString() == decode_segments(spark, str(logs)).schema.simpleString()
    few = decode_frame(files(spark, logs), columns=["error", "offset", "topic"])
    assert few.columns == ["error", "offset", "topic"]
    (damage,) = few.where("error IS NOT NULL").collect()
    assert (damage.topic, damage.offset, damage.error[:8]) == ("b.c", None, "garbage:")
    assert decode_frame(files(spark, logs), table="batches").count() == 8


@pytest.mark.spark
def test_tasks_open_the_files_whose_bytes_spark_does_not_bring(spark: SparkSession, logs: Path) -> None:
    found = decode_frame(files(spark, logs).drop("content"))
    expected = rows(decode_segments(spark, str(logs)))
    assert not reads_content(found)
    assert rows(found) == expected
    stream = spark.readStream.format("binaryFile").schema(files(spark, logs).schema).load(f"{logs}/*/*.log")
    query = decode_frame(stream.drop("content")).writeStream.format("memory").queryName("opened")
    query.trigger(availableNow=True).start().awaitTermination()
    assert rows(spark.table("opened")) == expected


@pytest.mark.spark
def test_chunks_in_any_partition_are_put_together(spark: SparkSession, logs: Path) -> None:
    cut = files(spark, logs / "a-0").selectExpr(
        "'a' AS topic",
        "path AS segment",
        "explode(sequence(0L, length - 1, 40L)) AS chunk_position",
        "content",
    )
    chunks = cut.withColumn("content", F.expr("substring(content, int(chunk_position + 1), 40)"))
    named = chunks.where("segment LIKE '%.log'").repartition(7)
    found = decode_frame(named, partition=0, columns=["offset", "partition"])
    assert sorted(found.collect()) == [(offset, 0) for offset in range(18)]


@pytest.fixture(scope="module")
def landed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """raw_segments of a lake, with a segment in three chunks of which the last has two batches."""
    folder = tmp_path_factory.mktemp("a lake, 100 % ü")
    made = batches(0, 4)
    for number in (1, 2, 4):
        put(folder / "logs" / "a-0", 0, *made[:number])
        ingest_raw.run(spark, Settings(source=(str(folder / "logs"),), lake=str(folder / "lake")))
    shutil.rmtree(folder / "logs")
    return folder / "lake" / "raw_segments"


def reads_content(found: DataFrame) -> bool:
    """Whether the plan of a frame brings the bytes through Spark."""
    frame: Any = found
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return any("content" in line for line in plan.splitlines() if "FileScan" in line)


@pytest.mark.spark
def test_landed_chunks_are_read_where_they_lie(spark: SparkSession, landed: Path) -> None:
    """And through Spark where a row may have other bytes than the file, with the same rows."""
    raw = spark.read.format("delta").load(str(landed))
    raw.createOrReplaceTempView("landed_chunks")
    assert raw.count() == 3
    in_place = [
        raw,
        raw.where("chunk_position >= 0").select("topic", "partition", "segment", "chunk_position", "content"),
        spark.sql("SELECT * FROM landed_chunks WHERE topic = 'a'"),
    ]
    through_spark = [
        raw.orderBy(F.desc("chunk_position")),
        raw.union(raw),
        raw.withColumn("content", F.concat("content", F.unhex(F.lit("")))),
        raw.withColumn("segment", F.concat("segment", F.lit(""))),
    ]
    expected = rows(decode_frame(raw, content=F.col("content")))
    assert len(expected) == 12
    for frame, is_read_by_spark in [(f, False) for f in in_place] + [(f, True) for f in through_spark]:
        found = decode_frame(frame)
        assert (rows(found), reads_content(found)) == (expected, is_read_by_spark)
    part = raw.where(f"chunk_position != {len(batch(0))}")
    for table in TABLE_COLUMNS:
        found = decode_frame(part, table=table)
        assert not reads_content(found)
        assert rows(found) == rows(decode_frame(part, F.col("content"), table=table))
    assert decode_frame(part, table="quarantine").count() == 1
    before = decode_frame(raw)
    raw.cache()
    assert rows(decode_frame(raw)) == expected
    with pytest.raises(Exception, match="is the frame cached"):
        before.count()
    raw.unpersist()
    assert rows(before) == expected


@pytest.mark.spark
def test_landed_segments_are_decoded_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """Spark puts rows as small as theirs, which bring no bytes, in one task where it may."""
    for partition in range(3):
        put(tmp_path / "logs" / f"a-{partition}", 0, batch(0))
    ingest_raw.run(spark, Settings(source=(str(tmp_path / "logs"),), lake=str(tmp_path / "lake")))
    found = decode_frame(spark.read.format("delta").load(f"{tmp_path}/lake/raw_segments"))
    assert found.select(F.spark_partition_id()).distinct().count() == 3


@pytest.mark.spark
def test_a_stream_of_landed_chunks(spark: SparkSession, landed: Path) -> None:
    raw = spark.readStream.format("delta").load(str(landed))
    got: list[int] = []

    def keep(one: DataFrame, _: int) -> None:
        got.extend(row.offset for row in decode_frame(one).select("offset").collect())

    raw.writeStream.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()
    assert sorted(got) == list(range(12))
    query = decode_frame(raw).writeStream.format("memory").queryName("landed_records")
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("landed_records").count() == 12


@pytest.mark.spark
def test_landed_chunks_that_come_twice_count_once_and_others_fail(
    spark: SparkSession, landed: Path, tmp_path: Path
) -> None:
    table = str(tmp_path / "raw")
    raw = spark.read.format("delta").load(str(landed))
    for _ in range(2):
        raw.repartition(1).write.format("delta").mode("append").save(table)
    twice = decode_frame(spark.read.format("delta").load(table))
    assert not reads_content(twice)
    assert rows(twice) == rows(decode_frame(raw))
    changed = raw.withColumn("content", F.concat(F.unhex(F.lit("01")), F.expr("substring(content, 2)")))
    changed.write.format("delta").mode("append").save(table)
    with pytest.raises(Exception, match="is not what was landed"):
        decode_frame(spark.read.format("delta").load(table)).count()
    changed.withColumn("crc32c", F.lit(None).cast("bigint")).union(raw).write.format("delta").mode(
        "overwrite"
    ).save(table)
    with pytest.raises(Exception, match="two rows hold different bytes"):
        decode_frame(spark.read.format("delta").load(table)).count()


@pytest.mark.spark
def test_a_stream_of_files_and_one_batch_of_it_after_the_other(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("binaryFile").schema(files(spark, logs).schema).load(f"{logs}/*/*.log")
    query = decode_frame(stream).writeStream.format("parquet").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "check")).start(
        str(tmp_path / "out")
    ).awaitTermination()
    expected = rows(decode_segments(spark, str(logs)))
    columns = decode_segments(spark, str(logs)).columns
    assert rows(spark.read.parquet(str(tmp_path / "out")).select(columns)) == expected
    got: list[str] = []
    each = stream.writeStream.foreachBatch(lambda one, _: got.extend(rows(decode_frame(one))))
    each.trigger(availableNow=True).start().awaitTermination()
    assert sorted(got) == expected


@pytest.mark.spark
def test_a_wrong_argument_is_one_line(spark: SparkSession, logs: Path) -> None:
    def message(frame: Any, **given: Any) -> str:
        with pytest.raises(UserError) as raised:
            decode_frame(frame, **given)
        return str(raised.value)

    bytes_ = spark.createDataFrame([(b"", "x", 0)], "content binary, name string, number int")
    assert "topic=F.lit(" in message(bytes_)
    assert 'topic=F.lit("orders")' in message(bytes_, topic="orders", partition="number")
    assert "column name is string, and content must be binary" in message(
        bytes_, content="name", topic="name", partition=0
    )
    assert "column name is string, and partition must be" in message(bytes_, topic="name", partition="name")
    assert "segment must name" in message(bytes_, topic="name", partition=0, position="number")
    assert "did you mean value" in message(files(spark, logs), columns=["valeu"])
    assert "table must be one of" in message(bytes_, table="segments")
    assert "df must be a DataFrame" in message(str(logs))
