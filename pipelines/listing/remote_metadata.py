"""Reads ``__remote_log_metadata`` of a log directory: which offsets lie in remote storage.

Kafka's ``RemoteLogMetadataCache``: a segment counts from COPY_SEGMENT_FINISHED until DELETE_SEGMENT_STARTED.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field

from kafka_log_lake.udfs.batches.account import REMOTE_METADATA, RemoteRange
from kafka_log_lake.udfs.format.file_names import segment_base

_FOLDER = re.compile(rf"{REMOTE_METADATA}-[0-9]+")
_FINISHED = 1  # COPY_SEGMENT_FINISHED


@dataclass
class RemoteRanges:
    """The segments whose copy to remote storage was finished, by (topic id, partition).

    is_whole: whether all records of it could be read.
    """

    by_log: dict[tuple[str | None, int], list[RemoteRange]] = field(default_factory=lambda: defaultdict(list))
    is_whole: bool = True


def remote_ranges(log_dir: str) -> RemoteRanges | None:
    """Returns the offsets in remote storage, by the metadata in a local log directory.

    None where it has none.
    """
    try:
        folders = sorted(name for name in os.listdir(log_dir) if _FOLDER.fullmatch(name))
    except OSError:
        return None
    if not folders:
        return None
    states: dict[tuple[str | None, int, str], tuple[RemoteRange | None, int]] = {}
    found = RemoteRanges()
    for name in folders:
        folder = os.path.join(log_dir, name)
        try:
            segments = sorted(one for one in os.listdir(folder) if segment_base(one) is not None)
        except OSError:
            found.is_whole = False
            continue
        for segment in segments:
            found.is_whole &= _apply(os.path.join(folder, segment), states)
    for (topic_id, partition, _), (offsets, state) in states.items():
        if offsets is not None and state == _FINISHED:
            found.by_log[topic_id, partition].append(offsets)
    return found


def _apply(path: str, states: dict[tuple[str | None, int, str], tuple[RemoteRange | None, int]]) -> bool:
    """Notes the last state of each segment that the records of a file name. False: not all could be read."""
    from kafka_log_lake.udfs.files import decode_segment  # loads kernels, which few listings need
    from kafka_log_lake.udfs.values.internal.topics import InternalRecord, record_reader

    read = record_reader(REMOTE_METADATA)
    problems = list[object]()
    try:
        for batch in decode_segment(path, columns=("value", "control_type"), on_damage=problems.append):
            values, kinds = (batch.column(name).to_pylist() for name in ("value", "control_type"))
            for value, kind in zip(values, kinds, strict=True):
                record = read(None, value) if kind is None and value is not None else InternalRecord()
                problems += [record.problem] if record.problem else []
                fields = record.value
                if not fields or "remoteLogSegmentId" not in fields:
                    continue
                segment = fields["remoteLogSegmentId"]
                place = segment["topicIdPartition"]
                key = (place["id"], place["partition"], segment["id"])
                offsets = states.get(key, (None, 0))[0]
                if "startOffset" in fields:
                    offsets = RemoteRange(fields["startOffset"], fields["endOffset"])
                states[key] = offsets, fields["remoteLogSegmentState"]
    except (OSError, ValueError):
        return False
    return not problems
