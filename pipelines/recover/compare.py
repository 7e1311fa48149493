"""Compares the copies of each partition: reads headers, corrects them, finds the true history, heals it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.pool import Map
from kafka_log_lake.pipelines.listing.naming import PartitionFolder
from kafka_log_lake.pipelines.plan.slices import Segment, Slice
from kafka_log_lake.pipelines.recover import audit
from kafka_log_lake.pipelines.recover.cleaned import is_compacted
from kafka_log_lake.pipelines.recover.entries import DELETED, ENTRY, Copy, SliceHeaders, concatenated
from kafka_log_lake.pipelines.recover.healing import Healed, heal
from kafka_log_lake.pipelines.recover.history import Certainty, History, Leader, true_history
from kafka_log_lake.pipelines.recover.placement import Placement, Placements, placements
from kafka_log_lake.pipelines.recover.sources import DELETE, LIVE, Inventory
from kafka_log_lake.pipelines.tasks.scan_segments import scan_segments
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC

Stored = tuple[int, int, str]  # numbers of a copy and a segment, a file with ENTRY[n] of a slice
_BY_TIME = "the topic id of the copy that was written last"
_BYTES_AT_A_TIME = 8 << 30  # of partitions whose headers are in memory together


@dataclass
class Compared:
    """One log, of one topic id: its copies, and what comparing them gave.

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
        """Returns the offset after the copy's last batch of the true history; None if it has none."""
        kept = copy.entries[copy.entries["is_sound"] & self.history.is_true[copy.number]]
        return int(kept["last"].max()) + 1 if len(kept) else None


class Task(NamedTuple):
    """What a worker process needs to compare the copies of one partition.

    number: index of the task. stored: files with the headers of slices.
    """

    number: int
    place: PartitionFolder
    copies: list[Copy]
    stored: list[Stored]
    known: Known


def compare(inventory: Inventory, settings: Settings, named: Placements | None = None) -> Iterator[Compared]:
    """Yields every partition of the sources, by topic and number, without ``__cluster_metadata``.

    named: what the metadata logs of the sources say; None: read here.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as folder:
        for task in tasks(inventory, settings, folder, named or placements(inventory)):
            yield compare_task(task)
            forget(task)
            for copy in task.copies:
                copy.entries = np.zeros(0, dtype=ENTRY)  # the memory is for the next partitions


def tasks(
    inventory: Inventory, settings: Settings, folder: str, named: Placements, run: Map | None = None
) -> Iterator[Task]:
    """Yields a task for each partition, after the headers of its copies are read.

    folder: for files with headers. named: what the metadata logs of the sources say. run: what reads headers
    elsewhere; None for processes of this machine.
    """
    places = sorted(place for place in inventory.copies if place.topic != METADATA_TOPIC)
    at = 0
    while at < len(places):
        some: list[PartitionFolder] = []
        size = 0
        while at < len(places) and (not some or size < _BYTES_AT_A_TIME):
            some.append(places[at])
            size += sum(file.length for copy in inventory.copies[places[at]] for file in copy.files)
            at += 1
        stored = store_entries(inventory, some, settings, folder, run)
        for number, place in enumerate(some, at - len(some)):
            copies = inventory.copies[place]
            yield Task(number, place, copies, stored[place], known_of(place, copies, named))


def compare_task(task: Task) -> Compared:
    """Loads the headers of a partition's copies, and compares them."""
    for copy in task.copies:
        parts = [_placed(copy, number, path) for of, number, path in task.stored if of == copy.number]
        entries = concatenated(parts)
        copy.entries = np.take(entries, np.lexsort((entries["position"], entries["file"])))
    return compare_copies(task.place, task.copies, task.known)


def forget(task: Task) -> None:
    """Removes the files with headers of a task, once they are no longer needed."""
    for _, _, path in task.stored:
        os.remove(path)


def _placed(copy: Copy, number: int, path: str) -> np.ndarray:
    """Loads the entries of a slice, and sets their place in the copy."""
    entries: np.ndarray = np.load(path)
    entries["copy"], entries["file"], entries["file_base"] = copy.number, number, copy.files[number].base
    return entries


def store_entries(
    inventory: Inventory,
    places: Sequence[PartitionFolder],
    settings: Settings,
    folder: str,
    run: Map | None = None,
) -> dict[PartitionFolder, list[Stored]]:
    """Reads the headers of all copies of some partitions into files; adds damaged ranges to the copies."""
    segments, owners = [], {}
    for place in places:
        for copy in inventory.copies[place]:
            for number, file in enumerate(copy.files):
                has_successor = number + 1 < len(copy.files)
                of_file = file.uri, file.base, file.length, file.modified, has_successor
                segment = Segment(place.topic, place.partition, copy.folder, *of_file)
                owners[segment.segment] = (place, copy, number)
                segments.append(segment)
    numbers = (settings.processes, settings.slice_bytes)
    scan = partial(_read_headers, max_batch_uncompressed=settings.max_batch_uncompressed, folder=folder)
    stored_of: dict[PartitionFolder, list[Stored]] = {place: [] for place in places}
    for segment, slices in scan_segments(segments, *numbers, lambda _: None, scan, run):
        place, copy, number = owners[segment.segment]
        for headers in slices:
            if headers.report.problem is not None:
                copy.unreadable.append(f"{headers.report.segment}: {headers.report.detail}")
            copy.hurts += [replace(hurt, file=number) for hurt in headers.hurts]
            if headers.path is not None:
                stored_of[place].append((copy.number, number, headers.path))
    return stored_of


def _read_headers(slice_: Slice, max_batch_uncompressed: int, folder: str) -> SliceHeaders:
    from kafka_log_lake.pipelines.recover.slice_headers import (
        read_headers,  # loads kernels: for those that read
    )

    return read_headers(slice_, max_batch_uncompressed, folder)


class Known(NamedTuple):
    """What the ``__cluster_metadata`` of the nodes says of one partition.

    topic_id: of the topic that is there at the end. led: node -> topic id -> the epoch that it led the
    partition in last, by its own log. named: node -> the topic's id by its own log. placement: None where the
    metadata does not name the partition; unnamed: a sentence then, which is a doubt of a log that is not of a
    deleted topic. doubts: what else the metadata can't say.
    """

    topic_id: str | None = None
    led: Mapping[int, Mapping[str, int]] = {}
    named: Mapping[int, str | None] = {}
    placement: Placement | None = None
    unnamed: Sequence[str] = ()
    doubts: Sequence[str] = ()


_NO_METADATA = (
    "no __cluster_metadata is among the sources: nothing says which nodes have a copy, so one may be missing"
)


def known_of(place: PartitionFolder, copies: Sequence[Copy], placements: Placements) -> Known:
    """Collects what the metadata logs of the sources say of a partition with these copies."""
    named = {node: state.topic_id(place.topic) for node, state in placements.by_node.items()}
    ids = {id_ for id_ in (*named.values(), *(copy.topic_id for copy in copies)) if id_}
    led: dict[int, dict[str, int]] = {}
    for node, state in placements.by_node.items():
        of_ids = {id_: state.partitions.get((id_, place.partition)) for id_ in ids}
        led[node] = {id_: has.led[node] for id_, has in of_ids.items() if has and node in has.led}
    if placements.state is None:
        return Known(None, led, named, doubts=[_NO_METADATA])
    placement = placements.rows.get(place)
    unnamed = [
        f"__cluster_metadata of {placements.disk} does not name it, so nothing says which nodes have a copy"
    ]
    unnamed = unnamed if placement is None else []
    doubts = list(_doubts(placements, placement))
    return Known(placements.state.topic_id(place.topic), led, named, placement, unnamed, doubts)


def _doubts(placements: Placements, placement: Placement | None) -> Iterator[str]:
    """Yields why copies may be missing or an election unknown, by the metadata logs of the sources."""
    assert placements.state is not None
    if placements.state.may_lack_partitions:
        yield f"__cluster_metadata of {placements.disk} has {placements.state.unread_text}"
    if placement is None:
        return
    if len(placement.missing) > len(placement.unnamed):
        nodes = ", ".join(map(str, placement.missing))
        yield f"copies missing: __cluster_metadata names a replica on node {nodes}, which no source has"
    elif placement.missing:
        yield (
            f"{', '.join(placement.unnamed)}: no meta.properties says of which node it is, so another "
            "replica that __cluster_metadata names may be missing"
        )


def compare_copies(place: PartitionFolder, copies: Sequence[Copy], known: Known) -> Compared:
    """Compares the copies of one partition, whose entries are loaded, and heals its log."""
    topic_id, rule = _topic_id(copies, known)
    of_topic = [copy for copy in copies if copy.topic_id in (topic_id, None)]
    others = [copy for copy in copies if copy.topic_id not in (topic_id, None)]
    is_there = known.placement is not None and known.placement.topic_id == topic_id
    gone = (DELETED,) if is_there else (DELETE, DELETED)
    if all(copy.state in gone for copy in of_topic):
        of_topic, others = [], list(copies)
        rule = "every folder of it is one that a broker was about to delete"
    compacted = is_compacted(place.topic, of_topic)
    doubts = audit.mend(of_topic, compacted)
    compacted = is_compacted(place.topic, of_topic)
    history = true_history(of_topic, _leaders(topic_id, of_topic, known))
    healed = heal(of_topic, history, compacted)
    healed.doubts += doubts
    if rule == _BY_TIME:
        healed.doubts.append(f"more than one topic has had this name: {topic_id} is {rule}")
    healed.doubts += known.doubts
    if of_topic:
        healed.doubts += [*known.unnamed, *_unknown_leader(history, known)]
    if healed.doubts:
        history.doubts += healed.doubts
        history.sure = Certainty.LIKELY if history.sure == Certainty.CERTAIN else history.sure
    return Compared(*place, topic_id, of_topic, history, healed, compacted, others, rule)


def _unknown_leader(history: History, known: Known) -> Iterator[str]:
    """Yields a sentence if the metadata log names a later leader epoch than any copy knows."""
    highest = history.epochs[-1][0] if history.epochs else -1
    if known.placement is not None and known.placement.leader_epoch > highest:
        yield (
            f"by __cluster_metadata node {known.placement.leader} led last, in epoch "
            f"{known.placement.leader_epoch}, which no copy knows: what it wrote or cut off is not known"
        )


def _topic_id(copies: Sequence[Copy], known: Known) -> tuple[str | None, str]:
    """Returns the id of the present topic of this name, None if no copy has one, and the rule for it."""
    ids = {copy.topic_id for copy in copies if copy.topic_id}
    if len(ids) < 2:
        return next(iter(ids), None), "one topic id"
    if known.topic_id in ids:
        return known.topic_id, "the topic id that the brokers' __cluster_metadata ends with"
    live = [copy for copy in copies if copy.topic_id and copy.state == LIVE] or list(copies)
    newest = max(live, key=lambda live_copy: (_newest(live_copy), live_copy.topic_id or ""))
    return newest.topic_id, _BY_TIME


def _newest(copy: Copy) -> int:
    times = copy.entries["max_timestamp"][copy.entries["is_sound"]]
    return max([*times[-1:].tolist(), max((file.modified // 1000 for file in copy.files), default=-1)])


def _leaders(topic_id: str | None, copies: Sequence[Copy], known: Known) -> list[Leader]:
    """Returns the copies whose own broker knew that it led the partition, with the epoch."""
    leaders = []
    for copy in copies:
        if copy.broker_id is None or copy.state != LIVE:
            continue
        id_of_name = topic_id or known.named.get(copy.broker_id) or ""
        epoch = known.led.get(copy.broker_id, {}).get(id_of_name)
        if epoch is not None:
            leaders.append(Leader(copy.number, epoch))
    return leaders
