"""``recover --write``: writes a log directory of the healed log, from which one broker and controller starts.

A KRaft broker renames a log's folder to ``-stray``, and does not serve it (KAFKA-15605), unless its metadata
has the log's topic id and names the broker as a replica. So ``bootstrap.checkpoint`` holds the topics with
their ids, partitions, settings and feature levels: a controller with an empty metadata log begins with these
records, in one transaction, so that the broker never sees a state without them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.cli.values import is_topic_name
from kafka_log_lake.pipelines.listing.cluster_state import NO_LEADER, ClusterState
from kafka_log_lake.pipelines.listing.identity import META
from kafka_log_lake.pipelines.recover.job import Recovered
from kafka_log_lake.pipelines.recover.log_writer import copy_log, partition_metadata
from kafka_log_lake.pipelines.recover.partition import HealedLog
from kafka_log_lake.pipelines.recover.sources import Inventory
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.encode import PlainRecord
from kafka_log_lake.udfs.indexes.kraft_snapshot import BOOTSTRAP
from kafka_log_lake.udfs.values.internal.encode import metadata_record, new_uuid, record_batch

# What a controller starts with where there is no metadata of its cluster: the features of Kafka 4.1
FEATURES = {"metadata.version": 27, "group.version": 1, "transaction.version": 2}
# With it a broker that was not shut down cleanly loses its place in the ISR, and no other replica is there
_WITHOUT = "eligible.leader.replicas.version"
_TOPIC, _DIRECTORIES_SINCE = 2, 17  # resource type; metadata.version 3.7-IV2
_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER = 3, 4  # types of control records
_RECORDS_IN_A_BATCH = 500


class Disk(NamedTuple):
    """The node id of a log directory's broker, and the directory's id in Kafka's notation."""

    node_id: int
    directory_id: str


def write_recovered(folder: Path, done: Recovered, node_id: int) -> None:
    """Writes the healed logs as the disk of one broker, which is its own controller.

    A log whose topic has a name that Kafka refuses is left out, with a warning.
    """
    disk = write_identity(folder, done.inventory, node_id)
    logs = {place: log for place, log in done.logs.items() if is_topic_name(place[0])}
    done.inventory.warnings += [
        f"{topic}-{partition} is not in the log directory: Kafka takes no topic of this name"
        for topic, partition in sorted(done.logs.keys() - logs.keys())
    ]
    ids = _topic_ids(logs)
    for (topic, partition), log in logs.items():
        log_folder = folder / f"{topic}-{partition}"
        copy_log(log.folder, str(log_folder))
        (log_folder / "partition.metadata").write_text(partition_metadata(ids[topic]))
    starts = {place: log.start for place, log in logs.items() if log.start > log.segments[0].base}
    for name, offsets in (
        ("replication-offset-checkpoint", {place: log.end for place, log in logs.items()}),
        ("log-start-offset-checkpoint", starts),
        ("recovery-point-offset-checkpoint", {}),  # the broker checks each log, and builds its indexes
    ):
        lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
        (folder / name).write_text(f"0\n{len(lines)}\n" + "".join(lines))
    (folder / BOOTSTRAP).write_bytes(bootstrap(metadata_of(logs, ids, disk, done.placements.state)))


def write_identity(folder: Path, inventory: Inventory, node_id: int) -> Disk:
    """Writes ``meta.properties`` of a new log directory; returns its ids."""
    disk = Disk(node_id, new_uuid())
    properties = {"version": 1, "cluster.id": inventory.cluster_id or new_uuid()}
    properties |= {"node.id": disk.node_id, "directory.id": disk.directory_id}
    (folder / META).write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return disk


def _topic_ids(logs: Mapping[tuple[str, int], HealedLog]) -> dict[str, str]:
    """Returns topic -> id; a new id where no copy has one."""
    ids: dict[str, str] = {}
    for (topic, _), log in logs.items():
        if log.topic_id is not None:
            ids.setdefault(topic, log.topic_id)
    return {topic: ids.get(topic) or new_uuid() for topic, _ in logs}


def metadata_of(
    logs: Mapping[tuple[str, int], HealedLog], ids: Mapping[str, str], disk: Disk, state: ClusterState | None
) -> list[bytes]:
    """Makes the controller's records: features, topics, partitions of this broker alone, topic settings.

    state: what the brokers' metadata says; None where there is none.
    """
    features = (state.features if state is not None else {}) or FEATURES
    features = {"metadata.version": FEATURES["metadata.version"], **features}
    records = [
        metadata_record("FeatureLevelRecord", 0, {"name": name, "featureLevel": level})
        for name, level in sorted(features.items(), key=lambda item: item[0] != "metadata.version")
        if name != _WITHOUT
    ]
    by_topic: dict[str, dict[int, HealedLog]] = defaultdict(dict)
    for (topic, partition), log in logs.items():
        by_topic[topic][partition] = log
    version = 1 if features["metadata.version"] >= _DIRECTORIES_SINCE else 0
    for topic, partitions in sorted(by_topic.items()):
        records.append(metadata_record("TopicRecord", 0, {"name": topic, "topicId": ids[topic]}))
        for number in range(max(partitions) + 1):  # one that no disk has begins empty
            epochs = partitions[number].epochs if number in partitions else []
            fields = _partition(number, ids[topic], disk, epochs[-1][0] if epochs else 0)
            records.append(metadata_record("PartitionRecord", version, fields))
    for (kind, name), values in sorted(state.configs.items() if state is not None else ()):
        if kind == "topic" and name in by_topic:
            for setting, value in sorted(values.items()):
                # above 1 one broker would refuse every write
                held = "1" if setting == "min.insync.replicas" else value
                fields = {"resourceType": _TOPIC, "resourceName": name, "name": setting, "value": held}
                records.append(metadata_record("ConfigRecord", 0, fields))
    return records


def _partition(number: int, topic_id: str, disk: Disk, epoch: int) -> dict[str, object]:
    """Returns a PartitionRecord with one replica and no leader: one is elected once the broker registers."""
    nodes = [disk.node_id]
    return {
        "partitionId": number,
        "topicId": topic_id,
        "replicas": nodes,
        "isr": nodes,
        "leader": NO_LEADER,
        "leaderEpoch": epoch,
        "partitionEpoch": 0,
        "directories": [disk.directory_id],
    }


def bootstrap(records: Sequence[bytes]) -> bytes:
    """Returns the bytes of ``bootstrap.checkpoint``: a KRaft snapshot with these records."""
    from kafka_log_lake.udfs.kernels.checksums import crc32c  # loads compiled kernels

    now = int(time.time() * 1000)
    out, offset = bytearray(), 0

    def checksum(data: bytes) -> int:
        return int(crc32c(np.frombuffer(data, dtype=np.uint8), 0, len(data), 0))

    def add(values: Iterable[tuple[bytes | None, bytes]], attributes: int) -> None:
        nonlocal offset
        rows = [PlainRecord(offset + i, now, key, value) for i, (key, value) in enumerate(values)]
        offset += len(rows)
        out.extend(record_batch(rows, 0, attributes, checksum))

    # SnapshotHeaderRecord: version int16, time int64, no tagged fields; the footer has the version alone
    add([(_control_key(_SNAPSHOT_HEADER), bytes(2) + bytes(8) + b"\0")], f.CONTROL_MASK)
    for at in range(0, len(records), _RECORDS_IN_A_BATCH):
        add([(None, value) for value in records[at : at + _RECORDS_IN_A_BATCH]], 0)
    add([(_control_key(_SNAPSHOT_FOOTER), bytes(2) + b"\0")], f.CONTROL_MASK)
    return bytes(out)


def _control_key(kind: int) -> bytes:
    """Returns the key of a control record: version int16 (0) and type int16."""
    return bytes([0, 0, 0, kind])
