"""Decodes Arrow arrays of keys and values to Arrow structs: what the SQL functions of internal topics return.

Arrays go in and come out with one row a record. Nothing here raises for bad bytes: the struct says in
``error`` what is wrong, and what could be read before it is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, get_type_hints

import pyarrow as pa

from kafka_log_lake.udfs.values.apps import user_data
from kafka_log_lake.udfs.values.internal.group_members import GroupMember, group_members
from kafka_log_lake.udfs.values.internal.share import STATES, share_partition
from kafka_log_lake.udfs.values.internal.topics import (
    TOPICS,
    InternalRecord,
    record_reader,
    with_consumer_protocol,
)

_TIMESTAMP = pa.timestamp("us", "UTC")
# Years 1 to 9999, as timestamps of records
_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_999
_NO_UUID = "A" * 22
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_OFFSET_COMMITS = ("LegacyOffsetCommit", "OffsetCommit")
_GROUP = "GroupMetadata"

# Ids of org.apache.kafka.coordinator.transaction.TransactionState, in order
TRANSACTION_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
    "PrepareEpochFence",
)

INTERNAL_RECORD = pa.struct(
    [
        pa.field("name", pa.string()),
        pa.field("type", pa.int32()),
        pa.field("version", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("error", pa.string()),
    ]
)

OFFSET_COMMIT = pa.struct(
    [
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("version", pa.int32()),
        pa.field("committed_offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("commit_timestamp", _TIMESTAMP),
        pa.field("expire_timestamp", _TIMESTAMP),
        pa.field("topic_id", pa.string()),
        pa.field("is_read", pa.bool_()),
        pa.field("error", pa.string()),
        pa.field("streams_metadata", pa.string()),
    ]
)

TRANSACTION_STATE = pa.struct(
    [
        pa.field("transactional_id", pa.string()),
        pa.field("version", pa.int32()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("state", pa.string()),
        pa.field("timeout_ms", pa.int32()),
        pa.field(
            "partitions",
            pa.list_(
                pa.struct([pa.field("topic", pa.string()), pa.field("partitions", pa.list_(pa.int32()))])
            ),
        ),
        pa.field("last_update_timestamp", _TIMESTAMP),
        pa.field("start_timestamp", _TIMESTAMP),
        pa.field("previous_producer_id", pa.int64()),
        pa.field("next_producer_id", pa.int64()),
        pa.field("next_producer_epoch", pa.int16()),
        pa.field("client_transaction_version", pa.int16()),
        pa.field("is_read", pa.bool_()),
        pa.field("error", pa.string()),
    ]
)

Row = tuple[Any, ...] | None


def structs(kind: pa.StructType, rows: Iterable[Row]) -> pa.StructArray:
    """Builds a struct array from rows of values in the order of its fields; None is a null struct."""
    listed = list(rows)
    nothing = (None,) * kind.num_fields
    columns = zip(*(nothing if row is None else row for row in listed), strict=True) if listed else []
    fields = [kind.field(i) for i in range(kind.num_fields)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=False)]
    arrays = arrays or [pa.array([], field.type) for field in fields]
    nulls = pa.array([row is None for row in listed], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=nulls)


def _instant(milliseconds: int) -> int | None:
    """Converts epoch ms to microseconds; None for -1 (none) and for what a timestamp column can't hold."""
    held = milliseconds != -1 and _LEAST_MS <= milliseconds <= _MOST_MS
    return milliseconds * 1000 if held else None


def _json(fields: dict[str, Any] | None) -> str | None:
    return None if fields is None else _ENCODE(fields)


def _record_row(topic: str | None, key: bytes | None, value: bytes | None) -> Row:
    if topic not in TOPICS:
        return None
    record = record_reader(topic)(key, value)
    fields = record.value
    if record.name == _GROUP and fields is not None:
        fields = with_consumer_protocol(fields)
        if fields["protocol"] == user_data.PROTOCOL:
            fields |= {"members": user_data.with_user_data(fields["members"])}
    return (record.name, record.type, record.version, _json(record.key), _json(fields), record.problem)


def internal_records(topics: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the struct INTERNAL_RECORD of each record, key and value as JSON text.

    Null for a topic that is no internal one.
    """
    rows = map(_record_row, topics.to_pylist(), keys.to_pylist(), values.to_pylist())
    return structs(INTERNAL_RECORD, rows)


def _of_topic(
    topic: str, keys: pa.Array, values: pa.Array, row: Callable[[InternalRecord], Row]
) -> Iterator[Row]:
    read = record_reader(topic)
    return (row(read(key, value)) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True))


def _verdict(record: InternalRecord) -> tuple[bool, str | None]:
    """Returns (is_read, error) of a record.

    A coordinator reads a value with surplus bytes, so it is read, and has an error too.
    """
    return record.value is not None or record.problem is None, record.problem


def _offset_row(record: InternalRecord) -> Row:
    if record.name not in _OFFSET_COMMITS:
        return None
    key = record.key or {}
    where = (key.get("group"), key.get("topic"), key.get("partition"), record.version)
    value = record.value
    if value is None:
        return (*where, *(None,) * 6, *_verdict(record), None)
    topic_id = value.get("topicId", _NO_UUID)
    return (
        *where,
        value["offset"],
        value.get("leaderEpoch", -1),
        value["metadata"],
        _instant(value["commitTimestamp"]),
        _instant(value.get("expireTimestamp", -1)),
        None if topic_id == _NO_UUID else topic_id,
        *_verdict(record),
        _json(user_data.commit_metadata(value["metadata"])),
    )


def offset_commits(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the struct OFFSET_COMMIT of each record of ``__consumer_offsets``; null for other types.

    For a tombstone the fields after ``partition`` are null. Fields that the version does not have hold
    Kafka's defaults: leader_epoch -1, the others null.
    """
    return structs(OFFSET_COMMIT, _of_topic("__consumer_offsets", keys, values, _offset_row))


def _transaction_row(record: InternalRecord) -> Row:
    transactional_id = (record.key or {}).get("transactionalId")
    value = record.value
    if value is None:
        return (transactional_id, record.version, *(None,) * 11, *_verdict(record))
    state = value["transactionStatus"]
    partitions = value["transactionPartitions"]
    return (
        transactional_id,
        record.version,
        value["producerId"],
        value["producerEpoch"],
        TRANSACTION_STATES[state] if 0 <= state < len(TRANSACTION_STATES) else f"unknown ({state})",
        value["transactionTimeoutMs"],
        None
        if partitions is None
        else [{"topic": p["topic"], "partitions": p["partitionIds"]} for p in partitions],
        _instant(value["transactionLastUpdateTimestampMs"]),
        _instant(value["transactionStartTimestampMs"]),
        value.get("previousProducerId", -1),
        value.get("nextProducerId", -1),
        value.get("nextProducerEpoch", -1),
        value.get("clientTransactionVersion", 0),
        *_verdict(record),
    )


def transaction_states(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the struct TRANSACTION_STATE of each record of ``__transaction_state``.

    For a tombstone only the transactional id is set. Fields that the version does not have hold Kafka's
    defaults: -1 for ids and epochs, 0 for client_transaction_version.
    """
    return structs(TRANSACTION_STATE, _of_topic("__transaction_state", keys, values, _transaction_row))


SHARE_PARTITION = pa.struct(
    [
        pa.field("start_offset", pa.int64()),
        pa.field("state_epoch", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("delivery_complete_count", pa.int32()),
        *(pa.field(name, pa.int64()) for name in STATES.values()),
        pa.field("batches", pa.string()),
    ]
)


def share_partitions(records: pa.Array) -> pa.Array:
    """Returns the struct SHARE_PARTITION of each list of records of a share partition.

    Null without a snapshot. records: JSON arrays of ``{"offset", "value"}``, in any order.
    """
    return structs(SHARE_PARTITION, map(share_partition, records.to_pylist()))


_ARROW = {bool: pa.bool_(), int: pa.int32(), str: pa.string(), list[str]: pa.list_(pa.string())}
GROUP_MEMBERS = pa.list_(
    pa.struct(
        [
            (name, next(arrow for kind, arrow in _ARROW.items() if hint in (kind, kind | None)))
            for name, hint in get_type_hints(GroupMember).items()
        ]
    )
)


def members_of_groups(records: pa.Array, topics: pa.Array) -> pa.Array:
    """Returns the members of each group, as GROUP_MEMBERS: ``group_members``.

    records: JSON arrays of a group's current records. topics: names of topic ids.
    """
    pairs = zip(records.to_pylist(), topics.to_pylist(), strict=True)
    return pa.array([[asdict(member) for member in group_members(*pair)] for pair in pairs], GROUP_MEMBERS)


# The SQL functions of internal topics: name -> (takes, code, gives)
FUNCTIONS: dict[str, tuple[tuple[str, ...], Callable[..., pa.Array], pa.DataType]] = {
    "kafka_internal_record": (("string", "binary", "binary"), internal_records, INTERNAL_RECORD),
    "kafka_group_members": (("string", "string"), members_of_groups, GROUP_MEMBERS),
    "kafka_share_partition": (("string",), share_partitions, SHARE_PARTITION),
    "kafka_offset_commit": (("binary", "binary"), offset_commits, OFFSET_COMMIT),
    "kafka_transaction_state": (("binary", "binary"), transaction_states, TRANSACTION_STATE),
}
