"""Makes the input partitions of a read: segments that may hold what was requested, cut between batches.

Where batches begin, their headers say, each of a few bytes. The ``.index`` next to a segment (Kafka's
``OffsetIndex``: pairs of a relative offset and a position, big-endian int32, ascending; zeros after them
while the segment is active) saves most of that walk. It may belong to another file: headers at its
positions have to agree with it, else all headers are followed. Nothing here computes a checksum, so a task
that reads a slice verifies that it ends where the next one starts.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Reading
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.dataframes.options import PRUNING, Options, option_name
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter, no_segments_error
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import parse_folder
from kafka_log_lake.pipelines.plan.headers import NO_INDEX, headers, is_file_older, read_index
from kafka_log_lake.pipelines.plan.listed import list_sources
from kafka_log_lake.pipelines.plan.scope import outside_by_name
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, cut, pack, slice_row
from kafka_log_lake.udfs.spark.protocol import SLICE_SCHEMA
from kafka_log_lake.udfs.storage.byte_source import ByteSource, SourceError
from kafka_log_lake.udfs.storage.fingerprint import mark
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.store import is_object_store

log = logging.getLogger(__name__)

# Planning has no session, so it does not know the cores: enough tasks for small segments, not too many
_CORES = 16
_THREADS = 8  # that read headers: a store takes some 20 ms a request

# Where slices start and the last one stops; of each slice the fingerprint that its file has to have
Edges = tuple[list[int], list[str | None]]


class Span(NamedTuple):
    """The batches of a segment that begin in [start, stop); a batch begins at stop, or the segment ends."""

    segment: Segment
    start: int
    stop: int


def list_requested(options: Options) -> list[Segment]:
    """Lists the segments of the requested topics and partitions, by folder and base offset.

    Raises a UserError where the path holds no segment, and where one of them, or its folder, can't be listed.
    """
    passed = ("follow_symlinks", "topics", "exclude_topics", "tier", "tier_key")
    reading = Reading(source=options.path, **{name: getattr(options, name) for name in passed})
    listing = list_sources(reading, include_deleted=None)
    _refuse_unreadable(listing, options)
    if not (listing.has_wanted or listing.not_requested):
        raise no_segments_error(options.path, listing)
    wanted = listing.segments.filter(listing.segments.column("wanted")).drop_columns(["wanted"])
    segments = (Segment(**row, scope=options.scope) for row in wanted.to_pylist())
    return [segment for segment in segments if options.takes(segment.partition)]


def _refuse_unreadable(listing: Listing, options: Options) -> None:
    """Raises a UserError for a requested folder that can't be listed: its records would be missing."""
    topic_filter = TopicFilter(options.topics, options.exclude_topics)
    for uri, why in sorted(listing.unreadable.items()):
        place = parse_folder(uri)
        if isinstance(place, str) or (topic_filter(place.topic) and options.takes(place.partition)):
            raise UserError(f"{uri} can't be read: {why}")


def plan_read(options: Options) -> list[pa.RecordBatch]:
    """Returns what each task of a read decodes (SLICE_SCHEMA). Raises a UserError where none is requested."""
    segments = list_requested(options)
    if not segments:
        raise UserError(f"no segment in {', '.join(options.path)} is of the topics and partitions requested")
    spans = [Span(segment, 0, segment.length) for segment in _pruned(segments, options)]
    _tell_if_nothing_is_left_out(spans, options)
    return make_tasks(spans, options.slice_bytes)


def _tell_if_nothing_is_left_out(spans: Sequence[Span], options: Options) -> None:
    """Warns once if no option prunes the read: Spark hands no filter to this source, so WHERE saves nothing.

    A single segment causes no warning: a path can name nothing smaller.
    """
    if len(spans) > 1 and not any(getattr(options, name) is not None for name in PRUNING):
        _tell_once(options.path, size_text(sum(span.stop for span in spans)), len(spans))


@lru_cache(maxsize=1 << 10)
def _tell_once(path: tuple[str, ...], size: str, segments: int) -> None:
    """Writes once a process and path to the log that a read takes all, and what would make it take less."""
    log.warning(
        "kafka_log reads all %s of %s in %s: a WHERE skips no file, and columns that a query does not use "
        "are decoded; the options %s and columns read less",
        size,
        counted_noun(segments, "segment"),
        ", ".join(path),
        ", ".join(map(option_name, PRUNING)),
    )


def make_tasks(spans: Sequence[Span], slice_bytes: int) -> list[pa.RecordBatch]:
    """Cuts spans where batches begin. Returns what each task decodes: rows of SLICE_SCHEMA."""
    rows: list[dict[str, Any]] = []
    slices: list[Slice] = []
    for span, (edges, marks) in zip(spans, _all_edges(spans, slice_bytes), strict=True):
        for (start, stop), marked in zip(itertools.pairwise(edges), marks, strict=True):
            slices.append(Slice(len(slices), span.segment, start, stop, exact_start=True))
            rows.append({**slice_row(slices[-1]), "fingerprint": marked})
    tasks = pack(slices, _CORES, slice_bytes) if slices else []
    return [
        pa.RecordBatch.from_pylist([rows[slice_.group_id] for slice_ in task], schema=SLICE_SCHEMA)
        for task in tasks
    ]


def _all_edges(spans: Sequence[Span], slice_bytes: int) -> Iterator[Edges]:
    """Yields the ``_edges`` of each span. A segment that one task opens once needs no fingerprint."""
    cuts = [_cuts(span, slice_bytes) for span in spans]
    to_read = [(span, at) for span, at in zip(spans, cuts, strict=True) if at or span.start]
    with ThreadPoolExecutor(_THREADS) as threads:
        edges = threads.map(_edges, *zip(*to_read, strict=True)) if to_read else iter(())
        for span, at in zip(spans, cuts, strict=True):
            yield next(edges) if at or span.start else ([span.start, span.stop], [None])


def _cuts(span: Span, slice_bytes: int) -> list[int]:
    """Returns the positions within a span at which equal slices of it would start."""
    parts = cut(replace(span.segment, length=span.stop - span.start), slice_bytes)
    return [span.start + edge for edge, _ in parts[1:]]


def _edges(span: Span, cuts: list[int]) -> Edges:
    """Finds where a span's slices start and the last stops, and what the file of each slice has to hold.

    That is a fingerprint of the headers at the segment's begin and at the slice's start: another file may
    have taken the name between planning and reading, or between two tasks.

    An object is cut by its index alone: each header is a request, and where batches are small, following
    them all would read all of it.
    """
    segment, start, stop = span
    index = read_index(segment.uri) if cuts else NO_INDEX
    walks = not is_object_store(segment.uri)
    if not (start or walks or len(index)):
        return [start, stop], [None]
    with opened(segment) as source:
        inner = boundaries(source, index, segment.file_base_offset, stop, cuts, start, walks)
        edges = [start, *inner, stop]
        first = mark(source, 0, segment.length)
        return edges, [f"{first}/{mark(source, edge, segment.length)}" for edge in edges[:-1]]


def boundaries(
    source: ByteSource,
    index: np.ndarray,
    base: int,
    length: int,
    cuts: Sequence[int],
    start: int = 0,
    walks: bool = True,
) -> list[int]:
    """Finds the first batch at or after each cut; none for cuts after the last batch that headers lead to.

    index: int64[n, 2] of ``read_index``. base: the offset in the segment's name. cuts: ascending, past
    ``start``, where a batch begins. walks: whether all headers are followed where the index does not help;
    else such a cut is left out.
    """
    positions: list[int] = []
    known = start  # a batch begins here
    for edge in cuts:
        if positions and positions[-1] >= edge:
            continue
        boundary = _by_index(source, index, base, length, edge)
        if boundary < 0 and walks:
            boundary = next((h.position for h in headers(source, known, length) if h.position >= edge), -1)
        if start < boundary < length:
            positions.append(boundary)
            known = boundary
        elif walks:
            break
    return positions


def _by_index(source: ByteSource, index: np.ndarray, base: int, length: int, edge: int) -> int:
    """Finds the first batch at or after ``edge`` between two entries of the index; -1 where headers differ.

    An entry names a batch by the last offset of what was appended there.
    """
    after = int(np.searchsorted(index[:, 1], edge, side="left"))
    if not 0 < after < len(index):
        return -1
    (before_offset, before), (offset, stop) = index[after - 1].tolist(), index[after].tolist()
    boundary, first = -1, True
    for header in headers(source, before, length):
        if first and not base <= header.offset <= base + before_offset:
            return -1
        first = False
        if boundary < 0 and header.position >= edge:
            boundary = header.position
        if header.position >= stop:
            agrees = header.position == stop and base + before_offset < header.offset <= base + offset
            return boundary if agrees else -1
    return -1


def _pruned(segments: Sequence[Segment], options: Options) -> Iterator[Segment]:
    """Yields the segments that may hold offsets and timestamps within the options' bounds."""
    folders = pa.array([segment.partition_dir for segment in segments])
    bases = pa.array([segment.file_base_offset for segment in segments])
    outside = outside_by_name(folders, bases, options.scope)
    since = options.starting_timestamp
    for segment, is_outside in zip(segments, outside, strict=True):
        of_file = segment.uri, segment.file_base_offset, segment.length
        if not is_outside and (since is None or not is_file_older(*of_file, since)):
            yield segment


@contextmanager
def opened(segment: Segment) -> Iterator[ByteSource]:
    """Opens the file or object of a segment. Raises a UserError if it can't be opened or read."""
    try:
        source = open_source(segment.uri)
        try:
            yield source
        finally:
            source.close()
    except SourceError as error:
        raise UserError(f"{segment.segment}: {error}") from None
