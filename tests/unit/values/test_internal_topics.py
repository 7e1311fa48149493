"""Records of Kafka's internal topics, as bytes: against Kafka's DumpLogSegments, and what cannot be read."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake.udfs import decode_segment
from kafka_log_lake.udfs.values.internal.columns import (
    internal_records,
    offset_commits,
    share_partitions,
    transaction_states,
)
from kafka_log_lake.udfs.values.internal.topics import TOPICS
from tests.support import dumps

COMMIT_KEY = struct.pack(">h", 1) + b"\0\5group\0\1t" + struct.pack(">i", 7)


def stored(path: Path) -> dict[int, dict[str, Any]]:
    """The records of a segment, by offset."""
    return {row["offset"]: row for batch in decode_segment(str(path)) for row in batch.to_pylist()}


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def record(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    (row,) = internal_records(pa.array([topic]), binary(key), binary(value)).to_pylist()
    assert isinstance(row, dict)
    return row


def commit(key: bytes | None, value: bytes | None) -> Any:
    return offset_commits(binary(key), binary(value))[0].as_py()


def printed(row: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """(key, payload) as DumpLogSegments prints them."""
    value = None if row["value"] is None else json.loads(row["value"])
    if row["key"] is None:  # of the metadata log
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", row["name"]).upper()
        return None, {"type": name, "version": row["version"], "data": value}
    key = {"type": str(row["type"]), "data": json.loads(row["key"])}
    return key, None if value is None else {"version": str(row["version"]), "data": value}


@pytest.mark.parametrize("dump", dumps.DUMPS, ids=lambda path: path.name)
def test_records_are_as_kafka_dumps_them(dump: Path) -> None:
    rows = stored(dumps.segment(dump))
    expected = dumps.records(dump)
    assert {r.offset for r in expected} == {o for o, row in rows.items() if not row["is_control"]}
    for dumped in expected:
        found = record(dumps.topic(dump), rows[dumped.offset]["key"], rows[dumped.offset]["value"])
        assert found["error"] is None
        assert printed(found) == (dumped.key, dumped.payload)


def test_a_dump_is_there_for_three_topics_and_a_snapshot() -> None:
    assert {dumps.topic(dump) for dump in dumps.DUMPS} == set(TOPICS[:2]) | {"__cluster_metadata"}
    assert any(dumps.segment(dump).suffix == ".checkpoint" for dump in dumps.DUMPS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 00000000000000c8 0001 6d 00000190d7bce800", (0, 200, -1, "m", None)),
        ("0001 00000000000000c8 0000 00000190d7bce800 00000190dce34400", (1, 200, -1, "", 1721692800000)),
        ("0003 00000000000000c8 00000005 0000 00000190d7bce800", (3, 200, 5, "", None)),
        ("0004 00000000000000c8 00000005 01 00000190d7bce800 00", (4, 200, 5, "", None)),
    ],
)
def test_offset_commits_of_all_layouts(value: str, expected: tuple[Any, ...]) -> None:
    """The layouts of OffsetCommitValue.json, written out by hand."""
    row = commit(COMMIT_KEY, bytes.fromhex(value))
    expires = row["expire_timestamp"] and int(row["expire_timestamp"].timestamp() * 1000)
    found = (row["version"], row["committed_offset"], row["leader_epoch"], row["metadata"], expires)
    assert found == expected
    assert (row["group"], row["topic"], row["partition"], row["error"]) == ("group", "t", 7, None)
    assert row["commit_timestamp"].isoformat() == "2024-07-22T00:00:00+00:00"


def test_a_tombstone_has_its_key_alone() -> None:
    row = commit(COMMIT_KEY, None)
    assert (row["group"], row["topic"], row["partition"]) == ("group", "t", 7)
    assert row["is_read"]
    assert {row[name] for name in row.keys() - {"group", "topic", "partition", "is_read"}} == {None}


def test_other_records_are_no_offset_commits() -> None:
    assert commit(b"\0\2\0\1g", None) is None
    assert internal_records(pa.array(["orders"]), binary(b"k"), binary(b"v")).to_pylist() == [None]


@pytest.mark.parametrize(
    ("topic", "key", "value", "error"),
    [
        ("__consumer_offsets", None, b"", "key: null"),
        ("__consumer_offsets", b"\0", None, "key: record type: the bytes end at 1"),
        ("__consumer_offsets", b"\0\x09\0\1g", b"\0\0", "key: record type 9 is not known"),
        ("__consumer_offsets", COMMIT_KEY[:-1], None, "key: partition: the bytes end at 15"),
        ("__consumer_offsets", COMMIT_KEY, b"", "value: version: the bytes end at 0"),
        ("__consumer_offsets", COMMIT_KEY, b"\0\5", "value: version 5 of OffsetCommitValue is not known"),
        ("__consumer_offsets", COMMIT_KEY, b"\0\3" + bytes(7), "value: offset: the bytes end at 9"),
        (
            *("__consumer_offsets", COMMIT_KEY, b"\0\3" + bytes(12) + b"\xff\xff"),
            "value: metadata: null, which this field cannot be",
        ),
        ("__consumer_offsets", COMMIT_KEY + b"!", None, "key: the message ends at 16, the bytes at 17"),
        (
            "__transaction_state",
            b"\0\0\0\5tx",
            None,
            "key: transactionalId: a length of 5 at byte 4, and the bytes end at 6",
        ),
        ("__share_group_state", b"\0\7", b"\0\0", "key: record type 7 is not known"),
        ("__cluster_metadata", None, None, "value: null"),
        ("__cluster_metadata", None, b"\0\2\0", "value: frame version 0 is not known"),
        ("__cluster_metadata", None, b"\1\x7f\0", "value: API key 127 is not known"),
        ("__cluster_metadata", None, b"\1\2\1", "value: version 1 of TopicRecord is not known"),
        ("__cluster_metadata", None, b"\1\x14\0\0\0", "value: the message ends at 4, the bytes at 5"),
        (
            "__cluster_metadata",
            None,
            b"\1\xff\xff\xff\xff\xff",
            "value: API key: a varint of more than 5 bytes",
        ),
        (
            *("__remote_log_metadata", None, b"\1\2\0\2"),
            "value: topicIdPartition.name: a length of 1 at byte 4, and the bytes end at 4",
        ),
    ],
)
def test_what_cannot_be_read_has_a_reason(
    topic: str, key: bytes | None, value: bytes | None, error: str
) -> None:
    assert record(topic, key, value)["error"] == error


def test_a_value_that_cannot_be_read_keeps_the_key() -> None:
    row = commit(COMMIT_KEY, b"\0\5rest")
    assert (row["group"], row["version"], row["committed_offset"]) == ("group", 5, None)
    row = transaction_states(binary(b"\0\0\0\2tx"), binary(b"\0\1")).to_pylist()[0]
    assert (row["transactional_id"], row["state"]) == ("tx", None)
    assert row["error"] == "value: producerId: the bytes end at 2"


def test_timestamps_that_no_column_can_hold_are_null() -> None:
    value = struct.pack(">hqih", 3, 1, 0, 0) + struct.pack(">q", 1 << 62)
    assert commit(COMMIT_KEY, value)["commit_timestamp"] is None


def test_text_that_is_not_utf8_is_repaired_as_the_jvm_does() -> None:
    """One U+FFFD for an encoded surrogate, where Python would make three."""
    key = b"\0\2\0\5" + b"a\xed\xa0\x80b"
    assert json.loads(record("__consumer_offsets", key, None)["key"]) == {"group": "a\ufffdb"}


def test_tags_that_are_not_known_are_kept() -> None:
    value = struct.pack(">hqi", 4, 200, 5) + b"\1" + struct.pack(">q", 0) + b"\1\x09\2hi"
    row = record("__consumer_offsets", COMMIT_KEY, value)
    assert json.loads(row["value"])["_unknownTaggedFields"] == [{"tag": 9, "data": "aGk="}]


def share(*batches: tuple[int, int], updated: tuple[tuple[int, int], ...] = ()) -> Any:
    """A share partition by a snapshot with available batches, and an update with archived ones."""

    def listed(ranges: tuple[tuple[int, int], ...], state: int) -> list[dict[str, int]]:
        names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
        return [dict(zip(names, (*ends, state, 1), strict=True)) for ends in ranges]

    snapshot = {"startOffset": 0, "stateEpoch": 0, "leaderEpoch": 0, "stateBatches": listed(batches, 0)}
    update = {"startOffset": -1, "leaderEpoch": -1, "stateBatches": listed(updated, 4)}
    records = [{"offset": offset, "value": value} for offset, value in enumerate((snapshot, update))]
    return share_partitions(pa.array([json.dumps(records)]))[0].as_py()


def test_batches_of_a_share_partition_that_no_log_can_have_count_no_offsets() -> None:
    """One that ends before it begins has none, and of more than there can be nobody knows how many."""
    row = share((0, 9), updated=((50, 40),))
    assert (row["available"], row["archived"]) == (10, 0)
    assert json.loads(row["batches"]) == [
        {"firstOffset": 0, "lastOffset": 9, "deliveryState": 0, "deliveryCount": 1}
    ]
    assert share((-(2**63), 2**63 - 1))["available"] is None


def test_batches_of_a_share_partition_over_each_other_are_merged_in_time() -> None:
    nested = tuple((at, 100_000 - at) for at in range(30_000))
    row = share((0, 9), updated=nested)
    assert (row["available"], row["archived"]) == (0, 100_001)


def test_no_rows_give_no_rows() -> None:
    for function in (offset_commits, transaction_states):
        assert function(binary(), binary()).to_pylist() == []
    assert internal_records(pa.array([], pa.string()), binary(), binary()).to_pylist() == []
