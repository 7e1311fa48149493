"""``restore`` of one partition beside Kafka's own ``kafka-producer-perf-test``, into the same broker.

Both write the same number of records of the same size into a topic of one partition, with idempotence,
acks=all and transactions of about the same bytes. Ours reads them from a lake; its figure is that of
writing, without the reading back that follows. The topic of the tool is what our lake is decoded from.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.harness import Row, Scale, paired, part_main, per_second
from benchmarks.segments import WORK
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.restore import targets
from kafka_log_lake.pipelines.restore.plan import NAMES, make_plan
from kafka_log_lake.pipelines.restore.producing import Task, restore_partition
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.pipelines.sql.database import open_database
from tests.kafka.broker import NEWEST, Broker, broker, broker_classpath
from tests.support.java import quick_java

_FOLDER = WORK / "restore"
_GOAL = 0.8
_SIZES, _BATCH_BYTES = (1000, 100), 1_000_000  # bytes of records, of batches
_SETTINGS = {"transaction.state.log.min.isr": "1", "log.segment.bytes": "268435456"}


def _perf_test(running: Broker, topic: str, records: int, size: int) -> float:
    """Seconds in which Kafka's tool writes records, by its own last line."""
    java = [*quick_java("-Xmx512m", "-XX:TieredStopAtLevel=4"), "-cp", broker_classpath(NEWEST)]
    tool = [*java, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--throughput", "-1"]
    tool += ["--num-records", str(records), "--record-size", str(size), "--transaction-duration-ms", "300"]
    tool += ["--producer-props", f"bootstrap.servers={running.address}", "acks=all", "linger.ms=5"]
    tool += [f"batch.size={_BATCH_BYTES}", "buffer.memory=268435456", "max.request.size=2000000"]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    rate = re.findall(r"([0-9.]+) records/sec", done.stdout)[-1]
    return records / float(rate)


def _restore(running: Broker, lake: Path, topic: str) -> float:
    """Seconds in which ``restore`` writes the same records into another topic."""
    request = Request(
        str(lake),
        None,
        running.address,
        str(_FOLDER / f"state-{topic}"),
        create="yes",
        rename=((".*", topic),),
    )
    plan = make_plan(open_database(request.lake, NAMES), request)
    missing, _ = targets.missing(request, plan, targets.look(request), {})
    targets.make(request, missing)
    limits = targets.check(request, plan, targets.look(request), True).limits
    (partition,) = plan.partitions
    began = time.perf_counter()
    restore_partition(Task(request, partition, f"bench-{topic}", limits[partition.target]))
    return time.perf_counter() - began


def _compared(running: Broker, scale: Scale, size: int) -> Row:
    records, source, lake = scale.topic_bytes // size, f"perf-{size}", _FOLDER / f"lake-{size}"
    _perf_test(running, source, records, size)
    assert main(["decode", "--source", str(running.logs), "--topics", source, "--lake", str(lake)]) == 0
    numbers = itertools.count()
    runs = {
        "ours": lambda: _restore(running, lake, f"ours-{size}-{next(numbers)}"),
        "theirs": lambda: _perf_test(running, f"theirs-{size}-{next(numbers)}", records, size),
    }
    pairs, rate = paired(scale.rounds, runs), per_second(records * size)
    return Row(
        f"restore of one partition, {size:,} B",
        "MB/s",
        pairs.spread("ours", rate),
        "kafka-producer-perf-test",
        pairs.spread("theirs", rate),
        pairs.ratio("theirs", "ours"),
        goal=_GOAL,
        note="bytes a record; transactions, no compression",
    )


def measure(scale: Scale) -> list[Row]:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    with broker(_FOLDER / "broker", _SETTINGS, heap="1g", release=NEWEST) as running:
        rows = [_compared(running, scale, size) for size in _SIZES]
    shutil.rmtree(_FOLDER)
    return rows


if __name__ == "__main__":
    part_main("restore", measure)
