"""What tables hold of the bytes of a segment, by the plain decoder of the tests, and of the transactions.

Rows are tuples of the columns that tell a row of one decoding from that of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

from tests.support import reference_decoder
from tests.support.reference_decoder import batch_size, proves_itself

RECORD = (
    "offset",
    "key",
    "value",
    "timestamp_ms",
    "magic",
    "batch_position",
    "producer_id",
    "is_transactional",
    "is_control",
    "control_type",
)
BATCH = (
    "position",
    "size_bytes",
    "last_offset",
    "record_count",
    "magic",
    "crc_ok",
    "producer_id",
    "is_control",
)
DAMAGE = ("position", "size_bytes")
LEDGER = ("file_base_offset", "decoded_bytes", "tail", "tail_bytes", "batches", "records", "damaged")

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Content:
    """The bytes of a segment, and whether one came after it: all that a decoding depends on."""

    data: bytes
    has_successor: bool


@dataclass(frozen=True)
class Rows:
    """What the tables hold of a content. reach: last offset of its last sound batch, None without one."""

    records: list[Row]
    batches: list[Row]
    quarantine: list[Row]
    tail: str
    tail_bytes: int
    decoded_bytes: int
    sound_end: int
    reach: int | None
    transactional: list[dict[str, Any]]

    def ledger(self, base: int) -> Row:
        counts = len(self.batches), len(self.records), len(self.quarantine)
        return base, self.decoded_bytes, self.tail, self.tail_bytes, *counts


def pick(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[Row]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


@lru_cache(maxsize=1 << 13)
def rows_of(content: Content) -> Rows:
    found = reference_decoder.decode(content.data, has_successor=content.has_successor)
    sound = [b for b in found.batches if b["crc_ok"] and b["status"] in ("ok", "suspect")]
    last = sound[-1] if sound else None
    return Rows(
        records=pick(found.records, RECORD),
        batches=pick(found.batches, BATCH),
        quarantine=pick(found.quarantine, DAMAGE),
        tail=found.tail,
        tail_bytes=found.tail_bytes,
        decoded_bytes=len(content.data) - found.tail_bytes,
        sound_end=last["position"] + last["size_bytes"] if last else 0,
        reach=last["last_offset"] if last else None,
        transactional=[b for b in sound if b["is_transactional"]],
    )


@lru_cache(maxsize=1 << 13)
def landed_end(data: bytes) -> tuple[int, int | None]:
    """(where the last whole batch ends by length fields, its last offset): how far bytes were landed.

    A last batch that does not prove itself is not whole yet.
    """
    ends, at = [0], 0
    while (size := batch_size(data, at)) is not None:
        at += size
        ends.append(at)
    while len(ends) > 1 and ends[-1] == len(data) and not proves_itself(data, ends[-2]):
        ends.pop()
    if len(ends) == 1:
        return 0, None
    batch = reference_decoder.decode_batch(data[ends[-2] : ends[-1]], 0).batches[0]
    return ends[-1], batch["last_offset"]


# Transactions


@dataclass(frozen=True)
class Decoding:
    """A decoded segment of a log."""

    base: int
    log_start: int
    rows: Rows


def holds_a_merged_segment(log: Sequence[Decoding]) -> bool:
    """Whether a segment that the cleaner merged into one before it is there still: two hold its batches."""
    ordered = sorted(log, key=lambda one: one.base)
    reaches = (one.base - 1 if one.rows.reach is None else one.rows.reach for one in ordered)
    return any(
        reach >= later.base for reach, later in zip(accumulate(reaches, max), ordered[1:], strict=False)
    )


@dataclass
class _Transaction:
    """Data of one producer epoch and what ended it. stretch, closed: count gaps and markers before it."""

    producer: int
    epoch: int
    stretch: int
    closed: int
    begins: tuple[int, int]
    data: list[dict[str, Any]] = field(default_factory=list)
    marker: dict[str, Any] | None = None
    ends: tuple[int, int] | None = None

    def order(self) -> tuple[int, int, bool, int]:
        return self.stretch, self.closed, not self.data, self.epoch

    def row(self, damage: Sequence[tuple[int, int]], is_over: bool) -> Row:
        outcome = (
            {"COMMIT": "committed", "ABORT": "aborted"}[self.marker["control_type"]]
            if self.marker
            else "open"
        )
        hurt = any(self.begins < place and (self.ends is None or place < self.ends) for place in damage)
        return (
            self.producer,
            self.data[0]["producer_epoch"] if self.data else self.epoch,
            min((b["base_offset"] for b in self.data), default=None),
            max((b["last_offset"] for b in self.data), default=None),
            sum(b["record_count"] for b in self.data),
            self.marker["base_offset"] if self.marker else None,
            outcome,
            hurt or (outcome == "open" and is_over),
            outcome == "open" and not is_over,
        )


def transactions(log: Sequence[Decoding]) -> list[Row]:
    """The rows of ``transactions`` of one log, by a walk over its batches in the order of their offsets."""
    stretch, before, events, damage = 0, None, [], []
    for segment in sorted(log, key=lambda s: s.base):
        if before is not None:
            end = before.base - 1 if before.rows.reach is None else before.rows.reach
            stretch += end + 1 < segment.base and before.base < segment.log_start
        before = segment
        damage += [(segment.base, row[0]) for row in segment.rows.quarantine]
        events += [
            (batch["base_offset"], (segment.base, batch["position"]), stretch, batch)
            for batch in segment.rows.transactional
        ]
    found: dict[int, list[_Transaction]] = defaultdict(list)
    for _, place, number, batch in sorted(events, key=lambda event: event[:2]):
        _add(found[batch["producer_id"]], place, number, batch)
    rows = []
    for own in found.values():
        last = max(own, key=_Transaction.order)
        rows += [one.row(damage, one is not last or one.stretch < stretch) for one in own]
    return sorted(rows, key=repr)


def _add(own: list[_Transaction], place: tuple[int, int], stretch: int, batch: dict[str, Any]) -> None:
    """One batch of a producer: data goes to its epoch's transaction, a marker ends that of the highest."""
    is_control, epoch = batch["is_control"], batch["producer_epoch"]
    if is_control and batch["control_type"] not in ("COMMIT", "ABORT"):
        return
    closed = sum(one.marker is not None for one in own)
    going_on = [one for one in own if (one.stretch, one.closed) == (stretch, closed)]
    going_on = [one for one in going_on if is_control or one.epoch == epoch]
    found = max(going_on, key=lambda one: one.epoch, default=None)
    if found is None:
        found = _Transaction(batch["producer_id"], epoch, stretch, closed, place)
        own.append(found)
    if is_control:
        found.marker, found.ends = batch, place
    else:
        found.data.append(batch)


def committed(log: Sequence[Decoding], found: Sequence[Row]) -> list[tuple[int, int]]:
    """(base offset of the file, offset) of what a READ_COMMITTED consumer gets of a log."""
    held = min((row[2] for row in found if row[8]), default=None)
    hidden = [
        (row[0], row[2], row[3] if row[5] is None else row[5])
        for row in found
        if row[2] is not None and row[6] != "committed" and not row[8]
    ]
    kept = []
    for segment in log:
        for record in segment.rows.records:
            offset, producer, is_transactional, is_control = record[0], record[6], record[7], record[8]
            is_hidden = is_transactional and any(
                producer == one and first <= offset <= last for one, first, last in hidden
            )
            if not (is_control or is_hidden or (held is not None and offset >= held)):
                kept.append((segment.base, offset))
    return sorted(kept)
