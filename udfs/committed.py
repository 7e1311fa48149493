"""Which records of a log a READ_COMMITTED consumer gets, known from the batches of the log alone.

As in the table ``transactions`` and the view ``committed_records``, a transaction is the data
of one producer up to the producer's next marker, and the marker ends the data of the highest epoch before it.
Data of a lower epoch were ended by the broker, and are left out as aborted ones are. A transaction without a
marker is open: nothing at or after the first offset of the first open one is delivered.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.decoded import Range
from udfs.format import layout as f
from udfs.segment_decoder import MAX_BATCH_UNCOMPRESSED, WINDOW_BYTES, SegmentDecoder
from udfs.source.byte_source import FileSource

# The columns of ``records`` that decide
COLUMNS = ("offset", "producer_id", "is_transactional", "is_control")
_SEGMENT = re.compile(r"[0-9]{20}\.log")

# producer id, producer epoch, base offset, last offset, control type
Event = tuple[int, int, int, int, int]
_FIELDS = ("producer_id", "producer_epoch", "base_offset", "last_offset", "control_type")


@dataclass(frozen=True)
class Delivery:
    """What is delivered of a log.

    last_stable_offset: the first offset that is not; None if no transaction is open. left_out: producer id ->
    int64[n, 2], rising ranges of offsets, first and last, in which its transactional records are not.
    """

    last_stable_offset: int | None
    left_out: dict[int, np.ndarray]

    def select(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records that are delivered. They need COLUMNS."""
        delivered = pc.invert(records.column("is_control"))
        offsets = records.column("offset")
        if self.last_stable_offset is not None:
            delivered = pc.and_(delivered, pc.less(offsets, self.last_stable_offset))
        producers = records.column("producer_id").to_numpy()
        transactional = records.column("is_transactional").to_numpy(zero_copy_only=False)
        left_out = np.zeros(len(producers), dtype=bool)
        for producer in np.unique(producers[transactional]).tolist():
            ranges = self.left_out.get(producer)
            if ranges is not None:
                own = np.flatnonzero(transactional & (producers == producer))
                at = offsets.to_numpy()[own]
                place = np.searchsorted(ranges[:, 0], at, side="right") - 1
                left_out[own[(place >= 0) & (at <= ranges[place, 1])]] = True
        return records.filter(pc.and_(delivered, pa.array(~left_out)))


def delivery_of(folder: str) -> Delivery:
    """What is delivered of the log whose segments lie in a folder. Raises an OSError if one can't be read."""
    segments = sorted(name for name in os.listdir(folder) if _SEGMENT.fullmatch(name))
    return delivery(event for name in segments for event in _events(os.path.join(folder, name)))


def delivery(events: Iterable[Event]) -> Delivery:
    """What is delivered of a log with these transactional batches and markers, in their order on disk."""
    open_: list[int] = []
    left_out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in transactions(events):
        if one.outcome == OPEN and one.is_newest:
            open_.append(one.first_offset)
        elif one.outcome != COMMITTED:
            left_out[one.producer_id].append((one.first_offset, one.last_offset))
    merged = {producer: _merged(ranges) for producer, ranges in left_out.items()}
    return Delivery(min(open_, default=None), merged)


@dataclass(frozen=True)
class Transaction:
    """A transaction of a log: the data of one producer and epoch up to the producer's next marker.

    outcome: of the marker. is_newest: False if data of a higher epoch show that the broker has ended it.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    outcome: str
    is_newest: bool = True


COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


def transactions(events: Iterable[Event]) -> Iterator[Transaction]:
    """The transactions of these batches and markers (in their order on disk), producer by producer."""
    by_producer: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        by_producer[event[0]].append(event)
    for producer, own in by_producer.items():
        data: dict[int, tuple[int, int]] = {}  # epoch -> first and last offset since the last marker
        for _, epoch, first, last, control in sorted(own, key=lambda event: event[2]):
            if control == f.NO_CONTROL:
                low, high = data.get(epoch, (first, last))
                data[epoch] = min(low, first), max(high, last)
                continue
            yield from _ended(producer, data, ABORTED if control == f.CONTROL_ABORT else COMMITTED)
            data = {}
        yield from _ended(producer, data, OPEN)


def _ended(producer: int, data: dict[int, tuple[int, int]], outcome: str) -> Iterator[Transaction]:
    """The transactions of a producer's data between two markers, of which the second gives the outcome."""
    newest = max(data, default=-1)
    for epoch, (first, last) in data.items():
        is_newest = epoch == newest
        yield Transaction(producer, epoch, first, last, outcome if is_newest else OPEN, is_newest)


class Outcomes:
    """The outcome of each record of a log."""

    def __init__(self, events: Iterable[Event]) -> None:
        """events: transactional batches and markers in their order on disk."""
        found: dict[tuple[int, int], list[Transaction]] = defaultdict(list)
        for one in transactions(events):
            found[one.producer_id, one.producer_epoch].append(one)
        self._last = {key: np.array([t.last_offset for t in own]) for key, own in found.items()}
        self._outcomes = {key: [t.outcome for t in own] for key, own in found.items()}

    def of(self, records: pa.RecordBatch) -> pa.Array:
        """string[n]: committed, aborted or open; null for control records and outside transactions."""
        in_transaction = pc.and_not(records.column("is_transactional"), records.column("is_control"))
        found: list[str | None] = [None] * records.num_rows
        names = ("producer_id", "producer_epoch", "offset")
        columns = [records.column(name).to_pylist() for name in names]
        for at in np.flatnonzero(in_transaction.to_numpy(zero_copy_only=False)).tolist():
            producer, epoch, offset = (column[at] for column in columns)
            ends = self._last.get((producer, epoch))
            place = 0 if ends is None else int(np.searchsorted(ends, offset))
            found[at] = OPEN if ends is None or place == len(ends) else self._outcomes[producer, epoch][place]
        return pa.array(found, pa.string())


def of_transactions(batches: np.ndarray) -> np.ndarray:
    """Of batches (BATCH[n]) the sound ones of transactions: their data, and the markers that end them."""
    is_sound = (batches["fault"] == 0) & (batches["magic"] == f.MAGIC_V2)
    is_transactional = batches["attributes"] & f.TRANSACTIONAL_MASK != 0
    is_data = batches["attributes"] & f.CONTROL_MASK == 0
    is_marker = np.isin(batches["control_type"], (f.CONTROL_ABORT, f.CONTROL_COMMIT))
    return batches[is_sound & is_transactional & (is_data | is_marker)]


def _merged(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """int64[n, 2]: the ranges by their first offset, those that overlap as one."""
    merged: list[list[int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return np.array(merged, dtype=np.int64)


def _events(path: str) -> Iterator[Event]:
    """The sound transactional batches of a segment, and its markers."""
    source = FileSource(path)
    try:
        limits = (WINDOW_BYTES, MAX_BATCH_UNCOMPRESSED)
        length = os.stat(path).st_size
        for group in SegmentDecoder(source, Range(length), *limits, columns=(), content_crc=False):
            found = of_transactions(group.batches)
            yield from zip(*(found[name].tolist() for name in _FIELDS), strict=True)
    finally:
        source.close()
