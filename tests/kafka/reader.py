"""Kafka's own Java library as the judge: it reads segment files, Python gets what it found.

kafka-clients and what it needs come through Spark's package resolution, as the project's other jars do,
into ``build/kafka`` of the checkout; the reader (``KafkaReader.java``) is compiled in memory by Janino, which
Spark ships. So a Java runtime and the project's environment are enough. Nothing is skipped where something
is missing: the first test that asks for the judge fails with the reason.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyspark

from tests.support.java import quick_java

PACKAGE = "org.apache.kafka:kafka-clients:4.1.0"
ROOT = Path(__file__).resolve().parents[2]
IVY_FOLDER = ROOT / "build" / "kafka" / "ivy"
JANINO = "org.codehaus.janino.SimpleCompiler"
SOURCE = Path(__file__).with_name("KafkaReader.java")
SPARK_HOME = Path(pyspark.__file__).parent


def _resolve(packages: str, folder: Path) -> None:
    """Fetch packages and what they need into ``folder/jars``, as spark-submit does for a script."""
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "nothing.py")
        script.write_text("")
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--packages", packages]
        submit += ["--conf", f"spark.jars.ivy={folder}", "--master", "local[1]", str(script)]
        done = subprocess.run(
            submit, cwd=scratch, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"Spark could not resolve {packages}: is the network there?\n{done.stderr}")


def classpath(packages: Sequence[str] = (PACKAGE,), folder: Path = IVY_FOLDER) -> str:
    """Kafka's library with what it needs, then Janino. packages: Maven coordinates; folder: where they go."""
    wanted = ["_".join(package.split(":")[:2]) + "-" + package.split(":")[2] + ".jar" for package in packages]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # test processes may run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / "jars" / jar).exists() for jar in wanted):
            _resolve(",".join(packages), folder)
    kafka = sorted((folder / "jars").glob("*.jar"))
    compiler = [*SPARK_HOME.glob("jars/janino-*.jar"), *SPARK_HOME.glob("jars/commons-compiler-*.jar")]
    return os.pathsep.join(str(jar) for jar in [*kafka, *compiler])


def _binary(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _read_line(line: dict[str, Any]) -> dict[str, Any]:
    for record in line.get("records", ()):
        record["key"], record["value"] = _binary(record["key"]), _binary(record["value"])
        record["headers"] = [(key, _binary(value)) for key, value in record["headers"]] or None
    return line


def read_folder(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """By file name: the batches that Kafka's library finds in each ``*.log`` of the folder.

    A batch has columns of ``batches``, ``refused`` (None, or the exception in words; then header fields may
    be missing) and ``records`` with columns of ``records``. Behind the last batch where Kafka gave up on the
    file follows {"file", "end", "refused"}.
    """
    command = [*quick_java(), "-cp", classpath(), JANINO]
    done = subprocess.run(
        [*command, str(SOURCE), "KafkaReader", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"KafkaReader failed:\n{done.stderr}")
    found: dict[str, list[dict[str, Any]]] = {}
    for text in done.stdout.splitlines():
        line = _read_line(json.loads(text))
        lines = found.setdefault(line["file"], [])
        if "records" in line or line["refused"]:
            lines.append(line)
    return found


def read_segments(segments: Iterable[bytes]) -> list[list[dict[str, Any]]]:
    """As ``read_folder``, of segments given as bytes, in their order: one start of a JVM for all."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for index, data in enumerate(segments):
            names.append(f"{index:020d}.log")
            Path(folder, names[-1]).write_bytes(data)
        found = read_folder(Path(folder))
    return [found.get(name, []) for name in names]
