"""Says which offsets no copy of a log has, how many records they held, and why each copy lacks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.recover.bounds import log_end, name_of_empty_end
from kafka_log_lake.pipelines.recover.entries import DELETED, TAILS, Copy, CopyDamage
from kafka_log_lake.pipelines.recover.history import History
from kafka_log_lake.pipelines.recover.intervals import Interval

_EPOCH = "leader epoch"  # says where a log ended when its leader was elected


class Lost(NamedTuple):
    """A range of offsets of the true history that no copy has.

    certain: records that were there for sure; possible: records that may have been there. last, possible:
    None where the end is not known.
    """

    first: int
    last: int | None
    certain: int
    possible: int | None
    reason: str
    detail: str


def lost_between(copies: Sequence[Copy], history: History, gap: Interval, compacted: bool) -> Lost:
    """Describes a range of offsets that no copy has: how many records, and why each copy lacks them.

    In a log that is not compacted each of the offsets was a record.
    """
    first, last = gap
    possible = last - first + 1
    certain, why, is_damaged = 0 if compacted else possible, [], False
    for copy in copies:
        ghosts = copy.entries[~copy.entries["is_sound"] & (copy.entries["base"] >= first)]
        ghosts = ghosts[ghosts["last"] <= last]
        if compacted and copy.number == history.primary:
            certain = int(np.minimum(np.maximum(ghosts["count"], 0), ghosts["delta"] + 1).sum())
        reasons = sorted({hurt.reason for hurt in _hurts_in(copy, gap)})
        is_damaged |= bool(reasons)
        if reasons:
            why.append(f"{copy.name}: {', '.join(reasons)}")
        elif absent := [
            range_.why for range_ in copy.absent if range_.first <= last and range_.last >= first
        ]:
            why.append(f"{copy.name}: {'; '.join(absent)}")
        elif copy.state == DELETED:
            continue
        elif log_end(copy) <= first:
            why.append(f"{copy.name}: ends before, at {log_end(copy)}")
        else:
            why.append(f"{copy.name}: no batch there")
    reason = "damaged" if is_damaged else "missing"
    return Lost(first, last, min(certain, possible), possible, reason, "; ".join(why))


def _hurts_in(copy: Copy, gap: Interval) -> list[CopyDamage]:
    """Returns the damaged ranges of a copy between the sound batches before and after a gap."""
    sound = copy.entries[copy.entries["is_sound"]]
    before = sound[sound["last"] < gap[0]]
    behind = sound[sound["base"] > gap[1]]
    low = max(((int(e["file"]), int(e["position"])) for e in before[-1:]), default=(-1, -1))
    high = min(((int(e["file"]), int(e["position"])) for e in behind[:1]), default=(1 << 30, 0))
    return [hurt for hurt in copy.hurts if low < (hurt.file, hurt.position) < high]


def lost_at_the_end(
    copies: Sequence[Copy], history: History, batches: np.ndarray, compacted: bool
) -> list[Lost]:
    """Finds offsets after the healed log that a copy of its history is known to have had."""
    reach, certain, witnesses = history.end, history.end, []
    for copy in copies:
        entries = copy.entries[copy.entries["is_sound"]]
        is_on_it = bool(history.is_true[copy.number][copy.entries["is_sound"]].all())
        if copy.number not in history.holders or not is_on_it or not len(entries):
            continue
        for name, offset in (
            ("high watermark", copy.high_watermark),
            ("recovery point", copy.recovery_point),
            ("producer snapshot", max(copy.snapshots, default=None)),
            *_claimed(copy),
            (_EPOCH, history.epochs[-1][1] if history.epochs else None),
        ):
            if offset is not None and offset > history.end:
                witnesses.append(f"{copy.name}: {name} {offset}")
                reach = max(reach, offset)
                if name != _EPOCH:  # a doubt of the history
                    certain = max(certain, offset)
    if reach == history.end:
        return _unknown_at_the_end(copies, history, batches, compacted)
    counts = certain - history.end, reach - history.end
    return [Lost(history.end, reach - 1, *counts, "cut off", "; ".join(witnesses))]


def _unknown_at_the_end(
    copies: Sequence[Copy], history: History, batches: np.ndarray, compacted: bool
) -> list[Lost]:
    """Finds damaged bytes after the healed log whose records no header counts; a torn tail does not count.

    In a log that is not compacted a batch has the same size in each copy. So the healed batches that follow a
    copy's last sound one account for as many damaged bytes; only more bytes than that are after the healed
    log.
    """
    reasons = []
    for copy in copies:
        sound = copy.entries[copy.entries["is_sound"]]
        end = log_end(copy)
        if copy.number not in history.holders or (compacted and end != history.end):
            continue
        if name_of_empty_end(copy) is not None:  # what is damaged lies before that name
            continue
        last = max(((int(e["file"]), int(e["position"])) for e in sound[-1:]), default=(-1, -1))
        size = sum(
            hurt.size for hurt in copy.hurts if (hurt.file, hurt.position) > last and hurt.reason not in TAILS
        )
        size -= int(batches["size"][batches["base"] >= end].sum())
        if size > 0:
            reasons.append(f"{copy.name}: {size} damaged bytes after it")
    return [Lost(history.end, None, 0, None, "damaged", "; ".join(reasons))] if reasons else []


def _claimed(copy: Copy) -> Iterator[tuple[str, int]]:
    """Yields (witness, end offset) of damaged batches after the log, whose headers follow each other."""
    end = log_end(copy)
    for hurt in sorted(copy.hurts, key=lambda each: (each.file, each.position)):
        if hurt.first == end and hurt.last is not None and 0 <= hurt.last - hurt.first < 1 << 24:
            end = hurt.last + 1
            yield f"the header of a {hurt.reason} batch", end
