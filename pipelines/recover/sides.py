"""Tells which side of a divergence a record is on: whether its partition's true history has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.listing.naming import PartitionFolder
from kafka_log_lake.pipelines.recover.compare import Compared, compare
from kafka_log_lake.pipelines.recover.placement import placements
from kafka_log_lake.pipelines.recover.rows import BEFORE_START, losing
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

TRUE, LOSING = "true", "losing"
Place = tuple[str, int, int]  # URI of a segment, position of a batch in it, an offset


@dataclass
class _Sides:
    """The batches of one partition, by side.

    names: URI of a segment -> name and topic id of its copy. true: places of batches of the true history.
    losers: place of a batch -> why it is not true. taken: int64[n, 3], base offset, last offset and leader
    epoch of the healed batches, by offset; takers: names of the copies that they are from.
    """

    certainty: str
    start: int
    names: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    true: set[tuple[str, int]] = field(default_factory=set)
    losers: dict[tuple[str, int], str] = field(default_factory=dict)
    taken: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    takers: list[str] = field(default_factory=list)


class SidesOfCopies:
    """The copies on named disks. A partition is compared once, when one of its records is first looked up."""

    def __init__(self, settings: Settings) -> None:
        """Lists the disks. Raises a UserError for one that can't be used, and for disks of two clusters."""
        self._settings = settings
        topics = TopicFilter(settings.topics, settings.exclude_topics)
        self._inventory = find_copies(settings.source, topics, settings.include_deleted, settings.tier)
        self._named = placements(self._inventory)
        self._known: dict[PartitionFolder, _Sides | None] = {}

    def rows_of(self, topic: str, partition: int, places: Sequence[Place]) -> list[dict[str, object]]:
        """Returns a row of ``find.copies.COPY_COLUMNS`` for each record."""
        place = PartitionFolder(topic, partition)
        if place not in self._known:
            self._known[place] = self._compared(place)
        return [self._row(self._known[place], *place_) for place_ in places]

    def _compared(self, place: PartitionFolder) -> _Sides | None:
        copies = self._inventory.copies.get(place)
        if not copies:
            return None
        inventory = replace(self._inventory, copies={place: copies})
        sides = [_sides_of(compared) for compared in compare(inventory, self._settings, self._named)]
        return sides[0] if sides else None

    def _row(self, sides: _Sides | None, segment: str, position: int, offset: int) -> dict[str, object]:
        row: dict[str, Any] = dict.fromkeys(
            ("copy", "topic_id", "side", "why", "certainty", "replaced_by", "replaced_by_epoch")
        )
        log_dir = os.path.dirname(os.path.dirname(path_of_uri(segment) or ""))
        row["copy"] = self._inventory.log_dirs.get(log_dir, (None, None))[0]
        if sides is None or segment not in sides.names:
            return row
        row["copy"], row["topic_id"] = sides.names[segment]
        why = sides.losers.get((segment, position))
        if why is None and (segment, position) not in sides.true:
            return row
        if why is None and offset < sides.start:
            why = BEFORE_START
        row["side"], row["why"], row["certainty"] = LOSING if why else TRUE, why, sides.certainty
        at = int(np.searchsorted(sides.taken[:, 0], offset, side="right")) - 1
        if why and at >= 0 and sides.taken[at, 1] >= offset:
            row["replaced_by"], row["replaced_by_epoch"] = sides.takers[at], int(sides.taken[at, 2])
        return row


def _sides_of(compared: Compared) -> _Sides:
    sides = _Sides(str(compared.history.sure), compared.history.start)
    for copy in (*compared.copies, *compared.others):
        for file in copy.files:
            sides.names[file.uri] = copy.name, copy.topic_id
    for copy in compared.copies:
        kept = copy.entries[copy.entries["is_sound"] & compared.history.is_true[copy.number]]
        pairs = zip(kept["file"].tolist(), kept["position"].tolist(), strict=True)
        sides.true |= {(copy.files[file].uri, position) for file, position in pairs}
    for copy, why, batches in losing(compared):
        columns = (batches[name].tolist() for name in ("file", "position", "last"))
        for file, position, last in zip(*columns, strict=True):
            if why != BEFORE_START or last < compared.history.start:  # a batch may hold the log start
                sides.losers[copy.files[file].uri, position] = why
    healed = compared.healed.batches[np.argsort(compared.healed.batches["base"], kind="stable")]
    sides.taken = np.stack([healed[name].astype(np.int64) for name in ("base", "last", "epoch")], axis=1)
    names = {copy.number: copy.name for copy in compared.copies}
    sides.takers = [names[number] for number in healed["copy"].tolist()]
    return sides
