"""Transactions that hold back consumers where a broker died, by the wall clock, and what ends each one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.scan import report
from kafka_log_lake.pipelines.scan.losses import next_steps
from kafka_log_lake.pipelines.scan.report_json import to_json
from tests.support.logs import data, put
from tests.support.scanned import found
from tests.support.segment_maker import Batch, Record
from tests.unit.views.test_clusters_in_views import (
    COMPLETE_COMMIT,
    HOUR,
    MINUTE,
    NOW,
    ONGOING,
    marker,
    noted,
    setting,
    state,
    topic_made,
)

PREPARE_COMMIT, PREPARE_ABORT = 2, 3
NEVER = 2**31 - 1
Rows = list[dict[str, Any]]


def named(record: Any, name: bytes) -> Any:
    """A record of __transaction_state under another transactional id."""

    return replace(record, key=b"\0\0" + len(name).to_bytes(2, "big") + name)


def write_dead_broker(logs: Path) -> None:
    """A broker that died at NOW + MINUTE, a second after it wrote to each of these logs."""
    opened = ("ongoing", "commits", "aborts", "flink", "two-phase", "unknown")
    for producer, topic in enumerate(opened, 1):
        put(logs / f"{topic}-0", 0, data(0, producer, base_timestamp=NOW), marker(1, NOW + MINUTE))
    # its coordinator completed it, and the marker is not there
    put(logs / "ended-0", 0, data(0, 7, base_timestamp=NOW), marker(1, NOW + 1), marker(2, NOW + MINUTE))
    # prepared, and the marker is there
    put(logs / "written-0", 0, data(0, 8, base_timestamp=NOW), marker(1, NOW + 2, 8))
    later = NOW + MINUTE
    states = [
        state(1, ONGOING, b"ongoing", NOW),
        state(2, PREPARE_COMMIT, b"commits", NOW + 1),
        state(3, PREPARE_ABORT, b"aborts", NOW + 1),
        named(state(4, ONGOING, b"flink", NOW), b"orders-sink-3-17"),
        state(5, ONGOING, b"two-phase", NOW, timeout=NEVER),
        state(7, COMPLETE_COMMIT, None, NOW + 1),
        state(8, PREPARE_COMMIT, b"written", NOW + 1),
        state(99, COMPLETE_COMMIT, None, later),
    ]
    put(logs / "__transaction_state-0", 0, *noted(*((later, one) for one in states)))
    for path in logs.glob("*/*.log"):
        os.utime(path, (later / 1000,) * 2)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rows]:
    folder = tmp_path_factory.mktemp("dead")
    write_dead_broker(folder / "logs")
    lake = str(folder / "lake")
    assert decode_batches.main(["--source", str(folder / "logs"), "--lake", lake]) == 0
    database = connect(lake)
    return lambda statement: database.sql(statement).to_arrow_table().to_pylist()


def test_what_was_open_where_the_broker_died_appears_by_the_wall_clock(ask: Callable[[str], Rows]) -> None:
    rows = ask(f"SELECT * FROM hanging_transactions(at_ms => {NOW + 2 * HOUR})")
    names = ("state", "hangs_as_of_last_write", "hangs_now", "certainty")
    found = {row["topic"]: tuple(row[name] for name in names) for row in rows}
    assert found == {
        "ongoing": ("ongoing", False, True, "unknown"),
        "commits": ("prepared", False, True, "unknown"),
        "aborts": ("prepared", False, True, "unknown"),
        "flink": ("ongoing", False, True, "unknown"),
        "two-phase": ("ongoing", False, True, "unknown"),
        "unknown": ("open", False, True, "unknown"),
        "ended": ("ended", True, True, "likely"),  # a minute old, and nothing but an abort ends it
        "written": ("markers written", False, True, "unknown"),
    }
    assert {r["open_ms"] for r in rows if r["topic"] == "ongoing"} == {MINUTE}
    assert {r["open_now_ms"] for r in rows if r["topic"] == "ongoing"} == {2 * HOUR}
    # as of the last write none is older than the timeout
    at_once = ask(f"SELECT topic FROM hanging_transactions(at_ms => {NOW + MINUTE})")
    assert [row["topic"] for row in at_once] == ["ended"]


def test_each_has_its_remedy_and_no_abort_is_printed_that_loses_what_was_committed(
    ask: Callable[[str], Rows],
) -> None:
    rows = {r["topic"]: r for r in ask("SELECT * FROM hanging_transactions")}
    words = {
        "ongoing": "start the brokers: its coordinator aborts it",
        "commits": "its coordinator writes the COMMIT marker. Do not abort it",
        "aborts": "its coordinator writes the ABORT marker",
        "flink": "let its client commit or abort it",
        "two-phase": "an abort from outside loses what the client has counted as committed",
        "unknown": "run check_command",
        "ended": "copy them first",
        "written": "KAFKA-19999",
    }
    assert [topic for topic, text in words.items() if text not in rows[topic]["remedy"]] == []
    assert {topic for topic, row in rows.items() if row["commits_in_two_phases"]} == {"flink", "two-phase"}
    assert rows["two-phase"]["coordinator_timeout_ms"] == NEVER
    assert rows["flink"]["transactional_id"] == "orders-sink-3-17"
    assert not any(row["abort_command"] for row in rows.values())
    held = (rows["written"]["held_records"], rows["written"]["last_stable_offset"])
    assert held == (0, None)


def test_what_cannot_be_read_of_the_coordinator_makes_nothing_certain(tmp_path: Path) -> None:
    """A record of a later version may say that the transaction is open."""
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    put(logs / "ended-0", 0, data(0, 7, base_timestamp=NOW), marker(1, NOW + 1), marker(2, NOW + HOUR))
    states = [state(7, COMPLETE_COMMIT, None, NOW + 1), state(99, COMPLETE_COMMIT, None, NOW + HOUR)]
    put(logs / "__transaction_state-0", 0, *noted(*((NOW + HOUR, one) for one in states)))
    command = ["--source", str(logs), "--lake", lake]
    question = "SELECT certainty, why, unread_states FROM hanging_transactions"
    assert decode_batches.main(command) == 0
    assert connect(lake).sql(question).fetchall() == [
        ("certain", "the coordinator ended it, and its marker did not come", 0)
    ]

    newer = replace(states[0], value=b"\x00\x09" + (states[0].value or b"")[2:])
    made = [(NOW + HOUR, one) for one in (*states, newer)]
    put(logs / "__transaction_state-0", 0, *noted(*made))
    assert decode_batches.main(command) == 0
    ((certainty, why, unread),) = connect(lake).sql(question).fetchall()
    assert (certainty, unread) == ("certain", 1)
    assert why == "by the brokers' clock"  # which needs no coordinator
    question = "SELECT producer_id, unread_records FROM producer_states ORDER BY producer_id"
    assert connect(lake).sql(question).fetchall() == [(7, 1), (99, 1)]
    columns = "internal_topic, unread_records, first_error"
    rows = connect(lake).sql(f"SELECT {columns} FROM unread_internal").fetchall()
    assert rows == [("__transaction_state", 1, "value: version 9 of TransactionLogValue is not known")]


def test_a_scan_joins_what_the_coordinator_noted(tmp_path: Path) -> None:
    write_dead_broker(tmp_path)
    findings = found(tmp_path)
    endings = {log.topic: one.ending for log in findings.logs for one in log.open_transactions}
    assert {
        topic: (
            one.state,
            one.hangs_as_of_last_write,
            one.hangs_now,
            one.certainty,
            one.commits_in_two_phases,
        )
        for topic, one in endings.items()
        if one is not None
    } == {
        "ongoing": ("ongoing", False, True, "unknown", False),
        "commits": ("prepared", False, True, "unknown", False),
        "aborts": ("prepared", False, True, "unknown", False),
        "flink": ("ongoing", False, True, "unknown", True),
        "two-phase": ("ongoing", False, True, "unknown", True),
        "unknown": ("open", False, True, "unknown", False),
        "ended": ("ended", True, True, "likely", False),
    }
    assert [(one.transactional_id, one.state) for one in findings.prepared] == [("id-8", "PrepareCommit")]
    text = "\n".join(report.to_text(findings))
    assert "orders-sink-3-17: Ongoing, timeout 3,600,000 ms" in text
    assert "KAFKA-19999" in text
    assert " abort " not in "\n".join(line for line in next_steps(findings) if not line.startswith("#"))
    assert to_json(findings)["prepared_transactions"][0]["partitions"] == [("written", 0)]


def test_settings_of_topics_say_that_a_record_of_the_metadata_log_cannot_be_read(tmp_path: Path) -> None:
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    newer = Record(value=b"\x01\x04\x09" + b"\x02")  # a ConfigRecord of a later version
    changes = (topic_made(b"t", 7), setting(2, b"t", b"retention.ms", b"5"), newer)
    put(logs / "__cluster_metadata-0", 0, Batch(changes, base_timestamp=NOW).encode())
    for topic in ("t", "other"):
        put(logs / f"{topic}-0", 0, data(0, 1))
    assert decode_batches.main(["--source", str(logs), "--lake", lake]) == 0
    question = "SELECT topic, topic_retention_ms, unread_records FROM log_settings ORDER BY topic"
    views = connect(lake)
    assert views.sql(question).fetchall() == [("other", None, 1), ("t", 5, 1)]
    question = "SELECT setting, value, unread_records FROM topic_settings"
    assert views.sql(question).fetchall() == [("retention.ms", "5", 1)]
    for view in ("retention_report", "compaction_report"):
        rows = views.sql(f"SELECT topic, unread_records FROM {view} ORDER BY topic").fetchall()
        assert rows == [("__cluster_metadata", 0), ("other", 1), ("t", 1)]
