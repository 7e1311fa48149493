"""Decides what a run has to do with a segment that the ledger knows, by its state between runs.

The main rule: after a run the tables hold what a first decode of the same files would give, and the rows of
files that retention deleted. So the content of a file decides, not its name or modification time alone::

            first seen                     same fingerprint, and longer or its topic id is known now
    (none) ------------> known, sound <------------------------------ continue at decoded_bytes
                          |   |   ^
      it has damage, and  |   |   | decode all of it again: its rows are replaced
      the file changed:   |   |   |
      compare all         |   +---+-- other fingerprint, shorter, --redecode, another topic id,
      decoded bytes       |   |       or it ended in damage and the file changed
                          +---+-- the bytes differ

    outside of --since or --offsets      a row alone, left_out -1: new to the run that asks for it
    decoded in part, and more requested  decode all of it again

    file gone, no earlier segment left in its folder   deleted by retention: its rows stay
    file gone, an earlier segment left in its folder   merged, compacted or truncated: its rows are deleted

docs/operations.md gives the reason for each arrow. Pure functions; ``pipelines.plan.runs`` applies them to a
whole listing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.storage.fingerprint import FileMatch


class Action(StrEnum):
    """What a run does with a segment."""

    NEW = "new"
    GO_ON = "go on"
    REPLACE = "replace"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Seen:
    """A segment in the listing.

    modified, landed_at: microseconds since 1970 UTC; landed_at None: a file.
    """

    length: int
    modified: int
    has_successor: bool
    topic_id: str | None = None
    landed_at: int | None = None


def next_action(seen: Seen, was: LedgerRow, marks: FileMatch, is_requested: bool = False) -> Action:
    """Returns the action for a segment that the ledger knows.

    was: its ledger row. marks: the result of its fingerprint check; if ``must_compare`` is true, the caller
    compares all decoded bytes first, and passes CHANGED if they differ. is_requested: ``--redecode`` has it,
    or records of it are requested that were left out.
    """
    if was.is_left_out:
        return Action.NEW
    if marks is FileMatch.UNREADABLE:
        return Action.UNCHANGED  # without the file, its rows are the best there is
    if seen.landed_at is not None and seen.landed_at <= was.decoded_at:
        # The tables hold a later state of the file than these landed bytes: keep it
        return Action.REPLACE if is_requested and seen.length >= was.decoded_bytes else Action.UNCHANGED
    is_named = seen.topic_id is not None and was.topic_id is None
    touched = is_touched(seen, was) or marks is FileMatch.TAIL_CHANGED or is_named
    if (
        is_requested
        or marks is FileMatch.CHANGED
        or seen.length < was.decoded_bytes
        or is_recreated(seen, was)
    ):
        return Action.REPLACE
    if was.ends_in_damage and touched:
        # The next batch may begin inside the damaged range: a copy was completed, or a tail overwritten
        return Action.REPLACE
    if seen.length > was.length or is_named or (was.tail != "none" and touched):
        return Action.GO_ON
    # The broker writes to a later segment now and will not complete the torn batch: it becomes damage
    return Action.GO_ON if was.tail == "torn" and seen.has_successor else Action.UNCHANGED


def stay_if_same(seen: pa.Table, was: pa.Table) -> np.ndarray:
    """Returns bool[n]: which segments ``next_action`` leaves UNCHANGED if their marks are SAME.

    It assumes that none is requested. By whole columns, as most of a long listing are such segments; it may
    miss some. seen: of the listing. was: their ledger rows, in the same order.
    """
    topic_id = seen.column("topic_id")
    same_topic = pc.fill_null(pc.equal(topic_id, was.column("topic_id")), topic_id.is_null())
    masks = (
        are_untouched(seen, was),
        seen.column("landed_at").is_null().to_numpy(),
        same_topic.to_numpy(),
        pc.equal(was.column("left_out"), 0).to_numpy(),
        pc.not_equal(was.column("tail"), "torn").to_numpy(),
    )
    return np.logical_and.reduce(masks)


def are_untouched(seen: pa.Table, was: pa.Table) -> np.ndarray:
    """Returns bool[n]: of which segments ``is_touched`` is False, by whole columns."""
    is_landed = pc.fill_null(pc.greater(seen.column("landed_at"), was.column("decoded_at")), False)
    same = (pc.equal(seen.column(name), was.column(name)) for name in ("length", "modified"))
    return np.logical_and.reduce([~is_landed.to_numpy(), *(column.to_numpy() for column in same)])


def must_compare(seen: Seen, was: LedgerRow, marks: FileMatch) -> bool:
    """Says whether all decoded bytes have to be compared, because damaged bytes may have been repaired.

    Examples are a download that writes its parts out of order and a disk that was repaired. The fingerprint,
    which covers the first and the last batch, may be the same.
    """
    may_go_on = marks in (FileMatch.SAME, FileMatch.TAIL_CHANGED) and not was.ends_in_damage
    return was.damaged > 0 and may_go_on and is_touched(seen, was) and seen.length >= was.decoded_bytes


def is_touched(seen: Seen, was: LedgerRow) -> bool:
    """Says whether length or modification time differ from the ledger, or bytes were landed since."""
    is_landed = seen.landed_at is not None and seen.landed_at > was.decoded_at
    return is_landed or seen.length != was.length or seen.modified != was.modified


def is_recreated(seen: Seen, was: LedgerRow) -> bool:
    """Says whether the topic was deleted and created again by the same name since the segment was decoded."""
    return None not in (seen.topic_id, was.topic_id) and seen.topic_id != was.topic_id
