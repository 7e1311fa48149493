"""Reads MirrorMaker 2's records (``Heartbeat``, ``Checkpoint``, ``OffsetSync``): key and value are one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.values.apps.cursor import Cursor
from kafka_log_lake.udfs.values.schemas.payload import PayloadError

Fields = Callable[[Cursor], dict[str, Any]]
_OFFSETS = (("upstreamOffset", pa.int64()), ("downstreamOffset", pa.int64()))


def _heartbeat_key(cursor: Cursor) -> dict[str, object]:
    return {"sourceClusterAlias": cursor.text16(), "targetClusterAlias": cursor.text16()}


def _heartbeat(cursor: Cursor) -> dict[str, object]:
    _version(cursor)
    return {"timestamp": cursor.number(8)}


def _checkpoint_key(cursor: Cursor) -> dict[str, object]:
    return {"consumerGroupId": cursor.text16(), **_sync_key(cursor)}


def _checkpoint(cursor: Cursor) -> dict[str, object]:
    _version(cursor)
    return {**_sync(cursor), "metadata": cursor.text16()}


def _sync_key(cursor: Cursor) -> dict[str, object]:
    return {"topic": cursor.text16(), "partition": cursor.number(4)}


def _sync(cursor: Cursor) -> dict[str, object]:
    return {"upstreamOffset": cursor.number(8), "downstreamOffset": cursor.number(8)}


def _version(cursor: Cursor) -> None:
    at, version = cursor.at, cursor.number(2)
    if version != 0:
        raise PayloadError("unexpected_value", f"version {version}", at)


_PLACE = (("topic", pa.string()), ("partition", pa.int32()))
# kind and side -> reader and columns
SIDES: dict[tuple[str, str], tuple[Fields, tuple[tuple[str, pa.DataType], ...]]] = {
    ("mm2-heartbeat", "key"): (
        _heartbeat_key,
        (("sourceClusterAlias", pa.string()), ("targetClusterAlias", pa.string())),
    ),
    ("mm2-heartbeat", "value"): (_heartbeat, (("timestamp", pa.int64()),)),
    ("mm2-checkpoint", "key"): (_checkpoint_key, (("consumerGroupId", pa.string()), *_PLACE)),
    ("mm2-checkpoint", "value"): (_checkpoint, (*_OFFSETS, ("metadata", pa.string()))),
    ("mm2-offset-sync", "key"): (_sync_key, _PLACE),
    ("mm2-offset-sync", "value"): (_sync, _OFFSETS),
}


def read_side(kind: str, side: str, data: bytes) -> dict[str, object]:
    """Returns the fields of a key or a value. Raises a PayloadError."""
    cursor = Cursor(data)
    fields = SIDES[kind, side][0](cursor)
    cursor.ends()
    return fields


def clusters(kind: str, topic: str) -> tuple[str | None, str | None]:
    """Returns source and target cluster by a topic's name, where it has them: a checkpoint's and a sync's."""
    parts = re.split(r"[\W_](?:checkpoints[\W_])?internal$", topic)[0]
    if kind == "mm2-checkpoint":
        return parts, None
    return None, parts.removeprefix("mm2-offset-syncs")[1:] if kind == "mm2-offset-sync" else None


def source_topic(checkpoints: str, source: str, topic: str) -> str:
    """Returns the name that a mirrored topic has in the source cluster, where a checkpoint names it.

    The replication policy puts the cluster's alias and a separator in front, or nothing
    (``IdentityReplicationPolicy``). checkpoints: the topic of the checkpoint, with the same separator.
    """
    return topic.removeprefix(source + checkpoints[len(source)])


def record(key: dict[str, Any] | None, value: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of both sides as one object, topic and partition as ``topicPartition``."""
    fields = {**(key or {}), **(value or {})}
    if "partition" in fields:
        fields["topicPartition"] = f"{fields.pop('topic')}-{fields.pop('partition')}"
    return fields
