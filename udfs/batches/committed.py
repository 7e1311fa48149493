"""Which records of a log a READ_COMMITTED consumer gets, known from the batches of the log alone.

As in the table ``transactions`` and the view ``committed_records``: the rule is
``udfs.batches.transactions``. Records of a transaction that did not commit are left out, and nothing at or
after the first offset of the first one that is still open is delivered, nor is what lies below the log start
(``udfs.batches.log_start``).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.batches.log_start import LogStart
from kafka_log_lake.udfs.batches.noted_start import log_start_of
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT
from kafka_log_lake.udfs.batches.transactions import EVENT, events_of, of_one_log, of_transactions
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, WINDOW_BYTES, SegmentDecoder
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.storage.byte_source import FileSource

# The columns of ``records`` that decide
COLUMNS = ("offset", "producer_id", "is_transactional", "is_control")
_SEGMENT = re.compile(r"[0-9]{20}\.log")

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
OUTCOMES = {f.CONTROL_COMMIT: COMMITTED, f.CONTROL_ABORT: ABORTED, f.NO_CONTROL: OPEN}


@dataclass(frozen=True)
class Delivery:
    """What is delivered of a log.

    last_stable_offset: the first offset that is not; None if no transaction is open. left_out: producer id ->
    int64[n, 2], rising ranges of offsets, first and last, in which its transactional records are not.
    log_start: the first offset that is (``udfs.batches.log_start``); None where nothing is cut.
    """

    last_stable_offset: int | None
    left_out: dict[int, np.ndarray]
    log_start: int | None = None

    def select(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records that are delivered. They need COLUMNS."""
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
                own = np.flatnonzero(transactional & (producers == producer))
                at = offsets.to_numpy()[own]
                place = np.searchsorted(ranges[:, 0], at, side="right") - 1
                left_out[own[(place >= 0) & (at <= ranges[place, 1])]] = True
        return records.filter(pc.and_(delivered, pa.array(~left_out)))


def delivery_of(folder: str, start: LogStart | None = None) -> Delivery:
    """What is delivered of the log whose segments lie in a folder. Raises an OSError if one can't be read.

    start: where the log begins, if that is known already; None: the files in and above the folder tell it.
    """
    start = start or log_start_of(folder)
    names = sorted(name for name in os.listdir(folder) if _SEGMENT.fullmatch(name))
    bases = [*(int(name[:20]) for name in names), NO_LIMIT]
    events = [np.zeros(0, dtype=EVENT)]
    for name, (base, limit) in zip(names, pairwise(bases), strict=True):
        events += _events(os.path.join(folder, name), base, limit)
    return delivery(of_one_log(np.concatenate(events)), start)


def delivery(transactions: np.ndarray, start: LogStart | None = None) -> Delivery:
    """What is delivered of a log with these transactions (TRANSACTION[n]), which begins at ``start``."""
    own = transactions[transactions["has_data"]]
    held = own["first_offset"][~own["is_over"]]
    left_out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in own[own["is_over"] & (own["control_type"] != f.CONTROL_COMMIT)]:
        left_out[int(one["producer_id"])].append((int(one["first_offset"]), int(one["last_offset"])))
    merged = {producer: _merged(ranges) for producer, ranges in left_out.items()}
    return Delivery(int(held.min()) if len(held) else None, merged, start.offset if start else None)


class Outcomes:
    """The outcome of each record of a log."""

    def __init__(self, transactions: np.ndarray, without_marker: str | None = OPEN) -> None:
        """transactions: TRANSACTION[n] of the log. without_marker: the outcome of one that has none there."""
        self._without_marker = without_marker
        outcomes = {**OUTCOMES, f.NO_CONTROL: without_marker}
        own = np.sort(transactions[transactions["has_data"]], order="last_offset")
        found: dict[tuple[int, int], list[np.void]] = defaultdict(list)
        for one in own:
            found[int(one["producer_id"]), int(one["producer_epoch"])].append(one)
        self._last = {key: np.array([t["last_offset"] for t in own]) for key, own in found.items()}
        self._outcomes = {key: [outcomes[int(t["control_type"])] for t in own] for key, own in found.items()}

    def of(self, records: pa.RecordBatch) -> pa.Array:
        """string[n]: committed, aborted or open; null for control records and outside transactions."""
        is_transactional, is_control = (
            records.column(name).to_numpy(zero_copy_only=False) for name in ("is_transactional", "is_control")
        )
        found: list[str | None] = [None] * records.num_rows
        names = ("producer_id", "producer_epoch", "offset")
        columns = [records.column(name).to_pylist() for name in names]
        for at in np.flatnonzero(is_transactional & ~is_control).tolist():
            producer, epoch, offset = (column[at] for column in columns)
            ends = self._last.get((producer, epoch))
            place = 0 if ends is None else int(np.searchsorted(ends, offset))
            is_known = ends is not None and place < len(ends)
            found[at] = self._outcomes[producer, epoch][place] if is_known else self._without_marker
        return pa.array(found, pa.string())


def _merged(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """int64[n, 2]: the ranges by their first offset, those that overlap as one."""
    merged: list[list[int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return np.array(merged, dtype=np.int64)


def _events(path: str, base: int, limit: int) -> Iterator[np.ndarray]:
    """EVENT[n]: the sound transactional batches of a segment, and its markers.

    base, limit: base offsets in its file's name, and in the next one's.
    """
    source = FileSource(path)
    try:
        limits = (WINDOW_BYTES, MAX_BATCH_UNCOMPRESSED)
        range_ = Range(os.stat(path).st_size, file_base_offset=base)
        for group in SegmentDecoder(source, range_, *limits, columns=(), content_crc=False):
            found = events_of(of_transactions(group.batches))
            found["file_base"], found["file_limit"] = base, limit
            yield found
    finally:
        source.close()
