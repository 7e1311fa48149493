"""``restore`` by tasks of Spark: each record once, also where tasks are killed or taken for dead."""

from __future__ import annotations

import operator
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import configured
from kafka_log_lake.pipelines.restore import command, targets
from kafka_log_lake.pipelines.restore.plan import NAMES, make_plan
from kafka_log_lake.pipelines.restore.producing import Task, restore_partition
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.pipelines.sql.database import open_database
from tests.kafka.broker import Broker, Client
from tests.support.cluster import ROOT, standalone
from tests.support.processes import descendants, is_executor, python_workers, send
from tests.support.restored import Made, made_lake, wait_for_first_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORE_SETTINGS = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
RATE = 120_000  # bytes a second: some seconds for what is written here
ATTEMPT = """
import pickle, sys
from kafka_log_lake.pipelines.restore.producing import restore_partition
restore_partition(pickle.load(open(sys.argv[1], "rb")))
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Made]]:
    return made_lake(tmp_path_factory.mktemp("made"), "one", "two", "three", count=4_000)


def test_workers_of_spark_that_are_killed_cost_no_record(
    spark: SparkSession,
    running: Broker,
    judge: Client,
    lake: tuple[Path, dict[str, Made]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, rows = lake
    state = tmp_path / "state"
    monkeypatch.setattr(SparkOnDemand, "has_executors", True)  # as of a cluster
    argv = ["restore", "--lake", str(folder), "--bootstrap-server", running.address, "--create", "yes"]
    argv += ["--state", str(state), "--max-bytes-per-second", str(RATE)]

    def kill() -> int:
        wait_for_first_transaction(state)
        workers = python_workers(os.getpid())
        send(workers, signal.SIGKILL)
        return len(workers)

    with ThreadPoolExecutor(1) as thread:
        killed = thread.submit(kill)
        assert main(argv) == 0
        assert killed.result() > 0
    for topic, sent in rows.items():
        assert [row[1:4] for row in judge.read_timed(topic, 0, committed=True)] == sent, topic
    # A state that tasks don't find is refused
    monkeypatch.setattr(command, "sees", operator.not_)
    argv[argv.index(str(state))] = str(tmp_path / "of-this-machine")
    capsys.readouterr()
    assert main([*argv, "--append"]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("error: ")]
    assert "is not the same folder on Spark's executors: name one that they share" in line
    with configured(spark, {CORE_SETTINGS: "false"}), configured(spark, {"spark.speculation": "True"}):
        assert main([*argv, "--append"]) == 2
    assert "--conf spark.speculation=false" in capsys.readouterr().err


def test_a_task_that_was_taken_for_dead_ends_and_writes_nothing_twice(
    running: Broker, judge: Client, lake: tuple[Path, dict[str, Made]], tmp_path: Path
) -> None:
    folder, rows = lake
    rename, chosen = (("one", "taken-over"),), {"topics": "one", "rate": RATE // 4, "create": "yes"}
    request = Request(str(folder), None, running.address, str(tmp_path), rename=rename, **chosen)  # type: ignore[arg-type]
    database = open_database(request.lake, NAMES)
    plan = make_plan(database, request)
    database.close()
    targets.make(request, targets.missing(request, plan, targets.look(request), {})[0])
    limits = targets.check(request, plan, targets.look(request), True).limits
    (partition,) = plan.partitions
    task = Task(request, partition, "1", limits[partition.target])
    (tmp_path / "task").write_bytes(pickle.dumps(task))
    words = [sys.executable, "-c", ATTEMPT, str(tmp_path / "task")]
    first = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE)
    try:
        wait_for_first_transaction(tmp_path)
        first.send_signal(signal.SIGSTOP)
        assert restore_partition(replace(task, request=replace(request, rate=None))) == len(rows["one"])
        first.send_signal(signal.SIGCONT)
        said = first.communicate(timeout=300)[1].decode()
        assert "another restore with the same --state runs" in said
    finally:
        first.kill()
    assert [row[1:4] for row in judge.read_timed("taken-over", 0, committed=True)] == rows["one"]


def test_an_executor_of_a_cluster_that_is_killed_costs_no_record(
    running: Broker, judge: Client, lake: tuple[Path, dict[str, Made]], tmp_path: Path
) -> None:
    folder, rows = lake
    state, job = tmp_path / "state", ROOT / "pipelines" / "restore" / "__main__.py"
    words = ["--lake", str(folder), "--state", str(state), "--bootstrap-server", running.address]
    words += ["--create", "yes", "--rename", r"(.*)=cluster-\1", "--max-bytes-per-second", str(RATE)]
    conf = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    conf |= {"spark.pyspark.driver.python": sys.executable, "spark.pyspark.python": sys.executable}
    with standalone(tmp_path / "cluster", hosts=("127.0.0.1", "127.0.0.2"), cores=1) as cluster:
        submitted = cluster.submit(job, words, tmp_path, conf)
        wait_for_first_transaction(state)
        below = [pid for worker in cluster.pids[1:] for pid in descendants(worker)]
        executors = [pid for pid in below if is_executor(pid)]
        assert len(executors) == 2
        send(executors[:1], signal.SIGKILL)
        said = submitted.communicate(timeout=300)[0].decode()
    assert submitted.returncode == 0, said
    for topic, sent in rows.items():
        assert [row[1:4] for row in judge.read_timed(f"cluster-{topic}", 0, committed=True)] == sent, topic
