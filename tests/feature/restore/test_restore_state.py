"""The state of a restore: its journal, whatever ends a process or lies in its folder; no broker."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.restore import journal as journals
from kafka_log_lake.pipelines.restore.command import writing_progress
from kafka_log_lake.pipelines.restore.journal import Entry, confirmed, open_journal
from kafka_log_lake.pipelines.restore.offset_map import write_tables
from kafka_log_lake.pipelines.restore.plan import PartitionPlan
from kafka_log_lake.pipelines.restore.producing import Throttle
from kafka_log_lake.pipelines.restore.state import alone


def entry(begin: int, end: int, at: int) -> Entry:
    """A transaction of all offsets of a range, which the target gave offsets from ``at`` on."""
    return Entry(begin, end, end - begin, 9, 1, ((begin, end - begin, 0, at),), ())


def test_a_journal_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path), "orders", 0)
    for begin in (0, 3):
        journal.intend(entry(begin, begin + 3, begin + 5))
        journal.settle(True)
    again = open_journal(str(tmp_path), "orders", 0)
    assert again.next_offset == 3, "whether the last one was committed the target says"
    again.find_last(lambda _: True)
    again.close()
    assert open_journal(str(tmp_path), "orders", 0).next_offset == 6
    first, *_ = sorted((tmp_path / "journal" / "orders-0").iterdir())
    (first.parent / "²-of-others.json").touch()
    for damaged in (b"\xff" + first.read_bytes()[1:], b"0\n"):
        first.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{first.name} can't be read: what is restored is not known"):
            write_tables(str(tmp_path), [PartitionPlan("orders", 0, "orders", 6)])


def test_a_store_that_can_not_be_opened_is_one_line() -> None:
    with (
        pytest.raises(UserError, match="--state hdfs://nowhere/state can't be"),
        alone("hdfs://nowhere/state"),
    ):
        pass


def test_a_file_that_is_not_whole_is_of_no_transaction_that_was_committed(tmp_path: Path) -> None:
    """Also of a topic whose name is as long as Kafka takes one."""
    name = "t" * 249
    journal = open_journal(str(tmp_path), name, 0)
    journal.intend(entry(0, 3, 5))
    journal.settle(True)
    journal.close()
    (folder,) = (tmp_path / "journal").iterdir()
    (folder / "0000000003-0.json").write_bytes(b'{"begin":3')
    (folder / ".nfs0001").write_bytes(b"of the file system")
    again = open_journal(str(tmp_path), name, 0)
    again.find_last(lambda _: pytest.fail("the target was asked"))
    assert again.next_offset == 3
    again.intend(entry(3, 5, 9))
    again.settle(True)
    again.close()
    assert [one.end for one in open_journal(str(tmp_path), name, 0).entries()] == [3, 3, 5, 5]
    assert confirmed(str(tmp_path)) == (5, 18)


def test_what_a_task_that_was_taken_for_dead_notes_counts_for_nothing(tmp_path: Path) -> None:
    dead, alive = (open_journal(str(tmp_path), "orders", 0) for _ in range(2))
    dead.intend(entry(0, 3, 0))  # the target ended its transaction
    alive.find_last(lambda _: False)
    alive.intend(entry(0, 4, 4))
    alive.settle(True)
    for begin, at in ((4, 10), (6, 13)):
        dead.intend(entry(0, 3, at - 1))
        alive.intend(entry(begin, begin + 2, at))
        alive.settle(True)
    alive.close()
    found = [one.runs for one in open_journal(str(tmp_path), "orders", 0).entries()]
    assert found == [((0, 4, 0, 4),), ((4, 2, 0, 10),), ((6, 2, 0, 13),), ()]


def test_a_restore_that_goes_on_knows_where_all_partitions_of_the_target_end(tmp_path: Path) -> None:
    """Not only those of its last transaction: with ``--partitions N`` they differ."""
    journal = open_journal(str(tmp_path), "orders", 0)
    for begin, runs in ((0, ((0, 2, 0, 7), (2, 1, 1, 4))), (3, ((3, 1, 1, 5),)), (4, ((4, 2, 2, 0),))):
        journal.intend(Entry(begin, begin + 3, 3, 9, 1, runs, ()))
        journal.settle(begin < 4)
    assert open_journal(str(tmp_path), "orders", 0).ends == {0: 8, 1: 5}


def test_the_limit_of_bytes_holds_over_any_time_and_pauses_are_not_made_up_for() -> None:
    throttle, now, sent = Throttle(100.0), 0.0, []
    for size, pause in ((50, 0.0), (100, 0.2), (10, 60.0), (200, 0.0), (200, 3.0), (40, 0.0)):
        now += pause
        now += throttle.wait(size, now)
        sent.append((now, size))
    for number, (begin, _) in enumerate(sent):
        for end, (moment, _) in enumerate(sent[number + 1 :], number + 2):
            assert sum(size for _, size in sent[number + 1 : end]) <= 100.0 * (moment - begin) + 1e-6


def test_a_full_disk_under_the_state_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "uuid4", lambda: UUID(int=0))
    folder = tmp_path / "journal" / "orders-0"
    folder.mkdir(parents=True)
    (folder / "0000000001-000000000000.json").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device; free some space"):
        open_journal(str(tmp_path), "orders", 0).intend(entry(0, 3, 5))


def test_a_target_that_takes_nothing_is_told_from_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("kafka_log_lake.pipelines.restore.command.time.monotonic", lambda: clock[0])
    text = writing_progress(str(tmp_path), 12, 0)
    clock[0] += 10
    assert text() == "0 of 12 records, 0 records/s"
    clock[0] += 60
    assert text() == "0 of 12 records, none confirmed for 70 s: does the target answer, has it room?"
