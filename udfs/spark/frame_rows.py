"""Decodes bytes that a DataFrame brings to rows of a table: what ``decode_frame`` runs in a task.

A row is a value of its own, whole; a file that the task opens; or a chunk of a segment, whose chunks are
all in this task: its bytes, or the file of raw_segments that holds them. Values side by side that consist
of sound batches are decoded as one range of bytes, at a fraction of the cost.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.arrow.batch_columns import batch_columns, damage_columns
from kafka_log_lake.udfs.decoder.decoded import Damage, Group, Range, Totals
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import faults, layout
from kafka_log_lake.udfs.format.file_names import segment_base
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, RECORDS
from kafka_log_lake.udfs.functions.columns import binary_column
from kafka_log_lake.udfs.kernels import framing
from kafka_log_lake.udfs.kernels.column_functions import are_framed
from kafka_log_lake.udfs.spark.protocol import ArrowBatches, FrameRead, Stage
from kafka_log_lake.udfs.spark.table_rows import ReadFailed, cut_for_spark, place_text
from kafka_log_lake.udfs.storage.byte_source import ByteSource, ChunkSource, SourceError
from kafka_log_lake.udfs.storage.landed_source import LandedChunks
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.spool import ChunkContradiction, Chunks, ChunkSpool
from kafka_log_lake.udfs.words import counted_noun

log = logging.getLogger(__name__)

_PLACE = ("topic", "partition", "segment")
_RUN_BYTES = 1 << 20
_RUN_EXPANDED = 64 << 20
_NO_BATCHES = np.zeros(0)


def decode_rows(read: FrameRead) -> Stage:
    """Returns a callable that makes rows of a table from rows of FRAME_SCHEMA; it raises ReadFailed."""

    def stage(batches: ArrowBatches) -> ArrowBatches:
        task = _FrameTask(read)
        rows = task.files if read.are_files else task.chunks if read.is_chunked else task.values
        yield from rows(batches)
        task.tell()

    return stage


@dataclass
class _FrameTask:
    """The work of one task.

    damages, damaged_bytes: how much damage it met. first: the first damage in words, "" before it.
    """

    read: FrameRead
    damages: int = 0
    damaged_bytes: int = 0
    first: str = ""
    _wants_errors: bool = field(init=False)

    def __post_init__(self) -> None:
        self._wants_errors = self.read.table == RECORDS.name and "error" in self.read.names

    # Whole values

    def values(self, batches: ArrowBatches) -> ArrowBatches:
        """Yields rows of values that stand by themselves, in their order.

        Null values come last in each batch.
        """
        for batch in batches:
            column = binary_column("decode_frame", batch.column("content"))
            places = batch.select(_PLACE)
            framed = np.zeros(len(column), dtype=np.bool_)
            are_framed(column.data, column.offsets, framed)
            stops = np.append(np.flatnonzero(~framed), len(column))  # a run ends before a value that is not
            begin = 0
            while begin < len(column):
                end = int(np.searchsorted(column.offsets, column.offsets[begin] + _RUN_BYTES, "right")) - 1
                end = max(begin + 1, min(end, int(stops[np.searchsorted(stops, begin)])))
                yield from self._run(places, column.data, column.offsets, begin, end)
                begin = end
            for i in np.flatnonzero(~column.valid).tolist():
                yield from self._group(places, i, _damaged(_null(self.read.content, 0)))

    def _run(
        self, places: pa.RecordBatch, data: np.ndarray, offsets: np.ndarray, begin: int, end: int
    ) -> ArrowBatches:
        """Yields rows of the values ``begin`` to ``end``; decodes halves where not all of it is sound."""
        start, stop = int(offsets[begin]), int(offsets[end])
        source = ChunkSource(iter([(0, data[start:stop])]))
        if end == begin + 1:
            if start < stop:
                yield from self._decoded(places, begin, source, 0, stop - start, None)
            return
        most = min(_RUN_EXPANDED, self.read.options.max_batch_uncompressed)
        groups: list[Group] = []
        size = 0
        for group in self._decoder(source, Range(stop - start, has_successor=True), most):
            size += group.records.nbytes if group.records is not None else 0
            if group.damages or size > _RUN_EXPANDED:
                middle = (begin + end) // 2
                yield from self._run(places, data, offsets, begin, middle)
                yield from self._run(places, data, offsets, middle, end)
                return
            groups.append(Group(group.batches.copy(), group.records, []))
        begins = offsets[begin : end + 1] - start
        for group in groups:
            yield from self._group_of_several(places, begin, begins, group)

    def _group_of_several(
        self, places: pa.RecordBatch, first: int, begins: np.ndarray, group: Group
    ) -> ArrowBatches:
        """Yields rows of a group of several values.

        begins: int64[n], the first byte of each value in the decoded range. first: the number of the first
        value.
        """

        def owners_of(positions: np.ndarray) -> np.ndarray:
            owners: np.ndarray = np.searchsorted(begins, positions, side="right") - 1
            return owners

        if self.read.table == BATCHES.name and len(group.batches):
            owners = owners_of(group.batches["position"])
            group.batches["position"] -= begins[owners]
            yield from self._rows(places, first + owners, batch_columns(group.batches))
        elif self.read.table == RECORDS.name and group.records is not None:
            columns = dict(zip(group.records.schema.names, group.records.columns, strict=True))
            positions = columns["batch_position"].to_numpy()
            owners = owners_of(positions)
            columns["batch_position"] = pa.array(positions - begins[owners])
            yield from self._rows(places, first + owners, columns)

    # Files

    def files(self, batches: ArrowBatches) -> ArrowBatches:
        """Yields rows of the files that the rows name, one file after the other."""
        for batch in batches:
            places = batch.select(_PLACE)
            uris, lengths = (batch.column(name).to_pylist() for name in ("segment", "position"))
            for owner, (uri, length) in enumerate(zip(uris, lengths, strict=True)):
                try:
                    source = open_source(uri, length)
                except SourceError as error:
                    raise ReadFailed(
                        f"{uri}: its bytes can't be read: {error}; where Spark alone opens files, the frame "
                        "needs the column content"
                    ) from None
                with closing(source):
                    yield from self._decoded(places, owner, source, 0, length, None)

    # Chunks

    def chunks(self, batches: ArrowBatches) -> ArrowBatches:
        """Yields rows of the segments whose chunks the task has, one segment after the other."""
        if self.read.is_landed:
            with closing(LandedChunks()) as landed:
                self._find(landed, batches)
                yield from self._segments(landed, {})
            return
        try:
            spool = ChunkSpool()
        except OSError as error:
            raise ReadFailed(f"no temporary file for the chunks of segments: {error}") from None
        with closing(spool):
            yield from self._segments(spool, self._keep(spool, batches))

    def _segments(self, chunks: Chunks, nulls: dict[tuple[Any, ...], list[int]]) -> ArrowBatches:
        """Yields rows of all segments. nulls: the positions of chunks that are null, by segment."""
        for place in {**dict.fromkeys(chunks.segments()), **nulls}:
            yield from self._segment(chunks, place, nulls.get(place, []))

    def _find(self, landed: LandedChunks, batches: ArrowBatches) -> None:
        """Finds all chunks in the files that hold them; each file is read once."""
        rows = (row for batch in batches for row in batch.to_pylist())
        for row in sorted(rows, key=lambda row: (row["file"], row["segment"] or "", row["position"] or 0)):
            place = self._place_of(row)
            if not row["file"]:
                raise ReadFailed(
                    f"Spark does not say in which file of raw_segments a row of {row['segment']} is (is the "
                    'frame cached?): with content=F.col("content") Spark brings its bytes'
                )
            try:
                landed.add(place, row["segment"], row["position"], unquote(row["file"]))
            except SourceError as error:
                raise ReadFailed(f"{row['segment']}: its bytes can't be read: {error}") from None

    def _place_of(self, row: Mapping[str, Any]) -> tuple[object, ...]:
        """Returns topic, partition and segment of a chunk.

        Raises ReadFailed where segment or position is missing.
        """
        if row["segment"] is None:
            raise ReadFailed(
                f"column {self.read.segment} is null in a row of topic {row['topic']}, partition "
                f"{row['partition']}: chunks are put together by the segment that it names"
            )
        if row["position"] is None or row["position"] < 0:
            raise ReadFailed(
                f"column {self.read.position} is {row['position']} in a row of {row['segment']}: it "
                "has to say at which byte of the segment the chunk begins"
            )
        return tuple(row[name] for name in _PLACE)

    def _keep(self, spool: ChunkSpool, batches: ArrowBatches) -> dict[tuple[object, ...], list[int]]:
        """Writes all chunks to the spool, and returns the positions of those that are null, by segment."""
        nulls: dict[tuple[object, ...], list[int]] = {}
        for batch in batches:
            content = batch.column("content")
            for i, row in enumerate(batch.drop_columns(["content"]).to_pylist()):
                place = self._place_of(row)
                if not content[i].is_valid:
                    nulls.setdefault(place, []).append(row["position"])
                    continue
                try:
                    spool.add(place, row["position"], content[i].as_buffer())
                except OSError as error:
                    raise ReadFailed(f"the chunks of segments can't be kept: {error}") from None
        return nulls

    def _segment(self, chunks: Chunks, place: tuple[object, ...], nulls: list[int]) -> ArrowBatches:
        """Yields rows of one segment: of each range without a gap, and of the gaps."""
        row = {name: [value] for name, value in zip(_PLACE, place, strict=True)}
        places = pa.RecordBatch.from_pydict(row, self.read.places)
        before, end = Totals(), -1
        try:
            for range_ in chunks.ranges(place):
                if end >= 0:
                    yield from self._group(
                        places, 0, _damaged(self._gap(before.end, end, range_.begin, nulls))
                    )
                decoded = self._decoded(places, 0, range_, range_.begin, range_.end, before.end_offset)
                before, end = (yield from decoded), range_.end
        except ChunkContradiction as error:
            raise ReadFailed(
                f"{place[2]}: two rows hold different bytes for positions {error.begin} to {error.end}: "
                f"column {self.read.segment} must name one file with its folder, and {self.read.position} "
                "the byte of it at which the row's bytes begin"
            ) from None
        for position in sorted(nulls):
            if position >= end:
                yield from self._group(places, 0, _damaged(_null(self.read.content, position)))

    def _gap(self, reached: int, begin: int, end: int, nulls: list[int]) -> Damage:
        """Returns the damage [reached, end): zeros, then from ``begin`` on bytes that no row has."""
        detail = f"no row holds the bytes {begin} to {end} of the segment"
        if begin in nulls:
            detail = f"column {self.read.content} is null at position {begin}: {detail}"
        return Damage(reached, end - reached, None, "unreadable", detail, end, b"")

    # Both

    def _decoder(self, source: ByteSource, range_: Range, most: int) -> SegmentDecoder:
        options = self.read.options
        return SegmentDecoder(
            source,
            range_,
            max(1, min(options.window_bytes, range_.length - range_.start)),
            most,
            options.quarantine_content_bytes,
            {*self.read.decoded, "batch_position"} if self.read.decoded else (),
            content_crc=False,
        )

    def _decoded(
        self,
        places: pa.RecordBatch,
        owner: int,
        source: ByteSource,
        begin: int,
        end: int,
        last_offset: int | None,
    ) -> Generator[pa.RecordBatch, None, Totals]:
        """Yields rows of a range of bytes of one place; returns its totals.

        A batch that is cut at ``end`` is damage: nobody says whether it is the tail of a log. So are a few
        zeros: no broker allocates so few bytes in advance.
        """
        segment = places.column("segment")[owner].as_py()
        range_ = Range(
            end,
            begin,
            has_successor=True,
            previous_last_offset=last_offset,
            file_base_offset=segment_base(segment or ""),
        )
        decoder = self._decoder(source, range_, self.read.options.max_batch_uncompressed)
        try:
            for group in decoder:
                yield from self._group(places, owner, group)
        except (SourceError, OSError) as error:
            raise ReadFailed(f"{segment}: its bytes can't be read: {error}") from None
        totals = decoder.totals
        if 0 < totals.tail_bytes < layout.HEADER_UP_TO_MAGIC:
            text = f"{faults.cut_text(framing.TOO_SHORT, totals.tail_bytes)}, at {totals.end}"
            content = bytes(totals.tail_bytes)
            damage = Damage(totals.end, totals.tail_bytes, None, "truncated", text, end, content)
            yield from self._group(places, owner, _damaged(damage))
            totals.end = end
        return totals

    def _group(self, places: pa.RecordBatch, owner: int, group: Group) -> ArrowBatches:
        """Yields the rows of a group whose bytes are all of one place. owner: the number of the place."""
        table, columns = self.read.table, None
        for damage in group.damages:
            self._note(places.column("segment")[owner].as_py(), damage)
        if table == RECORDS.name and group.records is not None:
            columns = dict(zip(group.records.schema.names, group.records.columns, strict=True))
        elif table == BATCHES.name and len(group.batches):
            columns = batch_columns(group.batches)
        elif table == QUARANTINE.name and group.damages:
            columns = damage_columns(group.damages, self.read.options.run_id)
        if columns:
            yield from self._rows(places, owner, columns)
        if self._wants_errors and group.damages:
            yield from self._rows(places, owner, _error_columns(group.damages))

    def _rows(
        self, places: pa.RecordBatch, owners: int | np.ndarray, columns: Mapping[str, pa.Array]
    ) -> ArrowBatches:
        """Yields rows of the table from ``columns``; columns that are not in them are null.

        owners: the number in ``places`` of all rows, or int64[n], that of each.
        """
        n = len(next(iter(columns.values())))
        arrays = []
        for name, each in zip(self.read.names, self.read.schema, strict=True):
            if name in _PLACE:
                place = places.column(name)
                of_all = isinstance(owners, int)
                arrays.append(pa.repeat(place[owners], n) if of_all else place.take(pa.array(owners)))
            else:
                arrays.append(columns[name] if name in columns else pa.nulls(n, each.type))
        yield from cut_for_spark(pa.RecordBatch.from_arrays(arrays, schema=self.read.schema))

    def _note(self, segment: str | None, damage: Damage) -> None:
        text = f"{segment or 'a row'}: {damage.reason}: {place_text(damage)}"
        if self.read.failfast:
            raise ReadFailed(f"damage in {text}")
        self.first = self.first or text
        self.damages += 1
        self.damaged_bytes += damage.size

    def tell(self) -> None:
        """Logs one line on the executor if records were left out and no row says so."""
        is_told = self.read.table == QUARANTINE.name or self._wants_errors
        if self.damages and self.read.warns and not is_told:
            log.warning(
                "decode_frame skipped %s in %s, the first: %s (table='quarantine' gives them)",
                counted_noun(self.damaged_bytes, "byte"),
                counted_noun(self.damages, "damaged range"),
                self.first,
            )


def _null(column: str, position: int) -> Damage:
    text = f"column {column} is null: the row brings no bytes"
    return Damage(position, 0, None, "unreadable", text, position, b"")


def _damaged(damage: Damage) -> Group:
    return Group(_NO_BATCHES, None, [damage])


def _error_columns(damages: list[Damage]) -> dict[str, pa.Array]:
    """Returns the columns of rows of ``records`` that stand for damaged ranges."""
    return {
        "batch_position": pa.array([damage.position for damage in damages], pa.int64()),
        "error": pa.array([f"{damage.reason}: {place_text(damage)}" for damage in damages]),
    }
