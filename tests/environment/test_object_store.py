"""A lake and its sources in a real S3 server, behind a proxy that fails, breaks off and dawdles."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_kafka_log
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.options import set_up_logging
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.pipelines.lake import lease
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.maintain import command as maintain
from kafka_log_lake.pipelines.plan.runs import make_plan
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.udfs.storage.store import S3_VARIABLES, use_settings_of
from tests.support import corpus, object_store
from tests.support.answers import answer
from tests.support.as_command import error_line
from tests.support.cluster import ROOT
from tests.support.lake_rows import insert
from tests.support.logs import batch, batches, contents, put
from tests.support.object_store import BUCKET, Store, uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SAMPLE = (
    *("v2-codec-zstd", "v1-codec-gzip", "v0-codec-snappy", "mixed-magic", "v2-txn-open", "v2-compacted"),
    "v2-headers",
)
DAMAGED = ("bitflip-payload-v2-zstd-0", "trunc-mid-batch-v2-none-0", "random-bytes-0")
LEASE_SECONDS = 3.0
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", autouse=True)
def short_leases() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "SECONDS", LEASE_SECONDS)
        yield


@pytest.fixture(autouse=True)
def no_harm(store: Store) -> None:
    store.reset()


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
    """Some requests of every kind meet some harm of every kind; of every commit the first answer is lost.

    Of each few listings of a log of a table one breaks off.
    """

    def __init__(self, listings: int) -> None:
        self._committed: set[str] = set()
        self._listings = itertools.cycle([object_store.BREAK, *[object_store.PASS] * (listings - 1)])

    def __call__(self, number: int, method: str, path: str) -> str:
        if "list-type" in path and "_delta_log" in path and next(self._listings) == object_store.BREAK:
            return object_store.BREAK
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
    store.meet = BadDay(7)
    decode(spark, uri("kafka"), uri("harmed"))
    assert maintain.main(["--lake", uri("harmed")]) == 0
    met = dict(store.met)
    store.reset()
    assert in_store(uri("harmed")) == local
    assert len(contents(uri("harmed"), "runs")["runs"]) == 1
    kinds = (object_store.BREAK, object_store.ERROR, object_store.ERROR_AFTER, object_store.DROP)
    assert all(met[kind] > 2 for kind in kinds), met


@pytest.mark.parametrize("listings", [5, 6, 7])
def test_upkeep_ends_though_listings_break_off(store: Store, listings: int) -> None:
    lake = uri(f"kept-{listings}")
    for name in ("a", "b"):
        put(store.folder / f"two-{listings}" / f"{name}-0", 0, *batches(0, 2))
        assert decode_batches.main(["--source", uri(f"two-{listings}"), "--lake", lake]) == 0
    rows = contents(lake)
    breaking = itertools.cycle([*[object_store.PASS] * (listings - 1), object_store.BREAK])
    store.meet = lambda number, method, path: next(breaking) if "list-type" in path else object_store.PASS
    assert maintain.main(["--lake", lake, "--vacuum-hours", "0"]) == 0
    store.reset()
    assert contents(lake) == rows
    files = (store.folder / f"kept-{listings}" / "segments").rglob("*.parquet")
    assert len([one for one in files if "_delta_log" not in one.parts]) == 1  # merged, the others deleted


def test_without_an_environment_the_settings_of_the_session_open_the_store(
    spark: SparkSession, store: Store, local: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = store.environment
    for name in given:
        monkeypatch.delenv(name)
        monkeypatch.delitem(spark.sparkContext.environment, name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UserError):
        decode(spark, uri("kafka"), uri("by-session"))
    settings = {
        "fs.s3a.access.key": given["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": given["AWS_SECRET_ACCESS_KEY"],
        "fs.s3a.endpoint": given["AWS_ENDPOINT_URL"],
        "fs.s3a.endpoint.region": given["AWS_REGION"],
    }
    with configured(spark, settings):
        decode(spark, uri("kafka"), uri("by-session"))
        assert in_store(uri("by-session")) == local
    for name in S3_VARIABLES:  # which the workers got
        spark.sparkContext.environment.pop(name, None)
    use_settings_of(lambda name: None)


def test_a_listing_that_breaks_off_is_reported_in_one_line(
    store: Store, local: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    store.meet = lambda number, method, path: object_store.BREAK if "list-type" in path else object_store.PASS
    assert decode_batches.main(["--source", uri("kafka"), "--lake", uri("broken")]) == 2
    assert "s3://" in error_line(capsys.readouterr().err)


def test_an_object_that_was_written_again_is_left_for_the_next_landing(
    spark: SparkSession, store: Store, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "landed"
    put(store.folder / folder / "kept-0", 0, *batches(0, 2))
    again = put(store.folder / folder / "again-0", 0, *batches(0, 2))

    def plan(*arguments: Any) -> Any:
        made = make_plan(*arguments)
        again.write_bytes(b"".join(batches(0, 2, text="w")))
        os.utime(again, (2_000_000_000, 2_000_000_000))
        return made

    monkeypatch.setattr("kafka_log_lake.pipelines.decode.job.make_plan", plan)
    summary = ingest_raw.run(spark, Settings(source=(uri(folder),), lake=lake))
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


def test_every_byte_of_a_large_object_is_read_once(store: Store, lake: str) -> None:
    one = batch(0, 12, text=random.Random(7).randbytes(4 << 10).hex())
    whole = b"".join((i * 12).to_bytes(8, "big") + one[8:] for i in range((64 << 20) // len(one)))
    put(store.folder / "large" / "t-0", 0, whole)
    options = ["--slice-bytes", "32MiB", "--cores", "2"]
    assert decode_batches.main(["--source", uri("large"), "--lake", lake, *options]) == 0
    assert sum(size for path, size in store.sent.items() if path.endswith(".log")) <= 1.05 * len(whole)


def test_lakes_and_logs_in_a_store_are_queried_and_kept_without_java(
    spark: SparkSession, store: Store, local: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    decode(spark, uri("kafka"), uri("asked"))
    capsys.readouterr()
    assert scan.main([uri("kafka"), "--json", "--cores", "1"]) == 0
    scanned = json.loads(capsys.readouterr().out)
    of_kinds = Counter(row["is_control"] for row in local["records"])
    assert (scanned["records"], scanned["control_records"]) == (of_kinds[False], of_kinds[True])
    assert maintain.main(["--lake", uri("asked")]) == 0
    statement = "SELECT topic, count(*) AS n FROM records WHERE magic = 2 AND offset >= 0 GROUP BY ALL"
    lines = [json.loads(line) for line in answer(uri("asked"), statement)]
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
    assert [json.loads(line) for line in answer(uri("nulls"), statement)] == rows
    statement = "SELECT offset FROM records WHERE topic IS NULL"
    assert list(answer(uri("nulls"), statement)) == ['{"offset":1}']


def test_what_needs_spark_on_s3_is_reported_in_one_line(
    spark: SparkSession, local: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--read", "binary", "--source", uri("kafka/v2-codec-zstd")]
    assert decode_batches.main(["--lake", uri("read by spark"), *options]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("error: ")]
    assert "--packages org.apache.hadoop:hadoop-aws:" in line


def test_landed_bytes_in_a_store_are_decoded_without_spark(store: Store, local: Rows) -> None:
    lake = uri("raw")
    assert ingest_raw.main(["--source", uri("kafka"), "--lake", lake]) == 0
    assert decode_batches.main(["--from-raw", "--lake", lake, "--slice-bytes", "1KiB"]) == 0
    assert len(contents(lake, "records")["records"]) == len(local["records"])


def test_of_many_jobs_one_gets_the_lease(store: Store) -> None:
    printed: list[str] = []
    everybody = threading.Event()

    def take() -> None:
        try:
            with Intents(uri("leased")).lock():
                printed.append("held")
                everybody.wait(60)
        except UserError as error:
            printed.append(str(error))
            if len(printed) == len(jobs):
                everybody.set()

    jobs = [threading.Thread(target=take) for _ in range(6)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert printed.count("held") == 1
    assert all("another run is writing to s3://" in line for line in printed if line != "held")
    with Intents(uri("leased")).lock():
        pass  # it was given back


# Two jobs

_STANDING = """
import os, signal, sys, time
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.lake import lease
from tests.support.dying import POINTS, arrange

def stand():
    print("here", flush=True)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        time.sleep(600)

how, point, lease.SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
arrange(POINTS[point], stand, setattr)
sys.exit(decode_batches.main(sys.argv[4:]))
"""


@contextmanager
def standing(how: str, point: str, lake: str) -> Iterator[subprocess.Popen[str]]:
    """A job in a separate process that waits at a point: asleep, or stopped as a machine may be."""
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


def test_a_second_job_is_reported_and_takes_over_when_the_first_was_killed(
    spark: SparkSession, local: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging()
    lake = uri("killed")
    with standing("sleep", "records added", lake) as first:
        with pytest.raises(UserError, match=rf"another run is writing .*process {first.pid} on"):
            decode(spark, uri("kafka"), lake)
        first.kill()
        first.wait()
        assert decode(spark, uri("kafka"), lake).segments == 0  # it finished what the first had begun
        said = capsys.readouterr().err
        assert f"process {first.pid} on {socket.gethostname()} was killed while it wrote to the lake" in said
        assert "lease has to end" not in said
    assert in_store(lake) == local
    assert Intents(lake).paths() == []


@pytest.mark.parametrize("point", ["before the intent", "after the intent"])
def test_a_job_that_paused_past_its_lease_neither_doubles_rows_nor_reports_success(
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
