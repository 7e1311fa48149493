"""The job on a Spark standalone cluster: master, workers and executors are processes of their own.

Executors have what ``make package`` makes, and nothing else leads their Python to this project.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.soak import scenario, victims
from tests.support import as_command
from tests.support.cluster import ROOT, Cluster, standalone
from tests.support.logs import batch, batches, contents, put
from tests.support.processes import send
from tools import package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Both workers have to be there before the executors are checked
TWO_EXECUTORS = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
PYTHON = "spark.pyspark.python"
DRIVER = {"spark.pyspark.driver.python": sys.executable}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), hosts=("127.0.0.1", "127.0.0.2"), cores=1) as started:
        yield started
    for folder in started.work:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package.make_wheel(tmp_path_factory.mktemp("package"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder, broken = tmp_path / "logs", bytearray(batch(9))
    broken[-1] ^= 1
    put(folder / "a-0", 0, *batches(0, 3), bytes(broken), batch(12, codec=4))
    put(folder / "a-1", 5, *batches(5, 2), batch(11)[:30])
    put(folder / "b-0", 0, batch(0, flags=0x10, producer_id=3, producer_epoch=0, base_sequence=0))
    return folder


def test_executors_that_have_the_archive_alone_decode_as_this_machine_does(
    spark: SparkSession, lake_template: str, cluster: Cluster, wheel: Path, logs: Path, tmp_path: Path
) -> None:
    archive = package.make_archive(wheel)
    lake, here = tmp_path / "lake", tmp_path / "here"
    here.mkdir()
    conf = {**TWO_EXECUTORS, **DRIVER, PYTHON: "./environment/bin/python"}
    job = ROOT / "pipelines" / "decode_batches.py"
    arguments = ["--source", str(logs), "--lake", str(lake), "--json"]
    submitted = cluster.submit(job, arguments, here, conf, ["--archives", f"{archive}#environment"])
    said = submitted.communicate(timeout=300)[0].decode()
    assert submitted.returncode == 0, said
    printed = json.loads(said.splitlines()[-1])
    assert (printed["segments"], printed["records"], printed["damaged"]) == (3, 21, 1)
    assert list(here.iterdir()) == []

    (line,) = re.findall(r"^\d+ executors? on .*", said, re.MULTILINE)
    assert line.startswith("2 executors on ")
    assert re.search(r"kafka-log-lake \S+ \(code \w{8}\) from \./environment/lib/python[\d.]+/", line)
    for folder in cluster.work:
        (unpacked,) = folder.glob("*/*/environment")
        assert list(unpacked.glob("lib/*/site-packages/kafka_log_lake/udfs/compiled/*/*/*.o"))
        assert list(unpacked.rglob("*.nbi")) == []  # none compiled there

    embedded = tmp_path / "embedded"
    shutil.copytree(lake_template, embedded)
    as_command.decode(spark, Settings(lake=str(embedded), source=(str(logs),)))
    assert contents(str(lake)) == contents(str(embedded))


def test_executors_without_the_packages_are_reported_in_one_line(
    cluster: Cluster, wheel: Path, logs: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    job = ROOT / "pipelines" / "decode_batches.py"
    arguments = ["--source", str(logs), "--lake", str(tmp_path / "lake")]
    options = ["--py-files", str(package.make_zip(wheel))]
    submitted = cluster.submit(job, arguments, tmp_path, {**DRIVER, PYTHON: str(bare)}, options)
    said = submitted.communicate(timeout=300)[0].decode()
    assert submitted.returncode == 2, said
    assert "Traceback" not in said
    (line,) = re.findall(r"^error: .*", said, re.MULTILINE)
    assert "can't import numpy (No module named 'numpy'), pyarrow (" in line
    assert "make package" in line


# A task that takes longer than the first one that is done gets a second attempt, on another host
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.01",
    "spark.speculation.multiplier": "1.0",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def test_a_task_that_ran_twice_gives_its_rows_once(
    spark: SparkSession, lake_template: str, cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    logs, lake, events = (tmp_path / name for name in ("logs", "lake", "events"))
    events.mkdir()
    for partition in range(4):
        put(logs / f"bulk-{partition}", 0, *scenario.bulk(100))
    shutil.copytree(lake_template, lake)
    conf = {**SPECULATION, "spark.eventLog.dir": str(events)}
    job = victims.start(
        lake, logs, tmp_path / "job.log", cluster=cluster, code=package.make_zip(wheel), conf=conf
    )
    straggler = job.stop_a_writer()
    try:
        assert job.wait() == 0, job.said()
    finally:
        send([straggler], signal.SIGKILL)
    assert any('"Speculative":true' in log.read_text() for log in events.iterdir())
    assert scenario.orphans(lake) > 0

    embedded = tmp_path / "embedded"
    shutil.copytree(lake_template, embedded)
    as_command.decode(spark, Settings(lake=str(embedded), source=(str(logs),)))
    assert scenario.state(lake).differences(scenario.state(embedded)) == []
    assert scenario.left_behind(lake) == []
