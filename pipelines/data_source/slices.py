"""The input partitions of a read: segments that may hold what was asked for, cut where batches begin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.data_source.boundaries import boundaries
from pipelines.data_source.options import Options
from pipelines.plan.headers import NO_INDEX, is_older, read_index
from pipelines.plan.scope import outside_by_name
from pipelines.plan.slice_input import slice_row
from pipelines.plan.slices import Segment, Slice, cut, pack
from pipelines.source.listing import Listing, TopicFilter, list_segments, no_segments_error
from pipelines.source.naming import parse_folder
from udfs.source.byte_source import FileSource, SourceError, local_path
from udfs.source.fingerprint import mark
from udfs.source.store import canonical, is_object_store
from udfs.spark.protocol import SLICE_SCHEMA

# Planning has no session, so it does not know the cores: enough tasks for small segments, not too many
_CORES = 16


class Span(NamedTuple):
    """The batches of a segment that begin in [start, stop); batches begin at both, or the segment ends."""

    segment: Segment
    start: int
    stop: int


def list_asked(options: Options) -> list[Segment]:
    """The segments of the topics and partitions that are asked for, by folder and base offset.

    Raises a UserError where the path holds no segment, and where one of them, or its folder, can't be listed.
    """
    for path in options.path:
        if is_object_store(canonical(path)):
            raise UserError(
                f"{path} can't be read: kafka_log reads local folders, and what is mounted as one"
            )
    listing = list_segments(
        options.path,
        follow_symlinks=options.follow_symlinks,
        topics=options.topics,
        exclude_topics=options.exclude_topics,
    )
    _refuse_unreadable(listing, options)
    if not (listing.segments.num_rows or listing.unasked):
        raise no_segments_error(options.path)
    wanted = listing.segments.filter(listing.segments.column("wanted")).drop_columns(["wanted"])
    segments = (Segment(**row, scope=options.scope) for row in wanted.to_pylist())
    return [segment for segment in segments if options.takes(segment.partition)]


def _refuse_unreadable(listing: Listing, options: Options) -> None:
    """Records of a folder that can't be listed would be missing silently."""
    topic_filter = TopicFilter(options.topics, options.exclude_topics)
    for uri, why in sorted(listing.unreadable.items()):
        place = parse_folder(uri)
        if isinstance(place, str) or (topic_filter(place.topic) and options.takes(place.partition)):
            raise UserError(f"{uri} can't be read: {why}")


def plan_read(options: Options) -> list[pa.RecordBatch]:
    """What each task of a read decodes. Raises a UserError where no segment is asked for."""
    segments = list_asked(options)
    if not segments:
        raise UserError(f"no segment in {', '.join(options.path)} is of the topics and partitions asked for")
    spans = [Span(segment, 0, segment.length) for segment in _pruned(segments, options)]
    return make_tasks(spans, options.slice_bytes)


def make_tasks(spans: Sequence[Span], slice_bytes: int) -> list[pa.RecordBatch]:
    """What each task decodes: rows of SLICE_SCHEMA, all spans cut where batches begin."""
    rows: list[dict[str, Any]] = []
    slices: list[Slice] = []
    for span in spans:
        edges, marks = _edges(span, slice_bytes)
        for (start, stop), marked in zip(itertools.pairwise(edges), marks, strict=True):
            slices.append(Slice(len(slices), span.segment, start, stop, exact_start=True))
            rows.append({**slice_row(slices[-1], 0), "fingerprint": marked})
    tasks = pack(slices, _CORES, slice_bytes) if slices else []
    return [
        pa.RecordBatch.from_pylist([rows[one.group_id] for one in task.slices], schema=SLICE_SCHEMA)
        for task in tasks
    ]


def _edges(span: Span, slice_bytes: int) -> tuple[list[int], list[str | None]]:
    """Where the slices of a span start, and the last one stops; of each slice what the file has to hold.

    That is a fingerprint of the headers at the segment's begin and at the slice's start: another file may
    have taken the name between planning and reading, or between two tasks. A segment that one task opens once
    needs none.
    """
    segment, start, stop = span
    parts = cut(replace(segment, length=stop - start), slice_bytes)
    if len(parts) == 1 and start == 0:
        return [start, stop], [None]
    source = open_segment(segment)
    try:
        cuts = [start + edge for edge, _ in parts[1:]]
        index = read_index(segment.segment) if cuts else NO_INDEX
        inner = boundaries(source, index, segment.file_base_offset, stop, cuts, start)
        edges = [start, *inner, stop]
        first = mark(source, 0, segment.length)
        return edges, [f"{first}/{mark(source, edge, segment.length)}" for edge in edges[:-1]]
    except SourceError as error:
        raise UserError(f"{segment.segment}: {error}") from None
    finally:
        source.close()


def _pruned(segments: Sequence[Segment], options: Options) -> Iterator[Segment]:
    """Segments that may hold offsets and timestamps within the options' bounds."""
    folders = pa.array([segment.partition_dir for segment in segments])
    bases = pa.array([segment.file_base_offset for segment in segments])
    outside = outside_by_name(folders, bases, options.scope)
    since = options.starting_timestamp
    for segment, is_outside in zip(segments, outside, strict=True):
        if not is_outside and (since is None or not _is_older(segment, since)):
            yield segment


def _is_older(segment: Segment, timestamp: int) -> bool:
    source = open_segment(segment)
    try:
        return is_older(source, segment.segment, segment.file_base_offset, segment.length, timestamp)
    finally:
        source.close()


def open_segment(segment: Segment) -> FileSource:
    """The file of a segment. Raises a UserError."""
    try:
        return FileSource(local_path(segment.segment) or segment.segment)
    except SourceError as error:
        raise UserError(f"{segment.segment}: {error}") from None
