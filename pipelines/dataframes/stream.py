"""Reads ``spark.readStream.format("kafka_log")``: plans the offsets of micro-batches, and reads them.

A folder's segments are read in the order of their names. All but the last one are read to their ends; in the
last one headers are walked, and what follows the last whole batch waits: a torn tail, zeros, or damage, which
is read once the segment has a successor.

A stream gives rows once and takes none back. Where the file at its position was replaced (the log cleaner
rewrote or merged it, the log was truncated, retention deleted it), the stream continues at the next offset.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.options import FAILFAST, Options
from kafka_log_lake.pipelines.dataframes.reading import one_line, read_slices
from kafka_log_lake.pipelines.dataframes.slices import Span, list_requested, make_tasks, opened
from kafka_log_lake.pipelines.plan.headers import Header, headers, may_go_on
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.udfs.format.file_names import file_name
from kafka_log_lake.udfs.storage.byte_source import ByteSource
from kafka_log_lake.udfs.storage.fingerprint import FileMatch, compare_fingerprint, mark
from kafka_log_lake.udfs.storage.store import canonical_uri, is_object_store

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_log_lake.udfs.spark.protocol import TableRead

log = logging.getLogger(__name__)
Folders = dict[str, list[Segment]]


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches; an offset is a dict of folder -> fields of ``StreamPosition``."""

    def __init__(self, options: Options, read: TableRead) -> None:
        for path in options.path:
            if is_object_store(canonical_uri(path)):
                raise UserError(
                    f"{path} can't be read as a stream, which follows the headers of local files: "
                    "read it with spark.read, or follow it with decode --watch"
                )
        self._options, self._read = options, read
        self._failfast = options.mode == FAILFAST
        self._folders: Folders | None = None  # as the last offset saw them
        self._latest: dict[str, Any] | None = None  # of the last offset: see ``reportLatestOffset``
        self._target: dict[str, tuple[int, int]] | None = None  # folder -> last segment, its length

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        folders = self._list()
        self._target = {
            name: (segments[-1].file_base_offset, segments[-1].length) for name, segments in folders.items()
        }

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._folders = self._list()
        folders = self._folders if self._target is None else self._up_to_target(self._folders)
        places = {name: StreamPosition(**fields) for name, fields in start.items()}
        pending = {
            name: segments for name, segments in folders.items() if may_have_more(segments, places.get(name))
        }
        share = limit.max_bytes // max(1, len(pending)) if isinstance(limit, ReadMaxBytes) else None
        for name, segments in pending.items():
            places[name] = advance(segments, places.get(name), share and max(1, share), self._failfast)
        self._latest = {
            name: {
                "segment": segments[-1].file_base_offset,
                "position": segments[-1].length,
                "backlog_bytes": bytes_behind(segments, places.get(name)),
            }
            for name, segments in sorted(self._folders.items())
        }
        return {name: asdict(places[name]) for name in sorted(places)}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Returns where each log ended when the last micro-batch was planned, and the bytes left unread.

        The query's progress has it as ``latestOffset``.
        """
        return self._latest

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        folders = self._folders if self._folders is not None else self._list()
        self._folders = None
        all_spans = []
        for name, fields in end.items():
            if fields != start.get(name):
                before = StreamPosition(**start[name]) if name in start else None
                all_spans += spans(
                    name, folders.get(name, []), before, StreamPosition(**fields), self._failfast
                )
        return [InputPartition(task) for task in make_tasks(all_spans, self._options.slice_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slices(self._read, partition)

    def _list(self) -> Folders:
        by_folder = itertools.groupby(list_requested(self._options), lambda segment: segment.partition_dir)
        return {name: list(segments) for name, segments in by_folder}

    def _up_to_target(self, folders: Folders) -> Folders:
        """Returns the folders without what came after the start of an AvailableNow query."""
        taken: Folders = {}
        for name, (last, length) in (self._target or {}).items():
            kept = [segment for segment in folders.get(name, []) if segment.file_base_offset <= last]
            if kept and kept[-1].file_base_offset == last:
                kept[-1] = replace(kept[-1], length=min(length, kept[-1].length))
            if kept:
                taken[name] = kept
        return taken


@dataclass(frozen=True)
class StreamPosition:
    """The position at which a stream continues in a folder; its fields are those of the checkpoint's JSON.

    segment: base offset in the segment's name; all segments before are read.
    position: byte in it, where a batch begins or may come. next_offset: the first that was not read.
    marks: fingerprint of the headers of the first batch and the last one before position; "" at position 0.
    topic_id: of the folder; "" unknown.
    from_segment, from_position, from_marks: where this micro-batch began; -1 if where the one before ended.
    """

    segment: int
    position: int
    next_offset: int
    marks: str = ""
    topic_id: str = ""
    from_segment: int = -1
    from_position: int = -1
    from_marks: str = ""


def advance(
    folder: Sequence[Segment], before: StreamPosition | None, limit: int | None = None, failfast: bool = False
) -> StreamPosition:
    """Returns the position up to which a micro-batch reads a folder; ``before`` if there is nothing to do.

    folder: its segments, ascending. before: None for a folder that was not read yet. limit: bytes to read, at
    least one batch; None without. Raises a UserError for a log that ends before what was read of it; under
    failfast also for each file that is another one than it was.
    """
    begin = _begin(folder, before, failfast)
    after = _read_on(folder, begin, limit)
    if before is None or begin is not before:
        return replace(
            after, from_segment=begin.segment, from_position=begin.position, from_marks=begin.marks
        )
    return before if (after.segment, after.position) == (before.segment, before.position) else after


def spans(
    name: str,
    folder: Sequence[Segment],
    before: StreamPosition | None,
    after: StreamPosition,
    failfast: bool = False,
) -> list[Span]:
    """Returns what a micro-batch reads of a folder: from the end of the one before up to ``after``.

    A micro-batch is read again after a failure. If a file at one of its ends is another one meanwhile, or
    gone, both ends are found by offset. Raises a UserError as ``advance`` does.
    """
    begin = before
    if after.from_segment >= 0:
        wanted = before.next_offset if before is not None else after.from_segment
        begin = StreamPosition(after.from_segment, after.from_position, wanted, after.from_marks)
    if begin is None or not folder:
        _tell(f"{name} is gone: a micro-batch that has to read it again gives no rows of it", failfast)
        return []
    if not (_holds(folder, begin) and _holds(folder, after)):
        _tell(f"{name} has other files than when this micro-batch was planned", failfast)
        begin, after = _by_offset(folder, begin, failfast), _by_offset(folder, after, failfast)
    spans_of_folder = []
    for segment in folder:
        base = segment.file_base_offset
        start = begin.position if base == begin.segment else 0
        stop = after.position if base == after.segment else segment.length
        if begin.segment <= base <= after.segment and start < stop:
            # after the last whole batch the last segment is not read: its end is where the batch ends
            length = segment.length if segment.has_successor else stop
            spans_of_folder.append(Span(replace(segment, length=length), start, stop))
    return spans_of_folder


def may_have_more(folder: Sequence[Segment], before: StreamPosition | None) -> bool:
    """Returns whether a folder holds bytes that the stream did not read, by names and lengths alone."""
    last = folder[-1]
    return before is None or (last.file_base_offset, last.length) != (before.segment, before.position)


def bytes_behind(folder: Sequence[Segment], place: StreamPosition | None) -> int:
    """Returns the bytes of a folder after a position, with those of a tail that can't be read yet."""
    if place is None:
        return sum(segment.length for segment in folder)
    later = sum(segment.length for segment in folder if segment.file_base_offset > place.segment)
    reached = _own(folder, place)
    return later + (max(0, reached.length - place.position) if reached is not None else 0)


def _begin(folder: Sequence[Segment], before: StreamPosition | None, failfast: bool) -> StreamPosition:
    """Returns where a micro-batch begins: ``before`` as long as its file is the same."""
    topic_id = folder[0].topic_id or ""
    if before is None:
        return _start_of(folder[0])
    if topic_id and before.topic_id and topic_id != before.topic_id:
        _tell(f"{folder[0].partition_dir} is of another topic id than before: it is read anew", failfast)
        return _start_of(folder[0])
    return before if _holds(folder, before) else _by_offset(folder, before, failfast)


def _start_of(segment: Segment) -> StreamPosition:
    base = segment.file_base_offset
    return StreamPosition(base, 0, base, topic_id=segment.topic_id or "")


def _own(folder: Sequence[Segment], place: StreamPosition) -> Segment | None:
    return next((segment for segment in folder if segment.file_base_offset == place.segment), None)


def _holds(folder: Sequence[Segment], place: StreamPosition) -> bool:
    """Returns whether the file at a position is the same as when it was read."""
    segment = _own(folder, place)
    if segment is None:
        return False
    if segment.length <= place.position or not place.marks:
        return segment.length >= place.position
    with opened(segment) as source:
        return compare_fingerprint(source, place.marks) is FileMatch.SAME


def _by_offset(folder: Sequence[Segment], before: StreamPosition, failfast: bool) -> StreamPosition:
    """Finds the first batch that holds, or follows, the offset at which the stream continues."""
    is_there = _own(folder, before) is not None
    wanted, where = before.next_offset, f"{folder[0].partition_dir}/{file_name(before.segment)}"
    if folder[0].file_base_offset > wanted:
        text = f"{where} is gone: the stream goes on at offset {folder[0].file_base_offset}, not at {wanted}"
        _tell(text, failfast)
        return _start_of(folder[0])
    at = max(i for i, segment in enumerate(folder) if segment.file_base_offset <= wanted)
    if is_there or folder[at].file_base_offset != wanted:
        what = "was rewritten" if is_there else "was merged into another segment"
        _tell(
            f"{where} {what}: the stream goes on at offset {wanted}, rows before are not replaced", failfast
        )
    last: Header | None = None
    with opened(folder[at]) as source:
        for header in headers(source, 0, folder[at].length):
            if header.last_offset >= wanted:
                return _position_after(folder[at], source, last, wanted)
            last = header
        if at + 1 < len(folder):
            return _start_of(folder[at + 1])
        reached = last.last_offset + 1 if last else folder[at].file_base_offset
        if reached < wanted:
            raise UserError(
                f"{folder[at].segment} ends before offset {reached}, and the stream had read up to {wanted}: "
                "the log was truncated; start a new query with a new checkpoint"
            )
        return _position_after(folder[at], source, last, wanted)


def _read_on(folder: Sequence[Segment], begin: StreamPosition, limit: int | None) -> StreamPosition:
    """Returns the position ``limit`` bytes after ``begin``, or after the last whole batch of the log."""
    place, left = begin, limit
    for at, segment in enumerate(folder):
        if segment.file_base_offset < begin.segment:
            continue
        if segment.file_base_offset > begin.segment:
            place = _start_of(segment)
        size = segment.length - place.position
        goes_on = segment.has_successor and at + 1 < len(folder)
        if left is not None and left <= 0:
            return place
        if goes_on and (left is None or size <= left):
            left = None if left is None else left - size
            continue
        after, is_cut = _walk(segment, place, left)
        if is_cut or not goes_on:
            return after
        left = 0  # after the last header lies damage: the rest of the segment is read too
    return place


def _walk(segment: Segment, place: StreamPosition, limit: int | None) -> tuple[StreamPosition, bool]:
    """Returns the position after the batches that headers lead to, and whether ``limit`` ended them."""
    last: Header | None = None
    with opened(segment) as source:
        for header in headers(source, place.position, segment.length):
            if limit is not None and last is not None and header.end - place.position > limit:
                return _position_after(segment, source, last, place.next_offset), True
            last = header
        after = place if last is None else _position_after(segment, source, last, place.next_offset)
        if not segment.has_successor and not may_go_on(source, after.position, segment.length):
            _note_damage(segment.segment, after.position)
        return after, False


@lru_cache(maxsize=1 << 16)
def _note_damage(segment: str, position: int) -> None:
    """Logs, once per process and position, that a stream waits before damage at a position (bytes)."""
    log.warning(
        "kafka_log: %s is damaged at byte %s: the stream waits there, and continues after the damage once "
        "the folder has a later segment",
        segment,
        f"{position:,}",
    )


def _position_after(
    segment: Segment, source: ByteSource, last: Header | None, next_offset: int
) -> StreamPosition:
    """Returns the position after a batch; without one the begin of the segment."""
    base, topic_id = segment.file_base_offset, segment.topic_id or ""
    if last is None:
        return StreamPosition(base, 0, next_offset, topic_id=topic_id)
    marks = f"{mark(source, 0, last.end)}/{mark(source, last.position, last.end)}"
    return StreamPosition(base, last.end, max(next_offset, last.last_offset + 1), marks, topic_id)


def _tell(text: str, failfast: bool) -> None:
    if failfast:
        raise UserError(f"{text} (mode failfast)")
    log.warning("kafka_log: %s", text)
