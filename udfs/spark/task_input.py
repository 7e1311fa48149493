"""A task's input: rows of slices -> slices with the source of their bytes, one after the other.

A slice that brings no content is read from its URI; content may come in several rows, chunk by chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from udfs.decoded import Group, Range, Scope
from udfs.segment_decoder import SegmentDecoder
from udfs.source.byte_source import (
    ByteSource,
    ChunkSource,
    SourceChanged,
    SourceError,
    SourceUnreadable,
    Unreadable,
    open_source,
)
from udfs.source.fingerprint import Marks, compare
from udfs.source.object_source import ObjectSource
from udfs.spark.protocol import SLICE_SCHEMA, ArrowBatches, Problem, SliceReport, StageOptions


@dataclass
class TaskSlice:
    """One slice of the task's input, with its bytes."""

    row: dict[str, Any]
    source: ByteSource

    @property
    def ids(self) -> tuple[int, str, int]:
        """What a report names it by: group_id, segment, start."""
        return self.row["group_id"], self.row["segment"], self.row["start"]

    def failed(self, error: SourceError) -> SliceReport:
        """The report of a slice of which nothing may be committed."""
        return SliceReport(*self.ids, problem=problem_of(error), detail=str(error))

    def check_unchanged(self) -> None:
        """Raises SourceChanged where an object was written again since it was listed."""
        if isinstance(self.source, ObjectSource):
            self.source.check_unchanged(self.row["modified"])

    def groups(self, decoder: SegmentDecoder) -> Iterator[Group]:
        """What the slice's decoder gives. Raises a SourceError, in the end that of ``check_unchanged``."""
        yield from decoder
        self.check_unchanged()

    def decoder(self, options: StageOptions, columns: Collection[str] | None = None) -> SegmentDecoder:
        """columns: of its records, those that are built; None: all."""
        row = self.row
        return SegmentDecoder(
            self.source,
            Range(
                length=row["length"],
                start=row["start"],
                stop=row["stop"],
                exact=row["exact_start"],
                has_successor=row["has_successor"],
                previous_last_offset=row["previous_last_offset"],
                file_base_offset=row["file_base_offset"],
                scope=Scope.parse(row["scope"]),
            ),
            options.window_bytes,
            options.max_batch_uncompressed,
            options.quarantine_content_bytes,
            columns,
        )


def _rows(batches: ArrowBatches) -> Iterator[tuple[dict[str, Any], pa.Buffer | None]]:
    """Input rows, the content apart as a buffer that is not copied."""
    at = SLICE_SCHEMA.get_field_index("content")
    for batch in batches:
        content = batch.column(at)
        for i, row in enumerate(batch.drop_columns(["content"]).to_pylist()):
            yield row, content[i].as_buffer() if content[i].is_valid else None


def slices_of(batches: ArrowBatches) -> Iterator[TaskSlice]:
    """Slices in their order; a slice's chunks are taken as its source needs them."""

    def key(item: tuple[dict[str, Any], Any]) -> tuple[int, str, int]:
        return item[0]["group_id"], item[0]["segment"], item[0]["start"]

    for _, items in itertools.groupby(_rows(batches), key):
        slice_ = _with_source(items)
        yield slice_
        slice_.source.close()


def _with_source(items: Iterator[tuple[dict[str, Any], Any]]) -> TaskSlice:
    row, content = next(items)
    try:
        if content is None:
            source = open_source(row["file"] or row["segment"], row["stop"])
            try:
                _check_as_planned(row, source, source.size())
            except SourceError:
                source.close()
                raise
            return TaskSlice(row, source)
        size = row["chunk_position"] + len(content)
        if row["chunk_position"] == 0 and size >= row["start"]:  # else the marks are in no chunk that came
            _check_as_planned(row, ChunkSource(iter([(0, content)])), max(size, row["length"]))
    except SourceError as error:
        return TaskSlice(row, FailedSource(error))
    rest = itertools.chain([(row, content)], items)
    return TaskSlice(row, ChunkSource((r["chunk_position"], _cut(r, c)) for r, c in rest))


def _check_as_planned(row: dict[str, Any], source: ByteSource, size: int) -> None:
    """The log cleaner puts another file in a segment's place, so what one opened file gives fits together.

    Whether it is the file of the plan is checked here: a segment that has a successor does not grow, and one
    that goes on still begins as it did.
    """
    if size < row["length"] or (size > row["length"] and row["has_successor"]):
        raise SourceChanged(f"it has {size} bytes, planned with {row['length']}")
    if row["fingerprint"] and compare(source, row["fingerprint"]) is Marks.CHANGED:
        raise SourceChanged("it does not begin as what was decoded of it before")


def _cut(row: dict[str, Any], content: Any) -> Any:
    """Content up to the planned length: a segment that is being written may have brought more."""
    return content[: max(0, row["length"] - row["chunk_position"])]


class FailedSource:
    """A segment that could not be opened: every read says so."""

    def __init__(self, why: SourceError) -> None:
        self.why = why

    def read_into(self, position: int, view: Any) -> int:
        raise self.why

    def unreadable(self, position: int, end: int) -> list[Unreadable]:
        return []

    def close(self) -> None:
        pass


def problem_of(error: SourceError) -> Problem:
    return Problem.UNREADABLE if isinstance(error, SourceUnreadable) else Problem.CHANGED


def groups_of(batches: ArrowBatches) -> Iterator[tuple[int, ArrowBatches]]:
    """The task's rows a group at a time; a batch that holds several groups is cut."""

    def parts() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            begin = 0
            for end in range(1, len(ids) + 1):
                if end == len(ids) or ids[end] != ids[begin]:
                    yield ids[begin], batch.slice(begin, end - begin)
                    begin = end

    for group_id, found in itertools.groupby(parts(), lambda item: item[0]):
        yield group_id, map(itemgetter(1), found)
