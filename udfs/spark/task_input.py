"""Reads a task's input: turns rows of slices into slices with the source of their bytes, one by one.

A slice that brings no content is read from its URI, or from the Parquet files where its bytes were landed;
content may come in several rows, chunk by chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder.decoded import Group, Range, Scope
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.spark.protocol import SLICE_SCHEMA, ArrowBatches, Problem, SliceReport, StageOptions
from kafka_log_lake.udfs.storage.byte_source import (
    ByteSource,
    ChunkSource,
    FileSource,
    SourceChanged,
    SourceError,
    SourceUnreadable,
    UnreadableRange,
)
from kafka_log_lake.udfs.storage.fingerprint import FileMatch, compare_fingerprint
from kafka_log_lake.udfs.storage.landed_source import LandedFiles, LandedSource
from kafka_log_lake.udfs.storage.object_source import ObjectSource
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.pieces import PiecesSource
from kafka_log_lake.udfs.storage.tier_object import TierObject


@dataclass
class TaskSlice:
    """A slice of the task's input: its row of SLICE_SCHEMA, and the source of its bytes.

    moved: columns of the row that decoding takes in place of those planned.
    """

    row: dict[str, Any]
    source: ByteSource
    moved: dict[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[int, str, int]:
        """Returns what a report names the slice by: group_id, segment, start."""
        return self.row["group_id"], self.row["segment"], self.row["start"]

    def failed(self, error: SourceError) -> SliceReport:
        """Returns the report of a slice of which nothing may be committed."""
        return SliceReport(*self.ids, problem=problem_of(error), detail=str(error))

    def check_unchanged(self) -> None:
        """Raises SourceChanged where an object was written again since it was listed."""
        if isinstance(self.source, ObjectSource):
            self.source.check_unchanged(self.row["modified"])

    def groups(self, decoder: SegmentDecoder) -> Iterator[Group]:
        """Yields the groups of the slice's decoder.

        Raises a SourceError, in the end that of ``check_unchanged``.
        """
        yield from decoder
        self.check_unchanged()

    def decoder(self, options: StageOptions, columns: Collection[str] | None = None) -> SegmentDecoder:
        """Returns the slice's decoder. columns: the columns of ``records`` to build; None: all."""
        row = self.row | self.moved
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


def _rows(batches: ArrowBatches) -> Iterator[tuple[dict[str, object], pa.Buffer | None]]:
    """Yields input rows, with the content apart as a buffer that is not copied; None where it is null."""
    at = SLICE_SCHEMA.get_field_index("content")
    for batch in batches:
        content = batch.column(at)
        for i, row in enumerate(batch.drop_columns(["content"]).to_pylist()):
            yield row, content[i].as_buffer() if content[i].is_valid else None


def slices_of(batches: ArrowBatches) -> Iterator[TaskSlice]:
    """Yields slices in their order; a slice's chunks are taken as its source needs them."""

    def key(item: tuple[dict[str, Any], object]) -> tuple[int, str, int]:
        return item[0]["group_id"], item[0]["segment"], item[0]["start"]

    opened = LandedFiles()
    for _, items in itertools.groupby(_rows(batches), key):
        slice_ = _with_source(items, opened)
        yield slice_
        slice_.source.close()
    opened.close()


def _with_source(items: Iterator[tuple[dict[str, Any], Any]], opened: LandedFiles) -> TaskSlice:
    row, content = next(items)
    try:
        if content is None:
            source = _open(row, opened)
            try:
                _check_as_planned(row, source, source.size())
                moved = _moved(row, source) if isinstance(source, LandedSource) else {}
            except SourceError:
                source.close()
                raise
            return TaskSlice(row, source, moved)
        rest = itertools.chain([(row, content)], items)
        chunks = ChunkSource((r["chunk_position"], _cut(r, c)) for r, c in rest)
        if row["chunk_position"] == 0:  # else the marks are in no chunk that came
            _check_as_planned(row, chunks, max(len(content), row["length"]))
    except SourceError as error:
        return TaskSlice(row, FailedSource(error))
    return TaskSlice(row, chunks)


def _open(
    row: dict[str, Any], opened: LandedFiles
) -> FileSource | ObjectSource | PiecesSource | TierObject | LandedSource:
    """Returns the source of a slice whose input row has no bytes."""
    if row["landed"] is not None:
        return LandedSource(row["segment"], row["landed"], row["length"], opened)
    return open_source(row["file"] or row["segment"], row["stop"])


def _moved(row: dict[str, Any], source: LandedSource) -> dict[str, Any]:
    """Returns start and stop of a slice of landed bytes where they are best: where the next one has them too.

    The plan knows no chunks. Only the first slice has an exact start, and only the last one stops at the end.
    """
    moved: dict[str, Any] = {}
    if not row["exact_start"]:
        moved["start"], moved["exact_start"] = source.cut_at(row["start"])
    if row["stop"] < row["length"]:
        moved["stop"], _ = source.cut_at(row["stop"])
    return moved


def _check_as_planned(row: dict[str, Any], source: ByteSource, size: int) -> None:
    """Raises SourceChanged where a file is not the one of the plan.

    The log cleaner puts another file in a segment's place; what one opened file gives fits together.

    So it is checked here that a segment that has a successor does not grow, and that one
    that grows still begins as it did.
    """
    if size < row["length"] or (size > row["length"] and row["has_successor"]):
        raise SourceChanged(f"it has {size} bytes, planned with {row['length']}")
    if row["fingerprint"] and compare_fingerprint(source, row["fingerprint"]) is FileMatch.CHANGED:
        raise SourceChanged("it does not begin as what was decoded of it before")


def _cut(row: dict[str, Any], content: Any) -> Any:
    """Returns content up to the planned length: a segment that is being written may have brought more.

    Raises SourceUnreadable for content that is null.
    """
    if content is None:
        raise SourceUnreadable(
            f"Spark did not bring its bytes from {row['chunk_position']} on: it changed, or is no "
            "segment, or so many of them have no two zeros in a row that --max-content must be larger"
        )
    return content[: max(0, row["length"] - row["chunk_position"])]


class FailedSource:
    """The source of a segment that could not be opened: every read raises ``why``."""

    def __init__(self, why: SourceError) -> None:
        self.why = why

    def read_into(self, position: int, view: np.ndarray) -> int:
        raise self.why

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        return []

    def close(self) -> None:
        pass


def problem_of(error: SourceError) -> Problem:
    """Returns what a slice's report says of an error: bytes that can't be read, or a file that changed."""
    return Problem.UNREADABLE if isinstance(error, SourceUnreadable) else Problem.CHANGED


def groups_of(batches: ArrowBatches) -> Iterator[tuple[int, ArrowBatches]]:
    """Yields (group_id, rows) for each group of slices; a batch that holds several groups is cut.

    Spark brings files in an order of its own: the groups of a batch are put together.
    """

    def parts() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            if any(after < before for before, after in itertools.pairwise(ids)):
                batch = batch.take(pa.array(sorted(range(len(ids)), key=ids.__getitem__)))
                ids.sort()
            begin = 0
            for end in range(1, len(ids) + 1):
                if end == len(ids) or ids[end] != ids[begin]:
                    yield ids[begin], batch.slice(begin, end - begin)
                    begin = end

    for group_id, parts_of_group in itertools.groupby(parts(), lambda item: item[0]):
        yield group_id, map(itemgetter(1), parts_of_group)
