"""A real Kafka broker of one node (KRaft) on the loopback interface, and a client that writes to it.

The jar of the broker comes as Kafka's library does (``tests.kafka.reader``), into ``build/kafka``.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.kafka.reader import JANINO, PACKAGE, ROOT, SPARK_HOME, classpath
from tests.support.java import quick_java

_BROKER = PACKAGE.replace("kafka-clients", "kafka_2.13")
# By release of Kafka: what is fetched, and where to
OLDEST, NEWEST = "4.1", "4.4"
_BROKERS = {
    OLDEST: ((_BROKER,), ROOT / "build" / "kafka" / "kafka_2.13"),
    NEWEST: (
        ("org.apache.kafka:kafka_2.13:4.4.0", "org.apache.kafka:kafka-tools:4.4.0"),
        ROOT / "build" / "kafka" / "kafka_2.13-4.4",
    ),
}
_TOOLS = PACKAGE.replace("kafka-clients", "kafka-tools")
_PYTHON_CLIENT = "confluent-kafka==2.16.1"
_CLIENT = Path(__file__).with_name("KafkaClient.java")
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_START_SECONDS = 60

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
"""
_PROTOCOLS = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL\n"


@dataclass(frozen=True)
class Broker:
    """A running broker. logs: its log directory."""

    address: str
    logs: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Ends it as a power cut does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it as an operator does; its files are final then."""
        self.process.terminate()
        self.process.wait()


@contextmanager
def broker(
    folder: Path,
    settings: Mapping[str, str],
    heap: str = "1g",
    disk: Path | None = None,
    release: str = OLDEST,
    secure_port: int | None = None,
) -> Iterator[Broker]:
    """A broker, for as long as it is needed.

    folder: a new one. disk: its log directory; None for an empty one in the folder. release: of Kafka.
    secure_port: of a further listener, SASL_SSL, which the settings describe.
    """
    folder.mkdir(parents=True)
    port, logs = free_port(), disk or folder / "logs"
    properties = folder / "server.properties"
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    text = PROPERTIES.format(port=port, controller=free_port(), logs=logs)
    if secure_port is not None:
        plain = f"PLAINTEXT://127.0.0.1:{port}"
        text = text.replace(plain, f"{plain},SASL_SSL://127.0.0.1:{secure_port}") + _PROTOCOLS
    properties.write_text(text + lines)
    if disk is None:
        format_storage(properties, CLUSTER)
    started = start_node(properties, port, logs, heap, release)
    try:
        yield started
    finally:
        started.stop()


def format_storage(properties: Path, cluster: str, *options: str, release: str = OLDEST) -> None:
    """Makes the log directory of a node, as an operator does before its first start."""
    java = [*quick_java(), "-cp", broker_classpath(release), "kafka.tools.StorageTool", "format"]
    words = [*java, "--cluster-id", cluster, "--config", str(properties), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the broker's storage can't be made:\n{done.stdout}{done.stderr}")


def start_node(properties: Path, port: int, logs: Path, heap: str, release: str = OLDEST) -> Broker:
    """Starts a broker or a controller, and waits until its port answers. Its log lies by its properties."""
    log = properties.with_name("broker.log")
    with log.open("a") as out:
        java = [*quick_java(), "-cp", broker_classpath(release), f"-Xmx{heap}"]
        command = [*java, "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    started = Broker(f"127.0.0.1:{port}", logs, process)
    try:
        _wait_for(port, process, log)
    except BaseException:
        started.kill()
        raise
    return started


def broker_classpath(release: str = OLDEST) -> str:
    """The broker of a release, with all it needs; Spark's resolution leaves out Scala, which Spark has."""
    packages, folder = _BROKERS[release]
    jars = classpath(packages, folder)
    return os.pathsep.join([jars, *map(str, SPARK_HOME.glob("jars/scala-library-*.jar"))])


def broker_jars(release: str) -> list[Path]:
    """The jars of a release, fetched where they are missing."""
    broker_classpath(release)
    return sorted((_BROKERS[release][1] / "jars").glob("*.jar"))


def with_tools(folder: Path) -> dict[str, str]:
    """The environment of a shell with Kafka's console clients, and a Python that has confluent-kafka.

    folder: a new one.
    """
    folder.mkdir()
    jars = classpath((_TOOLS,), ROOT / "build" / "kafka" / "kafka-tools")
    tool = [*quick_java(), "-cp", jars]
    for name, words in (
        ("kafka-console-producer.sh", [*tool, "org.apache.kafka.tools.ConsoleProducer"]),
        ("kafka-console-consumer.sh", [*tool, "org.apache.kafka.tools.consumer.ConsoleConsumer"]),
        ("python3", [sys.executable]),
    ):
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    packages = ROOT / "build" / "kafka" / "python"
    if not packages.exists():
        made = folder / "packages"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(made)]
        subprocess.run([*pip, _PYTHON_CLIENT], check=True)
        shutil.move(made, packages)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(packages)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not start:\n{log.read_text()[-4000:]}")


@dataclass(frozen=True)
class Client:
    """Kafka's own producer and admin client, in a process of their own (``KafkaClient.java``)."""

    java: subprocess.Popen[str]
    errors: IO[str]

    def create(self, topic: str, partitions: int, **settings: str) -> None:
        """settings: those of the topic, with ``_`` for ``.``."""
        given = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self._ask("create", topic, str(partitions), *given)

    def send(self, topic: str, partition: int, records: Sequence[tuple[str, str]]) -> list[int]:
        """Writes records of key and value, without blanks; their offsets once all are acknowledged."""
        given = [f"{key}={value}" for key, value in records]
        return [int(line) for line in self._ask("send", topic, str(partition), *given)]

    def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads a partition."""
        return int(self._ask("leader", topic, str(partition))[0])

    def read(
        self, topic: str, partition: int, committed: bool
    ) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of each record from the beginning to the end."""
        return [row[:3] for row in self.read_whole(topic, partition, committed)]

    def read_whole(
        self, topic: str, partition: int, committed: bool
    ) -> list[tuple[int, bytes | None, bytes | None, list[tuple[bytes | None, bytes | None]]]]:
        """(offset, key, value, headers) of each record from the beginning to the end."""
        return [(one[0], *one[2:]) for one in self.read_timed(topic, partition, committed)]

    def read_timed(
        self, topic: str, partition: int, committed: bool
    ) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[bytes | None, bytes | None]]]]:
        """(offset, timestamp, key, value, headers) of each record from the beginning to the end."""
        isolation = "read_committed" if committed else "read_uncommitted"
        found = []
        for line in self._ask("read", topic, str(partition), isolation):
            offset, timestamp, *data = line.split(" ")
            key, value, *pairs = (None if one == "-" else base64.b64decode(one[1:]) for one in data)
            headers = list(zip(pairs[::2], pairs[1::2], strict=True))
            found.append((int(offset), int(timestamp), key, value, headers))
        return found

    def _ask(self, *words: str) -> list[str]:
        assert self.java.stdin is not None
        assert self.java.stdout is not None
        self.java.stdin.write(" ".join(words) + "\n")
        self.java.stdin.flush()
        answer: list[str] = []
        for line in self.java.stdout:
            if line == "\n":
                return answer
            answer.append(line.strip())
        self.errors.seek(0)
        raise RuntimeError(f"Kafka's client ended at {words[:3]}:\n{self.errors.read()}")


@contextmanager
def client(address: str) -> Iterator[Client]:
    """A client of a broker, for as long as it is needed."""
    java = [*quick_java("-Xmx256m"), "-cp", classpath(), JANINO]
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+") as errors:
        command = [*java, str(_CLIENT), "KafkaClient", address]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
            yield Client(process, errors)
