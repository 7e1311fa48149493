"""Reads what transaction coordinators noted of open transactions in ``__transaction_state``."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog
from kafka_log_lake.udfs.batches.clocks import TRANSACTION_TIMEOUT_MS
from kafka_log_lake.udfs.batches.hanging_transactions import PREPARE, CoordinatorState, ending_of
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

TOPIC = "__transaction_state"
_COLUMNS = ("offset", "key", "value", "timestamp_ms", "is_control")


@dataclass(frozen=True)
class _Record:
    """The last record of a transactional id. noted: None for a tombstone; before: its former producer id."""

    offset: int
    noted: CoordinatorState | None = None
    producer_id: int = -1
    before: int = -1


@dataclass
class Coordinators:
    """The last notes of a cluster's coordinators, by transactional id. unread: records that can't be read."""

    records: dict[str, _Record] = field(default_factory=dict)
    unread: int = 0

    def of(self, producer: int) -> CoordinatorState | None:
        """Returns the last note on a producer id that a transactional id has or had; None without one."""
        states = []
        for record in self.records.values():
            if record.noted is not None and producer == record.producer_id:
                states.append(record.noted)
            elif record.noted is not None and producer == record.before:
                states.append(dataclasses.replace(record.noted, producer_epoch=None, partitions=frozenset()))
        return max(states, key=lambda state: (state.updated_ms or 0, state.transactional_id), default=None)


def add_endings(findings: Findings, listing: Listing) -> None:
    """Adds to each open transaction what its coordinator noted, how old it is now, and what ends it.

    Also adds the transactions that coordinators have prepared, though no log has them open.
    """
    known = _coordinators(listing, are_of_one_cluster=len(findings.clusters) < 2)
    now_ms = time.time_ns() // 1_000_000
    logs: dict[str, list[ScannedLog]] = defaultdict(list)
    for log in findings.logs:
        log_dir = log.partition_dir.rpartition("/")[0]
        name = log_dir if log_dir in known else ""
        coordinators = known.get(name, Coordinators())
        logs[name].append(log)
        for at, transaction in enumerate(log.open_transactions):
            place = log.topic, log.partition, transaction.producer_epoch
            noted, lost = coordinators.of(transaction.producer_id), transaction.is_uncertain
            ending = ending_of(transaction.age, log.clock, place, noted, now_ms, lost, coordinators.unread)
            log.open_transactions[at] = dataclasses.replace(transaction, ending=ending)
    for name, coordinators in known.items():
        findings.prepared += _with_markers(coordinators, logs[name], now_ms)


def _with_markers(coordinators: Coordinators, logs: list[ScannedLog], now_ms: int) -> list[CoordinatorState]:
    """Returns transactions prepared for longer than the timeout that no scanned log of theirs has open."""
    places = {(log.topic, log.partition) for log in logs}
    opened = {transaction.producer_id for log in logs for transaction in log.open_transactions}
    return [
        record.noted
        for record in coordinators.records.values()
        if record.noted is not None
        and record.noted.state in PREPARE
        and now_ms - (record.noted.updated_ms or 0) > TRANSACTION_TIMEOUT_MS
        and record.producer_id not in opened
        and record.noted.partitions & places
    ]


def _coordinators(listing: Listing, *, are_of_one_cluster: bool) -> dict[str, Coordinators]:
    """Reads what transaction coordinators noted last, by log directory; of one cluster's disks all as ""."""
    segments = listing.segments.filter(listing.segments.column("wanted"))
    by_cluster: dict[str, Coordinators] = defaultdict(Coordinators)
    for row in segments.select(["topic", "partition_dir", "segment"]).to_pylist():
        path = path_of_uri(row["segment"])
        if row["topic"] == TOPIC and path is not None:
            _read(path, by_cluster["" if are_of_one_cluster else row["partition_dir"].rpartition("/")[0]])
    return dict(by_cluster)


def _read(path: str, into: Coordinators) -> None:
    """Reads a segment of ``__transaction_state``; each damaged range counts as one unread record."""
    from kafka_log_lake.udfs.files import decode_segment  # the decoder and definitions, which few scans need
    from kafka_log_lake.udfs.storage.byte_source import SourceError
    from kafka_log_lake.udfs.values.internal.columns import transaction_states

    damages: list[object] = []
    last: dict[str, tuple[int, dict[str, Any]]] = {}  # of each transactional id
    unread, until = 0, -1
    try:
        for batch in decode_segment(path, columns=_COLUMNS, on_damage=damages.append):
            names = ("offset", "is_control", "timestamp_ms")
            offsets, control, times = (batch.column(name).to_pylist() for name in names)
            until = max((until, *times))
            states = transaction_states(batch.column("key"), batch.column("value")).to_pylist()
            for offset, state, is_control in zip(offsets, states, control, strict=True):
                if is_control:
                    continue
                name = state["transactional_id"]
                if name is None or not state["is_read"]:
                    unread += 1
                elif name not in last or offset >= last[name][0]:
                    last[name] = offset, state
    except (OSError, SourceError):
        into.unread += 1
        return
    into.unread += unread + len(damages)
    for name, (offset, state) in last.items():
        if name not in into.records or offset >= into.records[name].offset:
            into.records[name] = _record(name, offset, state, until)


def _record(name: str, offset: int, state: dict[str, Any], until: int) -> _Record:
    """Converts a TRANSACTION_STATE to a record; a null state is a tombstone. until: newest time, ms."""
    if state["state"] is None:
        return _Record(offset)
    places = (
        (topic["topic"], number) for topic in state["partitions"] or () for number in topic["partitions"]
    )
    began, updated = (_ms(state[of]) for of in ("start_timestamp", "last_update_timestamp"))
    epoch, timeout = state["producer_epoch"], state["timeout_ms"]
    noted = CoordinatorState(name, state["state"], epoch, timeout, frozenset(places), began, updated, until)
    return _Record(offset, noted, state["producer_id"], state["previous_producer_id"])


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
