"""Tells whether the producers of a copy's batches got an acknowledgement, as far as a log can tell.

A log does not hold ``acks``. With acks=all a leader answers once the high watermark has passed a record, with
acks=1 once it has written it itself; with acks=0 it never answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafka_log_lake.pipelines.recover.entries import Copy, are_among

YES, LIKELY, UNKNOWN = "yes", "likely", "unknown"
# Words by number: what acknowledged_batches gives
ANSWERS = (
    (UNKNOWN, "at or past the high watermark that its copy noted last: acks=1 was answered, acks=all maybe"),
    (LIKELY, "another copy has the batch too: acks=1 was answered, acks=all most likely"),
    (YES, "an idempotent producer has at most 5 batches unanswered, and 5 later ones are in the log"),
    (YES, "below the high watermark that its copy noted, and an idempotent producer has acks=all"),
    (LIKELY, "below the high watermark that its copy noted: answered, unless the producer has acks=0"),
)
_MOST_IN_FLIGHT = 5  # max.in.flight.requests.per.connection of an idempotent producer, at most


def acknowledged_batches(copy: Copy, others: Sequence[Copy], batches: np.ndarray) -> np.ndarray:
    """Returns int8[n]: for each sound batch (ENTRY[n]) of a copy its index in ANSWERS."""
    is_acknowledged = np.zeros(len(batches), dtype=np.int8)
    for other in others:
        if other is not copy:
            is_acknowledged[are_among(batches, other.sound)] = 1
    is_acknowledged[_later_ones(copy.sound, batches) >= _MOST_IN_FLIGHT] = 2
    if copy.high_watermark is not None:
        below = batches["last"] < copy.high_watermark
        is_acknowledged[below] = np.where(batches["producer_id"][below] >= 0, 3, 4)
    return is_acknowledged


def _later_ones(sound: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Counts later batches in the log of the same idempotent producer and epoch: int64[n], else 0."""
    idempotent = sound[(sound["producer_id"] >= 0) & (sound["base_sequence"] >= 0)]
    later = np.zeros(len(batches), dtype=np.int64)
    if not len(idempotent):
        return later
    order = np.lexsort((idempotent["base"], idempotent["producer_epoch"], idempotent["producer_id"]))
    idempotent = idempotent[order]
    differs = np.ones(len(idempotent), dtype=bool)
    for name in ("producer_id", "producer_epoch"):
        differs[1:] &= idempotent[name][1:] == idempotent[name][:-1]
    group = np.cumsum(~differs | (np.arange(len(idempotent)) == 0))
    ends = np.searchsorted(group, group, side="right")
    behind = ends - 1 - np.arange(len(idempotent))
    by_base = np.argsort(idempotent["base"], kind="stable")
    at = np.minimum(np.searchsorted(idempotent["base"][by_base], batches["base"]), len(idempotent) - 1)
    match = idempotent[by_base[at]]
    is_same = (match["base"] == batches["base"]) & (match["producer_id"] == batches["producer_id"])
    result: np.ndarray = np.where(is_same, behind[by_base[at]], 0)
    return result
