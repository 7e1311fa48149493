"""Scans one slice of a segment in a worker process: gives counts and positions, but no records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from pipelines.plan.slices import Slice
from udfs.committed import of_transactions
from udfs.decoded import Damage, Group, Range
from udfs.format import layout as f
from udfs.kernels.framing import BATCH, UNKNOWN_OFFSET, base_unknown, batch_size, read_header
from udfs.rules import clocks
from udfs.segment_decoder import SegmentDecoder
from udfs.source.byte_source import ByteSource, SourceError, SourceUnreadable, open_source, read_at
from udfs.spark.protocol import Problem, SliceReport

# A row: consecutive transactional batches of one producer, or one marker
TRANSACTIONAL = np.dtype(
    [
        ("producer_id", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("timestamp", "i8"),  # of the first batch's first record; of a marker its own; ms, -1 unknown
        ("producer_epoch", "i2"),
        ("control_type", "i2"),  # layout.CONTROL_ABORT, CONTROL_COMMIT; NO_CONTROL for data
        ("by_broker", "?"),  # whether a broker's clock gave timestamp
        ("credible", "?"),  # clocks.are_credible
    ]
)
Format = tuple[int, str]  # magic, codec


@dataclass
class FormatCount:
    """Totals of the batches of one format. bytes: on disk."""

    batches: int = 0
    bytes: int = 0
    records: int = 0

    def add(self, other: FormatCount) -> None:
        self.batches += other.batches
        self.bytes += other.bytes
        self.records += other.records


@dataclass(frozen=True)
class DamagedRange:
    """A damaged byte range of a segment.

    last_offset: of the sound batch before it; next_offset: base offset of the sound batch behind it. None if
    there is none: in the slice at first, in the log once the findings are collected.
    """

    segment: str
    position: int
    size: int
    reason: str
    detail: str
    last_offset: int | None
    next_offset: int | None = None

    @property
    def first_lost(self) -> int | None:
        """The first offset that may have been in it; None if no offset can be missing."""
        first = 0 if self.last_offset is None else self.last_offset + 1
        return first if self.next_offset is None or first < self.next_offset else None

    @property
    def last_lost(self) -> int | None:
        """The last of these offsets; None too if no sound batch follows."""
        return None if self.first_lost is None or self.next_offset is None else self.next_offset - 1


@dataclass
class SliceScan:
    """The scan of one slice.

    report: as a job's workers give it. statuses: status -> number of batches; only ``suspect`` is counted.
    first_timestamp, last_timestamp: ms since 1970 UTC, None without any.
    transactional: rows of TRANSACTIONAL. torn: first and last offset that
    the header of a torn last batch claims; None without one, or where its header is cut. clock: its own.
    """

    report: SliceReport
    formats: dict[Format, FormatCount] = field(default_factory=dict)
    damages: list[DamagedRange] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    transactional: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=TRANSACTIONAL))
    clock: clocks.Clock = field(default_factory=clocks.Clock)
    torn: tuple[int, int] | None = None


def scan_slice(slice_: Slice, max_batch_uncompressed: int) -> SliceScan:
    """Decodes a slice and counts. Never raises for the content of a file."""
    segment = slice_.segment
    ids = (slice_.group_id, segment.segment, slice_.start)
    try:
        source = open_source(segment.uri, slice_.stop)
    except SourceError as error:
        return SliceScan(SliceReport(*ids, problem=_problem(error), detail=str(error)))
    try:
        range_ = Range(segment.length, slice_.start, slice_.stop, slice_.exact_start, segment.has_successor)
        decoder = SegmentDecoder(
            source, range_, max_batch_uncompressed=max_batch_uncompressed, columns=(), content_crc=False
        )
        scan = SliceScan(SliceReport(*ids, decoder.totals))
        counting = Counting(scan, segment.modified // 1000)
        for group in decoder:
            counting.add(group)
        counting.close()
        if decoder.totals.tail == "torn":
            scan.torn = _claimed(source, segment.length - decoder.totals.tail_bytes, segment.length)
        return scan
    except SourceError as error:
        return SliceScan(SliceReport(*ids, problem=_problem(error), detail=str(error)))
    finally:
        source.close()


def _claimed(source: ByteSource, position: int, length: int) -> tuple[int, int] | None:
    """First and last offset by the header of a batch that is cut; None where they are not in it."""
    head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
    got = read_at(source, position, head, length)
    if got < f.HEADER_UP_TO_MAGIC or (head[f.MAGIC_POS] == f.MAGIC_V2 and got < len(head)):
        return None
    row = np.zeros(1, dtype=BATCH)
    read_header(head, 0, max(int(batch_size(head, 0, got)), 0), position, row[0])
    first, last = int(row["base_offset"][0]), int(row["last_offset"][0])
    return (last if first == UNKNOWN_OFFSET else first), last


def _problem(error: SourceError) -> Problem:
    return Problem.UNREADABLE if isinstance(error, SourceUnreadable) else Problem.CHANGED


def lowest(*values: int | None) -> int | None:
    """The lowest value that is not None; None where all are."""
    return min((v for v in values if v is not None), default=None)


def highest(*values: int | None) -> int | None:
    """The highest value that is not None; None where all are."""
    return max((v for v in values if v is not None), default=None)


def _max(values: np.ndarray) -> int | None:
    return int(values.max()) if len(values) else None


class Placing:
    """Adds the damaged ranges among groups of batches, in the order of the segment, to a SliceScan."""

    def __init__(self, scan: SliceScan) -> None:
        self._scan = scan
        self._last_offset: int | None = None
        self._waiting: list[DamagedRange] = []  # ranges behind which no sound batch was seen yet

    def add(self, group: Group) -> None:
        batches = group.batches
        if not (group.damages or self._waiting) and len(batches):
            last = batches[-1:]
            if last["fault"][0] == 0 and not base_unknown(last)[0]:
                self._last_offset = int(last["last_offset"][0])
                return
        sound = batches[batches["fault"] == 0]
        self._place_damages(group.damages, sound[~base_unknown(sound)])

    def close(self) -> None:
        """Notes what is known once no group follows."""
        self._scan.damages += self._waiting

    def _place_damages(self, damages: list[Damage], sound: np.ndarray) -> None:
        """Notes damages with the offsets around them. Those that no sound batch follows yet wait for one."""
        positions, segment = sound["position"], self._scan.report.segment
        for damage in damages:
            at = int(np.searchsorted(positions, damage.position))
            before = int(sound["last_offset"][at - 1]) if at else self._last_offset
            what = (damage.position, damage.size, damage.reason, damage.detail)
            self._waiting.append(DamagedRange(segment, *what, before))
        if len(sound):
            placed = [one for one in self._waiting if one.position <= positions[-1]]
            for one in placed:
                at = int(np.searchsorted(positions, one.position))
                self._scan.damages.append(replace(one, next_offset=int(sound["base_offset"][at])))
            self._waiting = self._waiting[len(placed) :]
            self._last_offset = int(sound["last_offset"][-1])


class Noting(Placing):
    """Adds the batches of transactions too."""

    def __init__(self, scan: SliceScan, modified_ms: int) -> None:
        super().__init__(scan)
        self._modified_ms = modified_ms
        self._transactional: list[np.ndarray] = []

    def add(self, group: Group) -> None:
        self._keep_transactional(group.batches)
        super().add(group)

    def close(self) -> None:
        super().close()
        if self._transactional:
            self._scan.transactional = np.concatenate(self._transactional)

    def _keep_transactional(self, batches: np.ndarray) -> None:
        kept = of_transactions(batches)
        if not len(kept):
            return
        rows = np.zeros(len(kept), dtype=TRANSACTIONAL)
        for name in ("producer_id", "last_offset", "producer_epoch", "control_type"):
            rows[name] = kept[name]
        rows["first_offset"] = kept["base_offset"]
        is_data = kept["control_type"] == f.NO_CONTROL
        rows["timestamp"] = np.where(is_data, clocks.first_times(kept), kept["max_timestamp"])
        rows["by_broker"] = clocks.are_by_broker(kept)
        rows["credible"] = clocks.are_credible(rows["timestamp"], rows["by_broker"], self._modified_ms)
        self._transactional.append(_joined(rows))


class Counting(Noting):
    """Adds counts and times too."""

    def __init__(self, scan: SliceScan, modified_ms: int) -> None:
        super().__init__(scan, modified_ms)
        scan.clock = clocks.Clock(modified_ms=clocks.witness_ms(modified_ms))

    def add(self, group: Group) -> None:
        sound = group.batches[group.batches["fault"] == 0]
        self._count_formats(sound)
        self._count_times(sound)
        super().add(group)

    def _count_formats(self, batches: np.ndarray) -> None:
        keys = batches["magic"].astype(np.int64) * len(f.CODEC_NAMES) + batches["codec"]
        for key in np.unique(keys).tolist():
            of_key = batches[keys == key]
            magic, codec = divmod(key, len(f.CODEC_NAMES))
            counted = FormatCount(
                len(of_key), int(of_key["size"].sum()), int(of_key["record_count"].sum(dtype=np.int64))
            )
            self._scan.formats.setdefault((magic, f.CODEC_NAMES[codec]), FormatCount()).add(counted)
        suspect = int(np.count_nonzero(batches["marks"]))
        if suspect:
            self._scan.statuses["suspect"] += suspect

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


def _joined(rows: np.ndarray) -> np.ndarray:
    """Rows with consecutive data batches of one producer and epoch joined into one."""
    differs = np.zeros(len(rows), dtype=bool)
    for name in ("producer_id", "producer_epoch", "control_type"):
        differs[1:] |= rows[name][1:] != rows[name][:-1]
    begins = np.flatnonzero(differs | (rows["control_type"] != f.NO_CONTROL) | (np.arange(len(rows)) == 0))
    joined = rows[begins]
    joined["last_offset"] = np.maximum.reduceat(rows["last_offset"], begins)
    return joined
