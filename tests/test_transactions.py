"""Transactions from batches: one rule a test, on real Delta tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from pipelines.lake.address import sql_table
from pipelines.lake.transactions import refresh
from tests.support.lake_rows import insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_DIR = "file:///logs/it's a topic-0"
FIRST, SECOND = f"{LOG_DIR}/00000000000000000000.log", f"{LOG_DIR}/00000000000000000100.log"
TOPIC = "it's a topic"
PARTITIONS = [(TOPIC, 0)]


def batch(base: int, last: int | None = None, **values: Any) -> dict[str, Any]:
    """A transactional batch of producer 7, epoch 0, that lies at its base offset in the first segment."""
    last = base if last is None else last
    row: dict[str, Any] = {
        "topic": TOPIC,
        "partition": 0,
        "magic": 2,
        "segment": FIRST,
        "position": base,
        "base_offset": base,
        "last_offset": last,
        "record_count": last - base + 1,
        "producer_id": 7,
        "producer_epoch": 0,
        "is_transactional": True,
        "is_control": False,
        "status": "ok",
    }
    return {**row, **values}


def marker(offset: int, control_type: str, **values: Any) -> dict[str, Any]:
    control = {"is_control": True, "control_type": control_type, "coordinator_epoch": 3}
    return batch(offset, **{**control, **values})


def damage(position: int, segment: str = FIRST) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": 0, "segment": segment, "position": position, "size_bytes": 1}


def refreshed(
    spark: SparkSession, lake: str, partitions: Sequence[tuple[str, int]] = PARTITIONS
) -> list[str]:
    return refresh(spark, lake, partitions, transactional=partitions)


def rows(spark: SparkSession, lake: str) -> list[tuple[Any, ...]]:
    """producer_id, epoch, first, last, records, marker, coordinator_epoch, outcome, uncertain"""
    table = sql_table(lake, "transactions")
    selected = spark.sql(
        "SELECT producer_id, producer_epoch, first_offset, last_offset, records, marker_offset, "
        f"coordinator_epoch, outcome, outcome_uncertain FROM {table} ORDER BY log_dir, "
        "coalesce(first_offset, marker_offset), producer_id"
    )
    return [tuple(row) for row in selected.collect()]


def version(lake: str) -> int:
    return DeltaTable(f"{lake}/transactions").version()


def test_data_up_to_the_marker_are_one_transaction(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "batches", [batch(0, 4), batch(5, 6), marker(7, "COMMIT")])
    assert refreshed(spark, lake) == []
    assert rows(spark, lake) == [(7, 0, 0, 6, 7, 7, 3, "committed", False)]


def test_each_marker_closes_its_producers_transaction_alone(spark: SparkSession, lake: str) -> None:
    other = {"producer_id": 8}
    found = [batch(0), batch(1, **other), marker(2, "ABORT"), batch(3), marker(4, "COMMIT", **other)]
    insert(spark, lake, "batches", [*found, marker(5, "COMMIT")])
    refreshed(spark, lake)
    assert rows(spark, lake) == [
        (7, 0, 0, 0, 1, 2, 3, "aborted", False),
        (8, 0, 1, 1, 1, 4, 3, "committed", False),
        (7, 0, 3, 3, 1, 5, 3, "committed", False),
    ]


def test_marker_of_a_higher_epoch_closes_and_the_datas_epoch_is_kept(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "batches", [batch(0), marker(1, "COMMIT", producer_epoch=1)])
    refreshed(spark, lake)
    assert rows(spark, lake) == [(7, 0, 0, 0, 1, 1, 3, "committed", False)]


def test_marker_without_data(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "batches", [marker(4, "ABORT", producer_epoch=2)])
    refreshed(spark, lake)
    assert rows(spark, lake) == [(7, 2, None, None, 0, 4, 3, "aborted", False)]


def test_open_transaction(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "batches", [batch(3, 5)])
    refreshed(spark, lake)
    assert rows(spark, lake) == [(7, 0, 3, 5, 3, None, None, "open", False)]


def test_what_is_no_sound_transactional_batch_does_not_count(spark: SparkSession, lake: str) -> None:
    found = [batch(0, is_transactional=False), batch(1, status="corrupt"), batch(2, status="suspect")]
    found += [marker(3, "LEADER_CHANGE"), marker(4, "UNKNOWN"), batch(5, topic="another")]
    insert(spark, lake, "batches", found)
    refreshed(spark, lake)
    assert rows(spark, lake) == [(7, 0, 2, 2, 1, None, None, "open", False)]


def test_replicas_are_logs_of_their_own(spark: SparkSession, lake: str) -> None:
    replica = FIRST.replace("/logs/", "/other/")
    insert(spark, lake, "batches", [batch(0), marker(1, "COMMIT"), batch(0, segment=replica)])
    refreshed(spark, lake)
    assert [row[7] for row in rows(spark, lake)] == ["committed", "open"]


@pytest.mark.parametrize(
    ("found", "uncertain"),
    [
        (damage(11), True),
        (damage(9), False),
        (damage(0, SECOND), True),
        (damage(11, FIRST.replace("/logs/", "/other/")), False),
    ],
)
def test_open_transaction_is_uncertain_where_damage_follows_its_start(
    spark: SparkSession, lake: str, found: dict[str, Any], uncertain: bool
) -> None:
    insert(spark, lake, "batches", [batch(1), marker(2, "COMMIT"), batch(10), batch(20)])
    insert(spark, lake, "quarantine", [found])
    assert refreshed(spark, lake) == ([LOG_DIR] if uncertain else [])
    assert [row[-1] for row in rows(spark, lake)] == [False, uncertain]


def test_uncertain_is_told_only_where_it_holds_the_last_stable_offset(spark: SparkSession, lake: str) -> None:
    found = [batch(0, position=50, segment=SECOND, producer_id=8), batch(1)]
    insert(spark, lake, "batches", found)
    insert(spark, lake, "quarantine", [damage(30)])
    assert refreshed(spark, lake) == []
    assert [row[-1] for row in rows(spark, lake)] == [False, True]


def test_nothing_new_is_no_commit(spark: SparkSession, lake: str) -> None:
    refreshed(spark, lake)
    assert version(lake) == 0
    insert(spark, lake, "batches", [batch(0), marker(1, "COMMIT"), marker(2, "ABORT")])
    for _ in range(2):
        refreshed(spark, lake)
        assert version(lake) == 1


def test_only_the_partitions_named_are_replaced(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "batches", [batch(0), batch(0, partition=1), batch(0, topic="b")])
    refreshed(spark, lake, [*PARTITIONS, (TOPIC, 1), ("b", 0)])
    spark.sql(f"DELETE FROM {sql_table(lake, 'batches')} WHERE true")
    refreshed(spark, lake, [(TOPIC, 1)])
    table = spark.sql(f"SELECT topic, partition FROM {sql_table(lake, 'transactions')} ORDER BY ALL")
    assert [tuple(row) for row in table.collect()] == [("b", 0), (TOPIC, 0)]


def test_damage_that_comes_later_makes_an_open_transaction_uncertain(spark: SparkSession, lake: str) -> None:
    """No batch of a transaction comes with it, but rows of transactions are there."""
    insert(spark, lake, "batches", [batch(1)])
    assert refreshed(spark, lake) == []
    insert(spark, lake, "quarantine", [damage(11)])
    assert refresh(spark, lake, PARTITIONS, transactional=[]) == [LOG_DIR]


def test_a_log_without_transactions_gets_no_commit(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "batches", [batch(1, is_transactional=False)])
    assert refresh(spark, lake, PARTITIONS, transactional=[]) == []
    assert version(lake) == 0
