"""The views go by what coordinators and controllers noted: how transactions ended, what was set for topics.

And a lake with the logs of two clusters does not mix them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.logs import batch, data, put
from tests.support.segment_maker import CONTROL, TRANSACTIONAL, Batch, Record

Ask = Callable[[str], list[dict[str, Any]]]

NOW = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
ONGOING, COMPLETE_COMMIT = 1, 4


def marker(base: int, at: int, producer: int = 99) -> bytes:
    record = Record(key=struct.pack(">hh", 0, 1), value=struct.pack(">hi", 0, 1))
    flags = TRANSACTIONAL | CONTROL
    return Batch((record,), base_offset=base, flags=flags, producer_id=producer, base_timestamp=at).encode()


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def state(
    producer: int, status: int, topic: bytes | None, at: int, timeout: int = HOUR, epoch: int = 0
) -> Record:
    """A record of __transaction_state, version 0; topic: partition 0 of it is in the transaction."""
    value = struct.pack(">hqhib", 0, producer, epoch, timeout, status)
    value += (
        struct.pack(">i", 0)
        if topic is None
        else struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, 0)
    )
    return Record(
        key=struct.pack(">h", 0) + text(b"id-%d" % producer), value=value + struct.pack(">qq", at, NOW)
    )


def noted(*records: tuple[int, Record]) -> list[bytes]:
    """Batches of one record, each at its time."""
    made = enumerate(records)
    return [Batch((record,), base_offset=i, base_timestamp=at).encode() for i, (at, record) in made]


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def setting(resource: int, name: bytes, key: bytes, value: bytes | None) -> Record:
    """A ConfigRecord of the metadata log; resource: 2 a topic, 4 a broker."""
    stored = b"\0" if value is None else compact(value)
    return Record(value=b"\x01\x04\x00" + bytes([resource]) + compact(name) + compact(key) + stored + b"\0")


# Of a transaction of the metadata log (KIP-868)
BEGUN, ENDED, ABORTED = (Record(value=b"\x01" + bytes([kind]) + b"\0\0") for kind in (23, 24, 25))


def topic_made(name: bytes, number: int) -> Record:
    return Record(value=b"\x01\x02\x00" + compact(name) + bytes([number] * 16) + b"\0")


def topic_removed(number: int) -> Record:
    return Record(value=b"\x01\x09\x00" + bytes([number] * 16) + b"\0")


def commit(offset: int, group: bytes = b"g", partition: int = 0) -> Record:
    """A group has committed an offset of topic t."""
    key = struct.pack(">h", 1) + text(group) + text(b"t") + struct.pack(">i", partition)
    return Record(key=key, value=struct.pack(">hqihq", 3, offset, 0, 0, NOW))


def write_first_cluster(logs: Path) -> None:
    later = batch(1, 1, base_timestamp=NOW + 30 * MINUTE)
    for producer, topic in ((1, "ongoing"), (2, "overdue"), (5, "unknown")):
        path = put(logs / f"{topic}-0", 0, data(0, producer, base_timestamp=NOW), later)
        os.utime(path, ((NOW + 30 * MINUTE) / 1000,) * 2)
    after = (marker(1, NOW + 5 * MINUTE), marker(2, NOW + 30 * MINUTE))
    for producer, topic in ((3, "ended"), (4, "ended-later"), (6, "fenced")):
        put(logs / f"{topic}-0", 0, data(0, producer, base_timestamp=NOW), *after)
    # no broker's time follows the start: it may be later than the producer says
    slow = (marker(0, NOW), data(1, 7, base_timestamp=NOW + MINUTE))
    path = put(logs / "slow-0", 0, *slow, batch(2, 1, base_timestamp=NOW + 30 * MINUTE))
    os.utime(path, ((NOW + 90 * MINUTE) / 1000,) * 2)
    put(
        logs / "__transaction_state-0",
        0,
        *noted(
            (NOW - MINUTE, state(7, COMPLETE_COMMIT, None, NOW - MINUTE)),
            (NOW, state(1, ONGOING, b"ongoing", NOW)),
            (NOW, state(2, ONGOING, b"overdue", NOW, timeout=MINUTE)),
            (NOW + MINUTE, state(3, COMPLETE_COMMIT, None, NOW + MINUTE)),
            # of another transaction, which has the partition too
            (NOW + 20 * MINUTE, state(6, ONGOING, b"fenced", NOW + 20 * MINUTE, epoch=1)),
            (NOW + 40 * MINUTE, state(4, COMPLETE_COMMIT, None, NOW + 40 * MINUTE)),
        ),
    )
    settings = (
        topic_made(b"short", 7),
        setting(2, b"short", b"retention.ms", b"5"),
        BEGUN,
        setting(2, b"short", b"retention.ms", b"1000"),
        ENDED,
        topic_made(b"again", 8),
        topic_made(b"twice", 8),  # an id that has two names
        setting(2, b"again", b"retention.ms", b"1000"),
        topic_removed(8),
        topic_made(b"again", 9),
        BEGUN,
        setting(2, b"short", b"retention.ms", b"6"),
        topic_removed(7),
        ABORTED,
        setting(2, b"compacted", b"cleanup.policy", b"compact"),
        setting(2, b"compacted", b"min.compaction.lag.ms", b"7200000"),
        setting(2, b"unset", b"retention.bytes", b"1"),
        setting(2, b"unset", b"retention.bytes", None),
        setting(2, b"odd", b"retention.ms", b"99999999999999999999"),
        setting(4, b"", b"log.retention.bytes", b"200"),
        setting(4, b"", b"log.roll.ms", b"60000"),
        setting(4, b"", b"log.cleaner.threads", b"2"),
        setting(4, b"", b"log.local.retention.bytes", b"-2"),
        setting(2, b"tiered", b"remote.storage.enable", b"true"),
        setting(2, b"tiered", b"local.retention.ms", b"1000"),
        setting(2, b"untiered", b"local.retention.ms", b"1000"),
        BEGUN,  # and it has not ended
        setting(2, b"short", b"retention.ms", b"7"),
    )
    put(logs / "__cluster_metadata-0", 0, Batch(settings, base_timestamp=NOW).encode())
    put(logs / "__cluster_metadata-0", len(settings), batch(len(settings), 1))
    for topic in ("short", "again", "compacted", "unset", "odd", "tiered", "untiered"):
        put(logs / f"{topic}-0", 0, batch(0, 1), batch(1, 1))
        put(logs / f"{topic}-0", 2, batch(2, 1))


def write_group(logs: Path, records: int, *committed: int, cluster: str = "") -> None:
    """Topic t, and what group g committed; cluster: the topic id of __consumer_offsets."""
    put(logs / "t-0", 0, batch(0, records))
    path = put(logs / "__consumer_offsets-3", 0, *noted(*((NOW, commit(one)) for one in committed)))
    if cluster:
        (path.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {cluster}\n")


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    folder = tmp_path_factory.mktemp("clusters")
    logs, lake = folder / "logs", str(folder / "lake")
    write_first_cluster(logs / "one")
    write_group(logs / "one", 9, 4)
    write_group(logs / "two", 3, 1)
    return asking(logs, lake)


def asking(logs: Path, lake: str) -> Ask:
    """The lake of these logs, to be queried."""
    as_command.decode(cast("Any", None), Settings(source=(str(logs),), lake=lake))  # needs no Spark
    database = connect(lake)
    return lambda statement: database.sql(statement).to_arrow_table().to_pylist()


def test_the_coordinator_decides_which_transactions_hang(ask: Ask) -> None:
    rows = ask("SELECT * FROM hanging_transactions WHERE hangs_as_of_last_write")
    found = {
        row["topic"]: (row["certainty"], row["transactional_id"], row["coordinator_state"]) for row in rows
    }
    assert found == {
        "overdue": ("unknown", "id-2", "Ongoing"),
        "ended": ("certain", "id-3", "CompleteCommit"),
        "ended-later": ("unknown", "id-4", "CompleteCommit"),
        "fenced": ("certain", "id-6", "Ongoing"),
        "unknown": ("likely", None, None),
        "slow": ("likely", "id-7", "CompleteCommit"),
    }
    commands = {
        row["topic"]: (row["check_command"].partition("9092 ")[2], row["abort_command"] is not None)
        for row in rows
    }
    assert commands["ended"] == ("describe --transactional-id 'id-3'", True)
    assert commands["unknown"] == ("find-hanging --topic 'unknown' --partition 0", False)
    starts = {row["topic"]: row["coordinator_start"] for row in rows}
    assert starts["overdue"].timestamp() * 1000 == NOW


def test_retention_goes_by_the_settings_of_each_topic(ask: Ask) -> None:
    def limits(arguments: str = "") -> dict[str, tuple[int, int, str | None]]:
        rows = ask(f"SELECT * FROM retention_report({arguments}) WHERE file_base_offset = 0")
        return {row["topic"]: (row["limit_ms"], row["limit_bytes"], row["held_by"]) for row in rows}

    week = 7 * 24 * HOUR
    found = limits(f"at_ms => {NOW + 2000}")
    assert found["short"] == (1000, 200, None)  # in a transaction that ended
    assert found["again"] == (week, 200, "its own timestamp")  # deleted and made again
    assert found["unset"] == found["odd"] == (week, 200, "its own timestamp")
    assert found["compacted"] == (week, 200, "cleanup.policy")
    assert found["tiered"] == (1000, 200, None)
    assert found["untiered"] == (week, 200, "its own timestamp")
    # its segments go after snapshots alone
    later = limits(f"at_ms => {NOW + 2 * week}")
    assert later["__cluster_metadata"] == (-1, -1, "no limit")
    # brokers create them as compacted topics
    assert {later[topic][2] for topic in ("__consumer_offsets", "__transaction_state")} == {"cleanup.policy"}
    given = limits(f"at_ms => {NOW + 2000}, retention_ms => 1, retention_bytes => -1")
    assert {given[topic] for topic in ("short", "again", "compacted")} == {(1, -1, None)}


def test_defaults_of_brokers_have_the_names_that_topics_have_and_others_are_no_settings_of_topics(
    ask: Ask,
) -> None:
    rows = ask("SELECT setting, value FROM topic_settings WHERE topic IS NULL ORDER BY setting")
    assert [tuple(row.values()) for row in rows] == [
        ("local.retention.bytes", "-2"),
        ("retention.bytes", "200"),
        ("segment.ms", "60000"),
    ]


def test_compaction_goes_by_the_lag_of_each_topic(ask: Ask) -> None:
    columns = "topic, cleanup_policy, first_uncleanable_offset, held_by"
    where = "WHERE topic IN ('compacted', 'short')"
    rows = ask(f"SELECT {columns} FROM compaction_report(at_ms => {NOW + HOUR}) {where}")
    found = {row.pop("topic"): tuple(row.values()) for row in rows}
    assert found == {
        "compacted": ("compact", 0, "min.compaction.lag.ms"),
        "short": (None, 2, "active segment"),
    }
    (row,) = ask(
        "SELECT held_by FROM compaction_report(min_compaction_lag_ms => 0) WHERE topic = 'compacted'"
    )
    assert row["held_by"] == "active segment"


def test_a_group_of_one_name_is_another_one_in_each_cluster(ask: Ask) -> None:
    rows = ask("SELECT * FROM group_lag_at('g', TIMESTAMP '2030-01-01 00:00:00Z')")
    found = {
        row["cluster"].rpartition("/")[2]: (row["committed_offset"], row["end_offset"], row["lag"])
        for row in rows
    }
    assert found == {"one": (4, 9, 5), "two": (1, 3, 2)}


def test_the_last_record_of_a_key_is_the_last_one_of_its_cluster(tmp_path: Path) -> None:
    """Two copies of a cluster, of which one is behind, and another cluster."""
    logs = tmp_path / "logs"
    write_group(logs / "a", 9, 1, 2, 4, cluster="AAAAAAAAAAAAAAAAAAAAAQ")
    write_group(logs / "b", 9, 1, 2, cluster="AAAAAAAAAAAAAAAAAAAAAQ")
    write_group(logs / "c", 9, 7, cluster="AAAAAAAAAAAAAAAAAAAAAg")
    for name, status in (("a", ONGOING), ("c", COMPLETE_COMMIT), ("d", COMPLETE_COMMIT)):
        put(logs / name / "__transaction_state-0", 0, *noted((NOW, state(1, status, None, NOW))))
    ask = asking(logs, str(tmp_path / "lake"))
    rows = ask("SELECT cluster, committed_offset FROM consumer_offsets WHERE is_current ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [
        ("AAAAAAAAAAAAAAAAAAAAAQ", 4),
        ("AAAAAAAAAAAAAAAAAAAAAg", 7),
    ]
    assert len(ask("SELECT * FROM consumer_offsets")) == 6  # each copy gives its rows
    rows = ask("SELECT cluster, state FROM transaction_states WHERE is_current ORDER BY ALL")
    assert [(row["cluster"][-1], row["state"]) for row in rows] == [
        ("a", "Ongoing"),
        ("c", "CompleteCommit"),
        ("d", "CompleteCommit"),
    ]


def test_a_partition_without_its_metadata_file_belongs_to_the_cluster_of_its_neighbours(
    tmp_path: Path,
) -> None:
    """The file partition.metadata of one partition is lost, on one of two brokers."""
    logs = tmp_path / "logs"
    for name in ("a", "b"):
        write_group(logs / name, 9, 4, cluster="zAAAAAAAAAAAAAAAAAAAAQ")
    put(logs / "b" / "__consumer_offsets-4", 0, *noted((NOW, commit(1, b"other"))))
    ask = asking(logs, str(tmp_path / "lake"))
    rows = ask('SELECT cluster, "group" FROM consumer_offsets WHERE is_current ORDER BY ALL')
    assert [row["group"] for row in rows] == ["g", "other"]
    assert {row["cluster"] for row in rows} == {"zAAAAAAAAAAAAAAAAAAAAQ"}
    assert len(ask("SELECT * FROM group_lag_at('g', TIMESTAMP '2030-01-01 00:00:00Z')")) == 1


def test_a_log_on_a_second_disk_has_the_settings_of_the_cluster_that_has_its_topic(tmp_path: Path) -> None:
    """Two brokers, one of them with a second log directory, and the broker of another cluster."""
    logs = tmp_path / "logs"
    cluster = {"a": b"5", "b": b"6", "other": b"7"}  # b has what was set last
    for name, value in cluster.items():
        changes = [setting(2, b"t", b"retention.ms", b"5"), setting(2, b"t", b"retention.ms", value)]
        put(logs / name / "__cluster_metadata-0", 0, Batch(tuple(changes)[: 1 + (name != "a")]).encode())
        (logs / name / "__cluster_metadata-0" / "partition.metadata").write_text(
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
        )
    for number, (name, ids) in enumerate({"a": "z", "b": "z", "b2": "z", "other": "y"}.items()):
        path = put(logs / name / f"t-{number}", 0, batch(0))
        (path.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids}{'A' * 20}Q\n")
    ask = asking(logs, str(tmp_path / "lake"))
    rows = ask("SELECT topic, partition, topic_retention_ms FROM log_settings ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [("t", 0, 6), ("t", 1, 6), ("t", 2, 6), ("t", 3, 7)]


def test_values_with_surplus_bytes_count_as_they_do_for_a_broker_and_damaged_ones_do_not(
    tmp_path: Path,
) -> None:
    def surplus(record: Record) -> Record:
        return replace(record, value=(record.value or b"") + b"\0\0")

    def cut(record: Record) -> Record:
        return replace(record, value=(record.value or b"")[:7])

    logs = tmp_path / "logs"
    put(logs / "t-0", 0, batch(0, 3))
    commits = (commit(4), surplus(commit(9)), cut(commit(8)))
    put(logs / "__consumer_offsets-3", 0, *noted(*((NOW, one) for one in commits)))
    states = (state(1, COMPLETE_COMMIT, None, NOW), surplus(state(1, ONGOING, b"t", NOW + 1)))
    last = cut(state(1, COMPLETE_COMMIT, None, NOW + 2))
    put(
        logs / "__transaction_state-0",
        0,
        *noted(*((NOW + at, one) for at, one in enumerate((*states, last)))),
    )
    ask = asking(logs, str(tmp_path / "lake"))
    reads = "SELECT is_read, error IS NULL AS is_sound FROM consumer_offsets ORDER BY record_offset"
    assert [tuple(row.values()) for row in ask(reads)] == [(True, True), (True, False), (False, False)]
    seeks = "SELECT committed_offset, seek_to, unread_commits FROM group_seeks"
    assert ask(seeks) == [{"committed_offset": 9, "seek_to": 3, "unread_commits": 1}]
    columns = "committed_offset, lag, unread_commits"
    lag = f"SELECT {columns} FROM group_lag_at('g', TIMESTAMP '2030-01-01 00:00:00Z')"
    assert ask(lag) == [{"committed_offset": 9, "lag": 0, "unread_commits": 1}]
    assert ask("SELECT state, noted_until_ms - updated_ms AS since FROM producer_states") == [
        {"state": "Ongoing", "since": 1}
    ]


def test_a_log_ends_where_its_last_segment_does_whatever_a_wrong_base_offset_before_it_says(
    tmp_path: Path,
) -> None:
    logs = tmp_path / "logs"
    for base, stored in ((7, 7 + 2**62), (8, 8)):
        put(logs / "t-0", base, batch(stored, 2))
    assert asking(logs, str(tmp_path / "lake"))("SELECT last_offset FROM logs") == [{"last_offset": 9}]
