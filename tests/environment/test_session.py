"""The session a job gets: what it is set to, what it refuses, and the environment's bare spark-submit."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.java import java_major, java_problem
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import get_session
from tests.support.java import QUICK_ENVIRONMENT
from tests.support.logs import batch, put, rows
from tools.spark_ready import DELTA, SPARK_ENV

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


ROOT = Path(__file__).resolve().parents[2]


def test_a_session_that_is_there_is_taken(spark: SparkSession) -> None:
    assert get_session(Settings()) is spark


def test_failed_tasks_are_tried_again(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2,4]"


def test_time_is_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT string(timestamp_seconds(0))").first()
    assert row is not None
    assert row[0] == "1970-01-01 00:00:00"


def test_workers_run_this_python_and_find_the_packages(spark: SparkSession) -> None:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import pyarrow

        import kafka_log_lake

        for _ in batches:
            yield pyarrow.record_batch({"told": [sys.executable, str(kafka_log_lake.__file__)]})

    printed = [row["told"] for row in spark.range(1).mapInArrow(tell, "told string").collect()]
    assert printed == [sys.executable, str(ROOT / "kafka_log_lake" / "__init__.py")]


def test_a_worker_starts_with_the_decoder_and_collects_no_garbage_in_it(spark: SparkSession) -> None:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        import pyarrow

        decoder = sys.modules.get("kafka_log_lake.udfs.decoder.segment_decoder")
        collected = any(one is vars(decoder) for one in gc.get_objects())
        for _ in batches:
            yield pyarrow.record_batch({"loaded": [decoder is not None], "collected": [collected]})

    printed = spark.range(1).mapInArrow(tell, "loaded boolean, collected boolean").first()
    assert printed is not None
    assert tuple(printed) == (True, False)


def test_what_the_first_task_of_a_worker_loads_is_no_garbage() -> None:
    """pyspark collects after each task; with all modules that is most of the time of a small task."""
    code = """
import gc
from kafka_log_lake.udfs.spark.protocol import StageOptions
from kafka_log_lake.udfs.spark.stages import stage

def task():
    list(stage("verify", StageOptions("run", 0, 1, 1, 1, "", "zstd"))(iter(())))

def collected(one):
    return any(each is one for each in gc.get_objects())

from kafka_log_lake.udfs.decoder import segment_decoder
task()
loaded = ["by the first task"]
assert collected(loaded) and not collected(vars(segment_decoder))
task()
later = ["by the second task"]
assert not collected(loaded)
task()
assert collected(later)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_spark_s_processes_compile_nothing_of_pyspark() -> None:
    """Python processes of Spark import an archive of sources, which setup gives the compiled modules."""
    archive = Path(sys.executable).parent / "spark-distribution" / "python" / "lib" / "pyspark.zip"
    code = "import pyspark.sql.worker; print(pyspark.__file__, pyspark.sql.worker.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        f"{archive}/pyspark/__init__.pyc",
        f"{archive}/pyspark/sql/worker/__init__.pyc",
    ]


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('version "21"', 21),
        ("", None),
    ],
)
def test_java_version(text: str, major: int | None) -> None:
    assert java_major(text) == major


def fake_java(folder: Path, script: str) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'version \"11.0.2\"' >&2", "Java 11 found at"),
        ("echo nonsense >&2", "Java of unknown version found at"),
        ("exit 3", "does not start"),
    ],
)
def test_unfit_java_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str
) -> None:
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert message in problem
    assert "install a Java 17 or 21" in problem


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_problem() == (
        "JAVA_HOME has no bin/java: install a Java 17 or 21 runtime (for example openjdk-17-jre-headless) "
        "or set JAVA_HOME to one"
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(java_problem()).startswith("no Java found")


def without_java(folder: Path, job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAVA_HOME": str(folder)}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    command = [sys.executable, "-m", f"pipelines.{job}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_job_without_java_exits_with_2(lake: str, tmp_path: Path) -> None:
    done = without_java(tmp_path, "query", "--lake", lake, "--engine", "spark", "SELECT 1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: JAVA_HOME has no bin/java: install a Java 17 or 21")


def test_what_needs_no_spark_is_answered_without_java(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, batch(0))
    settings = Settings(source=(str(logs),), lake=lake)
    decode_batches.run(spark, settings)
    ingest_raw.run(spark, settings)
    for code, said, job, *arguments in (
        (0, "nothing new to decode", "decode_batches", "--source", str(logs), "--lake", lake),
        (0, "nothing new to land", "ingest_raw", "--source", str(logs), "--lake", lake),
        (2, "no such path", "decode_batches", "--source", f"{logs}/none", "--lake", lake),
        (2, "there is no lake", "decode_batches", "--from-raw", "--lake", str(logs)),
    ):
        done = without_java(tmp_path, job, *arguments)
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stderr
    put(logs / "a-0", 1, batch(1))
    for arguments in (["--read", "binary"], ["--catalog-schema", "kafka"]):
        done = without_java(tmp_path, "decode_batches", "--source", str(logs), "--lake", lake, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: JAVA_HOME has no bin/java")
    for job in ("decode_batches", "ingest_raw"):
        done = without_java(tmp_path, job, "--source", str(logs), "--lake", lake, "--json")
        assert (done.returncode, json.loads(done.stdout)["segments"]) == (0, 1), done.stderr
    assert sorted(row["offset"] for row in rows(lake, "records")) == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"]
)
def test_where_spark_is_configured_tasks_run_in_it(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # that of other tests
    assert SparkOnDemand(Settings()).is_plain
    monkeypatch.setenv(variable, "anything")
    assert not SparkOnDemand(Settings()).is_plain


def bare_submit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``.venv/bin/spark-submit`` as a person runs it: nothing is set but locale and Java's compiler."""
    submit = Path(sys.executable).with_name("spark-submit")
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    environment = {**kept, **QUICK_ENVIRONMENT, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [str(submit), *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_bare_spark_submit_runs_a_job(lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    job = str(ROOT / "pipelines" / "query" / "__main__.py")
    done = bare_submit(folder, job, "--lake", lake, "--format", "csv", "SELECT count(*) AS n FROM records")
    assert (done.returncode, done.stdout) == (0, "n\n0\n"), done.stderr
    assert list(folder.iterdir()) == []


def test_pyspark_s_own_shell_runs_the_python_of_the_environment_and_writes_delta(tmp_path: Path) -> None:
    """With the configuration that ``make setup`` writes, whichever python3 is first on PATH."""
    bin_folder = Path(sys.executable).parent
    (tmp_path / "spark-env.sh").write_text(SPARK_ENV.format(bin_folder=bin_folder, delta=DELTA))
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    path = os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if one != str(bin_folder))
    script = "import sys; from pyspark.sql import SparkSession; spark = SparkSession.builder.getOrCreate()\n"
    script += "spark.range(3).write.format('delta').save('table'); print(sys.prefix)\n"
    done = subprocess.run(
        [str(bin_folder / "pyspark")],
        cwd=tmp_path,
        env={**kept, **QUICK_ENVIRONMENT, "PATH": path, "SPARK_CONF_DIR": str(tmp_path)},
        input=script,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    assert Path(done.stdout.strip()).samefile(sys.prefix)
    assert (tmp_path / "table" / "_delta_log").is_dir()


def test_spark_without_delta_is_reported_which_package_to_add(tmp_path: Path) -> None:
    home = Path(sys.executable).parent / "spark-distribution"
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in (home / "jars").glob("*.jar"):
        if not jar.name.startswith("delta-"):
            (jars / jar.name).symlink_to(jar.resolve())
    for name in ("bin", "python", "conf"):
        (tmp_path / name).symlink_to((home / name).resolve())
    environment = {**os.environ, "SPARK_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    job = str(ROOT / "pipelines" / "query" / "__main__.py")
    command = [str(tmp_path / "bin" / "spark-submit"), job, "--lake", "x", "SELECT 1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    # spark-submit sends the job's standard error to its standard output.
    assert done.stdout.startswith("error: Spark has no Delta Lake: ")
    assert done.stdout.endswith("add --packages io.delta:delta-spark_4.2_2.13:4.4.0 to spark-submit\n")
