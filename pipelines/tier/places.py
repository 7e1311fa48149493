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
    for candidate in log.candidates:
        name = names.get(id(candidate))
        row = dict.fromkeys(SEGMENT_PLACES.arrow_schema().names)
        row |= {"topic": log.place.topic, "partition": log.place.partition, "topic_id": log.topic_id}
        row |= {"place": _place(candidate), "segment_id": candidate.segment_id, "detail": candidate.problem}
        row |= {"segment": name and f"{log.partition_dir}/{name}", "file": candidate.name}
        row |= {
            "bytes": candidate.length if candidate.rank == DISK else candidate.stored_bytes,
            "is_read": name is not None,
        }
        first, last = (
            (candidate.intervals[0].first, candidate.intervals[-1].last)
            if candidate.intervals
            else (candidate.first, candidate.last)
        )
        row |= {"first_offset": first, "last_offset": last if last < NO_END else None}
        if candidate.problem == MISSING:
            row["is_read"] = False
        elif not candidate.intervals:
            row["detail"] = candidate.problem or _why_not(candidate)
        yield row


def _place(candidate: Candidate) -> str:
    if candidate.rank == DISK:
        return ON_DISK
    return NOWHERE if candidate.problem == MISSING else IN_TIER


def _why_not(candidate: Candidate) -> str:
    if candidate.rank in (DISK, UNNAMED):
        return "it has no sound batch of the log"
    return "none of its offsets counts: it is of leaders that lost their history, or below the log start"
