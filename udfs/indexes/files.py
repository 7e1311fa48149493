"""Tells by its name which file of a broker a file is, and reads its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from kafka_log_lake.udfs.format.file_names import split_name, without_segment_id
from kafka_log_lake.udfs.format.layout import MAX_OFFSET
from kafka_log_lake.udfs.indexes import checkpoint_files, entries, kraft_snapshot, producer_snapshot
from kafka_log_lake.udfs.storage.regular_file import MOST_INDEX_BYTES, read_regular

LEADER_EPOCH_FILE = checkpoint_files.LEADER_EPOCH_FILE
OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX = ".index", ".timeindex", ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"
_EPOCHS_OBJECT = ".leader_epoch_checkpoint"  # of LocalTieredStorage
DELETED = ".deleted"  # ends the name of a file that the broker is about to delete
_BY_OFFSET: dict[str, Callable[[bytes, int], pa.RecordBatch]] = {
    OFFSET_INDEX: entries.offset_index,
    TIME_INDEX: entries.time_index,
    TRANSACTION_INDEX: lambda data, _: entries.transaction_index(data),
    PRODUCER_SNAPSHOT: lambda data, _: producer_snapshot.producer_snapshot(data),
}


class BrokerFile(NamedTuple):
    """What a file of a broker is, by its name.

    kind: a suffix, or the whole name of a checkpoint file. base: the offset in the name, or -1.
    """

    kind: str
    base: int


def broker_file(name: str) -> BrokerFile | None:
    """Returns what a file is by its name, after any folders; None for a segment or any other file.

    A name with an offset that no int64 holds is no broker's.
    """
    name = without_segment_id(os.path.basename(name))
    parts = split_name(name)
    if parts is not None and parts.suffix in _BY_OFFSET and parts.offset <= MAX_OFFSET:
        return BrokerFile(parts.suffix, parts.offset)
    if parts is not None and parts.suffix == _EPOCHS_OBJECT:
        return BrokerFile(LEADER_EPOCH_FILE, -1)
    if name == LEADER_EPOCH_FILE or name in checkpoint_files.OFFSET_FILES:
        return BrokerFile(name, -1)
    if name == kraft_snapshot.BOOTSTRAP:
        return BrokerFile(kraft_snapshot.SUFFIX, -1)
    snapshot = kraft_snapshot.snapshot_id(name)
    return BrokerFile(kraft_snapshot.SUFFIX, snapshot.end_offset) if snapshot else None


def decode_broker_file(path: str | os.PathLike[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file that a broker keeps next to its segments, in the schema of its kind.

    Raises ValueError for a file of another name, and OSError where it can't be opened. A name may end in
    ``.deleted``.
    """
    file = broker_file(os.fspath(path).removesuffix(DELETED))
    if file is None:
        raise ValueError(
            f"{os.fspath(path)} does not have the name of an index, a snapshot or a checkpoint file"
        )
    if file.kind == kraft_snapshot.SUFFIX:
        yield from kraft_snapshot.kraft_snapshot(path)
        return
    yield decode_content(file, read_regular(path, MOST_INDEX_BYTES))


def decode_content(file: BrokerFile, data: bytes) -> pa.RecordBatch:
    """Returns the rows of a file by its content; it must not be a snapshot of KRaft."""
    if file.kind in _BY_OFFSET:
        return _BY_OFFSET[file.kind](data, file.base)
    if file.kind == LEADER_EPOCH_FILE:
        return checkpoint_files.leader_epochs(data)
    return checkpoint_files.offset_checkpoint(data)
