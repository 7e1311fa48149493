"""Decodes Arrow arrays of keys and values to Arrow structs: the SQL functions of Connect and MirrorMaker.

One row a record. Nothing here raises for bad bytes: ``error`` of the struct says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, astuple, fields
from typing import Any, get_type_hints

import pyarrow as pa

from kafka_log_lake.udfs.values.apps import mirror
from kafka_log_lake.udfs.values.apps.connect_topics import ConnectRecord, read_record
from kafka_log_lake.udfs.values.apps.recognise import has_sound_fields, mirror_kind
from kafka_log_lake.udfs.values.apps.user_data import StreamsTask, tasks_of
from kafka_log_lake.udfs.values.internal.columns import structs
from kafka_log_lake.udfs.values.schemas.payload import PayloadError

_ARROW = {str | None: pa.string(), int | None: pa.int32()}
_HINTS = get_type_hints(ConnectRecord)
CONNECT_RECORD = pa.struct([(field.name, _ARROW[_HINTS[field.name]]) for field in fields(ConnectRecord)])
MIRROR_RECORD = pa.struct(
    [
        *(("kind", pa.string()), ("source_cluster", pa.string()), ("target_cluster", pa.string())),
        *(("heartbeat_ms", pa.int64()), ("group", pa.string()), ("topic", pa.string())),
        *(("source_topic", pa.string()), ("partition", pa.int32()), ("upstream_offset", pa.int64())),
        *(("downstream_offset", pa.int64()), ("metadata", pa.string()), ("error", pa.string())),
    ]
)


STREAMS_TASKS = pa.list_(
    pa.struct(
        [
            (field.name, pa.int32() if field.name == "version" else pa.string())
            for field in fields(StreamsTask)
        ]
    )
)


def streams_tasks(kinds: pa.Array, states: pa.Array) -> pa.Array:
    """Returns the tasks of Streams in records of groups, as STREAMS_TASKS: ``tasks_of``.

    kinds, states: as in ``consumer_groups``.
    """
    pairs = zip(kinds.to_pylist(), states.to_pylist(), strict=True)
    tasks_of_rows = [
        None if state is None else [asdict(task) for task in tasks_of(kind, json.loads(state))]
        for kind, state in pairs
    ]
    return pa.array(tasks_of_rows, STREAMS_TASKS)


def connect_records(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the struct CONNECT_RECORD of each record: ``read_record``."""
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    return structs(CONNECT_RECORD, (astuple(read_record(key, value)) for key, value in pairs))


def mirror_records(topics: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Returns the struct MIRROR_RECORD of each record; null for topics without a name of MirrorMaker's."""
    rows = zip(topics.to_pylist(), keys.to_pylist(), values.to_pylist(), strict=True)
    return structs(MIRROR_RECORD, (_mirror_row(*row) for row in rows))


def _mirror_row(topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, ...] | None:
    kind = mirror_kind(topic)
    if kind is None:
        return None
    record: dict[str, Any] = {}
    side, error = "key", None
    try:
        record = mirror.read_side(kind, side, key or b"")
        side = "value"
        if value is not None:
            record |= mirror.read_side(kind, side, value)
        if not has_sound_fields(record):
            error = f"{side}: a number or a text that MirrorMaker does not write"
    except PayloadError as failure:
        error = f"{side}: {failure}"
    source, target = mirror.clusters(kind, topic)
    topic_name = record.get("topic")
    return (
        kind,
        record.get("sourceClusterAlias", source),
        record.get("targetClusterAlias", target),
        record.get("timestamp"),
        record.get("consumerGroupId"),
        topic_name,
        mirror.source_topic(topic, source, topic_name) if source and topic_name else topic_name,
        record.get("partition"),
        record.get("upstreamOffset"),
        record.get("downstreamOffset"),
        record.get("metadata"),
        error,
    )


# name -> (takes, code, gives)
FUNCTIONS: dict[str, tuple[tuple[str, ...], Callable[..., pa.Array], pa.DataType]] = {
    "kafka_connect_record": (("binary", "binary"), connect_records, CONNECT_RECORD),
    "kafka_streams_tasks": (("string", "string"), streams_tasks, STREAMS_TASKS),
    "kafka_mirror_record": (("string", "binary", "binary"), mirror_records, MIRROR_RECORD),
}
