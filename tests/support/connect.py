"""A real server of Spark Connect on loopback. pip's pyspark has the server, but no script that starts it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from kafka_log_lake.pipelines.engine.session import ANYWHERE, ONLY_PLANS
from tests.support.cluster import _OF_EVERY_JOB, ROOT, bare_environment
from tests.support.processes import wait_for

_LOG = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
logger.connect.name = org.apache.spark.sql.connect.service
logger.connect.level = info
"""
_SERVER = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    # Its files would lie in a folder of the server's user, which workers of another user can't write to
    "spark.python.worker.faulthandler.enabled": "false",
}


@contextmanager
def connect_server(folder: Path, python: str = sys.executable) -> Iterator[str]:
    """The URL of a server with Delta whose workers find this checkout; stopped by its pid in the end.

    python: the program of its workers.
    """
    folder.mkdir(parents=True)
    (folder / "log4j2.properties").write_text(_LOG)
    warehouse = {"spark.sql.warehouse.dir": (folder / "warehouse").as_uri(), "spark.master": "local[2]"}
    settings = {**_OF_EVERY_JOB, **ANYWHERE, **ONLY_PLANS, **_SERVER, **warehouse}
    command = [str(Path(sys.executable).with_name("spark-submit"))]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [f"--conf={key}={value}" for key, value in settings.items()] + ["spark-internal"]
    environment = {**bare_environment(), "SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": python}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    try:
        wait_for(lambda: _port(log), lambda: server.poll() is None)
        yield f"sc://127.0.0.1:{_port(log)}"
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _port(log: Path) -> str:
    found = re.search(r"Spark Connect server started at: \S+:(\d+)", log.read_text(errors="replace"))
    return found[1] if found else ""
