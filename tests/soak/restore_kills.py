"""``python -m tests.soak.restore_kills [KILLS] [SEED]``: a restore killed again and again, records once."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from kafka_log_lake.pipelines.cli.program import main
from tests.kafka.broker import broker, client
from tests.support.restored import kill_at_random, made_log

_BROKER = {"transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "2"}


def soak(kills: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = {topic: made_log(folder / "logs", topic, 6_000 + 400 * kills) for topic in ("one", "two")}
        lake = folder / "lake"
        assert main(["decode", "--source", str(folder / "logs"), "--lake", str(lake)]) == 0
        with broker(folder / "b", _BROKER, heap="512m") as running:
            argv = ["restore", "--lake", str(lake), "--bootstrap-server", running.address, "--create", "yes"]
            argv += ["--state", str(folder / "state"), "--cores", "2", "--max-bytes-per-second", "100000"]
            assert kill_at_random(argv, kills, 12, seed) == 0
            with client(running.address) as judge:
                for topic, sent in rows.items():
                    there = [row[1:4] for row in judge.read_timed(topic, 0, committed=True)]
                    assert there == sent, f"{topic}: {len(there)} records, {len(sent)} were sent"
    print(f"{kills} kills, seed {seed}: each of {sum(map(len, rows.values())):,} records once")


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]]
    soak(*(numbers + [60, 7][len(numbers) :]))
