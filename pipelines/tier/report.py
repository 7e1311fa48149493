"""Compares the three books of tiered storage: the objects, what ``__remote_log_metadata`` says, the local
disk.

The rows of the table ``tier_report``. Nothing is deleted: of objects that nobody can reach the command that
would do it is a column.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.remote_metadata import (
    DELETED,
    FINISHED,
    STARTED,
    STATES,
    RemoteSegment,
)
from kafka_log_lake.pipelines.tier.candidates import MISSING
from kafka_log_lake.pipelines.tier.index import RemoteIndex
from kafka_log_lake.pipelines.tier.join import JoinedLog
from kafka_log_lake.pipelines.tier.objects import LOCAL, PLUGIN, TierSegment
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.format.recovery_tables import TIER_REPORT
from kafka_log_lake.udfs.storage.byte_source import MANIFEST, path_of_uri

# Kinds of rows
LOST, INCOMPLETE, SIZE_DIFFERS, UNREADABLE = "lost", "incomplete", "size_differs", "unreadable"
ORPHAN, UNFINISHED_COPY, UNFINISHED_DELETE = "orphan", "unfinished_copy", "unfinished_delete"
DELETED_TOPIC, FOREIGN = "deleted_topic", "foreign"
NEVER_UPLOADS, ON_DISK_TOO = "never_uploads", "on_disk_too"
PAID_FOR = (ORPHAN, UNFINISHED_COPY, UNFINISHED_DELETE, DELETED_TOPIC)  # objects that no broker reads
_NEEDED = {
    LOCAL: (".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot"),
    PLUGIN: (".indexes", MANIFEST),
}
Row = dict[str, Any]


def report_rows(listing: Listing, index: RemoteIndex, logs: Sequence[JoinedLog]) -> list[Row]:
    """Returns the rows of ``tier_report``, by kind, topic, partition and offset.

    listing: of the disks alone, before the tier was joined. logs: that were joined.
    """
    by_id = {one.segment_id: one for one in index.tier.segments if one.segment_id}
    rows: list[Row] = []
    for name, segment in index.named.items():
        rows += _of_segment(segment, by_id.get(name))
    living = {row["topic_id"] for row in listing.segments.to_pylist()}
    living |= {one.topic_id for one in index.named.values() if one.state in (STARTED, FINISHED)}
    unopened = dict(_unopened(index))
    for one in index.tier.segments:
        problem = one.problem or unopened.get(one.name)
        if one.segment_id not in index.named and index.is_named:
            rows.append(_of_orphan(one, living))
        elif problem is not None and not _missing(one):
            rows.append(_of_objects(UNREADABLE, one, problem))
    for uri, kind in index.tier.other.items():
        size = index.tier.other_sizes[uri]
        rows.append(_row(FOREIGN, object=uri, objects=1, bytes=size, detail=kind))
    for log in logs:
        rows += _of_disk(listing, index, log)
    return sorted(
        rows, key=lambda row: (row["kind"], row["topic"] or "", row["first_offset"] or 0, row["object"] or "")
    )


def _row(kind: str, **values: Any) -> Row:
    return {"kind": kind, **dict.fromkeys(TIER_REPORT.arrow_schema().names[1:]), **values}


def _of_objects(kind: str, one: TierSegment, detail: str, segment: RemoteSegment | None = None) -> Row:
    """Returns a row about the objects of a segment."""
    row = _row(
        kind,
        topic=one.topic,
        partition=one.partition,
        topic_id=one.topic_id,
        segment_id=one.segment_id,
        first_offset=one.base,
        object=one.name,
        objects=len(one.files),
        bytes=one.stored_bytes,
        detail=detail,
    )
    if kind in PAID_FOR:
        row["delete_command"] = _delete_command(one)
    return row | (_of_metadata(segment) if segment is not None else {})


def _of_metadata(segment: RemoteSegment) -> Row:
    return {
        "topic": segment.topic,
        "partition": segment.partition,
        "topic_id": segment.topic_id,
        "segment_id": segment.segment_id,
        "first_offset": segment.start,
        "last_offset": segment.end,
        "state": STATES[segment.state] if 0 <= segment.state < len(STATES) else None,
        "since": datetime.fromtimestamp(segment.since / 1000, UTC) if 0 <= segment.since < 1 << 47 else None,
    }


def _of_segment(segment: RemoteSegment, found: TierSegment | None) -> Iterator[Row]:
    """Yields what is wrong with a segment that the metadata name. found: its objects; None without any."""
    if segment.state != FINISHED:
        if segment.state == STARTED:
            kind, detail = UNFINISHED_COPY, "its copy never finished"
        else:
            kind = UNFINISHED_DELETE
            detail = "its deletion is finished, and objects are there"
            detail = detail if segment.state == DELETED else "its deletion never finished"
        if found is not None:
            files = ", ".join(sorted(found.files))
            yield _of_objects(kind, found, f"{detail}: {files}", segment)
        elif segment.state != DELETED:
            yield _row(
                kind, **_of_metadata(segment), objects=0, bytes=0, detail=f"{detail}: no object is there"
            )
        return
    if found is None or SEGMENT_SUFFIX not in found.files:
        row = _row(LOST, objects=0, bytes=0, detail="no .log object is there")
        if found is not None:
            row = _of_objects(LOST, found, MISSING, segment)
        yield row | _of_metadata(segment)
        return
    if missing := _missing(found):
        yield _of_objects(INCOMPLETE, found, f"missing: {', '.join(missing)}", segment)
    by = "manifest" if found.manifest is not None else "object"
    if found.problem is None and segment.size is not None and found.length != segment.size:
        detail = f"{found.length} bytes by the {by}, {segment.size} by the metadata"
        yield _of_objects(SIZE_DIFFERS, found, detail, segment)
    for suffix, size in found.manifest.stored_sizes() if found.manifest is not None else ():
        stored = found.files.get(suffix, ("", size))[1]
        if stored != size:
            detail = f"{suffix} has {stored} bytes, {size} by the manifest"
            yield _of_objects(SIZE_DIFFERS, found, detail, segment)


def _missing(one: TierSegment) -> list[str]:
    """Returns the suffixes of the objects that a segment of its layout has, and this one lacks."""
    return [suffix for suffix in _NEEDED.get(one.layout, ()) if suffix not in one.files]


def _unopened(index: RemoteIndex) -> Iterator[tuple[str, str]]:
    """Yields URI and reason of the segments that count and could not be opened when the log was joined."""
    for by_id in index.logs.values():
        for of in by_id.values():
            for one in of.named:
                if one.problem is not None:
                    yield one.name, one.problem


def _of_orphan(one: TierSegment, living: set[str | None]) -> Row:
    if one.topic_id is not None and one.topic_id not in living:
        return _of_objects(DELETED_TOPIC, one, "no metadata and no disk name its topic id")
    return _of_objects(ORPHAN, one, "no metadata name its segment")


def _of_disk(listing: Listing, index: RemoteIndex, log: JoinedLog) -> Iterator[Row]:
    """Yields local segments that the tier has too, and those that can never be copied to it."""
    finished = [
        one
        for one in index.named.values()
        if (one.topic, one.partition, one.state) == (*log.place, FINISHED)
        and log.topic_id in (None, one.topic_id)
    ]
    if not finished:
        return
    reached = max(one.end or -1 for one in finished)
    named = {one.start: one for one in finished}
    snapshots = listing.witnesses.in_folder(log.partition_dir).snapshots
    for row, following in zip(log.rows, log.rows[1:], strict=False):
        base, end = row["file_base_offset"], following["file_base_offset"]
        values = {"topic": log.place.topic, "partition": log.place.partition, "topic_id": log.topic_id}
        values |= {"first_offset": base, "last_offset": end - 1}
        values |= {"object": row["segment"], "bytes": row["length"]}
        if base in named and named[base].end == end - 1:
            detail = "the tier has it too: local.retention decides when the disk is freed"
            yield _row(ON_DISK_TOO, **values, segment_id=named[base].segment_id, objects=1, detail=detail)
        elif base > reached and end not in snapshots:
            detail = f"{end:020d}.snapshot is missing, without which a broker does not copy it"
            yield _row(NEVER_UPLOADS, **values, objects=1, detail=detail)


def _delete_command(one: TierSegment) -> str:
    """Returns the command that would delete the objects of a segment, for a person to run."""
    uris = [uri for uri, _ in one.files.values()]
    paths = [path_of_uri(uri) for uri in uris]
    if None not in paths:
        return shlex.join(["rm", "--", *(path for path in paths if path)])
    return "; ".join(shlex.join(["aws", "s3", "rm", uri]) for uri in uris)
