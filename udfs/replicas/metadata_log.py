"""The records of a ``__cluster_metadata`` log or of a ``.checkpoint`` snapshot, decoded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from udfs.indexes.kraft_snapshot import METADATA_TOPIC, snapshot_id
from udfs.replicas.cluster_state import ClusterState
from udfs.values.columns import internal_records

COLUMNS = ("offset", "leader_epoch", "control_type", "key", "value")


class MetadataRecord(NamedTuple):
    """name: of the record, None of a control record and of one that can't be read. value: JSON."""

    offset: int
    epoch: int
    name: str | None
    value: str | None


def metadata_records(path: str) -> Iterator[MetadataRecord]:
    """The records of one file, in its order, as far as they are whole. Raises OSError."""
    from udfs.files import decode_segment  # loads kernels

    return decoded_records(decode_segment(path, columns=COLUMNS, on_damage="ignore"))


def decoded_records(batches: Iterable[pa.RecordBatch]) -> Iterator[MetadataRecord]:
    """The records of a log. batches: COLUMNS of them."""
    for batch in batches:
        rows = batch.to_pydict()
        own = [METADATA_TOPIC if kind is None else None for kind in rows["control_type"]]
        topics = pa.array(own, pa.string())
        found = internal_records(topics, batch.column("key"), batch.column("value")).to_pylist()
        for offset, epoch, one in zip(rows["offset"], rows["leader_epoch"], found, strict=True):
            name, value = (one["name"], one["value"]) if one else (None, None)
            yield MetadataRecord(offset, epoch, name, value)


def state_of(snapshot: str | None, records: Iterable[MetadataRecord], end: int | None = None) -> ClusterState:
    """The state after a snapshot, the path of one or None, and the records behind it up to an offset."""
    state = ClusterState()
    for record in metadata_records(snapshot) if snapshot else ():
        _apply(state, record)
    state.reached = snapshot_end(snapshot)
    for record in records:
        if state.reached <= record.offset and (end is None or record.offset < end):
            _apply(state, record)
            state.reached = record.offset + 1
    return state


def _apply(state: ClusterState, record: MetadataRecord) -> None:
    if record.name is not None:
        state.apply(record.name, record.value)


def snapshots(folder: str) -> list[str]:
    """The paths of the snapshots in a folder, by end offset and epoch; none where it can't be listed."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [(one.end_offset, one.epoch, name) for name in names if (one := snapshot_id(name)) is not None]
    return [os.path.join(folder, name) for _, _, name in sorted(found)]


def snapshot_end(path: str | None) -> int:
    """The offset behind the records of a snapshot, by its name; 0 of another file, and without one."""
    found = snapshot_id(os.path.basename(path)) if path else None
    return found.end_offset if found else 0
