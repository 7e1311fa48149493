"""Compares the three books of tiered storage: the objects, what ``__remote_log_metadata`` says, the local
disk.

The rows of the table ``tier_report``. Nothing is deleted: the command that would do it is a column, of
objects that nothing unread can make count. So none where metadata could not be read whole, and none of what
may be newer than they are. Objects of a log that they do not name are no orphans.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import PartitionFolder
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
UNDELETED, DELETED_TOPIC, FOREIGN = "undeleted", "deleted_topic", "foreign"
NEVER_UPLOADS, ON_DISK_TOO = "never_uploads", "on_disk_too"
PAID_FOR = (
    ORPHAN,
    UNFINISHED_COPY,
    UNFINISHED_DELETE,
    UNDELETED,
    DELETED_TOPIC,
)  # paid for, and not read by the metadata
_NEEDED = {
    LOCAL: (".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot"),
    PLUGIN: (".indexes", MANIFEST),
}
Row = dict[str, Any]


def report_rows(listing: Listing, index: RemoteIndex, logs: Sequence[JoinedLog]) -> list[Row]:
    """Returns the rows of ``tier_report``, by kind, topic, partition and offset.

    listing: of the disks alone, before the tier was joined. logs: that were joined.
    """
    by_id = {stored.segment_id: stored for stored in index.tier.segments if stored.segment_id}
    rows: list[Row] = []
    for name, segment in index.named.items():
        if (segment.topic_id, segment.partition) not in index.deleted:
            rows += _of_segment(segment, by_id.get(name), index)
    unopened = dict(_unopened(index))
    for stored in index.tier.segments:
        problem = stored.problem or unopened.get(stored.name)
        of = index.named.get(stored.segment_id or "")
        log = (stored.topic_id, stored.partition) if of is None else (of.topic_id, of.partition)
        if log in index.deleted:
            detail = "its partition is marked as deleted"
            rows.append(_of_objects(DELETED_TOPIC, stored, detail, of, is_dead=index.is_final(log)))
        elif of is None and log in index.newest:
            rows.append(_of_orphan(stored, index))
        elif problem is not None and not _missing(stored):
            rows.append(_of_objects(UNREADABLE, stored, problem))
    for uri, kind in index.tier.other.items():
        size = index.tier.other_sizes[uri]
        rows.append(_row(FOREIGN, object=uri, objects=1, bytes=size, detail=kind))
    finished: dict[PartitionFolder, list[RemoteSegment]] = defaultdict(list)
    for segment in index.named.values():
        if segment.state == FINISHED:
            finished[PartitionFolder(segment.topic, segment.partition)].append(segment)
    for joined in logs:
        rows += _of_disk(listing, finished.get(joined.place, ()), by_id, joined)
    return sorted(
        rows, key=lambda row: (row["kind"], row["topic"] or "", row["first_offset"] or 0, row["object"] or "")
    )


def _row(kind: str, **values: Any) -> Row:
    return {"kind": kind, **dict.fromkeys(TIER_REPORT.arrow_schema().names[1:]), **values}


def _of_objects(
    kind: str, stored: TierSegment, detail: str, segment: RemoteSegment | None = None, is_dead: bool = False
) -> Row:
    """Returns a row about the objects of a segment. is_dead: nothing can make them count any more."""
    row = _row(
        kind,
        topic=stored.topic,
        partition=stored.partition,
        topic_id=stored.topic_id,
        segment_id=stored.segment_id,
        first_offset=stored.base,
        object=stored.name,
        objects=len(stored.files),
        bytes=stored.stored_bytes,
        detail=detail,
    )
    if is_dead:
        row["delete_command"] = _delete_command(stored)
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


def _of_segment(segment: RemoteSegment, objects: TierSegment | None, index: RemoteIndex) -> Iterator[Row]:
    """Yields what is wrong with a segment that the metadata name. objects: its objects; None without any."""
    if segment.state != FINISHED:
        kind, is_dead = (
            UNFINISHED_DELETE,
            index.is_final(segment.segment_id),
        )  # a deletion that began is never taken back
        if segment.state == STARTED:
            is_dead = index.is_settled(segment.topic_id, segment.partition, segment.since)
            kind, detail = UNFINISHED_COPY, "its copy was not finished when the metadata were read"
            if is_dead:
                detail = "its copy was not finished at the newest record of its log, more than a day later"
        elif segment.state == DELETED:
            kind, detail = UNDELETED, "its deletion is finished, and objects are there"
        else:
            detail = "its deletion was not finished when the metadata were read"
        if objects is not None:
            files = ", ".join(sorted(objects.files))
            yield _of_objects(kind, objects, f"{detail}: {files}", segment, is_dead)
        elif segment.state != DELETED:
            yield _row(
                kind, **_of_metadata(segment), objects=0, bytes=0, detail=f"{detail}: no object is there"
            )
        return
    if objects is None or SEGMENT_SUFFIX not in objects.files:
        row = _row(LOST, objects=0, bytes=0, detail="no .log object is there")
        if objects is not None:
            row = _of_objects(LOST, objects, MISSING, segment)
        yield row | _of_metadata(segment)
        return
    if missing := _missing(objects):
        yield _of_objects(INCOMPLETE, objects, f"missing: {', '.join(missing)}", segment)
    by = "manifest" if objects.manifest is not None else "object"
    if objects.problem is None and segment.size is not None and objects.length != segment.size:
        detail = f"{objects.length} bytes by the {by}, {segment.size} by the metadata"
        yield _of_objects(SIZE_DIFFERS, objects, detail, segment)
    for suffix, size in objects.manifest.stored_sizes() if objects.manifest is not None else ():
        stored = objects.files.get(suffix, ("", size))[1]
        if stored != size:
            detail = f"{suffix} has {stored} bytes, {size} by the manifest"
            yield _of_objects(SIZE_DIFFERS, objects, detail, segment)


def _missing(segment: TierSegment) -> list[str]:
    """Returns the suffixes of the objects that a segment of its layout has, and this one lacks.

    Before 1.0 the plugin wrote an object for each index, and no ``.indexes``.
    """
    has_indexes = segment.layout == PLUGIN and ".index" in segment.files
    needed = (MANIFEST,) if has_indexes else _NEEDED.get(segment.layout, ())
    return [suffix for suffix in needed if suffix not in segment.files]


def _unopened(index: RemoteIndex) -> Iterator[tuple[str, str]]:
    """Yields URI and reason of the segments that count and could not be opened when the log was joined."""
    for by_id in index.logs.values():
        for of in by_id.values():
            for candidate in of.named:
                if candidate.problem is not None:
                    yield candidate.name, candidate.problem


def _of_orphan(segment: TierSegment, index: RemoteIndex) -> Row:
    is_dead = index.is_settled(segment.topic_id, segment.partition, segment.changed // 1000)
    detail = "the metadata of its log do not name its segment"
    if not index.is_whole:
        detail += ", but not all of them could be read"
    elif not is_dead:
        detail += ", but have no committed record that is a day newer than the objects"
    return _of_objects(ORPHAN, segment, detail, is_dead=is_dead)


def _of_disk(
    listing: Listing, finished: Sequence[RemoteSegment], by_id: Mapping[str, TierSegment], log: JoinedLog
) -> Iterator[Row]:
    """Yields local segments that the tier has too, and those that can never be copied to it.

    finished: the segments of the partition whose copy was finished. by_id: the objects of segments.
    """
    finished = [segment for segment in finished if log.topic_id in (None, segment.topic_id)]
    if not finished:
        return
    reached = max(segment.end or -1 for segment in finished)
    named = {
        segment.start: segment
        for segment in finished
        if segment.segment_id in by_id and SEGMENT_SUFFIX in by_id[segment.segment_id].files
    }
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


def _delete_command(segment: TierSegment) -> str | None:
    """Returns the command that would delete the objects of a segment, for a person to run.

    None in a store whose command is not known.
    """
    uris = [uri for uri, _ in segment.files.values()]
    paths = [path_of_uri(uri) for uri in uris]
    if None not in paths:
        return shlex.join(["rm", "--", *(path for path in paths if path)])
    if not all(uri.startswith("s3://") for uri in uris):
        return None
    return "; ".join(shlex.join(["aws", "s3", "rm", uri]) for uri in uris)
