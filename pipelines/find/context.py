"""Reads the records before and after matches in the same log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.find.segment_search import COLUMNS
from kafka_log_lake.pipelines.plan.slices import Segment, Slice
from kafka_log_lake.udfs.decoder.decoded import Group
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.files import SCHEMA
from kafka_log_lake.udfs.storage.opening import open_source

_SCHEMA = pa.schema([SCHEMA.field(name) for name in COLUMNS])
_NO_RECORDS = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in _SCHEMA], schema=_SCHEMA)
_HELD_BATCHES, _HELD_SEGMENTS = 64, 4

SegmentMatches = tuple[Segment, pa.RecordBatch]


class _RecordPlace(NamedTuple):
    """A record by the indexes of its segment in the log, its batch in the segment, its row in the batch."""

    segment: int
    batch: int
    row: int


class Context:
    """Reads the records next to matches in one log."""

    def __init__(self, segments: Sequence[Segment], max_batch_uncompressed: int) -> None:
        """Takes all segments of the log, by base offset, and the limit of a batch in bytes."""
        self._segments, self._limit = segments, max_batch_uncompressed
        self._batches = lru_cache(_HELD_SEGMENTS)(self._read_positions)
        self._batch = lru_cache(_HELD_BATCHES)(self._read_records)

    def around(
        self, held: Iterable[SegmentMatches], number: int
    ) -> Iterator[tuple[Segment, pa.RecordBatch, pa.Array]]:
        """Yields matches with up to ``number`` records before and after each, each record once, in log order.

        held: matches in the order of the log. Yields (segment, its records, bool[n]: which are matches).
        """
        matches: set[_RecordPlace] = set()
        begin = end = None
        for place in self._places(held):
            first, last = self._moved(place, -number), self._moved(place, number)
            if begin is not None and end is not None and first > self._moved(end, 1):
                yield from self._between(begin, end, matches)
                begin, matches = None, set()
            begin, end = first if begin is None else begin, last
            matches.add(place)
        if begin is not None and end is not None:
            yield from self._between(begin, end, matches)

    def _places(self, matches: Iterable[SegmentMatches]) -> Iterator[_RecordPlace]:
        numbers = {segment.segment: at for at, segment in enumerate(self._segments)}
        for segment, batch in matches:
            of_segment = numbers[segment.segment]
            pairs = zip(
                *(batch.column(name).to_pylist() for name in ("batch_position", "offset")), strict=True
            )
            for position, offset in pairs:
                at = int(np.searchsorted(self._batches(of_segment), position))
                rows = self._batch(of_segment, at).column("offset").to_numpy()
                yield _RecordPlace(of_segment, at, int(np.flatnonzero(rows == offset)[0]))

    def _between(
        self, begin: _RecordPlace, end: _RecordPlace, matches: set[_RecordPlace]
    ) -> Iterator[tuple[Segment, pa.RecordBatch, pa.Array]]:
        of_segment, at, row = begin
        while (of_segment, at) <= (end.segment, end.batch):
            rows = self._batch(of_segment, at)
            stop = end.row + 1 if (of_segment, at) == (end.segment, end.batch) else rows.num_rows
            if stop > row:
                is_match = [_RecordPlace(of_segment, at, row_) in matches for row_ in range(row, stop)]
                yield self._segments[of_segment], rows[row:stop], pa.array(is_match)
            following = self._next(of_segment, at, 1)
            if following is None:
                return
            (of_segment, at), row = following, 0

    def _moved(self, place: _RecordPlace, number: int) -> _RecordPlace:
        """Moves a place by ``number`` records (back if negative), but not past the ends of the log."""
        of_segment, at, row = place
        row += number
        while True:
            count = self._batch(of_segment, at).num_rows
            if 0 <= row < count:
                return _RecordPlace(of_segment, at, row)
            following = self._next(of_segment, at, 1 if number > 0 else -1)
            if following is None:
                return _RecordPlace(of_segment, at, min(max(row, 0), count - 1))
            of_segment, at = following
            row += -count if number > 0 else self._batch(of_segment, at).num_rows

    def _next(self, of_segment: int, at: int, step: int) -> tuple[int, int] | None:
        """Returns the next batch with records, forwards (step 1) or backwards (-1); None past the log."""
        while True:
            at += step
            while not 0 <= at < len(self._batches(of_segment)):
                of_segment += step
                if not 0 <= of_segment < len(self._segments):
                    return None
                at = 0 if step > 0 else len(self._batches(of_segment)) - 1
            if self._batch(of_segment, at).num_rows:
                return of_segment, at

    def _read_positions(self, of_segment: int) -> np.ndarray:
        """Returns int64[n]: the byte positions of the sound batches of a segment."""
        groups = (group.batches for group in self._groups(of_segment, 0, None, ()))
        parts = [batches["position"][batches["fault"] == 0] for batches in groups]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def _read_records(self, of_segment: int, at: int) -> pa.RecordBatch:
        """Returns the records of a batch."""
        position = int(self._batches(of_segment)[at])
        groups = self._groups(of_segment, position, position + 1, COLUMNS)
        parts = [group.records.select(COLUMNS) for group in groups if group.records is not None]
        return pa.concat_batches(parts) if parts else _NO_RECORDS

    def _groups(
        self, of_segment: int, start: int, stop: int | None, columns: Sequence[str]
    ) -> Iterator[Group]:
        """Yields the batches from byte ``start`` to ``stop`` (None: the end); without columns no records."""
        segment = self._segments[of_segment]
        part = Slice(0, segment, start, segment.length if stop is None else stop, exact_start=True)
        source = open_source(segment.uri, part.stop)
        try:
            yield from SegmentDecoder(
                source,
                part.range,
                max_batch_uncompressed=self._limit,
                columns=columns,
                content_crc=False,
                select=None if columns else _none,
            )
        finally:
            source.close()


def _none(_: np.ndarray, batches: np.ndarray) -> np.ndarray:
    return np.zeros(len(batches), dtype=bool)
