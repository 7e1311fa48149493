"""Models Kafka's rules of time in plain Python over one log of ``random_logs``.

Clocks, transactions that hang, retention: written from what brokers do (``UnifiedLog``, KIP-32, KIP-534),
with numbers of any size. It knows nothing of SQL, and computes in steps what SQL computes in sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.support.log_model import Log, LogBatch, Segment, wrapped

HOUR, DAY = 3_600_000, 86_400_000
BEGIN_OF_KAFKA = 1_293_840_000_000  # 2011-01-01
YEAR_1973, SECONDS_2001 = 10**11, 10**9


def unit(value: int) -> str:
    """Returns the unit of a stored timestamp: from 1973 on, dates are above 10^8 s, 10^11 ms, 10^14 us."""
    if value < 0:
        return "none"
    if value >= YEAR_1973 * 10**6:
        return "nanoseconds"
    if value >= YEAR_1973 * 10**3:
        return "microseconds"
    return "seconds" if SECONDS_2001 <= value < YEAR_1973 else "milliseconds"


def is_by_broker(batch: LogBatch) -> bool:
    return batch.is_log_append or batch.control is not None


def first_time(batch: LogBatch) -> int | None:
    """Returns the time (ms) of a batch's first record; None where the header does not have it."""
    if batch.is_log_append:
        return batch.max_timestamp_ms
    return None if batch.has_horizon else batch.base_timestamp_ms


def is_credible(time: int | None, batch: LogBatch, segment: Segment) -> bool:
    if time is None or unit(time) != "milliseconds":
        return False
    if is_by_broker(batch) and time < BEGIN_OF_KAFKA:
        return False
    return segment.modified_ms < BEGIN_OF_KAFKA or time <= segment.modified_ms + HOUR


def decoded(log: Log) -> Iterator[tuple[Segment, LogBatch]]:
    for segment in sorted(log.segments, key=lambda one: one.file_base_offset):
        yield from ((segment, one) for one in segment.sound if segment.left_out == 0)


class ClockOf(NamedTuple):
    now_ms: int | None
    witness: str | None
    certainty: str
    broker_ms: int | None
    modified_ms: int | None


def clock(log: Log) -> ClockOf:
    modified = [s.modified_ms for s in log.segments if s.modified_ms >= BEGIN_OF_KAFKA]
    latest = max(modified, default=None)
    times = [
        (b.max_timestamp_ms, is_by_broker(b))
        for s, b in decoded(log)
        if is_credible(b.max_timestamp_ms, b, s)
    ]
    if not times:
        return ClockOf(latest, "file" if modified else None, "unknown", None, latest)
    now = max(times)
    broker = max((at for at, by_broker in times if by_broker), default=None)
    if now[1]:
        return ClockOf(now[0], "broker", "certain", broker, latest)
    confirmed = latest is not None and abs(latest - now[0]) <= HOUR
    return ClockOf(now[0], "producer", "likely" if confirmed else "unknown", broker, latest)


class AgeOf(NamedTuple):
    open_ms: int | None
    certainty: str


def age(log: Log, producer: int, first_offset: int, lost_marker: bool, timeout_ms: int) -> AgeOf | None:
    """Returns the age of an open transaction; None where it is not open for longer than timeout_ms."""
    place = clock(log)
    starts = [
        (b, s)
        for s, b in decoded(log)
        if (b.base_offset, b.producer_id, b.control) == (first_offset, producer, None)
    ]
    markers = [
        (b.base_offset, b.max_timestamp_ms)
        for s, b in decoded(log)
        if b.control and b.is_transactional and is_credible(b.max_timestamp_ms, b, s)
    ]
    before = max((at for offset, at in markers if offset <= first_offset), default=None)
    after = min((at for offset, at in markers if offset > first_offset), default=None)
    stamped = [(first_time(b), b, s) for b, s in starts]
    credible = [(at, b) for at, b, s in stamped if at is not None and is_credible(at, b, s)]
    times = [at for at, _ in credible]
    by_broker = [at for at, b in credible if is_by_broker(b)]
    if by_broker:
        after = min(by_broker)
    open_ms = None
    if times and place.now_ms is not None:
        began = min(times)  # the latest that it can be is the earliest marker after it
        began = began if before is None else max(began, before)
        open_ms = place.now_ms - min(began, place.now_ms if after is None else after)
    if open_ms is not None and open_ms <= timeout_ms:
        return None
    agree = before is None or after is None or before <= after
    proven = after is not None and place.broker_ms is not None and place.broker_ms - after > timeout_ms
    if lost_marker:
        return AgeOf(open_ms, "unknown")
    if proven and agree:
        return AgeOf(open_ms, "certain")
    if open_ms is None or place.certainty == "unknown" or open_ms > 7 * DAY:
        return AgeOf(open_ms, "unknown")
    return AgeOf(open_ms, "likely")


class Anomaly(NamedTuple):
    records: int
    lowest_ms: int
    highest_ms: int
    off_by_ms: int | None
    is_blocking: bool


def anomalies(log: Log, max_future_ms: int, max_disorder_ms: int) -> dict[tuple[int, str], Anomaly]:
    """Returns anomalies by (base offset of the file, name). All records of a batch have one timestamp."""
    found: dict[tuple[int, str], Anomaly] = {}
    highest: int | None = None
    for segment, batch in decoded(log):
        at = record_time(batch) if batch.count else batch.max_timestamp_ms
        modified = segment.modified_ms if segment.modified_ms >= BEGIN_OF_KAFKA else None
        what, off_by = unit(at), None if modified is None else at - modified
        is_blocking = off_by is not None and off_by > max_future_ms
        if not batch.count and (what == "none" or (what == "milliseconds" and not is_blocking)):
            continue  # without records only what keeps the segment counts
        if what == "none":
            off_by, is_blocking = None, False
        elif what == "milliseconds":
            before, what = highest, "future" if is_blocking else "ordinary"
            if what == "ordinary" and batch.control:
                continue  # a broker's clock, which says nothing of the order of producers' timestamps
            if what == "ordinary":
                highest = at if before is None else max(before, at)
                if before is None or before - at <= max_disorder_ms:
                    continue
                what, off_by = "out_of_order", before - at
        place = segment.file_base_offset, what
        one = found.get(place, Anomaly(0, at, at, off_by, False))
        found[place] = Anomaly(
            one.records + batch.count,
            min(one.lowest_ms, at),
            max(one.highest_ms, at),
            None if off_by is None or one.off_by_ms is None else max(one.off_by_ms, off_by),
            one.is_blocking or is_blocking,
        )
    return found


def record_time(batch: LogBatch) -> int:
    """Returns the timestamp (ms) of all records that ``rows_of_records`` makes of a batch."""
    return batch.max_timestamp_ms if batch.is_log_append else batch.base_timestamp_ms


def largest_timestamp(segment: Segment) -> int:
    """Returns LogSegment.largestTimestamp: that of its batches, else the modification time of the file."""
    newest = -1
    for batch in segment.sound if segment.left_out == 0 else ():
        newest = max(newest, batch.max_timestamp_ms)
    return newest if newest >= 0 else segment.modified_ms


def deleted(
    log: Log, lengths: dict[int, int], retention_ms: int, retention_bytes: int, now_ms: int
) -> dict[int, str]:
    """Returns what UnifiedLog.deleteOldSegments deletes: base offset -> which of its three steps does."""
    segments = sorted(log.segments, key=lambda one: one.file_base_offset)
    start = max(one.log_start_offset for one in segments)
    found: dict[int, str] = {}

    def delete(why: str, is_breached: object) -> None:
        """Deletes segments from the oldest on until one stays, as deleteOldSegments(predicate)."""
        there = [one for one in segments if one.file_base_offset not in found]
        for at, one in enumerate(there):
            following = there[at + 1] if at + 1 < len(there) else None
            is_last_and_empty = following is None and lengths[one.file_base_offset] == 0
            if not is_breached(one, following) or is_last_and_empty:  # type: ignore[operator]
                return
            found[one.file_base_offset] = why

    delete("log start", lambda one, following: following is not None and following.file_base_offset <= start)
    size = sum(lengths[one.file_base_offset] for one in segments if one.file_base_offset not in found)
    if retention_bytes >= 0 and size >= retention_bytes:
        surplus = [size - retention_bytes]

        def is_surplus(one: Segment, following: Segment | None) -> bool:
            if surplus[0] - lengths[one.file_base_offset] < 0:
                return False
            surplus[0] -= lengths[one.file_base_offset]
            return True

        delete("size", is_surplus)
    if retention_ms >= 0:
        delete("time", lambda one, following: wrapped(now_ms - largest_timestamp(one)) > retention_ms)
    return found
