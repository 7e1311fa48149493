"""Logs that ``restore`` writes to a broker, and how its command is killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kafka_log_lake.pipelines.cli.program import main
from tests.support import logs
from tests.support.cluster import ROOT
from tests.support.segment_maker import Batch, Record

RECORDS, IN_BATCH = 6_000, 20
TEXT = "read by é"  # what clients add to commits

Made = list[tuple[int, bytes, bytes]]
BROKER = {
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


def made_log(folder: Path, topic: str = "made", count: int = RECORDS) -> Made:
    """A log of many small batches: (timestamp, key, value) of its records, of now."""
    now = int(time.time() * 1000)
    rows = [(now - 100_000 + n, b"k%d" % (n % 50), b"%d-" % n + b"x" * 100) for n in range(count)]
    batches = []
    for at in range(0, count, IN_BATCH):
        some = enumerate(rows[at : at + IN_BATCH])
        own = tuple(Record(key, value, timestamp_delta=n) for n, (_, key, value) in some)
        batches.append(Batch(own, base_offset=at, base_timestamp=rows[at][0]).encode())
    logs.put(folder / f"{topic}-0", 0, *batches)
    return rows


def made_lake(folder: Path, *topics: str, count: int = RECORDS) -> tuple[Path, dict[str, Made]]:
    """A lake of such logs, and their records by topic."""
    rows = {topic: made_log(folder / "logs", topic, count) for topic in topics}
    assert main(["decode", "--source", str(folder / "logs"), "--lake", str(folder / "lake")]) == 0
    return folder / "lake", rows


def transactions(state: Path) -> int:
    """How many transactions a restore has begun to commit."""
    return len(list(state.glob("journal/*/*.json")))


def wait_for_first_transaction(state: Path, after: int = 0) -> None:
    """Waits until a restore has begun to commit what it writes. after: transactions of earlier attempts."""
    until = time.monotonic() + 120
    while transactions(state) <= after:
        assert time.monotonic() < until, "nothing was written"
        time.sleep(0.1)


def commit(
    group: str, topic: str, partition: int, offset: int, at: int, text: str = TEXT
) -> tuple[Record, int]:
    """A record of __consumer_offsets: OffsetCommitKey 1 and OffsetCommitValue 3, with leader epoch 7."""
    key = struct.pack(">h", 1) + _text(group) + _text(topic) + struct.pack(">i", partition)
    value = struct.pack(">hqi", 3, offset, 7) + _text(text) + struct.pack(">q", at)
    return Record(key, value), at


def _text(words: str) -> bytes:
    return struct.pack(">h", len(words.encode())) + words.encode()


def kill_at_random(argv: Sequence[str], kills: int, seconds: float, seed: int) -> int:
    """Runs a command, killed so often at random: all its processes, or one that works for it.

    Returns the last exit code.
    """
    moments = random.Random(seed)
    for number in range(kills + 1):
        command = [sys.executable, "-m", "kafka_log_lake", *argv]
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        if number == kills:
            return process.wait(600)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(1, seconds))
            continue
        if number % 3 == 2 and (workers := _workers(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(moments.choice(workers), signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(1, seconds))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    raise AssertionError


def _workers(pid: int) -> list[int]:
    """The processes that a process started."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
