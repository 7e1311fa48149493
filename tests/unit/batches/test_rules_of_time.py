"""Kafka's rules of time over random logs and hostile numbers: every place that has them, held to one model.

Random logs as tables of one lake (nothing is decoded) for the views in DuckDB; a few as files for ``scan``.
``KLL_RANDOM_LOGS=10000`` takes that many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.quality_report import metrics
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.udfs.batches import clocks
from kafka_log_lake.udfs.batches.retention import NOTHING, Limits, SegmentTime, retained
from tests.support import rule_model_time as model
from tests.support.drawn import first
from tests.support.log_model import NOW, SIZE, Log
from tests.support.random_logs import write_files
from tests.support.timed_lake import FAR, Open, timed_logs, transactions_of, write_lake

COUNT = int(os.environ.get("KLL_RANDOM_LOGS", "150"))
HOUR, DAY = model.HOUR, model.DAY
Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return timed_logs(COUNT)


@pytest.fixture(scope="module")
def opened(logs: list[Log]) -> list[Open]:
    return transactions_of(logs)


@pytest.fixture(scope="module")
def random_lake(
    lake_template: str, tmp_path_factory: pytest.TempPathFactory, logs: list[Log], opened: list[Open]
) -> str:
    return write_lake(lake_template, tmp_path_factory.mktemp("random"), logs, opened)


@pytest.fixture(scope="module")
def database(random_lake: str) -> DuckDBPyConnection:
    return connect(random_lake)


@pytest.fixture(scope="module")
def ask(database: DuckDBPyConnection) -> Ask:
    return lambda statement: database.sql(statement).to_arrow_table().to_pylist()


def by_log(rows: Rows) -> dict[tuple[str, str], Rows]:
    found: dict[tuple[str, str], Rows] = {}
    for row in rows:
        found.setdefault((row["topic"], row["partition_dir"]), []).append(row)
    return found


def test_the_clock_of_every_log(ask: Ask, logs: list[Log]) -> None:
    found = by_log(ask("SELECT * FROM log_clocks"))
    for log in logs:
        (row,) = found[log.topic, log.partition_dir]
        names = ("now_ms", "witness", "certainty", "broker_ms", "modified_ms")
        assert tuple(row[name] for name in names) == model.clock(log), log


@pytest.mark.parametrize("timeout", first(3, [900_000, 0, FAR, -1, 5 * HOUR, -FAR]))
def test_which_transactions_hang(ask: Ask, opened: list[Open], timeout: int) -> None:
    call = f"hanging_transactions(timeout_ms => {timeout})"
    rows = ask(f"SELECT * FROM {call} WHERE hangs_as_of_last_write")
    found = {(r["topic"], r["partition_dir"], r["producer_id"]): r for r in rows}
    assert len(found) == len(rows)
    for log, one, lost in opened:
        row = found.pop((log.topic, log.partition_dir, one.producer_id), None)
        printed = None if row is None else (row["open_ms"], row["certainty"])
        assert printed == model.age(log, one.producer_id, one.base_offset, lost, timeout), (log, one)
        assert row is None or (row["abort_command"] is not None) == (row["certainty"] == "certain")
    assert not found


LIMITS = [
    (7 * DAY, -1, NOW + 5 * HOUR),
    (HOUR, -1, NOW + 3 * HOUR),
    (HOUR, 3 * SIZE, NOW + 30 * HOUR),
    (3 * HOUR, 5 * SIZE, NOW + 400 * HOUR),
    (-1, 4 * SIZE, NOW),
    (-1, -1, NOW),
    (0, 0, NOW + 10 * HOUR),
    (FAR, FAR, -FAR),
    (5, 1, -FAR),  # now - timestamp wraps
]


@pytest.mark.parametrize(("ms", "size", "now"), LIMITS)
def test_what_retention_deletes(ask: Ask, logs: list[Log], ms: int, size: int, now: int) -> None:
    call = f"retention_report(retention_ms => {ms}, retention_bytes => {size}, at_ms => {now})"
    found = by_log(ask(f"SELECT * FROM {call}"))
    for log in logs:
        rows = found[log.topic, log.partition_dir]
        lengths = {one.file_base_offset: SIZE * len(one.batches) for one in log.segments}
        printed = {r["file_base_offset"]: r["freed_by"] for r in rows if r["can_go"]}
        assert printed == model.deleted(log, lengths, ms, size, now), log
        assert all((row["held_by"] is None) == row["can_go"] for row in rows)
        largest = {one.file_base_offset: model.largest_timestamp(one) for one in log.segments}
        assert {r["file_base_offset"]: r["largest_timestamp_ms"] for r in rows} == largest


@pytest.mark.parametrize(("ms", "size", "now"), LIMITS)
def test_a_scan_frees_what_retention_deletes(logs: list[Log], ms: int, size: int, now: int) -> None:
    """The rule of ``scan`` is code of its own beside the view's SQL."""
    for log in logs:
        ordered = sorted(log.segments, key=lambda one: one.file_base_offset)
        lengths = {one.file_base_offset: SIZE * len(one.batches) for one in ordered}
        times = [
            SegmentTime(base, length, model.largest_timestamp(one))
            for one, (base, length) in zip(ordered, lengths.items(), strict=True)
        ]
        start = max(one.log_start_offset for one in ordered)
        found = retained(times, start, Limits(ms, size), now)
        gone = model.deleted(log, lengths, ms, size, now)
        assert found.can_go == sum(lengths[base] for base in gone), log
        assert (found.held_by == NOTHING) == (len(gone) == len(ordered)), log


@pytest.mark.parametrize(("future", "disorder"), [(HOUR, HOUR), (0, 0), (FAR, FAR), (-FAR, -FAR)])
def test_anomalies_of_timestamps(ask: Ask, logs: list[Log], future: int, disorder: int) -> None:
    call = f"timestamp_anomalies(max_future_ms => {future}, max_disorder_ms => {disorder})"
    found = by_log(ask(f"SELECT * FROM {call}"))
    for log in logs:
        bases = {log.uri(one): one.file_base_offset for one in log.segments}
        printed = {
            (bases[row["segment"]], row["anomaly"]): model.Anomaly(
                row["records"],
                row["lowest_ms"],
                row["highest_ms"],
                row["off_by_ms"],
                row["blocked_bytes"] is not None,
            )
            for row in found.get((log.topic, log.partition_dir), [])
        }
        assert printed == model.anomalies(log, future, disorder), log


def test_checks_measure_what_the_model_finds(random_lake: str, logs: list[Log], opened: list[Open]) -> None:
    names = ("timestamp_units", "timestamp_future", "hanging_transactions")
    with metrics.opened(published_tables(random_lake)) as database:
        wanted = [check for check in CHECKS if check.name in names]
        rows = metrics.measure(database, wanted, "run", datetime.now(UTC)).to_pylist()
    found = {(r["check"], r["topic"], r["partition"]): r["value"] for r in rows if r["segment"] is None}
    expected: dict[tuple[str, str, int], float] = dict.fromkeys(found, 0.0)
    for log in logs:
        units, future, _ = ((name, log.topic, log.partition) for name in names)
        for segment, one in model.decoded(log):
            unit = model.unit(one.max_timestamp_ms)
            if not one.control and unit not in ("none", "milliseconds"):
                expected[units] += 1
            if segment.modified_ms >= model.BEGIN_OF_KAFKA:
                ahead = one.max_timestamp_ms - segment.modified_ms
                expected[future] = max(expected[future], float(ahead))
    for log, one, lost in opened:
        age = model.age(log, one.producer_id, one.base_offset, lost, -1)
        hanging = (names[2], log.topic, log.partition)
        expected[hanging] = max(expected[hanging], 0.0 if age is None else float(age.open_ms or 0))
    assert found == expected


def test_units_of_timestamps(ask: Ask) -> None:
    sql = {(row["unit"], row["lowest"], row["highest"]) for row in ask("SELECT * FROM timestamp_units")}
    for unit, lowest, highest in sql:
        assert {model.unit(lowest), model.unit(highest)} == {unit}
    outside = [bound for _, lowest, highest in sql for bound in (lowest - 1, highest + 1)]
    known = [at for at in outside if all(not low <= at <= high for _, low, high in sql) and abs(at) < 2**63]
    assert {model.unit(at) for at in known} == {"milliseconds"}


def scanned(folder: Path, logs: list[Log]) -> Iterator[tuple[Log, Any]]:
    write_files(folder, logs)
    for log in logs:
        for one in log.segments:
            path = folder / log.uri(one).removeprefix("file:///")
            os.utime(path, ns=(one.modified_ms * 10**6,) * 2)
    findings = scan(Settings(source=(str(folder),), cores=1))
    found = {(one.topic, one.partition_dir): one for one in findings.logs}
    for log in logs:
        yield log, found[log.topic, log.partition_dir.replace("file://", f"file://{folder}")]


def test_a_scan_has_the_same_clocks_and_ages(tmp_path: Path) -> None:
    """Of the logs that a scan reads whole: all batches sound, so that both see the same ones."""
    sound = [
        replace(log, segments=tuple(replace(one, left_out=0) for one in log.segments))
        for log in timed_logs(max(COUNT, 150))  # of fewer hardly one has an open transaction
        if all(b.is_sound and b.span == b.count for one in log.segments for b in one.batches)
        and all(0 <= one.modified_ms < 2**42 for one in log.segments)
    ][: max(60, COUNT // 5)]
    ages = 0
    for log, found in scanned(tmp_path, sound):
        clock = (found.clock.now_ms, found.clock.witness, found.clock.certainty)
        assert (*clock, found.clock.broker_ms, found.clock.modified_ms) == model.clock(log), log
        for one in found.open_transactions:
            expected = model.age(
                log, one.producer_id, one.first_offset, one.is_uncertain, clocks.TRANSACTION_TIMEOUT_MS
            )
            assert one.ending is not None
            hangs = one.ending.hangs_as_of_last_write
            printed = (one.ending.open_ms, one.ending.certainty) if hangs else None
            assert printed == expected, log
            ages += 1
    assert ages > 3
