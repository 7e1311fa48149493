"""Reads from ``__cluster_metadata`` on the disks who led partitions last, and which nodes have replicas.

A log directory holds a copy of the metadata log as far as its node had read it. The one with the highest
epoch, and of these the longest, is believed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.listing.cluster_state import NO_LEADER, ClusterState, Partition
from kafka_log_lake.pipelines.listing.metadata_log import state_of_files
from kafka_log_lake.pipelines.listing.naming import PartitionFolder
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.recover.entries import Copy
from kafka_log_lake.pipelines.recover.sources import FUTURE, LIVE, Inventory
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC


class Placement(NamedTuple):
    """What the metadata log says of one partition.

    leader, leader_epoch: the node that led last and its epoch, even if there is no leader at the end; -1 for
    none. has_leader: whether that node leads at the end. isr, elr, replicas: node ids; elr: those that may be
    elected without a loss though the ISR lacks them (KIP-966). missing: replicas without a copy in the
    sources. empty: replicas whose disks are in the sources, that never led and are not in the ISR, so they
    had made no copy. unnamed: names of copies on disks that do not say of which node they are.
    """

    topic: str
    partition: int
    topic_id: str
    leader: int
    leader_epoch: int
    has_leader: bool
    isr: list[int]
    elr: list[int]
    replicas: list[int]
    missing: list[int]
    empty: list[int]
    unnamed: list[str]

    @property
    def text(self) -> str:
        """Describes the partition in one line."""
        led = f"led by node {self.leader}" if self.has_leader else f"last led by node {self.leader}, none now"
        parts = [
            f"{led}, epoch {self.leader_epoch}" if self.leader != NO_LEADER else "no leader",
            f"ISR {_ids(self.isr)}",
            f"ELR {_ids(self.elr)}" if self.elr else "",
            f"replicas {_ids(self.replicas)}",
            f"copy of node {_ids(self.missing)} is missing" if self.missing else "",
            f"node {_ids(self.empty)} had none" if self.empty else "",
        ]
        return f"{self.topic}-{self.partition}: {'; '.join(filter(None, parts))}"


@dataclass
class Placements:
    """What the metadata logs of the sources say; ``state`` is None where there is no metadata log.

    disk: name of the disk whose log is believed. by_node: what each node's own log says. rows: the partitions
    of the topics that are asked for, in their order. whole: nodes of which every log directory is among the
    sources.
    """

    state: ClusterState | None = None
    disk: str = ""
    by_node: dict[int, ClusterState] = field(default_factory=dict)
    rows: dict[PartitionFolder, Placement] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)

    @property
    def gone(self) -> list[tuple[int, str]]:
        """Returns (node, partition): copies that are missing although all disks of the node are here."""
        return [
            (node, f"{row.topic}-{row.partition}")
            for row in self.rows.values()
            for node in row.missing
            if node in self.whole and not row.unnamed
        ]

    @property
    def missing(self) -> Counter[int]:
        """Returns node -> the number of partitions whose copy of that node is missing."""
        return Counter(node for row in self.rows.values() for node in row.missing)

    @property
    def absent(self) -> list[str]:
        """Returns the partitions of which no source has a copy."""
        return [
            f"{row.topic}-{row.partition}"
            for row in self.rows.values()
            if len(row.missing) == len(row.replicas) and not row.unnamed
        ]

    @property
    def missing_text(self) -> str:
        """Says which copies are missing; "" if none is, or if nothing names replicas."""
        counts = sorted(self.missing.items())
        nodes = [f"node {node} of {counted_noun(count, 'partition')}" for node, count in counts]
        return f"copies missing: {', '.join(nodes)}" if nodes else ""

    def lines(self, most: int = 12) -> Iterator[str]:
        """Yields lines on who led last and which copies are missing; partitions that miss one come first.

        most: partitions that are listed.
        """
        if self.state is None:
            yield "no __cluster_metadata is on these disks: nothing says which nodes have a copy, and who led"
            return
        yield f"by __cluster_metadata of {self.disk}, up to offset {self.state.reached:,}"
        if self.state.unread_text:
            yield f"it has {self.state.unread_text}"
        if self.missing_text:
            yield self.missing_text
        shown = sorted(self.rows.values(), key=lambda row: (not row.missing, row.has_leader))[:most]
        yield from (row.text for row in shown)
        if len(self.rows) > most:
            yield f"and {counted_noun(len(self.rows) - most, 'partition')} more"


def placements(inventory: Inventory) -> Placements:
    """Reads what the metadata logs of the sources say of partitions, and which replicas have no copy here."""
    known = Placements()
    for place, copies in inventory.copies.items():
        if place != (METADATA_TOPIC, 0):
            continue
        for copy in copies:
            if copy.state == LIVE and copy.files:
                _add(known, copy)
    if known.state is not None:
        known.whole = _whole_nodes(known.state, inventory)
        rows = sorted(_rows(known.state, inventory, known.whole))
        known.rows = {PartitionFolder(row.topic, row.partition): row for row in rows}
    return known


def _add(known: Placements, copy: Copy) -> None:
    state = state_of_files(local_path(copy.folder) or "", (local_path(file.uri) or "" for file in copy.files))
    known_state = known.by_node.get(copy.broker_id) if copy.broker_id is not None else None
    if copy.broker_id is not None and (known_state is None or _rank(known_state) < _rank(state)):
        known.by_node[copy.broker_id] = state
    if known.state is None or _rank(known.state) < _rank(state):
        known.state, known.disk = state, copy.name


def _rank(state: ClusterState) -> tuple[int, int]:
    """Returns by what Raft elects: the epoch of the last record, then the number of records."""
    return state.epoch, state.reached


def _rows(state: ClusterState, inventory: Inventory, whole: set[int]) -> Iterator[Placement]:
    for partition in state.partitions.values():
        topic = state.topics.get(partition.topic_id)
        if topic is not None and inventory.is_meant(topic):
            copies = inventory.copies.get(PartitionFolder(topic, partition.partition), ())
            yield _placement(topic, partition, copies, whole)


def _whole_nodes(state: ClusterState, inventory: Inventory) -> set[int]:
    """Returns the nodes whose registered log directories are all in the sources."""
    here: dict[int, set[str | None]] = defaultdict(set)
    for _, identity in inventory.log_dirs.values():
        if identity.node_id is not None:
            here[identity.node_id].add(identity.directory_id)
    registered = {node: set(broker.get("logDirs") or ()) for node, broker in state.brokers.items()}
    return {node for node, dirs in here.items() if registered.get(node, set()) <= dirs}


def _placement(topic: str, partition: Partition, copies: Sequence[Copy], whole: set[int]) -> Placement:
    present = [
        copy
        for copy in copies
        if copy.files and copy.state in (LIVE, FUTURE) and copy.topic_id in (partition.topic_id, None)
    ]
    here = {copy.broker_id for copy in present}
    last: Mapping[int, int] = partition.led or {NO_LEADER: -1}
    leader = max(last, key=lambda node: last[node])
    absent = set(partition.replicas) - here
    empty = sorted((absent & whole) - {*partition.isr, *partition.led})
    missing = sorted(absent - set(empty))
    unnamed = sorted(copy.name for copy in present if copy.broker_id is None)
    has_leader = partition.leader != NO_LEADER
    lists = sorted(partition.isr), sorted(partition.elr), list(partition.replicas), missing, empty, unnamed
    return Placement(topic, partition.partition, partition.topic_id, leader, last[leader], has_leader, *lists)


def _ids(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"
