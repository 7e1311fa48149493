"""Typical queries of ``records``, compared with the same rows as Spark's own writer lays them out.

Both tables are Delta, partitioned alike, and queried by one Spark session in turn. The files that a query
reads are those that are left after Delta compared its condition with the statistics of each file; the bytes
are those that Java read in one run of it, as Linux counts them.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import Row, Scale, paired, part_main, say
from benchmarks.job_server import LAKES, clear_lakes
from benchmarks.segments import PLAIN, partition_dir
from kafka_log_lake import register
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode_batches import run
from kafka_log_lake.pipelines.engine.session import session

_SEGMENTS = 8
_GOAL = 1.15  # as fast as Spark's own, with room for what a machine's speed drifts by


@dataclass(frozen=True)
class Question:
    """name: in the report. where: condition. what: the aggregates that are requested.

    view: of our lake, which answers in place of ``records``; Spark's own layout has none.
    """

    name: str
    where: str
    what: str = "count(*), max(length(value))"
    view: str = "records"


def _questions(records: DataFrame) -> list[Question]:
    """Questions about what lies in the middle of the table."""
    last = records.selectExpr("max(offset)").first()
    assert last is not None
    offset = last[0] // 2
    found = records.where(f"offset = {offset}").selectExpr("hex(key)", "unix_millis(timestamp)").first()
    assert found is not None
    at = f"timestamp_millis({found[1]})"
    return [
        Question("one offset", f"offset = {offset}"),
        Question("one key", f"key = X'{found[0]}'"),
        Question("a thousand offsets", f"offset BETWEEN {offset} AND {offset + 999}"),
        Question("a second", f"timestamp >= {at} AND timestamp < {at} + INTERVAL 1 SECOND"),
        Question("count by topic", "true", "topic, count(*)"),
        Question("all values", "true", "sum(length(value)), max(value)"),
        Question("committed records of a partition", "partition = 0", view="committed_records"),
    ]


def _seconds(records: DataFrame, question: Question) -> float:
    began = time.perf_counter()
    requested = records.where(question.where)
    if question.what.startswith("topic"):
        requested.groupBy("topic").count().collect()
    else:
        requested.selectExpr(*question.what.split(", ")).collect()
    return time.perf_counter() - began


def _read(records: DataFrame, question: Question) -> str:
    """How many files a question reads, and the bytes that it reads of them."""
    files = len(records.where(question.where).inputFiles())
    before = _bytes_read()
    _seconds(records, question)
    return f"{files} files, {(_bytes_read() - before) / 1e6:,.1f} MB"


def _bytes_read() -> int:
    """Bytes that this process's Java has read so far."""
    gateway = SparkContext._gateway
    assert gateway is not None
    counted = Path(f"/proc/{gateway.proc.pid}/io").read_text()
    return int(counted.partition("rchar: ")[2].split()[0])


def _tables(spark: SparkSession, scale: Scale) -> dict[str, DataFrame]:
    source = partition_dir("reads", PLAIN, 1, scale.read_bytes // _SEGMENTS, _SEGMENTS)
    run(spark, Settings(source=(str(source),), lake=str(LAKES / "reads")))
    ours = spark.read.format("delta").load(str(LAKES / "reads" / "records"))
    path = str(LAKES / "spark" / "records")
    ours.write.format("delta").partitionBy("topic", "partition", "magic").save(path)
    return {"ours": ours, "spark": spark.read.format("delta").load(path)}


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    rows = []
    with session(Settings(driver_memory="4g")) as spark:
        tables = _tables(spark, scale)
        register(spark, str(LAKES / "reads"))
        for question in _questions(tables["ours"]):
            say(f"  {question.name}")
            requested = {**tables, "ours": spark.table(question.view)}
            ways = {name: partial(_seconds, table, question) for name, table in requested.items()}
            for way in ways.values():
                way()
            pairs = paired(scale.job_rounds, ways)
            note = (
                f"reads {_read(requested['ours'], question)}; Spark's {_read(requested['spark'], question)}"
            )
            ours, theirs = pairs.spread("ours"), pairs.spread("spark")
            ratio = pairs.ratio("ours", "spark")
            rows.append(
                Row(
                    question.name,
                    "s",
                    ours,
                    "Spark's layout",
                    theirs,
                    ratio,
                    _GOAL,
                    at_least=False,
                    note=note,
                )
            )
    shutil.rmtree(LAKES, ignore_errors=True)
    return rows


if __name__ == "__main__":
    part_main("reads", measure)
