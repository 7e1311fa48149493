"""The input partitions of a read: segments that may hold what was asked for, cut where batches begin."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.data_source.boundaries import boundaries, highest_timestamp, read_index
from pipelines.data_source.options import Options
from pipelines.plan.slice_input import slice_row
from pipelines.plan.slices import Segment, Slice, cut, make_slices, pack
from pipelines.source.listing import Listing, TopicFilter, list_segments, no_segments_error
from pipelines.source.naming import parse_folder
from udfs.source.byte_source import FileSource, SourceError, local_path
from udfs.source.fingerprint import mark
from udfs.spark.protocol import SLICE_SCHEMA

# Planning has no session, so it does not know the cores: enough tasks for small segments, not too many
_CORES = 16


def list_asked(options: Options) -> list[Segment]:
    """The segments of the topics and partitions that are asked for, by folder and base offset.

    Raises a UserError where there is none, and where one of them, or its folder, can't be listed.
    """
    listing = list_segments(
        options.path,
        follow_symlinks=options.follow_symlinks,
        topics=options.topics,
        exclude_topics=options.exclude_topics,
    )
    _refuse_unreadable(listing, options)
    wanted = listing.segments.filter(listing.segments.column("wanted")).drop_columns(["wanted"])
    segments = [Segment(**row) for row in wanted.to_pylist()]
    asked = [segment for segment in segments if options.takes(segment.partition)]
    if not asked and not (listing.unasked or segments):
        raise no_segments_error(options.path)
    if not asked:
        raise UserError(f"no segment in {', '.join(options.path)} is of the topics and partitions asked for")
    return asked


def _refuse_unreadable(listing: Listing, options: Options) -> None:
    """Records of a folder that can't be listed would be missing silently."""
    topic_filter = TopicFilter(options.topics, options.exclude_topics)
    for uri, why in sorted(listing.unreadable.items()):
        place = parse_folder(uri)
        if isinstance(place, str) or (topic_filter(place.topic) and options.takes(place.partition)):
            raise UserError(f"{uri} can't be read: {why}")


def plan_read(options: Options) -> list[pa.RecordBatch]:
    """What each task decodes: batches of SLICE_SCHEMA. Slices of one segment fit together."""
    segments = list(_pruned(list_asked(options), options))
    slices, marks = _cut(segments, options.slice_bytes)
    return (
        [to_batch(task.slices, marks) for task in pack(slices, _CORES, options.slice_bytes)] if slices else []
    )


def to_batch(slices: Iterable[Slice], marks: dict[str, dict[int, str]]) -> pa.RecordBatch:
    """Slices as rows of SLICE_SCHEMA. marks: of ``_cut``."""
    rows = [
        {**slice_row(one, 0), "fingerprint": marks.get(one.segment.segment, {}).get(one.start)}
        for one in slices
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SLICE_SCHEMA)


def _pruned(segments: Sequence[Segment], options: Options) -> Iterator[Segment]:
    """Segments that may hold offsets and timestamps within the options' bounds.

    Offsets by the names, as Kafka finds a segment: it holds those from its own name up to the next one's.
    """
    low, high, since = options.starting_offset, options.ending_offset, options.starting_timestamp
    for _, of_folder in itertools.groupby(segments, lambda segment: segment.partition_dir):
        own = list(of_folder)
        for segment, successor in itertools.zip_longest(own, own[1:]):
            if high is not None and segment.file_base_offset >= high:
                continue
            if low is not None and successor is not None and successor.file_base_offset <= low:
                continue
            if since is not None and _is_older(segment, since):
                continue
            yield segment


def _is_older(segment: Segment, timestamp: int) -> bool:
    """Whether the headers of all batches name timestamps below ``timestamp``, ms."""
    source = _open(segment)
    try:
        highest = highest_timestamp(source, segment.length)
    finally:
        source.close()
    return highest is not None and highest < timestamp


def _cut(segments: Sequence[Segment], slice_bytes: int) -> tuple[list[Slice], dict[str, dict[int, str]]]:
    """Slices that start and end where batches do, and for segments of several slices what lies at each start.

    Marks, segment -> start -> fingerprint: headers that a task has to find there, since another file may have
    taken the name between planning and reading, or between two tasks.
    """
    large = [segment for segment in segments if len(cut(segment, slice_bytes)) > 1]
    small = [segment for segment in segments if len(cut(segment, slice_bytes)) == 1]
    slices = make_slices(small, slice_bytes)
    group = max((one.group_id for one in slices), default=-1) + 1
    marks: dict[str, dict[int, str]] = {}
    for segment in large:
        source = _open(segment)
        try:
            edges = [0, *_edges(source, segment, slice_bytes), segment.length]
            first = mark(source, 0, segment.length)
            marks[segment.segment] = {
                start: f"{first}/{mark(source, start, segment.length)}" for start in edges[:-1]
            }
        except SourceError as error:
            raise UserError(f"{segment.segment}: {error}") from None
        finally:
            source.close()
        for start, stop in itertools.pairwise(edges):
            slices.append(Slice(group, segment, start, stop, exact_start=True))
            group += 1
    return slices, marks


def _edges(source: FileSource, segment: Segment, slice_bytes: int) -> list[int]:
    cuts = [start for start, _ in cut(segment, slice_bytes)[1:]]
    return boundaries(source, read_index(segment.segment), segment.file_base_offset, segment.length, cuts)


def _open(segment: Segment) -> FileSource:
    try:
        return FileSource(local_path(segment.segment) or segment.segment)
    except SourceError as error:
        raise UserError(f"{segment.segment}: {error}") from None
