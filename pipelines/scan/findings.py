"""Collects the findings of a scan by log: counts, damage with the offsets it may cost, transactions."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.listing.leftovers import PassedOver
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import SWAP_SUFFIX, left_state
from kafka_log_lake.pipelines.listing.witnesses import has_grown
from kafka_log_lake.pipelines.load_check.found import Unloadable
from kafka_log_lake.pipelines.plan.missing import unread_segments
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.pipelines.tasks.accounts import of_damage, of_tail, of_unread
from kafka_log_lake.pipelines.tasks.contradictions import Contradiction, contradictions
from kafka_log_lake.pipelines.tasks.open_transactions import OpenTransaction, open_transactions
from kafka_log_lake.pipelines.tasks.scanned_log import (
    Scanned,
    files_of,
    is_zeros,
    joined,
    missing_in,
    placed,
    places_of,
)
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange, Format, FormatCount, SliceScan
from kafka_log_lake.pipelines.tasks.verdicts import highest, lowest
from kafka_log_lake.udfs.batches.account import (
    MISSING_CAUSES,
    NO_WITNESSES,
    Account,
    Unseen,
    Witnesses,
    account_of,
)
from kafka_log_lake.udfs.batches.clocks import Clock
from kafka_log_lake.udfs.batches.hanging_transactions import CoordinatorState
from kafka_log_lake.udfs.batches.retention import SegmentTime
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

if TYPE_CHECKING:
    from kafka_log_lake.udfs.values.schemas.profile import PayloadFormat, PayloadKind


@dataclass
class ScannedLog:
    """What was scanned of the log in one partition folder; offsets, timestamps (ms since 1970 UTC) or None.

    records: of data; control_records: the others, as in the view ``logs``. torn: see ``SliceScan``. zeroed:
    bytes of each segment of zeros alone that others follow, in a log with batches. foreign: URIs of files
    that are another program's -> which, and what to do; their bytes are no damage. segment_times: of each
    segment. is_growing: its last batch is incomplete, and bytes were added since. is_compacted: it shows
    that the log cleaner ran. account: of its offsets. unconfirmed: first offset before a last batch
    that no batch has, though nothing shows that the log cleaner ran, and the base offset of that batch.
    """

    topic: str
    partition: int
    partition_dir: str
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    control_records: int = 0
    suspect: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    tail: str = "none"
    tail_bytes: int = 0
    torn: tuple[int, int] | None = None
    foreign: dict[str, str] = field(default_factory=dict)
    foreign_bytes: int = 0
    segment_times: list[SegmentTime] = field(default_factory=list)
    is_growing: bool = False
    is_compacted: bool = False
    zeroed: list[int] = field(default_factory=list)
    offset_regressions: int = 0
    formats: dict[Format, FormatCount] = field(default_factory=dict)
    damages: list[DamagedRange] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    missing: list[Unseen] = field(default_factory=list)
    account: Account = field(default_factory=lambda: Account(0, 0))
    unconfirmed: tuple[int, int] | None = None
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    @property
    def end(self) -> int:
        """Returns the offset after the last batch; 0 without one."""
        return 0 if self.last_offset is None else self.last_offset + 1

    @property
    def is_cut(self) -> bool:
        """Returns whether the last batch is incomplete, or the log ends in zeros and has no batch."""
        return self.tail == "torn" or (self.tail == "zeros" and not self.batches)

    @property
    def last_stable_offset(self) -> int | None:
        """Returns where a READ_COMMITTED consumer stops: the first offset of an open transaction, or None."""
        return min((t.first_offset for t in self.open_transactions), default=None)

    @property
    def hanging(self) -> list[OpenTransaction]:
        """Returns transactions open at the last write longer than a broker allows, or for unknown time."""
        return [
            transaction
            for transaction in self.open_transactions
            if transaction.ending is not None and transaction.ending.hangs_as_of_last_write
        ]


@dataclass
class Findings:
    """All findings of a scan. skipped: reason -> number of files or folders. unreadable: URI -> why.

    passed_over: of these, what a broker left behind, with its bytes.

    swap_files: URIs of those that are read in place of segments. tier_report, segment_places: rows of
    these tables, None and () without ``--tier``; price_per_gb_month: of 10^9 bytes in the tier.
    warnings: what else is to be known.
    named: topic and partition that were given for all segments; None if their folders tell them. replicas: of
    disks with names, the copies compared, as rows of ``replica_report``. placements: of each cluster what its
    metadata logs say (``recover.placement.Placements``). clusters: cluster id -> log directories that name
    it. looks: by topic what the payloads of its sample are.
    """

    sources: tuple[str, ...]
    named: tuple[str, int] | None = None
    logs: list[ScannedLog] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    passed_over: list[PassedOver] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    swap_files: list[str] = field(default_factory=list)
    tier_report: list[dict[str, Any]] | None = None
    segment_places: Sequence[dict[str, Any]] = ()
    price_per_gb_month: float | None = None
    warnings: list[str] = field(default_factory=list)
    replicas: list[dict[str, Any]] = field(default_factory=list)
    placements: dict[str | None, Any] = field(default_factory=dict)
    clusters: dict[str, list[str]] = field(default_factory=dict)
    sort: str = "bytes"
    prepared: list[CoordinatorState] = field(default_factory=list)
    unloadable: list[Unloadable] = field(default_factory=list)
    looks: dict[str, Counter[PayloadKind]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def damages(self) -> list[tuple[ScannedLog, DamagedRange]]:
        return [(log, damage) for log in self.logs for damage in log.damages]

    @property
    def missing(self) -> list[tuple[ScannedLog, Unseen]]:
        """Returns offsets that no segment of their log has."""
        return [(log, unseen) for log in self.logs for unseen in log.missing]

    @property
    def is_damaged(self) -> bool:
        """Returns whether the verdict is "not sound", or something can't be read."""
        return bool(
            self.damages
            or self.unreadable
            or self.contradictions
            or any(not log.account.is_sound or log.zeroed or log.unconfirmed for log in self.logs)
            or any(placement.gone for placement in self.placements.values())
            or any(row["diverged_from"] is not None for row in self.replicas)
        )

    @property
    def contradictions(self) -> list[tuple[ScannedLog, Contradiction]]:
        """Returns batches whose base offset or leader epoch contradicts the log around them."""
        return [(log, contradiction) for log in self.logs for contradiction in log.contradictions]

    @property
    def payloads(self) -> list[PayloadFormat]:
        """Returns the formats of keys and values by topic, from a sample of each."""
        from kafka_log_lake.udfs.values.schemas.profile import (
            payload_formats,  # decoders, which find does not need
        )

        return payload_formats(self.looks)

    def cluster_of(self, log: ScannedLog) -> str:
        """Returns the id of the cluster that a log is of, where the disks are of several; else ""."""
        log_dir = (path_of_uri(log.partition_dir) or "").rpartition("/")[0]
        return self._by_log_dir.get(log_dir, "") if len(self.clusters) > 1 else ""

    @cached_property
    def _by_log_dir(self) -> dict[str, str]:
        return {
            os.path.realpath(path): cluster_id
            for cluster_id, paths in self.clusters.items()
            for path in paths
        }

    @property
    def copies(self) -> dict[tuple[str, str, int], list[ScannedLog]]:
        """Returns by cluster, topic and partition the logs of those that are in several folders."""
        by_partition: dict[tuple[str, str, int], list[ScannedLog]] = defaultdict(list)
        for log in self.logs:
            by_partition[self.cluster_of(log), log.topic, log.partition].append(log)
        return {partition: logs for partition, logs in by_partition.items() if len(logs) > 1}


def collect(
    sources: Sequence[str], listing: Listing, scanned: Iterable[tuple[Segment, list[SliceScan]]]
) -> Findings:
    """Collects the findings of all logs. scanned: segments by folder and base offset, with their slices."""
    findings = Findings(tuple(sources), skipped=listing.skipped, unreadable=dict(listing.unreadable))
    findings.passed_over, findings.tier_report = listing.passed_over, listing.tier_report
    findings.segment_places = listing.segment_places
    by_folder: dict[str, list[tuple[Segment, list[SliceScan]]]] = defaultdict(list)
    for segment, slices in scanned:
        if segment.file is not None and segment.file.endswith(SWAP_SUFFIX):
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
        witnesses = noted[folder].witnesses if folder in noted else NO_WITNESSES
        log = _scanned_log(segments, unread[folder], witnesses.cleaned_before)
        findings.logs.append(log)
        if folder in noted and segments[-1][0].segment != noted[folder].last_segment:
            witnesses = NO_WITNESSES
        log.account = _account(log, segments, unread[folder], witnesses)
        log.is_growing = log.tail == "torn" and has_grown(segments[-1][0].uri, segments[-1][0].length)
        log.missing = [unseen for unseen in log.account.unseen if unseen.cause in MISSING_CAUSES]
    findings.logs.sort(key=lambda log: (log.topic, log.partition, log.partition_dir))
    return findings


def _account(log: ScannedLog, scanned: list[Scanned], unread: list[int], witnesses: Witnesses) -> Account:
    """Accounts for a log's offsets. witnesses: NO_WITNESSES unless all segments are read up to the last."""
    files = files_of(scanned, unread)
    within = [*log.missing, *filter(None, map(of_damage, log.damages))]
    limits = dict(pairwise(files))
    within += of_unread(dict.fromkeys(unread, "not read: see the unreadable files"), limits)
    foreign = {segment.file_base_offset: log.foreign.get(segment.uri) for segment, _ in scanned}
    within += of_unread({base: kind for base, kind in foreign.items() if kind is not None}, limits)
    last, slices = scanned[-1]
    is_last, end = last.file_base_offset == files[-1], max(files[-1], log.end)
    size = sum(scan.report.totals.tail_bytes for scan in slices if is_last)
    tail = of_tail(log.tail, size, log.torn, end, log.batches > 0) if size else None
    return account_of(files[0], end, witnesses, within, tail)


def _scanned_log(scanned: list[Scanned], unread: list[int], cleaned_before: int | None) -> ScannedLog:
    """Joins a log's slices.

    unread: base offsets of segments that were not selected or can't be read. cleaned_before: see ``placed``.
    """
    first = scanned[0][0]
    log = ScannedLog(first.topic, first.partition, first.partition_dir)
    for segment, slices in scanned:
        _add_segment(log, segment, slices)
    order, log.damages = placed(scanned, unread, cleaned_before)
    log.first_offset, log.last_offset = order.first, order.last
    log.missing, log.is_compacted = missing_in(scanned, unread, order), order.is_compacted
    last = files_of(scanned, unread)[-1]
    log.foreign = {
        segment.uri: kind
        for segment, slices in scanned
        if (kind := slices[0].foreign) and not any(scan.report.totals.batches for scan in slices)
    }
    log.foreign_bytes = sum(segment.length for segment, _ in scanned if segment.uri in log.foreign)
    log.damages = [damage for damage in log.damages if damage.segment not in log.foreign]
    log.zeroed = [
        s.length for s, slices in scanned if log.batches and s.file_base_offset < last and is_zeros(s, slices)
    ]
    log.unconfirmed = order.unconfirmed
    log.contradictions = contradictions(
        [(segment.uri, segment.file_base_offset) for segment, _ in scanned],
        joined(scanned, "runs"),
        [np.concatenate([scan.epochs for scan in slices]) for _, slices in scanned],
    )
    rows = joined(scanned, "transactional")
    if left_state(log.partition_dir) is None:  # else no consumer waits for it
        log.open_transactions = open_transactions(rows, places_of(scanned), log.clock)
    return log


def _add_segment(log: ScannedLog, segment: Segment, slices: list[SliceScan]) -> None:
    newest = max((scan.last_timestamp for scan in slices if scan.last_timestamp is not None), default=-1)
    largest = newest if newest >= 0 else segment.modified // 1000
    log.segment_times.append(SegmentTime(segment.file_base_offset, segment.length, largest))
    log.segments += 1
    log.bytes += segment.length
    for scan in slices:
        totals = scan.report.totals
        log.batches += totals.batches
        log.suspect += scan.suspect
        log.offset_regressions += totals.offset_regressions
        log.first_timestamp = lowest(log.first_timestamp, scan.first_timestamp)
        log.last_timestamp = highest(log.last_timestamp, scan.last_timestamp)
        log.clock = log.clock.later(scan.clock)
        if totals.tail_bytes:
            log.tail, log.tail_bytes = totals.tail, log.tail_bytes + totals.tail_bytes
            log.torn = scan.torn
        for key, count in scan.formats.items():
            log.formats.setdefault(key, FormatCount()).add(count)
            log.records += count.records
            log.control_records += count.control_records
