"""Finds which records of a log a READ_COMMITTED consumer gets, from the batches of the log alone.

As in the table ``transactions`` and the view ``committed_records``: the rule is
``udfs.batches.transactions``. Records of a transaction that did not commit are left out, and nothing at or
after the first offset of the first one that is still open is delivered, nor is what lies below the log start
(``udfs.batches.log_start``).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.batches.log_start import LogStart
from kafka_log_lake.udfs.batches.noted_start import log_start_of
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT
from kafka_log_lake.udfs.batches.transactions import (
    EVENT,
    OPEN,
    OUTCOMES,
    events_of,
    of_one_log,
    transactional_batches,
)
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, WINDOW_BYTES, SegmentDecoder
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.file_names import file_name, segment_base
from kafka_log_lake.udfs.storage.byte_source import FileSource

# The columns of ``records`` that decide
COLUMNS = ("offset", "producer_id", "is_transactional", "is_control")


@dataclass(frozen=True)
class Delivery:
    """What a READ_COMMITTED consumer gets of a log.

    last_stable_offset: the first offset that is not; None if no transaction is open. left_out: producer id ->
    int64[n, 2], rising ranges of offsets, first and last, in which its transactional records are not.
    log_start: the first offset that is (``udfs.batches.log_start``); None where nothing is cut.
    """

    last_stable_offset: int | None
    left_out: dict[int, np.ndarray]
    log_start: int | None = None

    def select(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records that are delivered. ``records`` need COLUMNS."""
        delivered = pc.invert(records.column("is_control"))
        offsets = records.column("offset")
        if self.last_stable_offset is not None:
            delivered = pc.and_(delivered, pc.less(offsets, self.last_stable_offset))
        if self.log_start is not None:
            delivered = pc.and_(delivered, pc.greater_equal(offsets, self.log_start))
        producers = records.column("producer_id").to_numpy()
        transactional = records.column("is_transactional").to_numpy(zero_copy_only=False)
        left_out = np.zeros(len(producers), dtype=bool)
        for producer in np.unique(producers[transactional]).tolist():
            ranges = self.left_out.get(producer)
            if ranges is not None:
                rows = np.flatnonzero(transactional & (producers == producer))
                at = offsets.to_numpy()[rows]
                place = np.searchsorted(ranges[:, 0], at, side="right") - 1
                left_out[rows[(place >= 0) & (at <= ranges[place, 1])]] = True
        return records.filter(pc.and_(delivered, pa.array(~left_out)))


def delivery_of(folder: str, start: LogStart | None = None) -> Delivery:
    """Reads a folder's segments and returns what is delivered of their log. Raises an OSError if it can't.

    start: where the log begins, if that is known already; None: the files in and above the folder tell it.
    """
    start = start or log_start_of(folder)
    bases = sorted(base for name in os.listdir(folder) if (base := segment_base(name)) is not None)
    events = [np.zeros(0, dtype=EVENT)]
    for base, limit in pairwise([*bases, NO_LIMIT]):
        events += _events(os.path.join(folder, file_name(base)), base, limit)
    return delivery(of_one_log(np.concatenate(events)), start)


def delivery(transactions: np.ndarray, start: LogStart | None = None) -> Delivery:
    """Returns what is delivered of a log, by its transactions (TRANSACTION[n]) and its log start."""
    with_data = transactions[transactions["has_data"]]
    held = with_data["first_offset"][~with_data["is_over"]]
    left_out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for transaction in with_data[with_data["is_over"] & (with_data["control_type"] != f.CONTROL_COMMIT)]:
        left_out[int(transaction["producer_id"])].append(
            (int(transaction["first_offset"]), int(transaction["last_offset"]))
        )
    merged = {producer: _merged(ranges) for producer, ranges in left_out.items()}
    return Delivery(int(held.min()) if len(held) else None, merged, start.offset if start else None)


class Outcomes:
    """The outcome of each transactional record of a log, by its producer id, epoch and offset."""

    def __init__(self, transactions: np.ndarray, without_marker: str | None = OPEN) -> None:
        """Indexes TRANSACTION[n] of the log.

        without_marker: the outcome of a record that no transaction has.
        """
        self._without_marker = without_marker
        outcomes = {**OUTCOMES, f.NO_CONTROL: without_marker}
        with_data = np.sort(transactions[transactions["has_data"]], order="last_offset")
        by_producer: dict[tuple[int, int], list[np.void]] = defaultdict(list)
        for transaction in with_data:
            by_producer[int(transaction["producer_id"]), int(transaction["producer_epoch"])].append(
                transaction
            )
        self._last = {
            key: np.array([t["last_offset"] for t in same_epoch]) for key, same_epoch in by_producer.items()
        }
        self._outcomes = {
            key: [outcomes[int(t["control_type"])] for t in same_epoch]
            for key, same_epoch in by_producer.items()
        }

    def of(self, records: pa.RecordBatch) -> pa.Array:
        """Returns string[n]: committed, aborted or open; null for other records."""
        is_transactional, is_control = (
            records.column(name).to_numpy(zero_copy_only=False) for name in ("is_transactional", "is_control")
        )
        outcomes: list[str | None] = [None] * records.num_rows
        names = ("producer_id", "producer_epoch", "offset")
        columns = [records.column(name).to_pylist() for name in names]
        for at in np.flatnonzero(is_transactional & ~is_control).tolist():
            producer, epoch, offset = (column[at] for column in columns)
            ends = self._last.get((producer, epoch))
            place = 0 if ends is None else int(np.searchsorted(ends, offset))
            is_known = ends is not None and place < len(ends)
            outcomes[at] = self._outcomes[producer, epoch][place] if is_known else self._without_marker
        return pa.array(outcomes, pa.string())


def _merged(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """Returns int64[n, 2]: the ranges (first, last offset) by first offset, overlapping ones joined."""
    merged: list[list[int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return np.array(merged, dtype=np.int64)


def _events(path: str, base: int, limit: int) -> Iterator[np.ndarray]:
    """Yields EVENT[n] of a segment, window by window: its sound transactional data batches and its markers.

    base, limit: base offsets in its file's name, and in the next one's.
    """
    source = FileSource(path)
    try:
        limits = (WINDOW_BYTES, MAX_BATCH_UNCOMPRESSED)
        range_ = Range(os.stat(path).st_size, file_base_offset=base)
        for group in SegmentDecoder(source, range_, *limits, columns=(), content_crc=False):
            events = events_of(transactional_batches(group.batches))
            events["file_base"], events["file_limit"] = base, limit
            yield events
    finally:
        source.close()
