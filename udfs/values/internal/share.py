"""Merges what a share coordinator wrote of one share partition: a snapshot, and the updates after it.

An update has the batches that changed. As Kafka's ``PersisterStateBatchCombiner`` does, of two states of an
offset the one with the higher delivery count stays, of equal counts the higher state; offsets below the start
are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
# Of the delivery states that are stored. 4.4 writes ARCHIVING, though its message names 0, 2 and 4
STATES = {AVAILABLE: "available", ACKNOWLEDGED: "acknowledged", ARCHIVING: "archiving", ARCHIVED: "archived"}
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
    kept = [one._replace(first=max(one.first, start)) for one in batches if one.last >= start]
    edges = sorted({edge for one in kept for edge in (one.first, one.last + 1)})
    begins: dict[int, list[Batch]] = {}
    for one in kept:
        begins.setdefault(one.first, []).append(one)
    found: list[Batch] = []
    open_: list[Batch] = []
    for at, end in pairwise(edges):
        open_ = [one for one in open_ if one.last >= at] + begins.get(at, [])
        if not open_:
            continue
        best = max(open_, key=lambda one: (one.deliveries, one.state))
        last = found[-1] if found else None
        if last and (last.last + 1, last.state, last.deliveries) == (at, best.state, best.deliveries):
            found[-1] = last._replace(last=end - 1)
        else:
            found.append(Batch(at, end - 1, best.state, best.deliveries))
    return tuple(found)


def replayed(values: Sequence[Fields]) -> SharePartition | None:
    """Returns the state after a ShareSnapshotValue and ShareUpdateValues; None without a snapshot."""
    state: SharePartition | None = None
    for value in values:
        batches = [
            Batch(one["firstOffset"], one["lastOffset"], one["deliveryState"], one["deliveryCount"])
            for one in value["stateBatches"]
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


def share_partition(text: str | None) -> tuple[Any, ...] | None:
    """Returns a row of the SQL function ``kafka_share_partition``.

    text: a JSON array of ``{"offset", "value"}``, of the records of one share partition in any order.
    """
    if text is None:
        return None
    found = sorted(json.loads(text), key=lambda one: one["offset"])
    state = replayed([one["value"] for one in found])
    if state is None:
        return None
    counts = dict.fromkeys(STATES, 0)
    for one in state.batches:
        counts[one.state] = counts.get(one.state, 0) + one.last - one.first + 1
    listed = [
        {
            "firstOffset": b.first,
            "lastOffset": b.last,
            "deliveryState": b.state,
            "deliveryCount": b.deliveries,
        }
        for b in state.batches
    ]
    numbers = (counts[one] for one in STATES)
    text = json.dumps(listed, separators=(",", ":"))
    return (state.start, state.state_epoch, state.leader_epoch, state.complete, *numbers, text)
