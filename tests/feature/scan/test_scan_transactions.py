"""Open and hanging transactions in what a scan finds, and clocks."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.scan import report
from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog
from kafka_log_lake.pipelines.scan.losses import next_steps
from kafka_log_lake.pipelines.scan.report_json import to_json
from kafka_log_lake.udfs.batches.committed import delivery_of
from tests.support.logs import batch, data, marker, put
from tests.support.scanned import HOUR, NOW, found, log_of
from tests.support.segment_maker import CONTROL, LOG_APPEND, TRANSACTIONAL, Batch, Record


def broken(batch: bytes) -> bytes:
    """A batch with one wrong bit in its last byte."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def ages(log: ScannedLog) -> list[tuple[int | None, str]]:
    """For how long each hanging transaction is open, and how certain that is."""
    return [(one.ending.open_ms, one.ending.certainty) for one in log.hanging if one.ending is not None]


def test_open_and_hanging_transactions(tmp_path: Path) -> None:
    put(
        tmp_path / "a-0",
        0,
        data(0, 7, base_timestamp=NOW),
        marker(1, 7),
        data(2, 7, base_timestamp=NOW),
        data(3, 8, epoch=5, base_timestamp=NOW),
    )
    put(tmp_path / "a-0", 4, data(4, 7), marker(5, 7, commit=False), data(6, 9, base_timestamp=NOW + HOUR))
    findings = found(tmp_path)
    (log,) = findings.logs
    printed = [(t.producer_id, t.producer_epoch, t.first_offset) for t in log.open_transactions]
    assert printed == [(8, 5, 3), (9, 0, 6)]
    assert log.last_stable_offset == 3
    assert ages(log) == [(HOUR, "unknown")]
    assert log.hanging[0].producer_id == 8
    assert "kafka-transactions.sh --bootstrap-server HOST:9092 find-hanging --topic a --partition 0" in steps(
        findings
    )
    assert " abort " not in steps(findings)


def test_markers_are_counted_apart_from_data(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, data(0, 7), data(1, 7), marker(2, 7), data(3, -1))
    findings = found(tmp_path)
    said, table = report.headline(findings), next(report.sections(findings))
    assert "3 records and 1 control record, scanned" in said
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["records"], row["control records"]) == ("3", "1")
    printed = to_json(findings)
    for one in (printed, printed["topics"][0], printed["logs"][0], *printed["logs"][0]["formats"]):
        assert (one["records"], one["control_records"]) == (3, 1)


def test_no_column_of_control_records_where_there_are_none(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, data(0, -1))
    findings = found(tmp_path)
    assert "control" not in report.headline(findings)
    assert "control records" not in next(report.sections(findings)).columns


def steps(findings: Findings) -> str:
    return "\n".join(next_steps(findings))


def at_time(path: Path, at_ms: int) -> None:
    os.utime(path, (at_ms / 1000,) * 2)


def test_an_abort_is_printed_where_brokers_stamped_the_transaction(tmp_path: Path) -> None:
    """KIP-32: with log append time the max timestamp counts, whatever the producer's clock gave."""
    late: dict[str, Any] = {
        "base_timestamp": NOW - 48 * HOUR,
        "flags": TRANSACTIONAL | LOG_APPEND,
        "producer_id": 7,
    }
    record = (Record(value=b"v"),)
    first = Batch(record, **late, base_offset=0, max_timestamp=NOW).encode()
    healthy = Batch(record, base_offset=1, flags=LOG_APPEND, max_timestamp=NOW + 60_000).encode()
    put(tmp_path / "a-0", 0, first, healthy)
    findings = found(tmp_path)
    assert findings.logs[0].hanging == []
    assert " abort " not in steps(findings)
    later = Batch(record, base_offset=1, flags=LOG_APPEND, max_timestamp=NOW + HOUR).encode()
    put(tmp_path / "a-0", 0, first, later)
    findings = found(tmp_path)
    assert ages(findings.logs[0]) == [(HOUR, "certain")]
    assert "abort --topic a --partition 0 --start-offset 0" in steps(findings)


def test_markers_bound_the_age_of_a_transaction_whatever_its_producer_stamps(tmp_path: Path) -> None:
    years = 6 * 365 * 24 * HOUR
    stamped = data(1, 7, base_timestamp=NOW - years)
    path = put(
        tmp_path / "a-0", 0, marker(0, 8), stamped, marker(2, 8), batch(3, base_timestamp=NOW + 60_000)
    )
    at_time(path, NOW + 60_000)
    assert log_of(tmp_path).hanging == []  # a minute passed since the marker before it
    path = put(tmp_path / "a-0", 0, stamped, marker(2, 8))
    at_time(path, NOW)
    assert ages(log_of(tmp_path)) == [(years, "unknown")]


def test_the_clock_of_another_log_makes_no_transaction_hang(tmp_path: Path) -> None:
    at_time(put(tmp_path / "a-0", 0, data(0, 7), batch(1, base_timestamp=NOW + 60_000)), NOW + 60_000)
    at_time(put(tmp_path / "micros-0", 0, batch(0, base_timestamp=NOW * 1000)), NOW)
    at_time(put(tmp_path / "later-0", 0, batch(0, base_timestamp=NOW + HOUR)), NOW + HOUR)
    findings = found(tmp_path)
    assert [log.hanging for log in findings.logs] == [[], [], []]
    clocks = {log.topic: (log.clock.now_ms, log.clock.witness, log.clock.certainty) for log in findings.logs}
    assert clocks == {
        "a": (NOW + 60_000, "producer", "likely"),
        "micros": (NOW, "file", "unknown"),
        "later": (NOW + HOUR, "producer", "likely"),
    }


def test_a_transaction_without_a_timestamp_may_hang(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, data(0, 7, base_timestamp=-1), batch(1))
    assert ages(log_of(tmp_path)) == [(None, "unknown")]


@pytest.mark.parametrize("at", [-(2**63), -2, 0, 2**61, 2**62, 2**63 - 2, 2**63 - 1])
def test_no_timestamp_ends_a_scan(tmp_path: Path, at: int) -> None:
    stamped = (data(0, 7, base_timestamp=at), batch(1), batch(4, base_timestamp=at))
    put(tmp_path / "a-2147483647", 0, *stamped)
    findings = found(tmp_path)
    assert [log.records for log in findings.logs] == [7]
    assert any("a-2147483647" in line for line in report.to_text(findings))
    json.dumps(to_json(findings))


def test_a_marker_without_the_bit_of_transactions_ends_none_as_in_the_tables(tmp_path: Path) -> None:
    record = Record(key=struct.pack(">hh", 0, 1), value=struct.pack(">hi", 0, 1))
    plain = Batch((record,), base_offset=1, flags=CONTROL, producer_id=7, producer_epoch=0).encode()
    put(tmp_path / "a-0", 0, data(0, producer=7), plain, batch(2))
    (transaction,) = log_of(tmp_path).open_transactions
    assert transaction.first_offset == 0
    assert delivery_of(str(tmp_path / "a-0")).last_stable_offset == 0


def test_a_transaction_before_damage_may_have_ended_there(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, broken(batch(0)), data(3, 7), broken(marker(4, 7)), batch(5))
    (transaction,) = log_of(tmp_path).open_transactions
    assert transaction.is_uncertain
    put(tmp_path / "a-0", 0, broken(batch(0)), data(3, 7), batch(5))
    (transaction,) = log_of(tmp_path).open_transactions
    assert not transaction.is_uncertain
