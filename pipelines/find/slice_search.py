"""Searches one slice of a segment in a worker process, and tells which records are superseded.

A record is superseded if a later record of the same key that counts (LastOffsets) is in the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.find.segment_search import COLUMNS, SegmentSearch
from kafka_log_lake.pipelines.plan.headers import older, start_for
from kafka_log_lake.pipelines.plan.slices import Slice
from kafka_log_lake.pipelines.tasks.slice_scan import (
    DamageCollector,
    DamagedRange,
    SliceScan,
    TransactionCollector,
    read_slice,
)
from kafka_log_lake.udfs.batches.committed import Delivery, Outcomes, delivery
from kafka_log_lake.udfs.batches.log_start import LogStart
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT
from kafka_log_lake.udfs.batches.transactions import COMMITTED, OPEN, TRANSACTION
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.decoder.decoded import Group, Range
from kafka_log_lake.udfs.decoder.resync import Resynchronizer
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.spark.protocol import SliceReport
from kafka_log_lake.udfs.storage.byte_source import ByteSource, path_of_uri

DECIDING = ("offset", "producer_id", "producer_epoch", "is_transactional", "is_control")
_SURE = 2  # batches in a row past the last offset that is looked for: no checksum covers the offset of one
HELD_BYTES = 16 << 20  # of matches that a worker gives at a time


class Transactions(NamedTuple):
    """The transactions of a log: what a consumer gets of them, and their outcomes."""

    delivery: Delivery
    outcomes: Outcomes

    @classmethod
    def of(
        cls, transactions: np.ndarray, without_marker: str | None = OPEN, start: LogStart | None = None
    ) -> Transactions:
        """Builds from TRANSACTION[n] of the log. without_marker: see ``Outcomes``. start: of the log."""
        return cls(delivery(transactions, start), Outcomes(transactions, without_marker))


NO_TRANSACTIONS = Transactions.of(np.zeros(0, dtype=TRANSACTION))


@dataclass
class SliceResult:
    """The result of a search of one slice.

    scan: what was read, its damage and transactions. batches: matches, with the columns that were asked for;
    none if matches are counted. count: number of matches. rest: byte at which the search was interrupted, as
    its matches are many; None: it is done. is_past: whether what follows in the log lies after the requested
    offsets. passed_until: the last offset of a segment that the search passed over, as it is older than
    ``since``; else None.
    """

    slice_: Slice
    scan: SliceScan
    batches: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    rest: int | None = None
    is_past: bool = False
    passed_until: int | None = None


@dataclass(frozen=True)
class SliceSearch:
    """Searches a slice in a worker.

    transactions: of the log, where outcomes decide. most: matches after which the rest need not be searched.
    """

    request: Request
    max_batch_uncompressed: int
    transactions: Transactions | None = None
    most: int | None = None
    columns: tuple[str, ...] = COLUMNS

    def __call__(self, slice_: Slice) -> SliceResult:
        return _run(slice_, self._search)

    def _search(self, slice_: Slice, source: ByteSource, result: SliceResult) -> None:
        range_ = self._range(slice_, source, result)
        if range_ is None:
            return
        request = self.request
        columns = DECIDING if request.count else self.columns
        search = SegmentSearch(
            source, range_, request.search, columns, max_batch_uncompressed=self.max_batch_uncompressed
        )
        result.scan.report = replace(result.scan.report, totals=search.decoder.totals)
        end = max((-1 if b.high is None else b.high for b in request.offsets), default=-1)
        has_end = bool(request.offsets) and all(b.high is not None for b in request.offsets)
        collector, held, beyond = DamageCollector(result.scan, slice_.segment), 0, 0
        for group, matches in search:
            collector.add(group)
            if matches is not None:
                matches = decided(matches, request, self.transactions)
                result.count += matches.num_rows
                if matches.num_rows and not request.count:
                    result.batches.append(matches)
                    held += matches.nbytes
            beyond = _beyond(group, end, beyond)
            if has_end and beyond >= _SURE:
                result.is_past = True
                break
            is_enough = self.most is not None and result.count >= self.most
            if (held >= HELD_BYTES or is_enough) and (rest := _end_of(group)) is not None:
                result.rest = rest
                break
        collector.close()

    def _range(self, slice_: Slice, source: ByteSource, result: SliceResult) -> Range | None:
        """Returns the bytes of a slice to search; None if nothing of its segment can match."""
        segment, start, since = slice_.segment, slice_.start, self.request.since
        if start == 0 and path_of_uri(segment.uri) is not None:
            base, length = segment.file_base_offset, segment.length
            if since is not None and (last := older(source, segment.uri, base, length, since)) is not None:
                result.passed_until = min(last.last_offset, NO_LIMIT)  # a header may claim more
                return None
            lows = [b.low for b in self.request.offsets]
            low = None if not lows or None in lows else min(lows)  # type: ignore[type-var]
            start = start_for(source, segment.uri, base, length, low, since)
            if not Resynchronizer(source, 0, length, None).headers.is_sound(start):
                start = 0
        return replace(slice_.range, start=start)


def decided(matches: pa.RecordBatch, request: Request, transactions: Transactions | None) -> pa.RecordBatch:
    """Returns the matches whose transactions have the requested outcomes; all if ``transactions`` is None."""
    if transactions is None:
        return matches
    if request.committed:
        matches = transactions.delivery.select(matches)
    for names, wanted in request.outcomes:
        is_in = pc.is_in(transactions.outcomes.of(matches), value_set=pa.array(sorted(names)))
        matches = matches.filter(is_in if wanted else pc.invert(is_in))
    return matches


@dataclass(frozen=True)
class ReadHeaders:
    """Reads the headers of batches in a slice; records only of markers and of compressed messages of magic 0
    and 1, whose offsets only they tell.
    """

    max_batch_uncompressed: int

    def __call__(self, slice_: Slice) -> SliceResult:
        return _run(slice_, self._read)

    def _read(self, slice_: Slice, source: ByteSource, result: SliceResult) -> None:
        limit = self.max_batch_uncompressed
        collector = TransactionCollector(result.scan, slice_.segment)
        decoder = SegmentDecoder(
            source,
            slice_.range,
            max_batch_uncompressed=limit,
            columns=(),
            content_crc=False,
            select=_are_deciding,
        )
        result.scan.report = replace(result.scan.report, totals=decoder.totals)
        for group in decoder:
            collector.add(group)
        collector.close()


def _are_deciding(_: np.ndarray, batches: np.ndarray) -> np.ndarray:
    is_v2 = batches["magic"] == f.MAGIC_V2
    is_control = batches["attributes"] & f.CONTROL_MASK != 0
    return np.where(is_v2, is_control, batches["codec"] != f.CODEC_NONE)


def _run(slice_: Slice, work: Callable[[Slice, ByteSource, SliceResult], None]) -> SliceResult:
    """Runs ``work`` on a slice and returns its result, with a problem if the segment can't be read."""
    result = SliceResult(
        slice_, SliceScan(SliceReport(slice_.group_id, slice_.segment.segment, slice_.start))
    )

    def read(source: ByteSource, _: SliceReport) -> SliceResult:
        work(slice_, source, result)
        return result

    def failed(report: SliceReport) -> SliceResult:
        result.scan.report = report
        return result

    return read_slice(slice_, read, failed)


def _beyond(group: Group, end: int, before: int) -> int:
    """Counts the sound batches in a row, up to the last of a group, that begin at or past offset ``end``.

    before: those in a row before the group.
    """
    past = group.batches["base_offset"][group.batches["fault"] == 0] >= end
    below = np.flatnonzero(~past)
    return int(len(past) - 1 - below[-1]) if len(below) else before + len(past)


def _end_of(group: Group) -> int | None:
    """Returns the byte where a group ends; None within a large batch, with damage, or without batches."""
    if group.holders is not None and group.holders is not group.batches:
        return None
    if not len(group.batches) or group.damages:
        return None
    return int(group.batches["position"][-1] + group.batches["size"][-1])


def search_each(work: Callable[[Slice], SliceResult], slices: Sequence[Slice]) -> list[SliceResult]:
    """Returns the results of ``work`` on slices, one after another, up to one that was interrupted."""
    results = []
    for slice_ in slices:
        results.append(work(slice_))
        if results[-1].rest is not None:
            break
    return results


_NO_END = 1 << 63


class LastOffsets:
    """The last offset of some keys among the records of a log that count: committed, or of no transaction."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._last = dict.fromkeys(keys, -1)
        self._unknown_until = -1

    def unknown_until(self, offset: int | None) -> None:
        """Notes that a record up to this offset may be where it can't be read; None: up to any."""
        self._unknown_until = max(self._unknown_until, _NO_END if offset is None else offset)

    def note(self, damage: DamagedRange) -> None:
        """Notes a damaged range, if offsets may be missing there."""
        if damage.first_lost is not None:
            self.unknown_until(damage.last_lost)

    def add(self, records: pa.RecordBatch, outcomes: Outcomes) -> None:
        """Takes the last offsets from records with key and the columns DECIDING."""
        outcome = outcomes.of(records)
        counts = pc.and_not(
            pc.or_(outcome.is_null(), pc.equal(outcome, COMMITTED).fill_null(False)),
            records.column("is_control"),
        )
        kept = records.filter(counts)
        pairs = zip(kept.column("key").to_pylist(), kept.column("offset").to_pylist(), strict=True)
        self._last.update((key, offset) for key, offset in pairs if key is not None)

    def of(self, records: pa.RecordBatch) -> pa.Array:
        """Returns bool[n]: whether records are superseded; null if not known, and for control records."""
        names = ("key", "offset", "is_control")
        rows = zip(*(records.column(name).to_pylist() for name in names), strict=True)
        known = (None if control else self._one(key, offset) for key, offset, control in rows)
        return pa.array(known, pa.bool_())

    def _one(self, key: object, offset: int) -> bool | None:
        if key not in self._last:
            return None
        if self._last[key] > offset:
            return True
        return None if self._unknown_until > offset else False


def distinct_keys(batches: Iterable[pa.RecordBatch]) -> pa.Array:
    """Returns the keys of records, each once, as binary[n]; without null."""
    keys: dict[bytes, None] = {}
    for batch in batches:
        keys.update(dict.fromkeys(key for key in batch.column("key").to_pylist() if key is not None))
    return pa.array(keys, pa.binary())
