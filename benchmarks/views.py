"""What views take: over the records of plain topics, and over very many transactions of one producer."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from benchmarks.harness import Row, Scale, Spread, paired, part_main, say
from benchmarks.job_server import LAKES
from benchmarks.segments import PLAIN, partition_dir
from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.engine.session import session
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.create import create_tables
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from kafka_log_lake.udfs.format.schema import RECORDS, SEGMENTS, TRANSACTIONS, Table

_LAKE = LAKES / "views"
_PARTITIONS = 2
_SEGMENT = "file:///logs/t-0/00000000000000000000.log"
_OFFSETS = 3  # of a transaction: two records and its marker
# Comparing each record with every aborted transaction of its producer took 37 times as long, at 100,000
_GOAL = 4.0


def _write(table: Table, rows: int, columns: dict[str, pa.Array]) -> None:
    """Appends rows; what is not given is null."""
    arrays = [columns.get(f.name, pa.nulls(rows, f.type)).cast(f.type) for f in table.arrow_schema()]
    made = pa.Table.from_arrays(arrays, schema=table.arrow_schema())
    write_deltalake(table_path(str(_LAKE), table.name), made, mode="append")


def _same(value: object, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)


def prepare(transactions: int) -> None:
    """A lake of one segment: transaction after transaction of producer 7, each second one aborted."""
    shutil.rmtree(_LAKE, ignore_errors=True)
    create_tables(str(_LAKE))
    rows = transactions * _OFFSETS
    offsets = np.arange(rows)
    place = {"topic": "t", "partition": 0}
    known = {**place, "magic": 2, "segment": _SEGMENT, "producer_id": 7, "is_transactional": True}
    _write(
        RECORDS,
        rows,
        {
            **{name: _same(value, rows) for name, value in known.items()},
            "offset": pa.array(offsets),
            "batch_position": pa.array(offsets),
            "is_control": pa.array(offsets % _OFFSETS == _OFFSETS - 1),
        },
    )
    first = np.arange(transactions) * _OFFSETS
    _write(
        TRANSACTIONS,
        transactions,
        {
            **{name: _same(value, transactions) for name, value in place.items()},
            "partition_dir": _same("file:///logs/t-0", transactions),
            "producer_id": _same(7, transactions),
            "first_offset": pa.array(first),
            "last_offset": pa.array(first + 1),
            "marker_offset": pa.array(first + 2),
            "outcome": pa.array(np.where(np.arange(transactions) % 2, "aborted", "committed")),
            "holds_last_stable_offset": _same(False, transactions),
        },
    )
    row = LedgerRow(
        topic="t",
        partition=0,
        partition_dir="file:///logs/t-0",
        segment=_SEGMENT,
        file_base_offset=0,
        decoded_bytes=rows,
    )
    write_deltalake(table_path(str(_LAKE), SEGMENTS.name), ledger.to_arrow([row]), mode="append")


def _seconds(spark: SparkSession, view: str, expected: int) -> float:
    began = time.perf_counter()
    row = spark.sql(f"SELECT count(*), sum(offset) FROM {view}").first()
    if row is None or row[0] != expected:
        raise RuntimeError(f"{view} gave {row}, not {expected} rows")
    return time.perf_counter() - began


def measure(scale: Scale) -> list[Row]:
    return [*_plain(scale), *_aborted(scale)]


def _plain(scale: Scale) -> Iterator[Row]:
    """Views of records against the table itself, in both engines, and what ``register`` takes once more."""
    lake = str(LAKES / "views-plain")
    shutil.rmtree(lake, ignore_errors=True)
    source = partition_dir("views", PLAIN, _PARTITIONS, 2 * scale.job_bytes // _PARTITIONS)
    command = (sys.executable, "-m", "pipelines.decode_batches", "--source", source, "--lake", lake)
    subprocess.run(command, check=True, capture_output=True)
    with session(Settings(driver_memory="4g")) as spark, connect(lake) as duck:

        def in_spark(statement: str) -> float:
            began = time.perf_counter()
            spark.sql(statement).collect()
            return time.perf_counter() - began

        def in_duckdb(statement: str) -> float:
            began = time.perf_counter()
            duck.execute(statement).fetchall()
            return time.perf_counter() - began

        def registered() -> float:
            began = time.perf_counter()
            register_views(spark, lake)
            return time.perf_counter() - began

        def of_one_row() -> float:
            began = time.perf_counter()
            for view in SESSION_VIEWS:
                spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view.name}_row AS SELECT 1 AS one")
            return time.perf_counter() - began

        registered()
        records = duck.execute("SELECT count(*) FROM records").fetchone()
        note = f"{records[0] if records else 0:,} records in {_PARTITIONS} partitions"
        again = Spread.of([registered() for _ in range(scale.job_rounds)])
        floor = Spread.of([of_one_row() for _ in range(scale.job_rounds)])
        name, peer = "register, a warm session", "as many views of one row"
        yield Row(name, "s", again, peer, floor, goal=5.0, at_least=False, note=note)
        for engine, run in {"Spark": in_spark, "DuckDB": in_duckdb}.items():
            gaps = "SELECT count(*) FROM offset_gaps"
            what = "SELECT count(*), sum(octet_length(value)), max(key) FROM {} WHERE partition = 0"
            ways = {
                "gaps": partial(run, gaps),
                "committed": partial(run, what.format("committed_records")),
                "all": partial(run, what.format("records")),
            }
            for way in [*ways.values()] * 3:  # Java compiles what it runs often
                way()
            pairs = paired(scale.rounds, ways)
            name = f"offset_gaps, {engine}"
            yield Row(name, "s", pairs.spread("gaps"), goal=3.0, at_least=False, note=note)
            ratio = pairs.ratio("committed", "all")
            name, ratio = f"committed_records of a partition, {engine}", pairs.ratio("committed", "all")
            spreads = pairs.spread("committed"), "records", pairs.spread("all"), ratio
            yield Row(name, "s", *spreads, goal=1.3, at_least=False, note=note)
    shutil.rmtree(lake)


def _aborted(scale: Scale) -> list[Row]:
    count = scale.listed
    say(f"  {count:,} transactions")
    prepare(count)
    with session(Settings(driver_memory="4g")) as spark:
        register_views(spark, str(_LAKE))
        ways = {
            "committed": lambda: _seconds(spark, "committed_records", count // 2 * 2),
            "all": lambda: _seconds(spark, "published_records", count * _OFFSETS),
        }
        for way in ways.values():
            way()
        pairs = paired(scale.job_rounds, ways)
    shutil.rmtree(_LAKE)
    ours, theirs = pairs.spread("committed"), pairs.spread("all")
    ratio = pairs.ratio("committed", "all")
    note = f"{count:,} transactions of one producer, half aborted, in {count * _OFFSETS:,} records"
    name = "committed_records"
    return [
        Row(name, "s", ours, "published_records", theirs, ratio, _GOAL, at_least=False, note=note),
    ]


if __name__ == "__main__":
    part_main("views", measure)
