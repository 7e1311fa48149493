"""``--watch`` on the log directory of a real broker, while a producer writes, the cleaner compacts and
retention deletes, and while the watching process is killed, ended and started again.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.udfs.batches import account
from tests.kafka.broker import Broker, Client, broker, client
from tests.kafka.reader import read_folder
from tests.soak.victims import Job, reaches
from tests.support.cluster import ROOT
from tests.support.logs import rows
from tests.support.processes import A_MOMENT, is_locked, wait_for

# The cleaner and retention look all the time, and begin at once
BROKER = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
SEGMENT = {"segment_bytes": "1048576", "file_delete_delay_ms": "100"}  # the least that a broker takes
VALUE, ROUND = "x" * 8000, 200  # a round is 1.6 MB
# More than two rounds, the most that is written and not yet decoded: retention takes nothing unseen
RETAINED = {"retention_bytes": "4194304", "retention_ms": "-1"}
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


@dataclass
class World:
    """A broker and what its producer received: for each topic the offset -> key and value."""

    running: Broker
    producer: Client
    lake: Path
    acknowledged: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def produce(self) -> None:
        """A round of records for both topics."""
        for topic in ("deleted", "compacted"):
            sent = [(f"k{n % 20}", f"{n}{VALUE}") for n in itertools.islice(self.numbers, ROUND)]
            printed = zip(self.producer.send(topic, 0, sent), sent, strict=True)
            self.acknowledged.setdefault(topic, {}).update(printed)

    def folder(self, topic: str) -> Path:
        return self.running.logs / f"{topic}-0"

    def has_all(self) -> bool:
        """Whether the ledger has published the last record of each topic."""
        if not DeltaTable.is_deltatable(str(self.lake / "segments")):
            return False
        ledger = DeltaTable(str(self.lake / "segments")).to_pyarrow_table(columns=["topic", "last_offset"])
        last = {topic: max(offsets) for topic, offsets in self.acknowledged.items()}
        return set(last.items()) <= {(row["topic"], row["last_offset"]) for row in ledger.to_pylist()}

    def records(self, topic: str) -> list[tuple[int, str, str]]:
        found = [row for row in rows(str(self.lake), "records") if row["topic"] == topic]
        return sorted((row["offset"], row["key"].decode(), row["value"].decode()) for row in found)


@contextmanager
def watching(world: World, log: Path) -> Iterator[Job]:
    arguments = ["--source", str(world.running.logs), "--lake", str(world.lake)]
    arguments += ["--topics", "deleted|compacted", "--watch", "--interval", "0.1"]
    command = [sys.executable, "-m", "pipelines.decode_batches", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    job = Job(world.lake, process, None, log, frozenset())
    try:
        wait_for(world.has_all, lambda: job.is_alive)
        yield job
    finally:
        if job.is_alive:
            process.kill()
        process.wait()


def in_a_run(world: World, job: Job) -> None:
    """Stops the process (SIGSTOP) in the middle of a run that decodes what was written just now."""
    while True:
        known = frozenset(str(p) for p in (world.lake / "records").rglob("*.parquet"))
        has_written = reaches(Job(job.lake, job.process, None, job.log, known), "stage")
        world.produce()
        wait_for(lambda: has_written() or world.has_all(), lambda: job.is_alive, A_MOMENT)  # noqa: B023
        os.kill(job.process.pid, signal.SIGSTOP)
        if is_locked(world.lake / "_runs" / "lock") and not world.has_all():
            return
        os.kill(job.process.pid, signal.SIGCONT)  # it was faster
        wait_for(world.has_all, lambda: job.is_alive)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with broker(tmp_path / "broker", BROKER, heap="256m") as running, client(running.address) as producer:
        producer.create("deleted", 1, **SEGMENT, **RETAINED)
        producer.create("compacted", 1, **SEGMENT, **COMPACTED)
        yield World(running, producer, tmp_path / "lake")


def test_nothing_is_lost_or_doubled_while_a_broker_writes_compacts_and_deletes(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world.produce()
    with watching(world, tmp_path / "first.log") as job:
        first = world.folder("deleted") / f"{0:020d}.log"
        while first.exists():  # retention deletes what was decoded
            world.produce()
            wait_for(world.has_all, lambda: job.is_alive)
        in_a_run(world, job)
        again = ["--source", str(world.running.logs), "--lake", str(world.lake)]
        assert decode_batches.main(again) == 2
        assert "another run is writing" in capsys.readouterr().err
        job.process.kill()
    world.produce()
    with watching(world, tmp_path / "second.log") as job:
        in_a_run(world, job)
        os.kill(job.process.pid, signal.SIGTERM)
        os.kill(job.process.pid, signal.SIGCONT)
        assert job.wait() == 0, job.said()
    world.produce()
    with watching(world, tmp_path / "third.log") as job:
        world.running.stop()
        on_disk = records_of(world.folder("compacted"))
        wait_for(lambda: world.records("compacted") == on_disk, lambda: job.is_alive)
        job.process.send_signal(signal.SIGINT)
        assert job.wait() == 130, job.said()

    sent = {topic: [(n, *kept[n]) for n in sorted(kept)] for topic, kept in world.acknowledged.items()}
    assert world.records("deleted") == sent["deleted"]
    assert len(on_disk) < len(sent["compacted"])  # the cleaner was there
    assert set(on_disk) <= set(sent["compacted"])
    assert {key: value for _, key, value in on_disk} == {key: value for _, key, value in sent["compacted"]}
    assert os.listdir(world.lake / "_runs") == ["lock"]
    assert lost_at_the_edges(world) == []
    last = max(world.folder("deleted").glob("*.log"))
    os.truncate(last, last.stat().st_size - 1)
    ((first_lost, last_lost, is_certain),) = lost_at_the_edges(world)
    assert last_lost is not None
    assert (first_lost <= last_lost, last_lost, is_certain) == (
        True,
        max(world.acknowledged["deleted"]),
        True,
    )


def lost_at_the_edges(world: World) -> list[tuple[int, int | None, bool]]:
    """What is lost by the checkpoint files of the broker, which has stopped."""
    findings = scan(Settings(source=(str(world.running.logs),), topics="deleted|compacted", cores=1))
    assert findings.warnings == []
    return [
        (one.first, one.last, one.is_certain) for _, one in findings.missing if one.cause != account.SEGMENT
    ]


def records_of(folder: Path) -> list[tuple[int, str, str]]:
    """What Kafka's own library reads of the segments."""
    batches: list[dict[str, Any]] = [batch for found in read_folder(folder).values() for batch in found]
    records = [record for batch in batches for record in batch["records"]]
    return sorted((r["offset"], r["key"].decode(), r["value"].decode()) for r in records)
