"""Transactions from batches: one rule a test, on real Delta tables. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.lake import transactions
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow, Log
from kafka_log_lake.udfs.batches.committed import delivery_of
from tests.support import logs
from tests.support.lake_rows import insert, reader
from tests.support.random_logs import random_logs, write_files
from tests.support.rule_model_transactions import transactions_of
from tests.support.rules_held import FIRST_RUN

PARTITION_DIR = "file:///logs/it's a topic-0"
FIRST, SECOND = f"{PARTITION_DIR}/{0:020d}.log", f"{PARTITION_DIR}/{100:020d}.log"
REPLICA = FIRST.replace("/logs/", "/other/")
TOPIC = "it's a topic"
PARTITION = (TOPIC, 0)


def segment(name: str = FIRST, base: int = 0, end: int | None = None, **values: Any) -> LedgerRow:
    """A row of the ledger; decoded as far as any batch of these tests lies."""
    row = LedgerRow(
        topic=TOPIC,
        partition=0,
        partition_dir=name.rpartition("/")[0],
        segment=name,
        file_base_offset=base,
        decoded_bytes=1000,
        end_offset=end,
        damaged=1,  # those with rows of quarantine are
    )
    return replace(row, **values)


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


def computed(lake: str, *segments: LedgerRow) -> tuple[pa.Table, set[Log], transactions.Outcome]:
    table = ledger.to_arrow(segments or [segment(), segment(SECOND, 100)])
    before = transactions.stored(reader(lake), {PARTITION})
    return transactions.compute(reader(lake), {PARTITION}, table, before)


_COLUMNS = (
    "producer_id",
    "producer_epoch",
    "first_offset",
    "last_offset",
    "records",
    "marker_offset",
    "coordinator_epoch",
    "outcome",
    "outcome_uncertain",
    "holds_last_stable_offset",
)


def _begin(row: dict[str, Any]) -> int:
    first = row["first_offset"]
    return int(row["marker_offset"] if first is None else first)


def rows(lake: str, *segments: LedgerRow) -> list[tuple[Any, ...]]:
    """The columns _COLUMNS of each transaction, by folder and offset."""
    found = computed(lake, *segments)[0].to_pylist()
    found.sort(key=lambda r: (r["partition_dir"], _begin(r), r["producer_id"]))
    return [tuple(row[name] for name in _COLUMNS) for row in found]


def outcomes(lake: str, *segments: LedgerRow) -> list[tuple[Any, ...]]:
    """outcome, uncertain, holds the last stable offset"""
    return [row[7:] for row in rows(lake, *segments)]


COMMITTED, ABORTED = ("committed", False, False), ("aborted", False, False)
OPEN, HELD_UNCERTAIN, UNKNOWN = ("open", False, True), ("open", True, True), ("open", True, False)


def test_data_up_to_the_marker_are_one_transaction(lake: str) -> None:
    insert(lake, "batches", [batch(0, 4), batch(5, 6), marker(7, "COMMIT")])
    assert rows(lake) == [(7, 0, 0, 6, 7, 7, 3, *COMMITTED)]


def test_each_marker_closes_its_producers_transaction_alone(lake: str) -> None:
    other = {"producer_id": 8}
    found = [batch(0), batch(1, **other), marker(2, "ABORT"), batch(3), marker(4, "COMMIT", **other)]
    insert(lake, "batches", [*found, marker(5, "COMMIT")])
    assert rows(lake) == [
        (7, 0, 0, 0, 1, 2, 3, *ABORTED),
        (8, 0, 1, 1, 1, 4, 3, *COMMITTED),
        (7, 0, 3, 3, 1, 5, 3, *COMMITTED),
    ]


def test_marker_of_a_higher_epoch_closes_and_the_datas_epoch_is_kept(lake: str) -> None:
    insert(lake, "batches", [batch(0), marker(1, "COMMIT", producer_epoch=1)])
    assert rows(lake) == [(7, 0, 0, 0, 1, 1, 3, *COMMITTED)]


def test_marker_without_data(lake: str) -> None:
    insert(lake, "batches", [marker(4, "ABORT", producer_epoch=2)])
    assert rows(lake) == [(7, 2, None, None, 0, 4, 3, *ABORTED)]


def test_open_transaction(lake: str) -> None:
    insert(lake, "batches", [batch(3, 5)])
    assert rows(lake) == [(7, 0, 3, 5, 3, None, None, *OPEN)]


def test_an_unsound_transactional_batch_does_not_count(lake: str) -> None:
    found = [batch(0, is_transactional=False), batch(1, status="corrupt"), batch(2, status="suspect")]
    found += [marker(3, "LEADER_CHANGE"), marker(4, "UNKNOWN"), batch(5, topic="another")]
    insert(lake, "batches", found)
    assert rows(lake) == [(7, 0, 2, 2, 1, None, None, *OPEN)]


def test_what_the_ledger_does_not_name_does_not_count(lake: str) -> None:
    insert(lake, "batches", [batch(0), marker(3, "ABORT", segment=SECOND)])
    assert outcomes(lake, segment()) == [OPEN]


def test_replicas_are_logs_of_their_own(lake: str) -> None:
    insert(lake, "batches", [batch(0), marker(1, "COMMIT"), batch(0, segment=REPLICA)])
    assert outcomes(lake, segment(), segment(REPLICA)) == [COMMITTED, OPEN]


@pytest.mark.parametrize(
    ("found", "uncertain"),
    [
        (damage(11), True),
        (damage(9), False),
        (damage(0, SECOND), True),
        (damage(11, REPLICA), False),
    ],
)
def test_open_transaction_is_uncertain_where_damage_follows_its_start(
    lake: str, found: dict[str, Any], uncertain: bool
) -> None:
    insert(lake, "batches", [batch(1), marker(2, "COMMIT"), batch(10), batch(20)])
    insert(lake, "quarantine", [found])
    rows, _, outcome = computed(lake, segment(), segment(SECOND, 100), segment(REPLICA))
    assert outcome.uncertain == ([PARTITION_DIR] if uncertain else [])
    assert [row["outcome_uncertain"] for row in rows.to_pylist()] == [False, uncertain]


def test_a_marker_after_damage_may_not_be_the_first(lake: str) -> None:
    """Another marker may lie in the damaged bytes: what was committed, or aborted, can't be known."""
    insert(lake, "batches", [batch(1), batch(10), marker(20, "COMMIT")])
    insert(lake, "quarantine", [damage(5)])
    assert outcomes(lake) == [("committed", True, False)]


def test_uncertain_is_reported_only_where_it_holds_the_last_stable_offset(lake: str) -> None:
    insert(lake, "batches", [batch(0, position=50, segment=SECOND, producer_id=8), batch(1)])
    insert(lake, "quarantine", [damage(30)])
    assert computed(lake)[2].uncertain == []
    assert outcomes(lake) == [OPEN, HELD_UNCERTAIN]


# Segments that retention deleted before they were decoded

BEFORE_GAP = segment(end=9)
AFTER_GAP = segment(SECOND, 100, log_start_offset=100)


def test_a_marker_after_a_gap_ends_nothing_before_it(lake: str) -> None:
    found = [batch(0), batch(100, segment=SECOND), marker(101, "COMMIT", segment=SECOND)]
    insert(lake, "batches", found)
    assert outcomes(lake, BEFORE_GAP, AFTER_GAP) == [UNKNOWN, COMMITTED]
    assert computed(lake, BEFORE_GAP, AFTER_GAP)[2].unknown == 1


def test_what_is_open_before_a_gap_holds_nothing_back(lake: str) -> None:
    insert(lake, "batches", [batch(0), batch(100, segment=SECOND, producer_id=8)])
    assert outcomes(lake, BEFORE_GAP, AFTER_GAP) == [UNKNOWN, OPEN]


@pytest.mark.parametrize(
    "second", [replace(AFTER_GAP, log_start_offset=0), replace(AFTER_GAP, file_base_offset=10)]
)
def test_where_nothing_is_missing_a_transaction_goes_on(lake: str, second: LedgerRow) -> None:
    """The cleaner leaves gaps too: between segments that were seen together nothing is missing."""
    insert(lake, "batches", [batch(0), batch(100, segment=SECOND), marker(101, "COMMIT", segment=SECOND)])
    assert rows(lake, BEFORE_GAP, second) == [(7, 0, 0, 100, 2, 101, 3, *COMMITTED)]


def test_the_next_epoch_of_a_producer_shows_that_the_one_before_is_over(lake: str) -> None:
    insert(lake, "batches", [batch(0), batch(1, producer_epoch=1), marker(2, "COMMIT", producer_epoch=1)])
    assert outcomes(lake) == [UNKNOWN, COMMITTED]


# What is written


def test_only_logs_whose_transactions_changed_are_written(lake: str) -> None:
    insert(lake, "batches", [batch(0), marker(1, "COMMIT"), batch(0, segment=REPLICA)])
    rows, changed, _ = computed(lake, segment(), segment(REPLICA))
    assert changed == {(*PARTITION, PARTITION_DIR), (*PARTITION, REPLICA.rpartition("/")[0])}
    insert(lake, "transactions", rows.to_pylist())
    printed = [segment(), segment(REPLICA)]
    assert computed(lake, *printed)[1] == set()
    insert(lake, "batches", [marker(2, "ABORT", segment=REPLICA)])
    rows, changed, _ = computed(lake, *printed)
    assert changed == {(*PARTITION, REPLICA.rpartition("/")[0])}
    assert [row["outcome"] for row in rows.to_pylist()] == ["aborted"]


def test_transactions_that_are_there_no_more_are_a_change(lake: str) -> None:
    insert(
        lake,
        "transactions",
        [{"topic": TOPIC, "partition": 0, "partition_dir": PARTITION_DIR}],
    )
    rows, changed, _ = computed(lake, segment())
    assert (changed, rows.num_rows) == ({(*PARTITION, PARTITION_DIR)}, 0)


def test_other_partitions_are_left_alone(lake: str) -> None:
    insert(lake, "batches", [batch(0), batch(0, partition=1), batch(0, topic="b")])
    assert len(rows(lake)) == 1


def test_delivery_without_a_lake_is_by_the_model(tmp_path: Path) -> None:
    """Of random logs as files: fenced epochs, lost markers, damage, wrong base offsets."""
    made = random_logs(5, 300, FIRST_RUN)
    write_files(tmp_path, made)
    held = 0
    for log in made:
        model = [one for one in transactions_of(log) if one.first_offset is not None]
        open_ = [one.first_offset for one in model if one.holds and one.first_offset is not None]
        left_out = {
            (one.producer_id, offset)
            for one in model
            if one.outcome != "committed" and not one.holds and one.first_offset is not None
            for offset in range(one.first_offset, (one.last_offset or 0) + 1)
        }
        found = delivery_of(f"{tmp_path}{log.partition_dir.removeprefix('file://')}")
        given = {
            (producer, offset)
            for producer, ranges in found.left_out.items()
            for first, last in ranges.tolist()
            for offset in range(first, last + 1)
        }
        assert (found.last_stable_offset, given) == (min(open_, default=None), left_out), log
        held += bool(open_)
    assert held > 20


def test_transactions_of_many_partitions_are_each_in_their_own(tmp_path: Path) -> None:
    """pyarrow's group_by gives its groups out of order from 31 on: rows went to other partitions."""
    for number in range(70):
        folder = tmp_path / "logs" / f"{TOPIC}-{number}"
        logs.put(folder, 0, *(logs.data(at, 100 + number) for at in range(number % 3 + 1)))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake]) == 0
    with connect(lake) as database:
        columns = "partition, parse_filename(partition_dir), producer_id, records"
        found = database.sql(f"SELECT {columns} FROM transactions ORDER BY ALL").fetchall()
    assert found == [(n, f"{TOPIC}-{n}", 100 + n, n % 3 + 1) for n in range(70)]


def test_a_marker_in_damaged_bytes_is_a_reason_why_an_outcome_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = logs.marker(1, 7)[:-1] + b"?"
    logs.put(tmp_path / "logs" / "a-0", 0, logs.data(0, 7), lost, logs.data(2, 7, epoch=1))
    arguments = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--cores", "1"]
    assert decode_batches.main(arguments) == 0
    said = "the outcome of 1 transaction can't be known: the markers are in damaged bytes, or in segments"
    assert said in capsys.readouterr().err


def test_a_wrong_base_offset_of_a_marker_neither_hides_nor_shows_records(tmp_path: Path) -> None:
    """No checksum covers it. The marker stands after the data, wherever its offset lies."""

    def stored(made: bytes, base: int) -> bytes:
        return base.to_bytes(8, "big") + made[8:]

    ended = logs.marker(4, 1, commit=False)
    after = [logs.data(5, 1, 2), logs.marker(7, 1)]
    first = [logs.batch(0, 2), logs.data(2, 1, 2)]
    made = {
        "above": [*first, stored(ended, 1 << 40), *after],
        "below": [*first, stored(ended, 1), *after],
        "data": [first[0], stored(first[1], 1 << 40), ended, *after],
        "__consumer_offsets": [*first, stored(ended, 1 << 40), *after],
    }
    for name, batches in made.items():
        logs.put(tmp_path / "logs" / f"{name}-0", 0, *batches)
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    for view, topics in (("committed_records", [*made]), ("internal_records", ["__consumer_offsets"])):
        statement = f'SELECT topic, list("offset" ORDER BY "offset") FROM {view} GROUP BY topic'
        assert dict(connect(lake).sql(statement).fetchall()) == {topic: [0, 1, 5, 6] for topic in topics}
