"""Kafka's own Java library: makes the data, and is the peer that iterates it.

kafka-clients comes through Spark's package resolution into ``build/kafka``, as the tests have it; the sources
in ``benchmarks/java`` are compiled in memory by Janino, which Spark ships. A Java runtime is enough.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pyspark

from kafka_log_lake.pipelines.cli.java import java_command
from tests.kafka.reader import PACKAGE, ROOT, classpath

VERSION = PACKAGE.rpartition(":")[2]
_SOURCES = Path(__file__).with_name("java")


def command(name: str, *arguments: str, heap: str = "1g") -> list[str]:
    """The command that compiles ``java/<name>.java`` and runs it."""
    java = [java_command() or "java", f"-Xmx{heap}", "-cp", classpath()]
    source = str(_SOURCES / f"{name}.java")
    return [*java, "org.codehaus.janino.SimpleCompiler", source, name, *arguments]


def resolve(package: str, exclude: str = "") -> list[Path]:
    """Jars of a package and what it needs, by Spark's package resolution where that was not done yet."""
    ivy = ROOT / "build" / "kafka" / package.split(":")[1]
    name = "-".join(package.split(":")[1:])
    if not list(ivy.glob(f"jars/*_{name}.jar")):
        home = Path(pyspark.__file__).parent
        script = ivy / "nothing.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("")
        submit = [str(home / "bin" / "spark-submit"), "--packages", package, "--exclude-packages", exclude]
        submit += ["--conf", f"spark.jars.ivy={ivy}", "--master", "local[1]", str(script)]
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(submit, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Spark could not resolve {package}: is the network there?\n{done.stderr}")
    return sorted(ivy.glob("jars/*.jar"))


class Iterating:
    """A JVM that iterates one segment once per request; its compiled code stays warm."""

    def __init__(self, path: Path) -> None:
        pipe = subprocess.PIPE
        self._java = subprocess.Popen(
            command("IterateSegment", str(path)),
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def best_of(self, passes: int) -> tuple[float, int]:
        """(seconds of the fastest pass, records found)."""
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        self._java.stdin.write(f"{passes}\n")
        self._java.stdin.flush()
        line = self._java.stdout.readline().split()
        if not line:
            raise RuntimeError("IterateSegment ended early")
        return int(line[0]) / 1e9, int(line[1])

    def __enter__(self) -> Iterating:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._java.stdin is not None
        self._java.stdin.close()
        self._java.wait()
