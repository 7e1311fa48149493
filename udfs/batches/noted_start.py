"""Reads the log start offset of a local log from the broker's files, by ``udfs.batches.log_start``."""

from __future__ import annotations

import os
import re
from contextlib import closing

import numpy as np

from kafka_log_lake.udfs.batches.log_start import CheckpointedStart, FirstEpoch, LogStart, log_start
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.checkpoint_text import (
    LEADER_EPOCH_FILE,
    MOST_BYTES,
    epoch_entries,
    offset_entries,
)
from kafka_log_lake.udfs.format.file_names import file_name, leading_offset, segment_base
from kafka_log_lake.udfs.storage.byte_source import FileSource, SourceError
from kafka_log_lake.udfs.storage.regular_file import read_regular

LOG_START_FILE = "log-start-offset-checkpoint"
# <topic>-<partition>, and the same of a replica that moves between disks: LogManager notes it alike
_FOLDER = re.compile(r"(.+)-([0-9]+)(?:\.[0-9a-f]+-future)?")
_READ_YET = object()


def log_start_of(folder: str, noted: CheckpointedStart | object | None = _READ_YET) -> LogStart | None:
    """Returns the log start of the log in a local folder; None where the folder has no segment.

    noted: what the checkpoint file of the log directory says of it, where that was read already. Raises an
    OSError if the folder can't be listed; a file that can't be read says nothing.
    """
    bases = [base for name in os.listdir(folder) if (base := segment_base(name)) is not None]
    if not bases:
        return None
    known = noted_start(folder) if noted is _READ_YET else noted
    assert known is None or isinstance(known, CheckpointedStart)
    return log_start_from(os.path.join(folder, file_name(min(bases))), known)


def log_start_from(first_segment: str, noted: CheckpointedStart | None) -> LogStart:
    """Returns what ``log_start_of`` does, by the path of the log's first segment."""
    folder, base = os.path.dirname(first_segment), leading_offset(first_segment)
    assert base is not None
    first = _first_epoch(folder, os.path.islink(first_segment))
    is_above = first is not None and first.offset > base  # else the batch tells nothing
    return log_start(base, noted, first, first_batch_epoch(first_segment) if is_above else -1)


def noted_start(folder: str) -> CheckpointedStart | None:
    """Returns what ``log-start-offset-checkpoint`` says of a folder's log; None where it can't be read."""
    log_dir, name = os.path.split(os.path.abspath(folder))
    data = _small_file(os.path.join(log_dir, LOG_START_FILE))
    place = _FOLDER.fullmatch(name)
    if data is None or place is None:
        return None
    entries = offset_entries(data)
    if entries.problem is not None:
        return None
    offsets = {(topic, int(number)): int(offset) for topic, number, offset in entries.rows}
    offset = offsets.get((place[1], int(place[2])), -1)
    return CheckpointedStart(
        offset if offset >= 0 else None
    )  # Kafka reads negative ones too, which say nothing


def _first_epoch(folder: str, follow: bool) -> FirstEpoch | None:
    """Returns the first entry of a folder's ``leader-epoch-checkpoint``, or None. follow: links too."""
    data = _small_file(os.path.join(folder, LEADER_EPOCH_FILE), follow)
    rows = epoch_entries(data).rows[:1] if data is not None else []
    first = [FirstEpoch(int(epoch), int(offset)) for epoch, offset in rows]
    return first[0] if first and min(first[0]) >= 0 else None


def first_batch_epoch(path: str) -> int:
    """Returns the leader epoch of a segment's first batch; -1 if its magic is not 2 or it can't be read."""
    head = np.zeros(f.HEADER_UP_TO_MAGIC, dtype=np.uint8)
    try:
        with closing(FileSource(path)) as source:
            got = source.read_into(0, head)
    except SourceError:
        return -1
    if got < len(head) or head[f.MAGIC_POS] != f.MAGIC_V2:
        return -1
    at = f.LEADER_EPOCH_POS
    return int.from_bytes(head[at : at + 4].tobytes(), "big", signed=True)


def _small_file(path: str, follow: bool = False) -> bytes | None:
    """Returns the bytes of a file; None where it can't be read. follow: whether it may be a link."""
    try:
        return read_regular(path, MOST_BYTES, follow)
    except OSError:
        return None
