"""Kafka's own Java library: makes the data, and is the peer that iterates it.

kafka-clients comes through Spark's package resolution into ``build/kafka``, as the tests have it; the sources
in ``benchmarks/java`` are compiled in memory by Janino, which Spark ships. A Java runtime is enough.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from pipelines.java import java_command
from tests.kafka.reader import PACKAGE, classpath

VERSION = PACKAGE.rpartition(":")[2]
_SOURCES = Path(__file__).with_name("java")


def command(name: str, *arguments: str, heap: str = "1g") -> list[str]:
    """The command that compiles ``java/<name>.java`` and runs it."""
    java = [java_command() or "java", f"-Xmx{heap}", "-cp", classpath()]
    source = str(_SOURCES / f"{name}.java")
    return [*java, "org.codehaus.janino.SimpleCompiler", source, name, *arguments]


class Iterating:
    """A JVM that iterates one segment as often as it is asked to; its compiled code stays warm."""

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
