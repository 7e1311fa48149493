"""Says which offsets a scan of a log could not read, for its account (``udfs.batches.account``)."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange
from kafka_log_lake.udfs.batches.account import (
    DAMAGE,
    DAMAGED,
    NOT_READ,
    TORN,
    TORN_TAIL,
    UNREAD,
    ZERO_FILE,
    ZERO_TAIL,
    ZEROS,
    Unseen,
)
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT
from kafka_log_lake.udfs.format.file_names import file_name


def of_damage(damage: DamagedRange) -> Unseen | None:
    """Returns the offsets that may have been in a damaged range; None if none can be missing."""
    if damage.first_lost is None:
        return None
    return Unseen(
        damage.first_lost,
        damage.last_lost,
        cause=DAMAGE,
        is_certain=False,
        seek_to=damage.next_offset,
        state=DAMAGED,
        detail=f"{damage.reason} at byte {damage.position:,}: {damage.detail}",
        witness="the batches around",
    )


def of_tail(tail: str, size: int, torn: tuple[int, int] | None, end: int, has_batches: bool) -> Unseen | None:
    """Returns the offsets in the tail of the last segment of a log; None without a tail.

    tail: none, torn or zeros. size: its bytes. torn: the offsets that the header of the incomplete batch
    claims; None where it is cut. end: the offset after the last sound batch. has_batches: of the log.
    """
    if tail == "torn":
        first, last = torn or (end, None)
        detail = (
            f"the last batch is incomplete ({counted_noun(size, 'byte')}): still being written, or cut off"
        )
        return Unseen(first, last, cause=TORN_TAIL, is_certain=False, state=TORN, detail=detail)
    if tail == "zeros":
        zeros = f"zeros ({counted_noun(size, 'byte')})"
        detail = f"the last segment ends in {zeros}" if has_batches else f"nothing but {zeros}"
        cause = ZERO_TAIL if has_batches else ZERO_FILE
        return Unseen(end, None, cause=cause, is_certain=False, state=ZEROS, detail=detail)
    return None


def of_unread(files: Mapping[int, str], limits: Mapping[int, int]) -> list[Unseen]:
    """Returns the offsets in files that were not read.

    files: base offset -> why. limits: base offset -> the same of the next file; none of the last.
    """
    return [
        Unseen(
            base,
            None if limits.get(base, NO_LIMIT) == NO_LIMIT else limits[base] - 1,
            cause=UNREAD,
            is_certain=False,
            state=NOT_READ,
            detail=why,
            witness=file_name(base),
        )
        for base, why in sorted(files.items())
    ]
