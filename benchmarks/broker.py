"""The whole job against Spark's Kafka source reading the same topic from a live broker.

A broker of one node (KRaft, the kafka_2.13 jar) runs on the loopback interface; Spark fills a topic and reads
it back into a partitioned Delta table. Ours decodes the broker's own log directory. The broker stays up for
both.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from benchmarks.harness import ROOT, Row, Scale, machine, paired, part_main, say
from benchmarks.job_server import LAKES, JobServer, clear_lakes
from benchmarks.kafka import resolve
from benchmarks.segments import PLAIN, WORK, partition_dir
from tests.kafka.broker import broker

_GOAL = 6.0
_TOPIC = "bench"
_PARTITIONS = 2
_SOURCE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"
_FOLDER = WORK / "broker"
_READER_MEMORY = "4g"


def source_jars() -> str:
    """Spark's Kafka source. The module for its tokens is not published for every version of Spark."""
    tokens = [jar for jar in resolve(_TOKENS) if _TOKENS.split(":")[1] in jar.name]
    without = ":".join(_TOKENS.split(":")[:2])
    return ",".join(str(jar) for jar in [*resolve(_SOURCE, exclude=without), *tokens])


class KafkaReader:
    """Spark with its Kafka source, in its own process; fills the topic first, then reads it on request."""

    def __init__(self, address: str, records: Path, cores: int) -> None:
        pipe = subprocess.PIPE
        serve = [sys.executable, "-m", "benchmarks.broker", "--serve", address, str(records), str(cores)]
        with (_FOLDER / "reader.log").open("w") as log:
            self.process = subprocess.Popen(serve, stdin=pipe, stdout=pipe, stderr=log, text=True, cwd=ROOT)
        self.read()

    def read(self) -> float:
        """Seconds from the topic to a committed Delta table; the first answer: to a filled topic."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return float(json.loads(line)["seconds"])
        raise RuntimeError(f"Spark's Kafka source ended early: see {_FOLDER.name}/reader.log in {WORK.name}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def _serve(address: str, records: str, cores: str) -> None:
    settings = {
        "spark.jars": source_jars(),
        "spark.driver.memory": _READER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    kafka = {"kafka.bootstrap.servers": address, "includeHeaders": "true"}
    filled = False
    for _ in sys.stdin:
        began = time.perf_counter()
        if not filled:
            rows = spark.read.format("delta").load(records).select("key", "value", "headers")
            rows.write.format("kafka").options(**kafka).option("topic", _TOPIC).save()
            filled = True
        else:
            target = LAKES / "from-kafka"
            shutil.rmtree(target, ignore_errors=True)
            topic = spark.read.format("kafka").options(**kafka).option("subscribe", _TOPIC).load()
            topic.write.format("delta").partitionBy("topic", "partition").save(str(target))
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    spark.stop()


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    cores = machine()["cores"]
    source = partition_dir("bench", PLAIN, _PARTITIONS, scale.topic_bytes // _PARTITIONS)
    shutil.rmtree(_FOLDER, ignore_errors=True)
    settings = {"num.partitions": str(_PARTITIONS), "log.retention.ms": "-1"}
    with broker(_FOLDER, settings) as running, JobServer(cores) as session:
        session.decode(source, "fill")
        say("  filling the topic")
        reader = KafkaReader(running.address, LAKES / "fill" / "records", cores)
        logs = running.logs
        reader.read()
        session.decode(logs, "job", topics=_TOPIC)
        pairs = paired(
            scale.job_rounds,
            {"ours": lambda: session.decode(logs, "job", topics=_TOPIC), "theirs": reader.read},
        )
        reader.close()
    size = sum(p.stat().st_size for p in logs.glob(f"{_TOPIC}-*/*.log"))
    clear_lakes()
    shutil.rmtree(_FOLDER)
    note = f"a topic of {size / 1e6:,.0f} MB; segment files, and a live broker"
    ours, theirs = pairs.spread("ours"), pairs.spread("theirs")
    ratio = pairs.ratio("theirs", "ours")
    return [Row("job, Spark's Kafka source", "s", ours, "Kafka source", theirs, ratio, _GOAL, note=note)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--serve", nargs=3)
    serve, _ = parser.parse_known_args()
    if serve.serve:
        _serve(*serve.serve)
    else:
        part_main("broker", measure)
