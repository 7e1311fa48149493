"""``decode --watch`` on the log directory of a live broker: what a round takes, and how late a row is.

A round with nothing new and one in which a single partition of many grew, in a warm session, as the loop of
``--watch`` runs them. Then the lag: from the producer's acknowledgement, when the record is in the broker's
file, to the ledger's commit that publishes its row, with ``--watch`` in a separate process.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.harness import ROOT, Row, Scale, Spread, part_main
from benchmarks.segments import WORK
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.decode_into import decode_into
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand, spark_on_demand
from tests.kafka.broker import Client, broker, client

_IDLE_SECONDS, _GROWN_SECONDS = 0.3, 1.5
_PARTITIONS, _INTERVAL = 20, 1.0
_FOLDER = WORK / "watch"
_LAKE = _FOLDER / "lake"
_WAIT_SECONDS = 120


def _send(producer: Client, partition: int = 0, records: int = 1) -> int:
    return producer.send("bench", partition, [("key", "v" * 100)] * records)[-1]


def _round(on_demand: SparkOnDemand, settings: Settings) -> float:
    began = time.perf_counter()
    decode_into(on_demand, settings)
    return time.perf_counter() - began


def _rounds(producer: Client, settings: Settings, rounds: int) -> tuple[Spread, Spread]:
    """Seconds of rounds with nothing new, and of rounds after one partition grew."""
    with spark_on_demand(settings, only_plans=True) as on_demand:
        _round(on_demand, settings)
        _send(producer)
        _round(on_demand, settings)
        idle = [_round(on_demand, settings) for _ in range(rounds)]
        grown = []
        for i in range(rounds):
            _send(producer, i % _PARTITIONS, 100)
            grown.append(_round(on_demand, settings))
    return Spread.of(idle), Spread.of(grown)


@contextmanager
def _watching(logs: Path) -> Iterator[None]:
    arguments = ["--source", str(logs), "--lake", str(_LAKE), "--watch", "--interval", str(_INTERVAL)]
    command = [sys.executable, "-m", "pipelines.decode_batches", *arguments]
    with (_FOLDER / "watch.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _until_published(offset: int) -> None:
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until:
        ledger = DeltaTable(str(_LAKE / "segments")).to_pyarrow_table(columns=["partition", "last_offset"])
        if {"partition": 0, "last_offset": offset} in ledger.to_pylist():
            return
        time.sleep(0.02)
    raise RuntimeError(f"offset {offset} was not published: see {_FOLDER.name}/watch.log in {WORK.name}")


def _lag(producer: Client) -> float:
    time.sleep(random.uniform(0, _INTERVAL))
    offset = _send(producer)
    began = time.perf_counter()
    _until_published(offset)
    return time.perf_counter() - began


def measure(scale: Scale) -> list[Row]:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    with broker(_FOLDER / "broker", {}, heap="512m") as running, client(running.address) as producer:
        producer.create("bench", _PARTITIONS)
        for partition in range(_PARTITIONS):
            _send(producer, partition, 1000)
        settings = Settings(source=(str(running.logs),), lake=str(_LAKE), topics="bench")
        idle, grown = _rounds(producer, settings, 2 * scale.rounds)
        with _watching(running.logs):
            _until_published(_send(producer))
            lag = Spread.of([_lag(producer) for _ in range(2 * scale.rounds)])
    shutil.rmtree(_FOLDER)
    note = f"{_PARTITIONS} partitions of a live broker"
    return [
        Row("a round with nothing new", "s", idle, goal=_IDLE_SECONDS, at_least=False, note=note),
        Row("a round, one partition grew", "s", grown, goal=_GROWN_SECONDS, at_least=False, note=note),
        Row("from acknowledged to published", "s", lag, note=f"--watch --interval {_INTERVAL:g}"),
    ]


if __name__ == "__main__":
    part_main("watch", measure)
