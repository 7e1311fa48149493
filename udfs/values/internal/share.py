"""Merges what a share coordinator wrote of one share partition: a snapshot, and the updates after it.

An update has the batches that changed. As Kafka's ``PersisterStateBatchCombiner`` does, of two states of an
offset the one with the higher delivery count stays, of equal counts the higher state; offsets below the start
are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
# Of the delivery states that are stored. 4.4 writes ARCHIVING, though its message names 0, 2 and 4
STATES = {AVAILABLE: "available", ACKNOWLEDGED: "acknowledged", ARCHIVING: "archiving", ARCHIVED: "archived"}
_MOST = (1 << 63) - 1
Fields = dict[str, Any]


class Batch(NamedTuple):
    """Offsets of one delivery state. last: included."""

    first: int
    last: int
    state: int
    deliveries: int


class SharePartition(NamedTuple):
    """The state of a share partition.

    complete: how many offsets from start on are acknowledged or archived; -1: not known.
    """

    start: int
    state_epoch: int
    leader_epoch: int
    complete: int
    batches: tuple[Batch, ...]


def combined(batches: Iterable[Batch], start: int) -> tuple[Batch, ...]:
    """Returns batches that do not overlap, by offset. start: the first offset that is kept, -1 for all."""
    kept = [batch._replace(first=max(batch.first, start)) for batch in batches if batch.last >= start]
    edges = sorted({edge for batch in kept for edge in (batch.first, batch.last + 1)})
    begins: dict[int, list[Batch]] = {}
    for batch in kept:
        begins.setdefault(batch.first, []).append(batch)
    joined: list[Batch] = []
    begun: list[tuple[int, int, int]] = []  # a heap: the state that wins is first, with the end of its batch
    for at, end in pairwise(edges):
        for batch in begins.get(at, ()):
            heappush(begun, (-batch.deliveries, -batch.state, batch.last))
        while begun and begun[0][2] < at:
            heappop(begun)
        if not begun:
            continue
        deliveries, state = -begun[0][0], -begun[0][1]
        last = joined[-1] if joined else None
        if last and (last.last + 1, last.state, last.deliveries) == (at, state, deliveries):
            joined[-1] = last._replace(last=end - 1)
        else:
            joined.append(Batch(at, end - 1, state, deliveries))
    return tuple(joined)


def replayed(values: Sequence[Fields]) -> SharePartition | None:
    """Returns the state after a ShareSnapshotValue and ShareUpdateValues; None without a snapshot."""
    state: SharePartition | None = None
    for value in values:
        batches = [
            Batch(batch["firstOffset"], batch["lastOffset"], batch["deliveryState"], batch["deliveryCount"])
            for batch in value["stateBatches"]
        ]
        complete = value.get("deliveryCompleteCount", -1)
        if "stateEpoch" in value:
            state = SharePartition(
                value["startOffset"], value["stateEpoch"], value["leaderEpoch"], complete, tuple(batches)
            )
        elif state is not None:
            start = state.start if value["startOffset"] == -1 else value["startOffset"]
            epoch = state.leader_epoch if value["leaderEpoch"] == -1 else value["leaderEpoch"]
            merged = combined([*state.batches, *batches], start)
            state = SharePartition(start, state.state_epoch, epoch, complete, merged)
    return state


def share_partition(text: str | None) -> tuple[object, ...] | None:
    """Returns a row of the SQL function ``kafka_share_partition``.

    text: a JSON array of ``{"offset", "value"}``, of the records of one share partition in any order. A
    batch that ends before it begins has no offsets; a number of offsets that no log can have is null.
    """
    if text is None:
        return None
    records = sorted(json.loads(text), key=lambda record: record["offset"])
    state = replayed([record["value"] for record in records])
    if state is None:
        return None
    counts = dict.fromkeys(STATES, 0)
    for batch in state.batches:
        counts[batch.state] = counts.get(batch.state, 0) + max(0, batch.last - batch.first + 1)
    listed = [
        {
            "firstOffset": b.first,
            "lastOffset": b.last,
            "deliveryState": b.state,
            "deliveryCount": b.deliveries,
        }
        for b in state.batches
    ]
    numbers = (count if (count := counts[state_id]) <= _MOST else None for state_id in STATES)
    text = json.dumps(listed, separators=(",", ":"))
    return (state.start, state.state_epoch, state.leader_epoch, state.complete, *numbers, text)
