"""Reads ``__remote_log_metadata`` of a log directory: the segments in remote storage, with their states.

Kafka's ``RemoteLogMetadataCache``: a segment counts from COPY_SEGMENT_FINISHED until DELETE_SEGMENT_STARTED.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kafka_log_lake.pipelines.listing.checkpoints import read_offsets
from kafka_log_lake.udfs.batches.account import HIGH_WATERMARK, REMOTE_METADATA, RemoteRange
from kafka_log_lake.udfs.format.file_names import segment_base

_FOLDER = re.compile(rf"{REMOTE_METADATA}-[0-9]+")
STARTED, FINISHED, DELETING, DELETED = range(4)  # of a segment: its copy, then its deletion
STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES = range(3)  # of a partition: marked, started, finished


@dataclass
class RemoteSegment:
    """A segment that the metadata name.

    start, end: its first and last offset; epochs: (leader epoch, first offset); size: bytes. These are None
    or empty where the record that says it can't be read. state: of STATES by number; since: when it was set,
    ms since 1970 UTC. custom: what the remote storage plugin noted, in Base64.
    """

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    state: int
    since: int = -1
    start: int | None = None
    end: int | None = None
    size: int | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    broker_id: int = -1
    custom: str | None = None


@dataclass
class RemoteMetadata:
    """The segments by id, and the partitions (topic id, number) that are marked for deletion or deleted.

    All records of one partition of a topic lie in one partition of ``__remote_log_metadata``
    (``RemoteLogMetadataTopicPartitioner``), and a disk has only some of these. So the metadata say what there
    is of the logs that they name, and nothing of others. is_whole: whether all records of the folders that
    were found could be read, from offset 0 up to the high watermark.

    uncommitted: ids of the segments, and partitions marked as deleted, whose newest record lies at or above
    the high watermark, or without one: a new leader of the metadata may not have it. epochs: folder -> its
    leader epochs with the offsets where they begin, and the offset after its last record.
    """

    segments: dict[str, RemoteSegment] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    is_whole: bool = True
    uncommitted: set[str | tuple[str, int]] = field(default_factory=set)
    epochs: dict[str, tuple[list[tuple[int, int]], int]] = field(default_factory=dict)

    @cached_property
    def logs(self) -> set[tuple[str | None, int]]:
        """Returns the (topic id, partition) that any record names."""
        return {(segment.topic_id, segment.partition) for segment in self.segments.values()} | self.deleted

    @cached_property
    def ranges(self) -> dict[tuple[str | None, int], list[RemoteRange]]:
        """Returns the offsets of the segments that count, by (topic id, partition)."""
        by_log: dict[tuple[str | None, int], list[RemoteRange]] = defaultdict(list)
        for segment in self.segments.values():
            if segment.state == FINISHED and segment.start is not None and segment.end is not None:
                by_log[segment.topic_id, segment.partition].append(RemoteRange(segment.start, segment.end))
        return by_log

    def note(self, value: Mapping[str, Any], is_committed: bool = True) -> None:
        """Applies one record of the log. A newer record of a segment replaces its state."""
        if "remoteLogSegmentState" not in value:
            self.is_whole &= value.get("remotePartitionDeleteState") in _DELETE_STATES
            if "remotePartitionDeleteState" in value:
                log = value["topicIdPartition"]["id"], value["topicIdPartition"]["partition"]
                self.uncommitted |= set() if is_committed or log in self.deleted else {log}
                self.deleted.add(log)
            return
        of = value["remoteLogSegmentId"]
        place = of["topicIdPartition"]
        state = value["remoteLogSegmentState"]
        if not 0 <= state < len(STATES):
            self.is_whole = False
            return
        (self.uncommitted.discard if is_committed else self.uncommitted.add)(of["id"])
        named = place["name"], place["id"], place["partition"], of["id"]
        segment = self.segments.setdefault(of["id"], RemoteSegment(*named, state))
        segment.state, segment.since, segment.broker_id = state, value["eventTimestampMs"], value["brokerId"]
        segment.custom = value.get("customMetadata") or segment.custom
        if "startOffset" in value:
            segment.start, segment.end, segment.size = (
                value["startOffset"],
                value["endOffset"],
                value["segmentSizeInBytes"],
            )
            segment.epochs = tuple(
                (each["leaderEpoch"], each["offset"]) for each in value["segmentLeaderEpochs"]
            )


def remote_metadata(log_dir: str) -> RemoteMetadata | None:
    """Returns what the metadata in a local log directory say; None where it has none."""
    try:
        folders = sorted(name for name in os.listdir(log_dir) if _FOLDER.fullmatch(name))
    except OSError:
        return None
    if not folders:
        return None
    metadata = RemoteMetadata()
    try:  # before the records: what it says is never ahead of them
        committed = read_offsets(os.path.join(log_dir, HIGH_WATERMARK))
    except (OSError, ValueError):
        committed = {}
    for name in folders:
        folder = os.path.join(log_dir, name)
        try:
            segments = sorted(name for name in os.listdir(folder) if segment_base(name) is not None)
        except OSError:
            metadata.is_whole = False
            continue
        limit = committed.get((REMOTE_METADATA, int(name.rpartition("-")[2])), 0)
        epochs, reached = list[tuple[int, int]](), 0
        for offset, epoch, value in _records([os.path.join(folder, name) for name in segments], metadata):
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, offset))
            reached = offset + 1
            if value is not None:
                metadata.note(value, offset < limit)
        metadata.epochs[name] = epochs, reached
        metadata.is_whole &= reached >= limit
    return metadata


def agree(copies: Sequence[RemoteMetadata]) -> bool:
    """Says whether the copies of each partition of the metadata topic, on several disks, are of one history.

    So where the leader epochs are the same up to the end of the shorter one (KIP-101).
    """
    for name in {name for copy in copies for name in copy.epochs}:
        of_name = [copy.epochs[name] for copy in copies if name in copy.epochs]
        end = min(end for _, end in of_name)
        if len({tuple(each for each in epochs if each[1] < end) for epochs, _ in of_name}) > 1:
            return False
    return True


def _records(
    paths: Sequence[str], metadata: RemoteMetadata
) -> Iterator[tuple[int, int, Mapping[str, object] | None]]:
    """Yields offset, leader epoch and content of the records in a folder's segments; notes in ``found`` where
    not all from offset 0 on could be read. The content is None of a control record.
    """
    from kafka_log_lake.udfs.files import decode_segment  # loads kernels, which few listings need
    from kafka_log_lake.udfs.values.internal.topics import record_reader

    read, reached = record_reader(REMOTE_METADATA), 0
    problems: list[object] = [] if paths else ["no segment"]
    columns = ("offset", "leader_epoch", "value", "control_type")
    for path in paths:
        try:
            for batch in decode_segment(path, columns=columns, on_damage=problems.append):
                rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
                for offset, epoch, value, kind in rows:
                    problems += [offset] if offset != reached else []  # retention or a loss took some
                    reached = offset + 1
                    if kind is not None or value is None:
                        yield offset, epoch, None
                        continue
                    record = read(None, value)
                    problems += [record.problem] if record.problem else []
                    yield offset, epoch, record.value if record.value and not record.problem else None
        except (OSError, ValueError) as error:
            problems.append(error)
    metadata.is_whole &= not problems
