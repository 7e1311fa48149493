"""Scans one slice of a segment in a worker process: counts and positions, but no records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from kafka_log_lake.pipelines.plan.headers import claimed_offsets
from kafka_log_lake.pipelines.plan.slices import Segment, Slice
from kafka_log_lake.pipelines.tasks.contradictions import EPOCHS, epochs_of
from kafka_log_lake.pipelines.tasks.verdicts import highest, lowest
from kafka_log_lake.udfs.batches import clocks
from kafka_log_lake.udfs.batches.offsets import RUN, are_cleaned, begins_of_runs, runs_of
from kafka_log_lake.udfs.batches.transactions import EVENT, events_of, transactional_batches
from kafka_log_lake.udfs.decoder.decoded import Group
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.framing import BATCH, base_unknown
from kafka_log_lake.udfs.spark.protocol import SliceReport
from kafka_log_lake.udfs.spark.task_input import problem_of
from kafka_log_lake.udfs.storage.byte_source import ByteSource, SourceError
from kafka_log_lake.udfs.storage.foreign import HEAD_BYTES, content_kind
from kafka_log_lake.udfs.storage.opening import open_source

# A row: consecutive transactional batches of one producer, or one marker
TRANSACTIONAL = np.dtype(
    [
        *EVENT.descr,
        ("position", "i8"),
        ("timestamp", "i8"),  # of the first batch's first record; of a marker its own; ms, -1 unknown
        ("by_broker", "?"),  # whether a broker's clock gave timestamp
        ("credible", "?"),  # clocks.are_credible
    ]
)
Format = tuple[int, str]  # magic, codec
Found = TypeVar("Found")
_HELD_BATCHES = 1 << 12
_ROW = np.dtype((np.void, BATCH.itemsize))  # of BATCH, copied at once and not field by field


@dataclass
class FormatCount:
    """Totals of the batches of one format. bytes: on disk. records: of data; control_records: the others."""

    batches: int = 0
    bytes: int = 0
    records: int = 0
    control_records: int = 0

    def add(self, other: FormatCount) -> None:
        self.batches += other.batches
        self.bytes += other.bytes
        self.records += other.records
        self.control_records += other.control_records


@dataclass(frozen=True)
class DamagedRange:
    """A damaged byte range of a segment.

    last_offset: the highest offset before it; next_offset: base offset of the sound batch after it, None if
    there is none. Both are set once the whole log is read: ``scanned_log.damages_of``.
    """

    segment: str
    position: int
    size: int
    reason: str
    detail: str
    last_offset: int = -1
    next_offset: int | None = None

    @property
    def first_lost(self) -> int | None:
        """Returns the first offset that may have been in it; None if no offset can be missing."""
        first = self.last_offset + 1
        return first if self.next_offset is None or first < self.next_offset else None

    @property
    def last_lost(self) -> int | None:
        """Returns the last offset that may have been in it; None if none can, or no sound batch follows."""
        return None if self.first_lost is None or self.next_offset is None else self.next_offset - 1


@dataclass
class SliceScan:
    """The scan of one slice.

    report: as a job's workers give it. suspect: batches with this status.
    first_timestamp, last_timestamp: ms since 1970 UTC, None without any.
    runs: RUN[n], its sound batches, and transactional: rows of TRANSACTIONAL; what the rest of the log tells
    is not set. epochs: EPOCHS, of its sound batches of magic 2. torn: first and last offset that the header
    of a torn last batch claims; None without one, or where its header is cut. clock: its own. foreign: of a
    file that begins as another program's does, what it is.
    """

    report: SliceReport
    formats: dict[Format, FormatCount] = field(default_factory=dict)
    damages: list[DamagedRange] = field(default_factory=list)
    suspect: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    runs: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=RUN))
    epochs: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=EPOCHS))
    transactional: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=TRANSACTIONAL))
    clock: clocks.Clock = field(default_factory=clocks.Clock)
    torn: tuple[int, int] | None = None
    foreign: str | None = None


def read_slice(
    slice_: Slice, read: Callable[[ByteSource, SliceReport], Found], failed: Callable[[SliceReport], Found]
) -> Found:
    """Returns the result of ``read`` on the open segment; of ``failed`` if it can't be opened or read.

    read: gets a report without totals. failed: gets one with the problem.
    """
    report = SliceReport(slice_.group_id, slice_.segment.segment, slice_.start)
    try:
        source = open_source(slice_.segment.uri, slice_.stop)
        try:
            return read(source, report)
        finally:
            source.close()
    except SourceError as error:
        return failed(replace(report, problem=problem_of(error), detail=str(error)))


def scan_slice(slice_: Slice, max_batch_uncompressed: int) -> SliceScan:
    """Decodes a slice and counts. Never raises for the content of a file."""

    def read(source: ByteSource, report: SliceReport) -> SliceScan:
        decoder = SegmentDecoder(
            source, slice_.range, max_batch_uncompressed=max_batch_uncompressed, columns=(), content_crc=False
        )
        length, totals = slice_.segment.length, decoder.totals
        scan = SliceScan(replace(report, totals=totals))
        collector = TotalsCollector(scan, slice_.segment)
        for group in decoder:
            collector.add(group)
        collector.close()
        if totals.tail == "torn":
            scan.torn = claimed_offsets(source, length - totals.tail_bytes, length)
        if not totals.batches and scan.damages and scan.damages[0].position == 0:
            head = np.zeros(min(HEAD_BYTES, length), dtype=np.uint8)
            scan.foreign = content_kind(head[: source.read_into(0, head)].tobytes())
        return scan

    return read_slice(slice_, read, SliceScan)


def _max(values: np.ndarray) -> int | None:
    return int(values.max()) if len(values) else None


class DamageCollector:
    """Collects the runs and damaged ranges of groups of batches, in segment order, into a SliceScan."""

    def __init__(self, scan: SliceScan, segment: Segment) -> None:
        self._scan, self._segment = scan, segment
        self._runs: list[np.ndarray] = []
        self._sound: list[np.ndarray] = []  # of these the runs are not known yet
        self._rows = 0

    def add(self, group: Group) -> None:
        self._sound.append(group.batches.view(_ROW)[group.batches["fault"] == 0])
        self._rows += len(self._sound[-1])
        if self._rows >= _HELD_BATCHES:
            self._note_runs()
        self._scan.damages += [
            DamagedRange(
                self._scan.report.segment, damage.position, damage.size, damage.reason, damage.detail
            )
            for damage in group.damages
        ]

    def close(self) -> None:
        """Sets what is complete once no group follows."""
        if self._sound:
            self._note_runs()
        if self._runs:
            self._scan.runs = np.concatenate(self._runs)

    def _note_runs(self) -> None:
        self._runs.append(_runs(np.concatenate(self._sound).view(BATCH), self._segment))
        self._sound, self._rows = [], 0


class TransactionCollector(DamageCollector):
    """Collects runs, damaged ranges and the transactional batches into a SliceScan."""

    def __init__(self, scan: SliceScan, segment: Segment) -> None:
        super().__init__(scan, segment)
        self._modified_ms = segment.modified // 1000
        self._transactional: list[np.ndarray] = []

    def add(self, group: Group) -> None:
        self._keep_transactional(group.batches)
        super().add(group)

    def close(self) -> None:
        super().close()
        if self._transactional:
            self._scan.transactional = np.concatenate(self._transactional)

    def _keep_transactional(self, batches: np.ndarray) -> None:
        kept = transactional_batches(batches)
        if not len(kept):
            return
        rows = events_of(kept, TRANSACTIONAL)
        rows["position"] = kept["position"]
        rows["file_base"], rows["file_limit"] = self._segment.file_base_offset, self._segment.file_limit
        is_data = kept["control_type"] == f.NO_CONTROL
        rows["timestamp"] = np.where(is_data, clocks.first_times(kept), kept["max_timestamp"])
        rows["by_broker"] = clocks.are_by_broker(kept)
        rows["credible"] = clocks.are_credible(rows["timestamp"], rows["by_broker"], self._modified_ms)
        self._transactional.append(_joined(rows))


class TotalsCollector(TransactionCollector):
    """Collects runs, damaged ranges, counts by format, timestamps and leader epochs into a SliceScan."""

    def __init__(self, scan: SliceScan, segment: Segment) -> None:
        super().__init__(scan, segment)
        self._epochs: list[np.ndarray] = []
        scan.clock = clocks.Clock(modified_ms=clocks.witness_ms(self._modified_ms))

    def add(self, group: Group) -> None:
        sound = group.batches[group.batches["fault"] == 0]
        self._count_formats(sound)
        self._count_times(sound)
        self._epochs.append(epochs_of(sound[sound["magic"] == f.MAGIC_V2]))
        super().add(group)

    def close(self) -> None:
        super().close()
        if self._epochs:
            self._scan.epochs = np.concatenate(self._epochs)

    def _count_formats(self, batches: np.ndarray) -> None:
        keys = batches["magic"].astype(np.int64) * len(f.CODEC_NAMES) + batches["codec"]
        for key in np.unique(keys).tolist():
            of_key = batches[keys == key]
            magic, codec = divmod(key, len(f.CODEC_NAMES))
            counts = of_key["record_count"].astype(np.int64)
            is_control = (of_key["attributes"] & f.CONTROL_MASK != 0) & (magic == f.MAGIC_V2)
            control = int(counts[is_control].sum())
            records = int(counts.sum()) - control
            counted = FormatCount(len(of_key), int(of_key["size"].sum()), records, control)
            self._scan.formats.setdefault((magic, f.CODEC_NAMES[codec]), FormatCount()).add(counted)
        self._scan.suspect += int(np.count_nonzero(batches["marks"]))

    def _count_times(self, batches: np.ndarray) -> None:
        scan, newest = self._scan, batches["max_timestamp"]
        first = clocks.first_times(batches)
        first = np.where(first < 0, newest, first)
        by_broker = clocks.are_by_broker(batches)
        credible = clocks.are_credible(newest, by_broker, self._modified_ms)
        times = first[first >= 0]
        scan.first_timestamp = lowest(scan.first_timestamp, int(times.min()) if len(times) else None)
        scan.last_timestamp = highest(scan.last_timestamp, _max(newest[newest >= 0]))
        scan.clock = scan.clock.later(
            clocks.Clock(_max(newest[credible]), _max(newest[credible & by_broker]))
        )


def _runs(batches: np.ndarray, segment: Segment) -> np.ndarray:
    """Returns RUN[n] of sound batches (BATCH) of a segment in its order."""
    first, last = batches["base_offset"], batches["last_offset"]
    first = np.where(base_unknown(batches), last, first)
    is_v2 = batches["magic"] == f.MAGIC_V2
    has_horizon = is_v2 & (batches["attributes"] & f.DELETE_HORIZON_MASK != 0)
    # the records of a batch that was passed over are known by its header, if it is of magic 2
    of_older = np.where(batches["record_count"] > 0, batches["record_count"], -1)
    records = np.where(is_v2, batches["count"], of_older)
    is_cleaned = (batches["marks"] == 0) & (has_horizon | are_cleaned(first, last, records))
    names = segment.file_base_offset, segment.file_limit
    return runs_of(first, last, batches["position"], batches["size"], is_cleaned, *names)


def _joined(rows: np.ndarray) -> np.ndarray:
    """Joins rows of one producer and epoch whose offsets follow each other; markers stay as they are."""
    bounds = (rows[name] for name in ("first_offset", "last_offset", "file_base", "file_limit"))
    differs = begins_of_runs(*bounds)
    for name in ("producer_id", "producer_epoch", "control_type"):
        differs[1:] |= rows[name][1:] != rows[name][:-1]
    begins = np.flatnonzero(differs | (rows["control_type"] != f.NO_CONTROL))
    joined = rows[begins]
    joined["batches"] = np.diff(np.append(begins, len(rows)))
    joined["last_offset"] = np.maximum.reduceat(rows["last_offset"], begins)
    joined["last_base"] = rows["first_offset"][np.append(begins[1:], len(rows)) - 1]
    return joined
