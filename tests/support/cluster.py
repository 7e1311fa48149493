"""A real Spark standalone cluster on loopback, and the way people send jobs to it: ``spark-submit``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.java import QUICK_ENVIRONMENT, QUICK_JAVA
from tests.support.processes import wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
SPARK = Path(sys.executable).parent / "spark-distribution"
_LOG = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
"""
# Small enough for a machine that does other things at the same time
_OF_EVERY_JOB = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "1g",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


@dataclass(frozen=True)
class Cluster:
    """A running master with its workers. pids: of their Javas, the master's first; work: of the workers."""

    master: str
    pids: tuple[int, ...]
    work: tuple[Path, ...]

    def submit(
        self,
        job: Path,
        arguments: Sequence[str],
        folder: Path,
        conf: dict[str, str] | None = None,
        options: Sequence[str] = (),
        out: int | IO[bytes] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Starts ``spark-submit`` in a folder, with nothing set that would lead Python to this checkout."""
        settings = [f"--conf={key}={value}" for key, value in {**_OF_EVERY_JOB, **(conf or {})}.items()]
        submit = str(Path(sys.executable).with_name("spark-submit"))
        return subprocess.Popen(
            [submit, "--master", self.master, *settings, *options, str(job), *arguments],
            cwd=folder,
            env=bare_environment(),
            stdout=out,
            stderr=subprocess.STDOUT,  # where spark-submit itself sends the job's
        )


def bare_environment() -> dict[str, str]:
    """What a person's shell sets, that everything stays on loopback, and that Java starts quickly."""
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "PATH") if name in os.environ}
    return {**kept, **QUICK_ENVIRONMENT, "LC_ALL": "C.UTF-8", "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def standalone(folder: Path, hosts: Sequence[str] = ("127.0.0.1",), cores: int = 2) -> Iterator[Cluster]:
    """A master and a worker a host (any 127.x.y.z), on ports that are free, stopped by pid in the end."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "log4j2.properties").write_text(_LOG)
    with ExitStack() as stack:
        log = folder / "master.log"
        requested = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = stack.enter_context(_daemon("master.Master", requested, conf, log))
        found = wait_for(lambda: re.search(r"spark://[\d.:]+", _read(log)), lambda: master.poll() is None)
        url = found.group() if found else ""
        pids, work = [master.pid], []
        for i, host in enumerate(hosts):
            log = folder / f"worker-{i}.log"
            requested = ["--host", host, "--port", "0", "--webui-port", "0", "--cores", str(cores)]
            work.append(folder / f"work-{i}")
            requested += ["--memory", "4g", "--work-dir", str(work[-1]), url]
            worker = stack.enter_context(_daemon("worker.Worker", requested, conf, log))
            wait_for(
                lambda log=log: "Successfully registered" in _read(log),  # type: ignore[misc]
                lambda worker=worker: worker.poll() is None,  # type: ignore[misc]
            )
            pids.append(worker.pid)
        yield Cluster(url, tuple(pids), tuple(work))


@contextmanager
def _daemon(name: str, arguments: Sequence[str], conf: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's daemons; spark-class becomes its Java, so the pid is Java's."""
    environment = {**bare_environment(), "SPARK_CONF_DIR": str(conf), "SPARK_HOME": str(SPARK.resolve())}
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=log.parent, env=environment, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(log: Path) -> str:
    return log.read_text(errors="replace")
