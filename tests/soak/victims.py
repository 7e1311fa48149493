"""A running job seen from outside: which processes it has, how far it is, and who of them is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from kafka_log_lake.udfs.kernels import machine_code
from tests.soak import scenario
from tests.support.cluster import ROOT, Cluster
from tests.support.java import QUICK_JAVA
from tests.support.processes import (
    command,
    descendants,
    is_executor,
    is_java,
    is_locked,
    local_workers,
    python_workers,
    stop_a_holder,
)

# Where tasks run: in processes without Spark, in the Spark of the command, on a cluster
PROCESSES, EMBEDDED, STANDALONE = "processes", "embedded", "standalone"
# Who is killed: the job's Python, its Java, a Python worker, an executor's Java
DRIVER, JVM, WORKER, EXECUTOR = "driver", "driver's JVM", "Python worker", "executor's JVM"
VICTIMS = {
    PROCESSES: (DRIVER, WORKER),
    EMBEDDED: (DRIVER, JVM, WORKER),
    STANDALONE: (DRIVER, JVM, WORKER, EXECUTOR),
}
PHASES = ("start", "plan", "stage", "before the first commit", "between commits", "before the ledger", "end")


@dataclass
class Job:
    """One job from the command line. ``known``: data files that were in the lake before it began."""

    lake: Path
    process: subprocess.Popen[bytes]
    cluster: Cluster | None
    log: Path
    known: frozenset[str]

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float = 300) -> int:
        return self.process.wait(timeout=seconds)

    def victims(self, kind: str) -> list[int]:
        """Processes that can be killed; none where there are none yet, or no more."""
        own = descendants(self.process.pid)
        executors = [p for root in self.cluster.pids for p in descendants(root)] if self.cluster else own
        if kind == DRIVER:
            return [p for p in own if _is_job(p)] if self.cluster else [self.process.pid]
        if kind == JVM:
            return [self.process.pid] if self.cluster else [p for p in own if is_java(p) and _is_spark(p)]
        if kind == EXECUTOR:
            return [p for p in executors if is_executor(p)]
        roots = self.cluster.pids if self.cluster else (self.process.pid,)
        return [worker for root in roots for worker in (*local_workers(root), *python_workers(root))]

    def stop_a_writer(self) -> int:
        """Stops a Python worker while it has a data file of the lake open; its pid."""
        return stop_a_holder(lambda: self.victims(WORKER), self.lake / "records", lambda: self.is_alive)

    def phase(self) -> str:
        """How far the job is, by what lies in its lake."""
        intents = list((self.lake / "_runs").glob("*.json"))
        if intents:
            version = int(intents[0].stem.rpartition("-")[2])
            done = {name for name, last in scenario.committed(self.lake).items() if last >= version}
            if "segments" in done:
                return "end"
            if {"records", "batches"} <= done:
                return "before the ledger"
            return "between commits" if done else "before the first commit"
        if data_files(self.lake) - self.known - in_tables(self.lake):
            return "stage"
        if is_locked(self.lake / "_runs" / "lock"):
            return "plan"
        return "end" if "decoded" in self.said() else "start"


def _is_job(pid: int) -> bool:
    words = command(pid).split(" ")
    return "python" in Path(words[0]).name and any(w.endswith("decode_batches.py") for w in words[1:2])


def _is_spark(pid: int) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command(pid)


def data_files(lake: Path) -> frozenset[str]:
    """Data files of records."""
    found = (lake / "records").rglob("*.parquet")
    return frozenset(str(p) for p in found if "_delta_log" not in p.parts)


def in_tables(lake: Path) -> frozenset[str]:
    """Data files that the table records names."""
    if not DeltaTable.is_deltatable(str(lake / "records")):
        return frozenset()
    return frozenset(uri.removeprefix("file://") for uri in DeltaTable(str(lake / "records")).file_uris())


def start(
    lake: Path,
    logs: Path,
    log: Path,
    *,
    embedded: bool = False,
    cluster: Cluster | None = None,
    code: Path | None = None,
    options: Sequence[str] = (),
    conf: dict[str, str] | None = None,
) -> Job:
    """Starts the job: by ``python -m``, on a cluster by spark-submit.

    embedded: whether its tasks run in a separate Spark. code: a zip of the project for the cluster's
    executors, which find its kernels compiled; conf: settings of Spark there.
    """
    arguments = ["--source", str(logs), "--lake", str(lake), *options]
    known = data_files(lake) - in_tables(lake)
    with log.open("wb") as out:
        if cluster is not None:
            job = ROOT / "pipelines" / "decode_batches.py"
            compiled = {"spark.executorEnv.NUMBA_CACHE_DIR": str(Path(machine_code.CACHE).parent)}
            settings = {**compiled, **(conf or {})}
            process = cluster.submit(job, arguments, ROOT, settings, ["--py-files", str(code)], out)
        else:
            run = [sys.executable, "-m", "pipelines.decode_batches", *arguments]
            requested = {"PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{QUICK_JAVA}' pyspark-shell"}
            environment = os.environ | (requested if embedded else {})
            process = subprocess.Popen(run, cwd=ROOT, env=environment, stdout=out, stderr=out)
    return Job(lake, process, cluster, log, known)


def kill(pids: Sequence[int], draw: random.Random) -> int | None:
    """Kills one of them, none where all have gone by themselves; its pid."""
    for pid in draw.sample(list(pids), len(pids)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return pid
    return None


def reaches(job: Job, phase: str) -> Callable[[], bool]:
    """Whether a job has come to a phase, or past it: cheap enough to be called all the time."""

    def intent() -> bool:
        return any((job.lake / "_runs").glob("*.json"))

    looks: dict[str, Callable[[], bool]] = {
        "start": lambda: True,
        "plan": lambda: is_locked(job.lake / "_runs" / "lock"),
        "stage": lambda: bool(data_files(job.lake) - in_tables(job.lake) - job.known),
        "before the first commit": intent,
    }
    return looks.get(phase, lambda: intent() and PHASES.index(job.phase()) >= PHASES.index(phase))


def pause(seconds: float, job: Job) -> None:
    """Waits, but not longer than the job lives."""
    end = time.monotonic() + seconds
    while job.is_alive and time.monotonic() < end:
        time.sleep(0.005)
