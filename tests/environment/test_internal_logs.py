"""The views over Kafka's internal topics, on logs made by hand: what no bundled log holds."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.logs import marker, put
from tests.support.segment_maker import TRANSACTIONAL, Batch, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_721_606_400_000  # 2024-07-22
PENDING, LAG, STRANGE = 1, 2, 3  # partitions of __consumer_offsets

# Bytes as Kafka 4.1.0 writes them: ShareSnapshotKey, ShareSnapshotValue and ShareUpdateValue
SHARE_KEY = "00027367478e5af2dac0496a943a26ecac228ee200000003"
SHARE_SNAPSHOT = """0000 00000001 00000002 00000004 0000000000000064 00000190d7bce800 00000190d7bce800
    02 0000000000000064 000000000000006d 02 0001 00 00"""
SHARE_UPDATE = "0000 00000001 00000004 000000000000006e 01 00"
# RemoteLogSegmentMetadataRecord, its update, RemotePartitionDeleteMetadataRecord
REMOTE_PARTITION = "07 6f7264657273 478e5af2dac0496a943a26ecac228ee2 00000003 00"
REMOTE_SEGMENT = f"{REMOTE_PARTITION} c3d2a0d9cf7e4aa6bfd0356572725229 00"
REMOTE = (
    f"""010000 {REMOTE_SEGMENT} 000000000000000a 0000000000000013 00000001
    00000190d7bce800 00000190d7bce801 02 00000000 000000000000000a 00 00001000 00 00 00""",
    f"010100 {REMOTE_SEGMENT} 00000001 00000190d7bce802 00 01 00",
    f"010200 {REMOTE_PARTITION} ffffffff 00000190d7bce803 00 00",
    # The update again, of another segment and in state -1, which Kafka does not have
    f"010100 {REMOTE_PARTITION} {'00' * 16} 00 00000001 00000190d7bce804 00 ff 00",
)


def commit(offset: int, group: bytes = b"g") -> Record:
    """An offset commit of version 3, of partition 0 of topic t."""
    texts = b"".join(struct.pack(">h", len(text)) + text for text in (group, b"t"))
    value = struct.pack(">hqihq", 3, offset, 0, 0, START)
    return Record(key=b"\0\1" + texts + struct.pack(">i", 0), value=value)


STRANGE_RECORDS = (
    Record(key=commit(1).key, value=b"\0\x63new"),
    Record(key=b"\0\1\0\x09cut", value=b"\0\3"),
    Record(key=b"\0\x63\0\1g", value=b"\0\0?"),
    Record(key=None, value=b"x"),
)


def pending_log() -> list[bytes]:
    """Commits in a transaction that stays open, one that commits, none, and one that is aborted."""

    def sent(offset: int, producer: int, committed: int) -> bytes:
        flags = TRANSACTIONAL if producer >= 0 else 0
        record = commit(committed, group=b"p%d" % producer)
        return Batch((record,), base_offset=offset, flags=flags, producer_id=producer).encode()

    first = [sent(0, 1, 10), sent(1, 2, 20), sent(2, -1, 30), marker(3, 2)]
    return [*first, sent(4, 3, 40), marker(5, 3, False)]


def lag_logs() -> tuple[bytes, list[bytes]]:
    """A topic with a record a second, and what a group committed meanwhile: 2, 20, 4, and a tombstone."""
    data = tuple(Record(value=b"v", timestamp_delta=1000 * i) for i in range(10))
    sent = [(2500, commit(2)), (6500, commit(20)), (7500, commit(4)), (9000, Record(key=commit(0).key))]
    commits = [
        Batch((record,), base_offset=i, base_timestamp=START + ms).encode()
        for i, (ms, record) in enumerate(sent)
    ]
    return Batch(data, base_timestamp=START).encode(), commits


@pytest.fixture(scope="module")
def ask(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a statement on a lake of these logs; rows as tuples."""
    folder = tmp_path_factory.mktemp("by-hand")
    logs, lake = folder / "logs", str(folder / "lake")
    topic, commits = lag_logs()
    put(logs / "t-0", 0, topic)
    put(logs / f"__consumer_offsets-{PENDING}", 0, *pending_log())
    put(logs / f"__consumer_offsets-{LAG}", 0, *commits)
    put(logs / f"__consumer_offsets-{STRANGE}", 0, Batch(STRANGE_RECORDS).encode())
    put(logs / "__transaction_state-0", 0, Batch((Record(key=b"", value=b""),)).encode())
    put(logs / "__cluster_metadata-0", 0, Batch((Record(key=None, value=b"\x02?"),)).encode())
    snapshot = Record(key=bytes.fromhex("0000" + SHARE_KEY), value=bytes.fromhex(SHARE_SNAPSHOT))
    update = Record(key=bytes.fromhex("0001" + SHARE_KEY), value=bytes.fromhex(SHARE_UPDATE))
    records = [snapshot, update, replace(snapshot, value=None)]
    put(logs / "__share_group_state-1", 0, Batch([update, snapshot, update, update]).encode())
    put(logs / "__share_group_state-0", 0, Batch(records).encode())
    records = [Record(key=None, value=bytes.fromhex(value)) for value in REMOTE]
    put(logs / "__remote_log_metadata-0", 0, Batch(records).encode())
    as_command.decode(spark, Settings(source=(str(logs),), lake=lake))
    kafka_log_lake.register(spark, lake)
    return lambda sql: [tuple(row) for row in spark.sql(sql).collect()]


def test_an_open_transaction_does_not_hold_back_what_others_commit(ask: Any) -> None:
    """A coordinator reads on where a READ_COMMITTED consumer stops: at the open transaction."""
    log = "topic = '__consumer_offsets' AND partition = 1"
    assert ask(f"SELECT count(*) FROM committed_records WHERE {log}") == [(0,)]
    found = ask(
        "SELECT record_offset, committed_offset FROM consumer_offsets WHERE log_partition = 1 ORDER BY 1"
    )
    assert found == [(1, 20), (2, 30)]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("2", ("t", None, 3, None, "later commits of the group can't be read")),
        ("3", ("t", 2, 4, 2, "some records of __consumer_offsets can't be read")),
        ("7", ("t", 20, 8, 0, "some records of __consumer_offsets can't be read")),
        ("8.999", ("t", 4, 9, 5, "some records of __consumer_offsets can't be read")),
        ("9", (None, None, None, None, "the commits of the group had been deleted, or had expired, by then")),
    ],
)
def test_lag_at_a_time(ask: Any, second: str, expected: tuple[Any, ...]) -> None:
    """Committed at 2.5 s, 6.5 s and 7.5 s, deleted at 9 s; the log has a record a second.

    A commit before all of them can't be read, nor can records of another partition.
    """
    at = f"timestamp'2024-07-22' + interval '{second}' second"
    ((*found, note),) = ask(
        f"SELECT topic, committed_offset, end_offset, lag, coalesce(note, '') FROM group_lag_at('g', {at})"
    )
    assert tuple(found) == expected[:-1]
    assert note.startswith(expected[-1])


def test_records_that_cannot_be_read_are_kept_with_a_reason(ask: Any) -> None:
    columns = "record_offset, `group`, error, raw_key, raw_value"
    where = "WHERE log_partition = 3 ORDER BY 1"
    key = commit(1).key
    assert ask(f"SELECT {columns} FROM consumer_offsets {where}") == [
        (0, "g", "value: version 99 of OffsetCommitValue is not known", key, b"\0\x63new"),
        (1, None, "key: group: a length of 9 at byte 4, and the bytes end at 7", b"\0\1\0\x09cut", b"\0\3"),
    ]
    assert ask(f"SELECT {columns} FROM consumer_groups {where}") == [
        (2, None, "key: record type 99 is not known", b"\0\x63\0\1g", b"\0\0?"),
        (3, None, "key: null", None, b"x"),
    ]
    assert ask("SELECT error, raw_key, raw_value FROM transaction_states") == [
        ("key: record type: the bytes end at 0", b"", b"")
    ]
    assert ask("SELECT error, raw_value FROM cluster_metadata") == [
        ("value: frame version 2 is not known", b"\x02?")
    ]


def test_share_group_states(ask: Any) -> None:
    where = ("sg", "R45a8trASWqUOibsrCKO4g", 3)
    batches = '[{"firstOffset":100,"lastOffset":109,"deliveryState":2,"deliveryCount":1}]'
    assert ask(
        "SELECT `group`, topic_id, partition, kind, snapshot_epoch, state_epoch, leader_epoch, start_offset, "
        "batches, is_tombstone, is_current, error FROM share_group_states WHERE log_partition = 0 "
        "ORDER BY record_offset"
    ) == [
        (*where, "ShareSnapshot", 1, 2, 4, 100, batches, False, False, None),
        (*where, "ShareUpdate", 1, None, 4, 110, "[]", False, False, None),
        (*where, "ShareSnapshot", None, None, None, None, None, True, True, None),
    ]


def test_the_state_of_a_share_group_is_its_last_snapshot_and_the_updates_since(ask: Any) -> None:
    found = ask(
        "SELECT record_offset FROM share_group_states WHERE is_current AND log_partition = 1 ORDER BY 1"
    )
    assert found == [(1,), (2,), (3,)]


def test_remote_log_metadata(ask: Any) -> None:
    of, it = ("orders", 3, "R45a8trASWqUOibsrCKO4g"), "w9Kg2c9-Sqa_0DVlcnJSKQ"
    assert ask(
        "SELECT topic, partition, topic_id, segment_id, state, start_offset, end_offset, size_bytes, "
        "broker_id, event_timestamp_ms, is_current, error FROM remote_log_metadata ORDER BY record_offset"
    ) == [
        (*of, it, "COPY_SEGMENT_STARTED", 10, 19, 4096, 1, START + 1, False, None),
        (*of, it, "COPY_SEGMENT_FINISHED", None, None, None, 1, START + 2, True, None),
        (*of, None, "DELETE_PARTITION_MARKED", None, None, None, -1, START + 3, True, None),
        (*of, "A" * 22, None, None, None, None, 1, START + 4, True, None),
    ]
