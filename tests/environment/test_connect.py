"""A session of Spark Connect, against a real server: the tables are those of a classic session.

The client has no JVM there. PySpark tells the two kinds apart by an environment variable, which is set while
these tests run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import pyspark_kafka_log
from kafka_log_lake import decode_frame, register
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.query.spark import answer
from tests.support import corpus
from tests.support.connect import connect_server
from tests.support.logs import batch, batches, contents, put, rows, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.decode.summary import Summary


ROOT = Path(__file__).resolve().parents[2]
_SOUND = (
    *("v0-codec-gzip", "v1-codec-snappy", "v2-codec-zstd"),
    *("v2-txn-interleaved", "v2-headers", "mixed-magic"),
)
_DAMAGED = ("hostile/bitflip-crc-v2-none-0", "hostile/bitflip-payload-v0-none-0")
SOURCES = tuple(str(corpus.ROOT / case) for case in (*_SOUND, *_DAMAGED))
LEDGER = "SELECT count(*) AS n FROM segments"


def decode(spark: SparkSession, lake: str, source: Iterable[str] = SOURCES, **settings: Any) -> Summary:
    return decode_batches.run(spark, Settings(source=tuple(source), lake=lake, **settings))


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a classic session decodes of the sample."""
    lake = str(tmp_path_factory.mktemp("classic") / "lake")
    decode(spark, lake)
    return contents(lake)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect") / "server") as url:
        yield url


@pytest.fixture(scope="module")
def remote(expected: dict[str, Any], url: str) -> Iterator[SparkSession]:
    """A user's session. With ``builder.remote`` of PySpark itself no classic session may run then."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session: Any = RemoteSession.builder.remote(url).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def decoded(remote: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = str(tmp_path_factory.mktemp("connect") / "lake")
    decode(remote, lake)
    return lake


def test_tables_are_those_of_a_classic_session(decoded: str, expected: dict[str, Any]) -> None:
    assert contents(decoded) == expected
    assert all(len(expected[table]) > 1 for table in expected)


def test_a_second_run_commits_nothing_and_redecode_replaces(
    remote: SparkSession, decoded: str, expected: dict[str, Any]
) -> None:
    before = versions(decoded)
    assert decode(remote, decoded).segments == 0
    assert versions(decoded) == before
    again = decode(remote, decoded, redecode="v2-headers")
    assert again.segments > 0
    assert contents(decoded) == expected


def test_spark_reads_the_same_rows(remote: SparkSession, expected: dict[str, Any], tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    assert decode(remote, lake, read="binary").segments > 0
    assert contents(lake) == expected
    assert decode(remote, lake, read="binary", max_content=1000, redecode="v2-txn").segments > 0
    assert contents(lake) == expected


def test_landed_bytes_decode_to_the_same_rows(remote: SparkSession, tmp_path: Path) -> None:
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    put(logs / "a-0", 0, *batches(0, 3), batch(9)[:40])
    assert ingest_raw.run(remote, Settings(source=(str(logs),), lake=lake)).segments == 1
    shutil.rmtree(logs)
    decode_batches.run(remote, Settings(from_raw=True, lake=lake))
    assert sorted(row["offset"] for row in rows(lake, "records")) == list(range(9))


def test_a_file_that_went_away_is_reported(remote: SparkSession, tmp_path: Path) -> None:
    """An analysis error of Spark Connect comes when a schema is requested, not from ``load``."""
    path = put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    put(tmp_path / "logs" / "b-0", 0, *batches(0, 2))
    records = decode_batches.decode_segments(remote, str(tmp_path / "logs"), read="binary")
    assert records.count() == 15
    path.unlink()
    again = decode_batches.decode_segments(remote, str(tmp_path / "logs" / "b-0"), read="binary")
    assert sorted(row.offset for row in again.select("offset").collect()) == list(range(6))


def test_views_and_functions(remote: SparkSession, decoded: str, expected: dict[str, Any]) -> None:
    register(remote, decoded)
    found = remote.sql("SELECT count(*) AS n, count_if(is_control) AS markers FROM published_records").first()
    records = expected["records"]
    assert found is not None
    assert (found.n, found.markers) == (len(records), sum(row["is_control"] for row in records))
    committed = remote.sql("SELECT count(*) AS n FROM committed_records").first()
    assert committed is not None
    assert 0 < committed.n < found.n
    remote.createDataFrame([(batch(7),)], "value binary").createOrReplaceTempView("mirrored")
    inside = remote.sql("SELECT r.offset FROM mirrored, LATERAL kafka_records(value) r ORDER BY ALL")
    assert [row.offset for row in inside.collect()] == [7, 8, 9]


def test_a_wrong_statement_is_one_line(remote: SparkSession, decoded: str) -> None:
    assert list(answer(remote, decoded, LEDGER, "json")) == [f'{{"n":{len(rows(decoded, "segments"))}}}']
    with pytest.raises(UserError, match=r"^SQL: \[TABLE_OR_VIEW_NOT_FOUND\].*; did you mean segments\?$"):
        list(answer(remote, decoded, "SELECT * FROM segmets", "json"))


def test_the_data_source(remote: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    pyspark_kafka_log.register(remote)
    read = remote.read.format("kafka_log").schema("offset bigint").load(str(tmp_path / "logs"))
    assert sorted(row.offset for row in read.collect()) == list(range(9))
    missing = remote.read.format("kafka_log").load(str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="no such path"):
        missing.schema  # noqa: B018  # asks the server


def test_what_cannot_work_is_said_in_one_line(remote: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be listed over Spark Connect"):
        decode(remote, str(tmp_path / "lake"), ["hdfs://namenode/kafka"])
    assert not (tmp_path / "lake").exists()


def run(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a separate process, which finds no Java."""
    environment = {**os.environ, "SPARK_REMOTE": url, "JAVA_HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    environment.pop("SPARK_CONNECT_MODE_ENABLED", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_commands_join_the_service_that_spark_remote_names(url: str, tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    lake = ("--lake", str(tmp_path / "lake"))
    source = ("--source", str(tmp_path / "logs"))
    decoded = run(url, "-m", "kafka_log_lake", "decode", *source, *lake, "--json")
    assert json.loads(decoded.stdout)["records"] == 9, decoded.stderr
    requested = run(url, "-m", "kafka_log_lake", "query", LEDGER, *lake, "--format", "csv")
    assert requested.stdout.split() == ["n", "1"], requested.stderr


def test_frames_of_bytes(remote: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    put(tmp_path / "logs" / "b-3", 0, batch(0), batch(3)[:-1])
    files = remote.read.format("binaryFile").load(f"{tmp_path}/logs/*/*.log")
    found = decode_frame(files, columns=["topic", "partition", "offset"]).collect()
    assert sorted(found) == [*(("a", 0, n) for n in range(9)), *(("b", 3, n) for n in range(3))]
    assert [row.reason for row in decode_frame(files, table="quarantine").collect()] == ["truncated"]


def test_a_declarative_pipeline(remote: SparkSession, url: str, tmp_path: Path) -> None:
    """Two runs: the second one appends. Damage is kept, left out, or stops the run."""
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    hurt = batch(1, records=1)[:-1] + b"\xff"
    put(tmp_path / "logs" / "b-3", 0, batch(0, records=1), hurt, batch(2, records=1))
    shutil.copytree(ROOT / "databricks" / "pipeline", tmp_path / "pipeline")
    path = tmp_path / "pipeline" / "spark-pipeline.yml"
    spec = yaml.safe_load(path.read_text())

    def update(on_damage: str, schema: str) -> subprocess.CompletedProcess[str]:
        spec["configuration"] = {
            "kafka_log.source": str(tmp_path / "logs"),
            "kafka_log.on_damage": on_damage,
        }
        own = {"storage": (tmp_path / schema).as_uri(), "schema": schema}
        path.write_text(yaml.safe_dump({**spec, **own}))
        return run(url, "-m", "pyspark.pipelines.cli", "run", "--spec", str(path))

    def partitions() -> list[tuple[object, ...]]:
        for table in ("kafka_partitions", "kafka_records"):
            remote.catalog.refreshTable(table)  # Spark keeps the list of its files for a session
        return [tuple(row) for row in remote.table("kafka_partitions").orderBy("topic").collect()]

    assert (done := update("warn", "default")).returncode == 0, done.stdout + done.stderr
    assert partitions() == [("a", 0, 3, 9, 0), ("b", 3, 3, 2, 1)]
    assert remote.table("kafka_quarantine").count() == 1
    put(tmp_path / "logs" / "a-0", 9, batch(9))
    assert (done := update("warn", "default")).returncode == 0, done.stdout + done.stderr
    assert partitions() == [("a", 0, 4, 12, 0), ("b", 3, 3, 2, 1)]
    assert sorted(row.offset for row in remote.table("kafka_records").where("topic = 'a'").collect()) == list(
        range(12)
    )
    remote.sql("CREATE SCHEMA strict")
    failed = update("fail", "strict")
    assert failed.returncode != 0
    assert "damaged: " in failed.stdout + failed.stderr


A_CLIENT = """
import sys
from pyspark.sql import SparkSession
from kafka_log_lake import register

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
register(spark)
try:
    spark.sql("SELECT confluent_schema_id(x'0000000007')").collect()
except Exception as error:
    print(error)
spark.stop()
"""


def test_workers_get_the_code_of_the_client(url: str, tmp_path: Path) -> None:
    """Those of the server have this checkout; the client's differs in one function."""
    for package in ("kafka_log_lake", "pyspark_kafka_log"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    function = "def confluent_schema_id(values):\n    raise ValueError('as the client has it')\n"
    (tmp_path / "kafka_log_lake" / "udfs" / "functions" / "scalars.py").write_text(function)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("SPARK_CONNECT_MODE_ENABLED", None)
    command = [sys.executable, "-c", A_CLIENT, url]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "ValueError: as the client has it" in done.stdout
