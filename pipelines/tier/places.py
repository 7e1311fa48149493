"""Says where each piece of a log of disk and tier lies: the rows of ``segment_places``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kafka_log_lake.pipelines.tier.candidates import DISK, MISSING, NO_END, UNNAMED, Candidate
from kafka_log_lake.pipelines.tier.join import JoinedLog, listed_names
from kafka_log_lake.udfs.format.recovery_tables import SEGMENT_PLACES

ON_DISK, IN_TIER, NOWHERE = "disk", "tier", "missing"
Row = dict[str, Any]


def place_rows(logs: Sequence[JoinedLog]) -> list[Row]:
    """Returns a row for each file and each remote segment of the logs that a tier has something of."""
    rows = [row for log in logs for row in _of_log(log)]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["first_offset"], row["file"]))


def _of_log(log: JoinedLog) -> Iterator[Row]:
    names = listed_names(log)
    for one in log.candidates:
        name = names.get(id(one))
        row = dict.fromkeys(SEGMENT_PLACES.arrow_schema().names)
        row |= {"topic": log.place.topic, "partition": log.place.partition, "topic_id": log.topic_id}
        row |= {"place": _place(one), "segment_id": one.segment_id, "detail": one.problem}
        row |= {"segment": name and f"{log.partition_dir}/{name}", "file": one.name}
        row |= {"bytes": one.length if one.rank == DISK else one.stored_bytes, "is_read": name is not None}
        first, last = (
            (one.intervals[0].first, one.intervals[-1].last) if one.intervals else (one.first, one.last)
        )
        row |= {"first_offset": first, "last_offset": last if last < NO_END else None}
        if one.problem == MISSING:
            row["is_read"] = False
        elif not one.intervals:
            row["detail"] = one.problem or _why_not(one)
        yield row


def _place(one: Candidate) -> str:
    if one.rank == DISK:
        return ON_DISK
    return NOWHERE if one.problem == MISSING else IN_TIER


def _why_not(one: Candidate) -> str:
    if one.rank in (DISK, UNNAMED):
        return "it has no sound batch of the log"
    return "none of its offsets counts: it is of leaders that lost their history, or below the log start"
