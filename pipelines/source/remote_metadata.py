"""Reads ``__remote_log_metadata`` of a log directory: which offsets lie in remote storage.

Kafka's ``RemoteLogMetadataCache``: a segment counts from COPY_SEGMENT_FINISHED until DELETE_SEGMENT_STARTED.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict

from udfs.rules.account import REMOTE_METADATA, RemoteRange

_FOLDER = re.compile(rf"{REMOTE_METADATA}-[0-9]+")
_SEGMENT = re.compile(r"[0-9]{20}\.log")
_FINISHED = 1  # COPY_SEGMENT_FINISHED
# (topic id, partition) -> its segments whose copy was finished
RemoteRanges = dict[tuple[str | None, int], list[RemoteRange]]


def remote_ranges(log_dir: str) -> RemoteRanges | None:
    """The offsets in remote storage, by the metadata in a local log directory; None where it has none."""
    try:
        folders = sorted(name for name in os.listdir(log_dir) if _FOLDER.fullmatch(name))
    except OSError:
        return None
    if not folders:
        return None
    states: dict[tuple[str | None, int, str], tuple[RemoteRange | None, int]] = {}
    for name in folders:
        folder = os.path.join(log_dir, name)
        try:
            segments = sorted(one for one in os.listdir(folder) if _SEGMENT.fullmatch(one))
        except OSError:
            continue
        for segment in segments:
            _apply(os.path.join(folder, segment), states)
    found: RemoteRanges = defaultdict(list)
    for (topic_id, partition, _), (offsets, state) in states.items():
        if offsets is not None and state == _FINISHED:
            found[topic_id, partition].append(offsets)
    return found


def _apply(path: str, states: dict[tuple[str | None, int, str], tuple[RemoteRange | None, int]]) -> None:
    """Notes the last state of each segment that the records of a file name."""
    from udfs.files import decode_segment  # loads kernels, which few listings need
    from udfs.values.internal_topics import record_reader

    read = record_reader(REMOTE_METADATA)
    try:
        for batch in decode_segment(path, columns=("value", "control_type"), on_damage="ignore"):
            values, kinds = (batch.column(name).to_pylist() for name in ("value", "control_type"))
            for value, kind in zip(values, kinds, strict=True):
                fields = read(None, value).value if kind is None and value is not None else None
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
        return
