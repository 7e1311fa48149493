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

from kafka_log_lake.udfs.batches.account import REMOTE_METADATA, RemoteRange
from kafka_log_lake.udfs.format.file_names import segment_base

_FOLDER = re.compile(rf"{REMOTE_METADATA}-[0-9]+")
STARTED, FINISHED, DELETING, DELETED = range(4)  # of a segment: its copy, then its deletion
STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)


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
    were found could be read, from offset 0 on.
    """

    segments: dict[str, RemoteSegment] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    is_whole: bool = True

    @cached_property
    def logs(self) -> set[tuple[str | None, int]]:
        """Returns the (topic id, partition) that any record names."""
        return {(one.topic_id, one.partition) for one in self.segments.values()} | self.deleted

    @cached_property
    def ranges(self) -> dict[tuple[str | None, int], list[RemoteRange]]:
        """Returns the offsets of the segments that count, by (topic id, partition)."""
        found: dict[tuple[str | None, int], list[RemoteRange]] = defaultdict(list)
        for one in self.segments.values():
            if one.state == FINISHED and one.start is not None and one.end is not None:
                found[one.topic_id, one.partition].append(RemoteRange(one.start, one.end))
        return found

    def note(self, value: Mapping[str, Any]) -> None:
        """Applies one record of the log. A newer record of a segment replaces its state."""
        if "remoteLogSegmentId" not in value:
            if "remotePartitionDeleteState" in value:
                place = value["topicIdPartition"]
                self.deleted.add((place["id"], place["partition"]))
            return
        of = value["remoteLogSegmentId"]
        place = of["topicIdPartition"]
        state = value["remoteLogSegmentState"]
        if not 0 <= state < len(STATES):
            self.is_whole = False
            return
        named = place["name"], place["id"], place["partition"], of["id"]
        one = self.segments.setdefault(of["id"], RemoteSegment(*named, state))
        one.state, one.since, one.broker_id = state, value["eventTimestampMs"], value["brokerId"]
        one.custom = value.get("customMetadata") or one.custom
        if "startOffset" in value:
            one.start, one.end, one.size = (
                value["startOffset"],
                value["endOffset"],
                value["segmentSizeInBytes"],
            )
            one.epochs = tuple((each["leaderEpoch"], each["offset"]) for each in value["segmentLeaderEpochs"])


def remote_metadata(log_dir: str) -> RemoteMetadata | None:
    """Returns what the metadata in a local log directory say; None where it has none."""
    try:
        folders = sorted(name for name in os.listdir(log_dir) if _FOLDER.fullmatch(name))
    except OSError:
        return None
    if not folders:
        return None
    found = RemoteMetadata()
    for name in folders:
        folder = os.path.join(log_dir, name)
        try:
            segments = sorted(one for one in os.listdir(folder) if segment_base(one) is not None)
        except OSError:
            found.is_whole = False
            continue
        for value in _records([os.path.join(folder, segment) for segment in segments], found):
            found.note(value)
    return found


def _records(paths: Sequence[str], found: RemoteMetadata) -> Iterator[Mapping[str, Any]]:
    """Yields the records of a folder's segments; notes in ``found`` where not all from offset 0 on could be
    read.
    """
    from kafka_log_lake.udfs.files import decode_segment  # loads kernels, which few listings need
    from kafka_log_lake.udfs.values.internal.topics import record_reader

    read, reached = record_reader(REMOTE_METADATA), 0
    problems: list[object] = [] if paths else ["no segment"]
    columns = ("offset", "value", "control_type")
    for path in paths:
        try:
            for batch in decode_segment(path, columns=columns, on_damage=problems.append):
                rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
                for offset, value, kind in rows:
                    problems += [offset] if offset != reached else []  # retention or a loss took some
                    reached = offset + 1
                    if kind is not None or value is None:
                        continue
                    record = read(None, value)
                    problems += [record.problem] if record.problem else []
                    if record.value and not record.problem:
                        yield record.value
        except (OSError, ValueError) as error:
            problems.append(error)
    found.is_whole &= not problems
