"""A Kafka Streams application goes on in another cluster: its counts miss nothing and have nothing twice."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka_log_lake.pipelines.cli.program import main
from tests.kafka.broker import NEWEST, OLDEST, Broker, Client, broker, client
from tests.kafka.reader import JANINO, PACKAGE, ROOT, classpath
from tests.support.java import quick_java
from tests.support.restored import BROKER

STREAMS = PACKAGE.replace("kafka-clients", "kafka-streams")
SOURCE = ROOT / "tests" / "kafka" / "KafkaWordCount.java"
LINES = [",".join(f"word{number % every}" for every in (2, 3, 7)) for number in range(100)]


@contextmanager
def counting(running: Broker, state: Path) -> Iterator[None]:
    """The application, which counts words until the end of the block; then it commits and ends."""
    java = [*quick_java("-Xmx256m"), "-cp", classpath((STREAMS,), ROOT / "build" / "kafka" / "kafka-streams")]
    command = [*java, JANINO, str(SOURCE), "KafkaWordCount", running.address, "counter", str(state)]
    with state.with_suffix(".log").open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out)
    try:
        yield
        process.communicate(b"\n", timeout=60)
    finally:
        process.kill()
        process.wait()


def counted(judge: Client, lines: Sequence[str]) -> list[tuple[bytes | None, bytes | None]]:
    """The counts that the application told, once it has counted all words of the lines."""
    total, until = sum(len(line.split(",")) for line in lines), time.monotonic() + 90
    while True:
        told = [row[1:3] for row in judge.read("counted", 0, committed=True)]
        if len(told) >= total or time.monotonic() > until:
            return told
        time.sleep(0.5)


def every_count(lines: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Each word with 1, 2 and so on up to how often it comes, in order."""
    times = Counter(word for line in lines for word in line.split(","))
    return sorted((word.encode(), b"%d" % n) for word, last in times.items() for n in range(1, last + 1))


def test_counts_of_a_streams_application_go_on(tmp_path: Path) -> None:
    first, second = LINES[:60], LINES[60:]
    with broker(tmp_path / "old", BROKER, heap="512m", release=OLDEST) as old, client(old.address) as judge:
        judge.create("lines", 2)
        judge.create("counted", 1)
        with counting(old, tmp_path / "of-old"):
            for number, line in enumerate(first):
                judge.send("lines", number % 2, [("k", line)])
            assert sorted(counted(judge, first)) == every_count(first)
    with broker(tmp_path / "new", BROKER, heap="512m", release=NEWEST) as new, client(new.address) as judge:
        more = ["--bootstrap-server", new.address, "--create", "yes", "--state", str(tmp_path / "state")]
        assert main(["restore", str(tmp_path / "old" / "logs"), *more, "--cores", "1"]) == 0
        with counting(new, tmp_path / "of-new"):
            for number, line in enumerate(second):
                judge.send("lines", number % 2, [("k", line)])
            assert sorted(counted(judge, LINES)) == every_count(LINES)
