"""Compares the copies of each partition: reads headers, corrects them, finds the true history, heals it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from pipelines.plan.slices import Segment
from pipelines.recovery.slice_headers import SliceHeaders, read_headers
from pipelines.recovery.sources import DELETE, LIVE, METADATA_TOPIC, Inventory
from pipelines.scanning.pool import scan_segments
from pipelines.source.naming import PartitionFolder
from pipelines.source.uris import local_path
from udfs.replicas import audit
from udfs.replicas.cluster_state import ClusterState
from udfs.replicas.entries import ENTRY, Copy
from udfs.replicas.healing import Healed, heal, is_compacted
from udfs.replicas.history import History, Leader, true_history

_BYTES_AT_A_TIME = 8 << 30  # of partitions whose headers are in memory together


@dataclass
class Compared:
    """One log: the topic of one id, its copies, and what became of them.

    others: copies of logs of another topic id under the same name. id_rule: why this id was taken.
    """

    topic: str
    partition: int
    topic_id: str | None
    copies: list[Copy]
    history: History
    healed: Healed
    is_compacted: bool
    others: list[Copy] = field(default_factory=list)
    id_rule: str = ""

    def true_end(self, copy: Copy) -> int | None:
        """The offset behind the last batch of a copy that is of the true history; None without one."""
        kept = copy.entries[copy.entries["is_sound"] & self.history.is_true[copy.number]]
        return int(kept["last"].max()) + 1 if len(kept) else None


@dataclass
class Reading:
    """How headers are read."""

    processes: int
    slice_bytes: int
    max_batch_uncompressed: int


def compare(inventory: Inventory, reading: Reading) -> Iterator[Compared]:
    """Every partition of the sources, by topic and number; ``__cluster_metadata`` is not among them."""
    states = broker_states(inventory)
    places = sorted(place for place in inventory.copies if place.topic != METADATA_TOPIC)
    at = 0
    while at < len(places):
        some: list[PartitionFolder] = []
        size = 0
        while at < len(places) and (not some or size < _BYTES_AT_A_TIME):
            some.append(places[at])
            size += sum(one.length for copy in inventory.copies[places[at]] for one in copy.files)
            at += 1
        read_entries(inventory, some, reading)
        for place in some:
            copies = inventory.copies[place]
            yield compare_copies(place, copies, states)
            for copy in copies:
                copy.entries = np.zeros(0, dtype=ENTRY)  # the memory is for the next partitions


def read_entries(inventory: Inventory, places: Sequence[PartitionFolder], reading: Reading) -> None:
    """Reads the headers of all copies of some partitions into them."""
    segments, owners = [], {}
    for place in places:
        for copy in inventory.copies[place]:
            for number, file in enumerate(copy.files):
                last = number == len(copy.files) - 1
                one = Segment(
                    place.topic,
                    place.partition,
                    copy.folder,
                    file.uri,
                    file.base,
                    file.length,
                    file.modified,
                    not last,
                )
                owners[one.segment] = (copy, number)
                segments.append(one)
    numbers = (reading.processes, reading.slice_bytes)
    scan = partial(read_headers, max_batch_uncompressed=reading.max_batch_uncompressed)
    found: dict[int, list[np.ndarray]] = {}
    for segment, slices in scan_segments(segments, *numbers, lambda _: None, scan):
        copy, number = owners[segment.segment]
        found.setdefault(id(copy), []).extend(_placed(copy, number, one) for one in slices)
    for place in places:
        for copy in inventory.copies[place]:
            parts = found.get(id(copy), [])
            entries = np.concatenate(parts) if parts else np.zeros(0, dtype=ENTRY)
            copy.entries = entries[np.lexsort((entries["position"], entries["file"]))]


def _placed(copy: Copy, number: int, found: SliceHeaders) -> np.ndarray:
    """The entries of a slice with their place in the copy, which gets its damaged ranges too."""
    if found.report.problem is not None:
        copy.unreadable.append(f"{found.report.segment}: {found.report.detail}")
    copy.hurts += [replace(hurt, file=number) for hurt in found.hurts]
    entries = found.entries
    entries["copy"], entries["file"], entries["file_base"] = copy.number, number, copy.files[number].base
    return entries


def compare_copies(
    place: PartitionFolder, copies: Sequence[Copy], states: dict[int, ClusterState]
) -> Compared:
    """The log of one partition. states: what each broker's metadata says, by broker id."""
    topic_id, rule = _topic_id(place.topic, copies, states)
    own = [copy for copy in copies if copy.topic_id in (topic_id, None)]
    others = [copy for copy in copies if copy.topic_id not in (topic_id, None)]
    if all(copy.state == DELETE for copy in own):
        own, others, rule = [], list(copies), "every folder of it is one that a broker was about to delete"
    compacted = is_compacted(own)
    audit.mend(own, compacted)
    compacted = is_compacted(own)
    history = true_history(own, _leaders(place, topic_id, own, states))
    return Compared(
        place.topic,
        place.partition,
        topic_id,
        own,
        history,
        heal(own, history, compacted),
        compacted,
        others,
        rule,
    )


def _topic_id(topic: str, copies: Sequence[Copy], states: dict[int, ClusterState]) -> tuple[str | None, str]:
    """The id of the topic that is the present one of this name, and by which rule."""
    ids = {copy.topic_id for copy in copies if copy.topic_id}
    if len(ids) < 2:
        return next(iter(ids), None), "one topic id"
    known = max(states.values(), key=lambda one: one.reached, default=None)
    present = known.topic_id(topic) if known is not None else None
    if present in ids:
        return present, "the topic id that the brokers' __cluster_metadata ends with"
    live = [copy for copy in copies if copy.topic_id and copy.state == LIVE] or list(copies)
    newest = max(live, key=lambda one: (_newest(one), one.topic_id or ""))
    return newest.topic_id, "the topic id of the copy that was written last"


def _newest(copy: Copy) -> int:
    times = copy.entries["max_timestamp"][copy.entries["is_sound"]]
    return max([*times[-1:].tolist(), max((one.modified // 1000 for one in copy.files), default=-1)])


def _leaders(
    place: PartitionFolder, topic_id: str | None, copies: Sequence[Copy], states: dict[int, ClusterState]
) -> list[Leader]:
    """The copies whose own broker knew that it led the partition, with the epoch."""
    found = []
    for copy in copies:
        state = states.get(copy.broker_id) if copy.broker_id is not None and copy.state == LIVE else None
        if state is None:
            continue
        known = state.partitions.get((topic_id or state.topic_id(place.topic) or "", place.partition))
        if known is not None and copy.broker_id in known.led:
            found.append(Leader(copy.number, known.led[copy.broker_id]))
    return found


def broker_states(inventory: Inventory) -> dict[int, ClusterState]:
    """What each broker's own copy of ``__cluster_metadata`` says, by broker id."""
    from udfs.replicas.metadata_log import metadata_records, snapshot_end, snapshots  # loads decoders

    states: dict[int, ClusterState] = {}
    for place, copies in inventory.copies.items():
        if place != (METADATA_TOPIC, 0):
            continue
        for copy in copies:
            if copy.broker_id is None or copy.state != LIVE:
                continue
            state = ClusterState()
            for path in [
                *snapshots(local_path(copy.folder) or "")[-1:],
                *(local_path(one.uri) or "" for one in copy.files),
            ]:
                for record in metadata_records(path):
                    if record.offset >= state.reached and record.name is not None:
                        state.apply(record.name, record.value)
                    state.reached = max(state.reached, record.offset + 1)
                state.reached = max(state.reached, snapshot_end(path))
            if copy.broker_id not in states or states[copy.broker_id].reached < state.reached:
                states[copy.broker_id] = state
    return states
