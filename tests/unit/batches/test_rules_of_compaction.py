"""What compaction frees, disorder of timestamps, failures of checksums: views and checks, held to a model.

Random logs with hostile timestamps, as tables: nothing is decoded. ``KLL_RANDOM_LOGS=10000`` takes as many.
"""

from __future__ import annotations

import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.quality_report import metrics
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.udfs.format.schema import RECORDS
from tests.support import rule_model_compaction as model
from tests.support.drawn import first
from tests.support.log_model import NOW, SIZE, Log
from tests.support.made_database import database_of
from tests.support.random_logs import Odds
from tests.support.rule_model_offsets import OffsetModel
from tests.support.timed_lake import FAR, HOSTILE, HOUR, timed_logs, write_lake

COUNT = int(os.environ.get("KLL_RANDOM_LOGS", "300"))
SEED = int(os.environ.get("KLL_RANDOM_SEED", "31"))
ODDS = Odds(mad_timestamp=0.1, timestamps=HOSTILE, wrong_base=0)
COLUMNS = ", ".join(model.Cleaning._fields)


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return timed_logs(COUNT, SEED, ODDS)


def rows_of_records(logs: list[Log]) -> pa.Table:
    rows = [
        {
            "topic": log.topic,
            "partition": log.partition,
            "magic": 2,
            "segment": log.uri(one.segment),
            "batch_position": one.segment.batches.index(one.batch) * SIZE,
            "offset": one.offset,
            "key": one.key,
            "value": None if one.is_tombstone else b"v",
            "size_bytes": one.size,
            "producer_id": one.batch.producer_id,
            "is_transactional": one.batch.is_transactional,
            "is_control": one.batch.control is not None,
        }
        for log in logs
        for one in model.records_of(log)
    ]
    return pa.Table.from_pylist(rows, RECORDS.arrow_schema())


@pytest.fixture(scope="module")
def database(logs: list[Log]) -> duckdb.DuckDBPyConnection:
    made = database_of(logs, "compaction_report", "crc_report")
    made.unregister("records_rows")
    made.register("records_rows", rows_of_records(logs))
    return made


MOMENTS = [
    *((NOW + 49 * HOUR, 0), (NOW, 0), (NOW + 12 * HOUR, 10 * HOUR), (NOW, FAR)),
    *((-FAR, 1), (FAR, FAR), (0, -FAR)),
]


@pytest.mark.parametrize(("at_ms", "lag_ms"), first(4, MOMENTS))
def test_what_compaction_frees(
    database: duckdb.DuckDBPyConnection, logs: list[Log], at_ms: int, lag_ms: int
) -> None:
    call = f"compaction_report(at_ms => {at_ms}, min_compaction_lag_ms => {lag_ms})"
    rows = database.sql(f"SELECT topic, partition_dir, {COLUMNS} FROM {call}").fetchall()
    found = {(topic, folder): model.Cleaning(*row) for topic, folder, *row in rows}
    assert {one.held_by for one in found.values()} >= {"active segment", "open transaction"}
    without_records = {one.held_by for one in found.values() if not one.records}
    assert without_records >= {"active segment", "open transaction"}
    assert sum(one.freed_now_records > 0 for one in found.values()) > (len(logs) // 10 if lag_ms <= 0 else -1)
    for log in logs:
        place = (log.topic, log.partition_dir)
        assert found.pop(place, None) == model.cleaning(log, at_ms, lag_ms), place
    assert not found


def test_failures_of_checksums(database: duckdb.DuckDBPyConnection, logs: list[Log]) -> None:
    expected: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for log in logs:
        of_partition = expected[log.topic, log.partition]
        of_partition[:] = map(sum, zip(of_partition, model.checksums(log), strict=True))
    sums = "sum(crc_failures), sum(batches), sum(damaged_bytes)"
    found = database.sql(f"SELECT topic, partition, {sums} FROM crc_report GROUP BY ALL").fetchall()
    counted = {(topic, partition): [*map(int, row)] for topic, partition, *row in found}
    assert counted == {place: row for place, row in expected.items() if any(row)}


def test_checks_measure_what_the_model_finds(lake_template: str, logs: list[Log], tmp_path: Path) -> None:
    lake = write_lake(lake_template, tmp_path, logs, [])
    expected: dict[tuple[str, str, int], float | None] = {}
    shares: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for log in logs:
        if all(one.left_out < 0 for one in log.segments):
            continue
        disorder = ("timestamp_order", log.topic, log.partition)
        worst = model.most_disorder(log, OffsetModel(log).stretches)
        expected[disorder] = max(expected.get(disorder) or 0.0, float(worst))
        failed, batches, _ = model.checksums(log)
        share = shares[log.topic, log.partition]
        share[:] = share[0] + failed, share[1] + batches
    for (topic, partition), (failed, batches) in shares.items():
        expected["crc_failure_rate", topic, partition] = failed / batches if batches else None
    with metrics.opened(published_tables(lake)) as database:
        wanted = [check for check in CHECKS if check.name in ("timestamp_order", "crc_failure_rate")]
        rows = metrics.measure(database, wanted, "run", datetime.now(UTC)).to_pylist()
    found = {(r["check"], r["topic"], r["partition"]): r["value"] for r in rows if r["segment"] is None}
    assert found == expected
