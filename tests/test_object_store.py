"""A lake and its sources in a real S3 server, behind a proxy that fails, breaks off and dawdles."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import pyspark_kafka_log
from pipelines import decode_batches, ingest_raw, maintain, scan
from pipelines.command.errors import UserError
from pipelines.command.settings import Settings
from pipelines.data_source.slices import plan_read
from pipelines.data_source.source import KafkaLogSource, asked
from pipelines.engine.answer import answer
from pipelines.lake import lease
from pipelines.lake.intents import Intents, cannot_write
from pipelines.plan.runs import make_plan
from pipelines.source.listing import list_segments
from tests.support import corpus, object_store
from tests.support.cluster import ROOT
from tests.support.lake_rows import insert
from tests.support.logs import batch, batches, contents, put
from tests.support.object_store import BUCKET, Store
from udfs.source.byte_source import SourceChanged, SourceUnreadable
from udfs.source.object_source import BLOCK_BYTES, ObjectSource
from udfs.spark.protocol import TableRead
from udfs.spark.table_rows import ReadFailed, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = (
    *("v2-codec-zstd", "v1-codec-gzip", "v0-codec-snappy", "mixed-magic", "v2-txn-open", "v2-compacted"),
    "v2-headers",
)
DAMAGED = ("bitflip-payload-v2-zstd-0", "trunc-mid-batch-v2-none-0", "random-bytes-0")
LEASE_SECONDS = 3.0
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    with object_store.running(folder) as started, pytest.MonkeyPatch.context() as patch:
        for name, value in started.environment.items():
            patch.setenv(name, value)
        patch.setattr(lease, "SECONDS", LEASE_SECONDS)
        yield started


@pytest.fixture(autouse=True)
def no_harm(store: Store) -> None:
    store.reset()


def uri(*parts: str) -> str:
    return "/".join([f"s3://{BUCKET}", *parts])


def decode(spark: SparkSession, source: str, lake: str, **settings: Any) -> Any:
    return decode_batches.run(spark, Settings(source=(source,), lake=lake, **settings))


@pytest.fixture(scope="module")
def local(spark: SparkSession, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Rows of a local lake of the sample, which the bucket holds too, below ``kafka``."""
    folder = tmp_path_factory.mktemp("local")
    for name in SAMPLE:
        shutil.copytree(corpus.ROOT / name, folder / "kafka" / name)
    for name in DAMAGED:
        shutil.copytree(corpus.ROOT / "hostile" / name, folder / "kafka" / "hostile" / name)
    shutil.copytree(folder / "kafka", store.folder / "kafka")
    decode(spark, str(folder / "kafka"), str(folder / "lake"))
    return placed(contents(str(folder / "lake")), f"file://{folder}")


def in_store(lake: str) -> Rows:
    return placed(contents(lake), uri())


def placed(tables: Rows, prefix: str) -> Rows:
    """Rows with the places of files below a prefix alone, and without times, which copies do not keep."""
    for row in (row for of_table in tables.values() for row in of_table):
        row.pop("modified", None)
        for name in ("segment", "partition_dir"):
            assert row.get(name, prefix).startswith(prefix)
            row[name] = row.get(name, "").removeprefix(prefix)
    return {name: sorted(of_table, key=repr) for name, of_table in tables.items()}


def test_a_log_in_a_store_gives_the_rows_of_a_local_one(
    spark: SparkSession, store: Store, local: Rows
) -> None:
    assert decode(spark, f"s3a://{BUCKET}/kafka", f"s3a://{BUCKET}/plain").segments == len(local["segments"])
    assert in_store(uri("plain")) == local
    again = decode(spark, uri("kafka"), uri("plain"))
    assert (again.segments, again.unchanged) == (0, len(local["segments"]))


class BadDay:
    """Some requests of every kind meet some harm of every kind; of every commit the first answer is lost."""

    def __init__(self) -> None:
        self._committed: set[str] = set()

    def __call__(self, number: int, method: str, path: str) -> str:
        if method == "PUT" and "_delta_log" in path and path not in self._committed:
            self._committed.add(path)
            return object_store.ERROR_AFTER
        if method == "GET" and path.endswith(".log") and number % 3 == 0:
            return object_store.BREAK
        every = ((17, object_store.ERROR), (23, object_store.DROP), (5, object_store.SLOW))
        return next((met for each, met in every if number % each == 0), object_store.PASS)


def test_a_store_that_fails_and_breaks_off_changes_no_row(
    spark: SparkSession, store: Store, local: Rows
) -> None:
    store.meet = BadDay()
    decode(spark, uri("kafka"), uri("harmed"))
    met = dict(store.met)
    store.reset()
    assert in_store(uri("harmed")) == local
    assert len(contents(uri("harmed"), "runs")["runs"]) == 1
    kinds = (object_store.BREAK, object_store.ERROR, object_store.ERROR_AFTER, object_store.DROP)
    assert all(met[kind] > 2 for kind in kinds), met


def test_a_listing_that_breaks_off_is_told_in_one_line(
    store: Store, local: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    store.meet = lambda number, method, path: object_store.BREAK if "list-type" in path else object_store.PASS
    assert decode_batches.main(["--source", uri("kafka"), "--lake", uri("broken")]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: ")


def test_a_large_segment_is_read_in_few_requests_and_ahead(store: Store) -> None:
    content = os.urandom(5 * BLOCK_BYTES // 2)
    (store.folder / "large.log").write_bytes(content)
    view, found = np.empty(2 << 20, dtype=np.uint8), bytearray()
    source = ObjectSource(uri("large.log"))
    try:
        while size := source.read_into(len(found), view):
            found += view[:size].tobytes()
    finally:
        source.close()
    assert bytes(found) == content
    assert dict(store.seen) == {"HEAD": 1, "GET": 3}


def test_an_object_that_was_written_again_is_not_taken_for_the_one_that_was_listed(store: Store) -> None:
    path = store.folder / "again.log"
    path.write_bytes(b"before")
    listed = os.stat(path).st_mtime_ns // 1000
    source = ObjectSource(uri("again.log"))
    source.check_unchanged(listed)
    path.write_bytes(b"behind")
    os.utime(path, ns=(0, (listed + 5_000_000) * 1000))
    with pytest.raises(SourceChanged, match="written again"):
        source.check_unchanged(listed)
    path.unlink()
    with pytest.raises(SourceChanged, match="gone"):
        source.check_unchanged(listed)
    source.close()


def test_an_error_of_a_store_that_says_nothing_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise OSError

    monkeypatch.setattr("udfs.source.object_source.open_store", refuse)
    with pytest.raises(SourceUnreadable, match=r"it can't be opened: OSError$"):
        ObjectSource(uri("silent.log"))
    assert str(cannot_write("/lake", OSError())) == "can't write to the lake /lake: OSError"


@pytest.mark.parametrize("sink", ["arrow", "spark"])
def test_an_object_that_was_written_again_is_left_for_the_next_landing(
    spark: SparkSession, store: Store, lake: str, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    folder = f"landed-{sink}"
    put(store.folder / folder / "kept-0", 0, *batches(0, 2))
    again = put(store.folder / folder / "again-0", 0, *batches(0, 2))

    def plan(*arguments: Any) -> Any:
        made = make_plan(*arguments)
        again.write_bytes(b"".join(batches(0, 2, text="w")))
        os.utime(again, (2_000_000_000, 2_000_000_000))
        return made

    monkeypatch.setattr("pipelines.execute.job.make_plan", plan)
    summary = ingest_raw.run(spark, Settings(source=(uri(folder),), lake=lake, sink=sink))
    (said,) = summary.warnings
    assert f"{uri(folder)}/again-0/" in said
    assert "changed while it was read, left for the next run" in said
    assert {row["topic"] for row in contents(lake, "raw_segments")["raw_segments"]} == {"kept"}


def test_the_data_source_gives_the_rows_of_a_lake(spark: SparkSession, store: Store, local: Rows) -> None:
    pyspark_kafka_log.register(spark)  # which hands on the variables of this process
    read = spark.read.format("kafka_log")
    for table in ("records", "quarantine"):
        rows = read.option("table", table).load(f"s3a://{BUCKET}/kafka").toArrow().to_pylist()
        assert placed({table: rows}, uri())[table] == local[table], table


@pytest.fixture
def large(store: Store) -> Iterator[Path]:
    """A segment of 4 MB, 400 batches of a record each, with an index as a broker makes it."""
    made = [batch(offset, 1, text="x" * 10_000) for offset in range(400)]
    path = put(store.folder / "large" / "t-0", 0, *made)
    entries = [(i, sum(map(len, made[:i]))) for i in range(4, 400, 4)]
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    yield path
    shutil.rmtree(store.folder / "large")


def planned() -> tuple[TableRead, list[pa.RecordBatch]]:
    """What the data source reads of ``large``, and its tasks."""
    given = {"path": uri("large"), "sliceBytes": "1MiB"}
    options, read = asked(given, StructType([StructField("offset", LongType())]))
    return read, plan_read(options)


def test_the_data_source_cuts_an_object_by_a_few_of_its_bytes(store: Store, large: Path) -> None:
    read, tasks = planned()
    assert len(tasks) == 4
    assert sum(size for path, size in store.sent.items() if path.endswith(".log")) < 1 << 20
    found = [offset for task in tasks for rows in read_table(read, task) for offset in rows[0].to_pylist()]
    assert sorted(found) == list(range(400))
    large.with_suffix(".index").unlink()
    store.reset()
    read, tasks = planned()
    assert len(tasks) == 1  # all headers would be most of it
    assert not [path for _, path in store.paths if path.endswith(".log")]
    assert sum(rows.num_rows for rows in read_table(read, tasks[0])) == 400


def test_the_data_source_tells_that_an_object_was_written_again(large: Path) -> None:
    large.with_suffix(".index").unlink()
    read, (task,) = planned()
    os.utime(large, (2_000_000_000, 2_000_000_000))
    with pytest.raises(ReadFailed, match=r"can't be read as it was planned: it was written again since"):
        list(read_table(read, task))


def test_a_stream_of_a_store_is_refused() -> None:
    source = KafkaLogSource({"path": "s3a://logs/kafka"})
    with pytest.raises(UserError, match=r"^s3a://logs/kafka can't be read as a stream, .* decode --watch$"):
        source.streamReader(StructType([StructField("offset", LongType())]))


def test_many_objects_are_listed_a_thousand_at_a_time(store: Store) -> None:
    made = 3_000
    for i in range(made // 100):
        folder = store.folder / "many" / f"t-{i}"
        folder.mkdir(parents=True)
        for j in range(100):
            (folder / f"{j:020d}.log").touch()
    assert list_segments(uri("many")).segments.num_rows == made
    assert store.seen["GET"] <= made // 1000 + 2
    assert list_segments(uri("many/t-{1,2}")).segments.num_rows == 200
    named = list_segments(uri("many/t-7", f"{5:020d}.log")).segments
    assert named.num_rows == 100
    assert pc.sum(named.column("wanted")).as_py() == 1


def test_known_objects_that_were_not_written_again_are_not_read(spark: SparkSession, store: Store) -> None:
    for i in range(3):
        path = put(store.folder / "old" / "t-0", i * 6, *batches(i * 6, 2))
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert decode(spark, uri("old"), uri("known")).segments == 3
    store.reset()
    assert decode(spark, uri("old"), uri("known")).unchanged == 3
    assert not [path for _, path in store.paths if path.endswith(".log")]
    put(store.folder / "old" / "t-0", 12, *batches(12, 2, text="w"))
    assert decode(spark, uri("old"), uri("known")).segments == 1


def test_lakes_and_logs_in_a_store_are_asked_and_kept_without_java(
    spark: SparkSession, store: Store, local: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    decode(spark, uri("kafka"), uri("asked"))
    capsys.readouterr()
    assert scan.main([uri("kafka"), "--json", "--cores", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == len(local["records"])
    assert maintain.main(["--lake", uri("asked")]) == 0
    statement = "SELECT topic, count(*) AS n FROM records WHERE magic = 2 AND offset >= 0 GROUP BY ALL"
    lines = [json.loads(line) for line in answer(uri("asked"), statement, "json")]
    found = {row["topic"]: row["n"] for row in lines}
    assert found == Counter(row["topic"] for row in local["records"] if row["magic"] == 2)


def test_values_of_partitions_may_be_null(store: Store, lake: str) -> None:
    rows = [
        {"topic": topic, "partition": partition, "magic": 2, "offset": offset}
        for offset, (topic, partition) in enumerate([("a", 1), (None, 2), ("b", None)])
    ]
    insert(lake, "records", rows)
    shutil.copytree(lake, store.folder / "nulls")
    statement = "SELECT topic, partition, magic, offset FROM records ORDER BY offset"
    assert [json.loads(line) for line in answer(uri("nulls"), statement, "json")] == rows
    statement = "SELECT offset FROM records WHERE topic IS NULL"
    assert list(answer(uri("nulls"), statement, "json")) == ['{"offset":1}']


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sink", "spark", "--source", uri("kafka")], "use --sink arrow"),
        (
            ["--read", "binary", "--source", uri("kafka/v2-codec-zstd")],
            "--packages org.apache.hadoop:hadoop-aws:",
        ),
        (["--from-raw"], "--packages org.apache.hadoop:hadoop-aws:"),
    ],
)
def test_what_needs_spark_on_s3_is_told_in_one_line(
    spark: SparkSession, local: Rows, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    ingest_raw.run(spark, Settings(source=(uri("kafka/v2-headers"),), lake=uri("raw")))
    capsys.readouterr()
    assert decode_batches.main(["--lake", uri("raw"), *options]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("error: ")]
    assert said in line


def test_of_many_jobs_one_gets_the_lease(store: Store) -> None:
    told: list[str] = []
    everybody = threading.Event()

    def take() -> None:
        try:
            with Intents(uri("leased")).lock():
                told.append("held")
                everybody.wait(60)
        except UserError as error:
            told.append(str(error))
            if len(told) == len(jobs):
                everybody.set()

    jobs = [threading.Thread(target=take) for _ in range(6)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert told.count("held") == 1
    assert all("another run is writing to s3://" in line for line in told if line != "held")
    with Intents(uri("leased")).lock():
        pass  # it was given back


# Two jobs

_STANDING = """
import os, signal, sys, time
from pipelines import decode_batches
from pipelines.lake import lease
from tests.support.dying import ARROW_POINTS, arrange

def stand():
    print("here", flush=True)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        time.sleep(600)

how, point, lease.SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
arrange(ARROW_POINTS[point], stand, setattr)
sys.exit(decode_batches.main(sys.argv[4:]))
"""


@contextmanager
def standing(how: str, point: str, lake: str) -> Iterator[subprocess.Popen[str]]:
    """A job in a process of its own that stands at a point: asleep, or stopped as a machine may be."""
    arguments = [how, point, str(LEASE_SECONDS), "--source", uri("kafka"), "--lake", lake]
    job = subprocess.Popen(
        [sys.executable, "-c", _STANDING, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "here\n", job.communicate()[1]
        yield job
    finally:
        job.kill()
        job.communicate()


def test_a_second_job_is_told_and_takes_over_when_the_first_was_killed(
    spark: SparkSession, local: Rows
) -> None:
    lake = uri("killed")
    with standing("sleep", "records added", lake) as first:
        with pytest.raises(UserError, match=rf"another run is writing .*process {first.pid} on"):
            decode(spark, uri("kafka"), lake)
        first.kill()
        first.wait()
        assert decode(spark, uri("kafka"), lake).segments == 0  # it finished what the first had begun
    assert in_store(lake) == local
    assert Intents(lake).paths() == []


@pytest.mark.parametrize("point", ["before the intent", "after the intent"])
def test_a_job_that_stood_still_past_its_lease_neither_doubles_rows_nor_reports_success(
    spark: SparkSession, local: Rows, point: str
) -> None:
    lake = uri("stood", point.partition(" ")[0])
    with standing("stop", point, lake) as first:
        decode(spark, uri("kafka"), lake)
        assert in_store(lake) == local
        first.send_signal(signal.SIGCONT)
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 1, said
        assert "error: another run " in said
    assert decode(spark, uri("kafka"), lake).segments == 0
    assert in_store(lake) == local
    assert Intents(lake).paths() == []
