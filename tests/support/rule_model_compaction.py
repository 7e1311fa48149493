"""Models Kafka's log cleaner, and what two checks measure, in plain Python over one random log.

Written from LogCleanerManager.cleanableOffsets and Cleaner.shouldRetainRecord. It knows nothing of SQL, and
computes in steps what SQL computes in sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.support import rule_model_time as times
from tests.support.log_model import SIZE, Log, LogBatch, Segment
from tests.support.rule_model_transactions import Transaction, transactions_of


@dataclass(frozen=True)
class Keyed:
    """A record of a batch: its key decides what compaction keeps."""

    segment: Segment
    batch: LogBatch
    offset: int
    key: bytes | None
    is_tombstone: bool
    size: int


def records_of(log: Log) -> Iterator[Keyed]:
    """Yields records whose offsets determine their keys (repeated, long or none) and tombstones."""
    for segment, batch in times.decoded(log):
        for offset in range(batch.base_offset, batch.base_offset + batch.count):
            key = None if offset % 11 == 3 else b"k" * (1 + 30 * (offset % 2)) + bytes([offset % 5])
            yield Keyed(segment, batch, offset, key, offset % 4 == 1, 20 + offset % 9)


def committed(log: Log) -> list[Keyed]:
    """Returns the records that a READ_COMMITTED consumer gets."""
    found = [one for one in transactions_of(log) if one.first_offset is not None]
    stable = min((one.first_offset or 0 for one in found if one.holds), default=None)
    hidden = [one for one in found if one.outcome != "committed"]
    kept = []
    for record in records_of(log):
        is_hidden = record.batch.is_transactional and any(
            one.producer_id == record.batch.producer_id and _covers(one, record.offset) for one in hidden
        )
        if not record.batch.control and not is_hidden and (stable is None or record.offset < stable):
            kept.append(record)
    return kept


def _covers(one: Transaction, offset: int) -> bool:
    return one.first_offset is not None and one.first_offset <= offset <= (one.last_offset or 0)


class Cleaning(NamedTuple):
    """A row of compaction_report; the sizes in bytes."""

    records: int
    record_bytes: int
    null_key_records: int
    keys: int
    most_versions: int
    superseded_records: int
    superseded_bytes: int
    freed_now_records: int
    freed_now_bytes: int
    freed_later_bytes: int
    first_uncleanable_offset: int
    held_by: str
    tombstones: int
    expired_tombstones: int
    first_dirty_offset: int | None


def first_uncleanable(log: Log, at_ms: int, lag_ms: int) -> tuple[int, str]:
    """Returns the base offset of the first segment that the cleaner leaves alone, and the reason."""
    segments = sorted(log.segments, key=lambda one: one.file_base_offset)
    active = segments[-1].file_base_offset
    stable = min((t.first_offset or 0 for t in transactions_of(log) if t.holds), default=None)
    for one, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None:
            break
        if stable is not None and stable < following.file_base_offset:
            return one.file_base_offset, "open transaction"
        if lag_ms > 0 and times.largest_timestamp(one) > at_ms - lag_ms:
            return one.file_base_offset, "min.compaction.lag.ms"
    return active, "active segment"


def cleaning(log: Log, at_ms: int, lag_ms: int) -> Cleaning:
    """Returns what one cleaning would do; zeros without a committed record."""
    kept = committed(log)
    limit, held_by = first_uncleanable(log, at_ms, lag_ms)
    cleanable = [one for one in kept if one.segment.file_base_offset < limit]
    latest, latest_cleanable = _latest(kept), _latest(cleanable)
    old = [one for one in kept if one.key is not None and latest[one.key].offset > one.offset]
    now = [one for one in cleanable if one.key is not None and latest_cleanable[one.key].offset > one.offset]
    tombstones = [one for one in latest.values() if one.is_tombstone]
    expired = [
        one
        for one in tombstones
        if one.segment.file_base_offset < limit
        and one.batch.has_horizon
        and one.batch.base_timestamp_ms <= at_ms
    ]
    keys = [one.key for one in kept if one.key is not None]
    again = [one.offset for at, one in enumerate(kept) if one.key is not None and one.key in _keys(kept[:at])]
    freed = sum(one.size for one in now)
    superseded = sum(one.size for one in old)
    return Cleaning(
        len(kept),
        sum(one.size for one in kept),
        len(kept) - len(keys),
        len(latest),
        max(map(keys.count, latest), default=0),
        len(old),
        superseded,
        len(now),
        freed,
        superseded - freed,
        limit,
        held_by,
        len(tombstones),
        len(expired),
        min(again, default=None),
    )


def _keys(records: Iterable[Keyed]) -> set[bytes]:
    return {one.key for one in records if one.key is not None}


def _latest(records: Iterable[Keyed]) -> dict[bytes, Keyed]:
    return {one.key: one for one in records if one.key is not None}


def most_disorder(log: Log, stretches: dict[int, int]) -> int:
    """Returns the most ms by which a batch's time lies before an earlier batch's. stretches: of files."""
    worst, highest, stretch = 0, None, None
    for segment, batch in times.decoded(log):
        at = batch.max_timestamp_ms
        if batch.control or not times.is_credible(at, batch, segment):
            continue
        if stretches[segment.file_base_offset] != stretch:
            stretch, highest = stretches[segment.file_base_offset], None
        worst = worst if highest is None else max(worst, highest - at)
        highest = at if highest is None else max(highest, at)
    return worst


def checksums(log: Log) -> tuple[int, int, int]:
    """Returns (batches with a wrong checksum, batches with a header, damaged bytes)."""
    batches = [one for s in log.segments if s.left_out == 0 for one in s.batches]
    with_header = [one for one in batches if not one.is_garbage]
    damaged = sum(not one.is_sound for one in batches)
    return sum(not one.is_sound for one in with_header), len(with_header), damaged * SIZE
