"""Which records of a log a READ_COMMITTED consumer gets, known from the batches of the log alone.

The rule is that of the table ``transactions`` and the view ``committed_records``: a transaction is the data
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
    by_producer: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        by_producer[event[0]].append(event)
    open_, left_out = [], {}
    for producer, own in by_producer.items():
        ranges: list[tuple[int, int]] = []
        data: dict[int, tuple[int, int]] = {}  # epoch -> first and last offset since the last marker
        for _, epoch, first, last, control in sorted(own, key=lambda event: event[2]):
            if control == f.NO_CONTROL:
                low, high = data.get(epoch, (first, last))
                data[epoch] = min(low, first), max(high, last)
                continue
            ended = data.pop(max(data, default=epoch), None)
            if ended is not None and control == f.CONTROL_ABORT:
                ranges.append((ended[0], first))
            ranges += data.values()
            data = {}
        if data:
            open_.append(data.pop(max(data))[0])
            ranges += data.values()
        if ranges:
            left_out[producer] = _merged(ranges)
    return Delivery(min(open_, default=None), left_out)


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
