"""Disks of brokers with a metadata log that tests make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crc32c import crc32c

from kafka_log_lake.udfs.format.encode import PlainRecord
from kafka_log_lake.udfs.values.internal.encode import metadata_record, record_batch
from tests.support.logs import put

IDS = {name: f"{name:A<21}A" for name in ("t", "u", "gone")}  # topic -> its id


def topic(name: str, partitions: int, replicas: Sequence[int], **fields: Any) -> list[bytes]:
    """Records of a topic whose partitions have these replicas, and the first one as leader in epoch 0."""
    made = {"topicId": IDS[name], "replicas": replicas, "isr": replicas, "leader": replicas[0]}
    made |= {"leaderEpoch": 0, **fields}
    return [
        metadata_record("TopicRecord", 0, {"name": name, "topicId": IDS[name]}),
        *(metadata_record("PartitionRecord", 0, {"partitionId": i, **made}) for i in range(partitions)),
    ]


def policy(name: str, value: str) -> bytes:
    """The record of a topic's cleanup.policy."""
    fields = {"resourceType": 2, "resourceName": name, "name": "cleanup.policy", "value": value}
    return metadata_record("ConfigRecord", 0, fields)


def metadata_log(disk: Path, records: Sequence[bytes]) -> None:
    """The metadata log of a disk: a record at each offset from 0 on, in epoch 1."""
    rows = [PlainRecord(offset, 1, None, value) for offset, value in enumerate(records)]
    put(disk / "__cluster_metadata-0", 0, bytes(record_batch(rows, 1, 0, crc32c)))


def identify(disk: Path, node: int, directory: str = "") -> None:
    """Writes ``meta.properties``."""
    disk.mkdir(parents=True, exist_ok=True)
    directory = f"directory.id={directory}\n" if directory else ""
    (disk / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={node}\n{directory}")


def partition(disk: Path, name: str, *batches: bytes, number: int = 0, epochs: str | None = "0 0") -> Path:
    """A copy of a partition from offset 0 on. epochs: lines of leader-epoch-checkpoint; None: no file."""
    folder = put(disk / f"{name}-{number}", 0, *batches).parent
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {IDS[name]}")
    if epochs is not None:
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs.splitlines())}\n{epochs}\n")
    return folder
