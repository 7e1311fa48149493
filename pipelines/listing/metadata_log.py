"""Reads the records of a ``__cluster_metadata`` log and of its ``.checkpoint`` snapshots into a state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from kafka_log_lake.pipelines.listing.cluster_state import DAMAGED, MISSING, VOTERS, ClusterState, Fields
from kafka_log_lake.udfs.decoder.decoded import Damage
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC, snapshot_id
from kafka_log_lake.udfs.values.internal.readers import UnreadableMessage
from kafka_log_lake.udfs.values.internal.topics import control_fields

COLUMNS = ("offset", "leader_epoch", "control_type", "key", "value")


class MetadataRecord(NamedTuple):
    """A record of a metadata log.

    name: of its type, with the version where the value can't be read; None of a control record but of one
    with the voters. value: as JSON; None where it can't be read.
    """

    offset: int
    epoch: int
    name: str | None
    value: str | None


def metadata_records(
    path: str, on_damage: Callable[[Damage], None] | None = None
) -> Iterator[MetadataRecord]:
    """Yields the records of one file, in its order, as far as they are whole. Raises OSError.

    on_damage: gets each damaged range; None: nothing does.
    """
    from kafka_log_lake.udfs.files import decode_segment  # loads kernels

    return decoded_records(decode_segment(path, columns=COLUMNS, on_damage=on_damage or "ignore"))


def decoded_records(batches: Iterable[pa.RecordBatch]) -> Iterator[MetadataRecord]:
    """Yields the records of a metadata log. batches: decoded records with the columns COLUMNS."""
    from kafka_log_lake.udfs.values.internal.columns import internal_records  # of groups and Streams too

    for batch in batches:
        rows = batch.to_pydict()
        topic_names = [METADATA_TOPIC if kind is None else None for kind in rows["control_type"]]
        topics = pa.array(topic_names, pa.string())
        records = internal_records(topics, batch.column("key"), batch.column("value")).to_pylist()
        for i, record in enumerate(records):
            named = (None, None) if record is None else _named(record)
            if rows["control_type"][i] == "KRAFT_VOTERS":
                named = VOTERS, _voters_json(rows["value"][i])
            yield MetadataRecord(rows["offset"][i], rows["leader_epoch"][i], *named)


def _voters_json(value: bytes | None) -> str | None:
    try:
        return json.dumps(control_fields(VOTERS, value or b""))
    except UnreadableMessage:
        return None


def _named(record: Fields) -> tuple[str, str | None]:
    """Returns the (name, value) of an INTERNAL_RECORD; value is None where it can't be read."""
    if record["value"] is not None:
        return record["name"], record["value"]
    if record["version"] is None:
        return "record that is no metadata", None
    name = record["name"] or f"record type {record['type']}"
    return f"{name} version {record['version']}", None


def state_of(snapshot: str | None, records: Iterable[MetadataRecord], end: int | None = None) -> ClusterState:
    """Returns the state after a snapshot and the records after it, up to an offset.

    snapshot: its path; None: without one. end: the offset before which it stops; None: all records.
    """
    state, damages = ClusterState(), list[Damage]()
    for record in metadata_records(snapshot, damages.append) if snapshot else ():
        _apply(state, record)
    state.reached = snapshot_end(snapshot)
    for record in records:
        if state.reached <= record.offset and (end is None or record.offset < end):
            state.unread[MISSING] += record.offset - state.reached  # the log has each offset
            _apply(state, record)
            state.reached = record.offset + 1
    state.unread[DAMAGED] += len(damages)
    return state


def _apply(state: ClusterState, record: MetadataRecord) -> None:
    state.epoch = max(state.epoch, record.epoch)
    if record.name is not None:
        state.apply(record.name, record.value)


def state_of_files(folder: str, paths: Iterable[str]) -> ClusterState:
    """Returns the state in one copy of the metadata log: its newest snapshot, and its segments by offset."""
    newest = next(filter(is_whole, reversed(snapshots(folder))), None)
    damages: list[Damage] = []
    records = (record for path in paths for record in metadata_records(path, damages.append))
    state = state_of(newest, records)
    state.unread[DAMAGED] += len(damages)
    return state


def is_whole(snapshot: str) -> bool:
    """Returns whether a snapshot can be read from its header to its footer."""
    damages: list[Damage] = []
    kinds = [record.name is None for record in metadata_records(snapshot, damages.append)]
    return len(kinds) >= 2 and kinds[0] and kinds[-1] and not damages


def snapshots(folder: str) -> list[str]:
    """Returns the paths of the snapshots in a folder, by end offset and epoch; [] if it can't be listed."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    named = [
        (snapshot.end_offset, snapshot.epoch, name)
        for name in names
        if (snapshot := snapshot_id(name)) is not None
    ]
    paths = (os.path.join(folder, name) for _, _, name in sorted(named))
    return [path for path in paths if os.path.isfile(path)]


def snapshot_end(path: str | None) -> int:
    """Returns the offset after the last record of a snapshot, from its name; 0 for another file or None."""
    snapshot = snapshot_id(os.path.basename(path)) if path else None
    return snapshot.end_offset if snapshot else 0
