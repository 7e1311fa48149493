"""The findings of a scan, log by log: counts, damage with the offsets it may cost, open transactions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipelines.plan.missing import Edges, Extent, Missing, at_edges, missing_ranges, unread_segments
from pipelines.plan.slices import Segment
from pipelines.scanning.slice_scan import DamagedRange, Format, FormatCount, SliceScan, highest, lowest
from pipelines.source.listing import Listing
from udfs.format import layout as f
from udfs.rules.clocks import Age, Clock, age

_END = 1 << 63  # past every offset


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction without a marker.

    first_timestamp: of its first record, ms since 1970 UTC, -1 for none. is_uncertain: damage follows its
    start, and its marker may be in the damaged bytes. age: for how long it is open, in the time of its log.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    is_uncertain: bool
    age: Age


@dataclass
class Log:
    """The log in one partition folder. Offsets and timestamps (ms since 1970 UTC) of batches, or None.

    tail_segment: segment of the tail. torn: see ``SliceScan``.
    """

    topic: str
    partition: int
    partition_dir: str
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    suspect: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    tail: str = "none"
    tail_bytes: int = 0
    tail_segment: str | None = None
    torn: tuple[int, int] | None = None
    offset_regressions: int = 0
    formats: dict[Format, FormatCount] = field(default_factory=dict)
    damages: list[DamagedRange] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    @property
    def last_stable_offset(self) -> int | None:
        """Where a READ_COMMITTED consumer stops: the first offset of an open transaction, or None."""
        return min((t.first_offset for t in self.open_transactions), default=None)

    @property
    def hanging(self) -> list[OpenTransaction]:
        """Transactions that are open for longer than a broker allows, or for an unknown time."""
        return [one for one in self.open_transactions if one.age.is_hanging]


@dataclass
class Findings:
    """All findings of a scan. skipped: reason -> number of files or folders. unreadable: URI -> why.

    swap_files: URIs of those that stand for segments. warnings: what else a person should know.
    named: topic and partition that were given for all segments; None if their folders tell them.
    """

    sources: tuple[str, ...]
    named: tuple[str, int] | None = None
    logs: list[Log] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)
    swap_files: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def damages(self) -> list[tuple[Log, DamagedRange]]:
        return [(log, damage) for log in self.logs for damage in log.damages]

    @property
    def missing(self) -> list[tuple[Log, Missing]]:
        """Offsets that no segment of their log has."""
        return [(log, one) for log in self.logs for one in log.missing]

    @property
    def is_damaged(self) -> bool:
        return bool(self.damages or self.unreadable)

    @property
    def copies(self) -> dict[tuple[str, int], list[Log]]:
        """Topic-partitions that are in several folders."""
        by_partition: dict[tuple[str, int], list[Log]] = defaultdict(list)
        for log in self.logs:
            by_partition[log.topic, log.partition].append(log)
        return {partition: logs for partition, logs in by_partition.items() if len(logs) > 1}


def collect(
    sources: Sequence[str], listing: Listing, scanned: Iterable[tuple[Segment, list[SliceScan]]]
) -> Findings:
    """Findings in all logs. scanned: segments by folder and base offset, each with its slices in order."""
    findings = Findings(tuple(sources), skipped=listing.skipped, unreadable=dict(listing.unreadable))
    by_folder: dict[str, list[tuple[Segment, list[SliceScan]]]] = defaultdict(list)
    for segment, slices in scanned:
        if segment.file is not None:
            findings.swap_files.append(segment.file)
        problem = next((s.report for s in slices if s.report.problem), None)
        if problem is not None:
            findings.unreadable[segment.uri] = problem.detail
        else:
            by_folder[segment.partition_dir].append((segment, slices))
    read = [segment.segment for segments in by_folder.values() for segment, _ in segments]
    unread = unread_segments(listing.segments, pa.array(read, pa.string()))
    noted = listing.noted_logs()
    findings.warnings = listing.checkpoints.warnings
    for folder, segments in by_folder.items():
        log = _log(segments, unread[folder])
        findings.logs.append(log)
        # of a segment that can't be read the end is not known
        if folder in noted and segments[-1][0].segment == noted[folder].last_segment:
            end = max(
                segments[-1][0].file_base_offset, -1 if log.last_offset is None else log.last_offset + 1
            )
            edges = Edges(log.topic, log.partition, folder, segments[0][0].log_start_offset, end)
            log.missing += at_edges(edges, noted[folder].checkpoint)
            log.missing.sort(key=lambda one: one.first)
    findings.logs.sort(key=lambda log: (log.topic, log.partition, log.partition_dir))
    return findings


def _log(scanned: list[tuple[Segment, list[SliceScan]]], unread: list[Extent]) -> Log:
    first = scanned[0][0]
    log = Log(first.topic, first.partition, first.partition_dir)
    for at, (segment, slices) in enumerate(scanned):
        following = scanned[at + 1][0].file_base_offset if at + 1 < len(scanned) else None
        _add_segment(log, segment, slices, following)
    log.missing = missing_ranges([*unread, *(_extent(segment, slices) for segment, slices in scanned)])
    log.open_transactions = _open_transactions(scanned, log.damages, log.clock)
    return log


def _add_segment(log: Log, segment: Segment, slices: list[SliceScan], following: int | None) -> None:
    log.segments += 1
    log.bytes += segment.length
    for scan in slices:
        totals = scan.report.totals
        log.batches += totals.batches
        log.records += totals.records
        log.suspect += scan.statuses["suspect"]
        log.offset_regressions += totals.offset_regressions
        log.first_offset = lowest(log.first_offset, totals.first_base_offset)
        log.last_offset = highest(log.last_offset, totals.end_offset)
        log.first_timestamp = lowest(log.first_timestamp, scan.first_timestamp)
        log.last_timestamp = highest(log.last_timestamp, scan.last_timestamp)
        log.clock = log.clock.later(scan.clock)
        if totals.tail_bytes:
            log.tail, log.tail_bytes = totals.tail, log.tail_bytes + totals.tail_bytes
            log.tail_segment, log.torn = segment.uri, scan.torn
        for key, count in scan.formats.items():
            log.formats.setdefault(key, FormatCount()).add(count)
    log.damages += damages_of(segment, slices, following)


def _extent(segment: Segment, slices: list[SliceScan]) -> Extent:
    """What a segment covers, from its slices in order."""
    totals = [scan.report.totals for scan in slices]
    return Extent(
        segment.file_base_offset,
        lowest(*(one.first_base_offset for one in totals)),
        highest(*(one.end_offset for one in totals)),
        sum(one.records for one in totals),
        any(scan.damages for scan in slices),
        any(one.next_offset is None for one in slices[-1].damages),
    )


def damages_of(segment: Segment, slices: list[SliceScan], following: int | None) -> list[DamagedRange]:
    """The damaged ranges of a segment, with the offsets before and behind them from neighbouring slices."""
    damages = []
    last = segment.file_base_offset - 1
    for at, scan in enumerate(slices):
        behind = (s.report.totals.first_base_offset for s in slices[at + 1 :])
        next_sound = next((offset for offset in behind if offset is not None), following)
        damages += [
            replace(
                one,
                segment=segment.uri,
                last_offset=last if one.last_offset is None else one.last_offset,
                next_offset=next_sound if one.next_offset is None else one.next_offset,
            )
            for one in scan.damages
        ]
        end = scan.report.totals.end_offset
        last = last if end is None else end
    return damages


def _open_transactions(
    scanned: list[tuple[Segment, list[SliceScan]]], damages: list[DamagedRange], clock: Clock
) -> list[OpenTransaction]:
    """Transactional data without a marker behind it. A marker ends the transaction of its producer id."""
    open_: dict[int, int] = {}  # producer id -> its first row since its last marker
    ends: dict[int, int] = {}
    rows = np.concatenate([scan.transactional for _, slices in scanned for scan in slices])
    names = ("producer_id", "last_offset", "control_type")
    for at, (producer, last, control) in enumerate(rows[list(names)].tolist()):
        if control != f.NO_CONTROL:
            open_.pop(producer, None)
        else:
            open_.setdefault(producer, at)
            ends[producer] = last
    # The last damage decides: a marker may lie in it where it ends behind the transaction's start
    last_damage = -1
    if damages:
        last_damage = max(_END if one.next_offset is None else one.next_offset for one in damages)
    markers = rows[(rows["control_type"] != f.NO_CONTROL) & rows["credible"]]
    return [
        _open_transaction(rows[at], ends[producer], last_damage > rows[at]["first_offset"], clock, markers)
        for producer, at in sorted(open_.items(), key=lambda item: rows[item[1]]["first_offset"])
    ]


def _open_transaction(
    first: np.void, last_offset: int, is_uncertain: bool, clock: Clock, markers: np.ndarray
) -> OpenTransaction:
    """first, markers: rows of TRANSACTIONAL; the markers are those of its log with credible times."""
    offset = int(first["first_offset"])
    before = markers["timestamp"][markers["first_offset"] <= offset]
    behind = markers["timestamp"][markers["first_offset"] > offset]
    opened = age(
        clock,
        int(first["timestamp"]) if first["credible"] else None,
        by_broker=bool(first["by_broker"]),
        before_ms=int(before.max()) if len(before) else None,
        behind_ms=int(behind.min()) if len(behind) else None,
        lost=bool(is_uncertain),
    )
    return OpenTransaction(
        int(first["producer_id"]),
        int(first["producer_epoch"]),
        offset,
        last_offset,
        int(first["timestamp"]),
        bool(is_uncertain),
        opened,
    )
