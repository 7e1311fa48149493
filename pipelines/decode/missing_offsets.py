"""Finds and keeps the offsets that no segment of a log has, and says in what logs end.

They are between segments, and at the edges of the log, where the broker's checkpoint files say more than the
lake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.cli.verdict import Tails, claimed_by
from kafka_log_lake.pipelines.decode.log_starts import stored_checkpoints, with_log_starts
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.intents import Intent
from kafka_log_lake.pipelines.lake.transactions import partitions_of, rows_of
from kafka_log_lake.pipelines.listing.checkpoints import Checkpoint
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.witnesses import ListedLog, has_grown, with_checkpoint
from kafka_log_lake.pipelines.plan.headers import claimed_offsets
from kafka_log_lake.pipelines.plan.ledger import among, rows_to_arrow
from kafka_log_lake.pipelines.plan.missing import (
    COLUMNS,
    Edges,
    at_edges,
    edges_of_ledger,
    of_findings,
    unread_segments,
)
from kafka_log_lake.pipelines.plan.runs import Plan
from kafka_log_lake.pipelines.rules.offset_findings import COMPACTED, END, UNREAD
from kafka_log_lake.udfs.batches.account import NO_WITNESSES, SEGMENT, WRONG_BASE, Unseen
from kafka_log_lake.udfs.batches.offset_findings import is_known_compacted
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS
from kafka_log_lake.udfs.spark.protocol import StageOptions
from kafka_log_lake.udfs.storage.byte_source import FileSource, SourceError, path_of_uri

_SAID = f"(kind IN ('{END}', '{UNREAD}', '{COMPACTED}') OR lost_cause IN ('{SEGMENT}', '{WRONG_BASE}'))"
Noted = Mapping[str, ListedLog]  # by folder
_FIELDS = ("log_start_offset", "recovery_point", "high_watermark", "named_end")  # of the table checkpoints


def ledger_of_logs(lake: LakeWriter, plan: Plan) -> pa.Table:
    """Returns COLUMNS of the ledger, for all segments of the logs of a plan."""
    folders = pc.unique(plan.segments.column("partition_dir"))
    return among(lake.ledger().select(COLUMNS), "partition_dir", folders.to_pylist())


def tails_of(rows: pa.Table) -> Tails:
    """Counts torn and zero tails of logs in the ledger, without torn ones whose files have grown since.

    rows: of ``ledger_of_logs``. What incomplete batches claim is read from local files alone.
    """
    counts: dict[str, tuple[int, int]] = {}
    for tail in ("torn", "zeros"):
        logs = rows.filter(pc.equal(rows.column("tail"), tail))
        if tail == "zeros":
            with_batches = rows.filter(pc.greater(rows.column("batches"), 0)).column("partition_dir")
            logs = logs.filter(pc.invert(pc.is_in(logs.column("partition_dir"), pc.unique(with_batches))))
        size = pc.sum(logs.column("tail_bytes")).as_py() or 0
        counts[tail] = (pc.count_distinct(logs.column("partition_dir")).as_py(), size)
    zeroed = _zeroed(rows)
    torn = rows.filter(pc.equal(rows.column("tail"), "torn")).to_pylist()
    grown = [row for row in torn if has_grown(row["segment"], row["length"])]
    growing = {row["partition_dir"]: row["tail_bytes"] for row in grown}
    claims = [_claimed(row) for row in torn if row["partition_dir"] not in growing]
    logs, size = counts["torn"]
    return Tails(
        *(logs - len(growing), size - sum(growing.values()), *counts["zeros"], len(zeroed), sum(zeroed)),
        claimed=claimed_by(filter(None, claims)),
        growing=len(growing),
    )


def _claimed(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Reads the offsets that a segment's incomplete last batch claims; None where they can't be read."""
    path = path_of_uri(row["segment"])
    if path is None:
        return None
    try:
        with closing(FileSource(path)) as source:
            return claimed_offsets(source, row["decoded_bytes"], row["decoded_bytes"] + row["tail_bytes"])
    except SourceError:
        return None


def _zeroed(rows: pa.Table) -> list[int]:
    """Returns the bytes of each segment of zeros alone that others follow, in logs that have batches."""
    logs = rows.group_by("partition_dir").aggregate([("file_base_offset", "max"), ("batches", "sum")])
    last = {
        log["partition_dir"]: log["file_base_offset_max"] for log in logs.to_pylist() if log["batches_sum"]
    }
    zeros = rows.filter(
        pc.and_(pc.equal(rows.column("tail"), "zeros"), pc.equal(rows.column("decoded_bytes"), 0))
    )
    return [
        segment["tail_bytes"]
        for segment in zeros.to_pylist()
        if segment["file_base_offset"] < last.get(segment["partition_dir"], -1)
    ]


def _store_what_files_say(
    lake: LakeWriter,
    listing: Listing,
    noted: Noted,
    rows: pa.Table,
    findings: pa.Table,
    options: StageOptions,
) -> bool:
    """Stores which files of logs are there and were not read, where that has changed: they are not lost.

    And of which logs ``cleaner-offset-checkpoint`` alone says that the log cleaner ran. rows: see
    ``ledger_of_logs``; findings: of these logs. Returns whether it has stored something.
    """
    here = listing.segments.filter(_are_of(listing.segments, rows))
    now = {folder: sorted(bases) for folder, bases in unread_segments(here, rows.column("segment")).items()}
    was: dict[str, list[int]] = defaultdict(list)
    cleaned = _cleaned(noted, rows)
    for row in findings.select(["kind", "partition_dir", "file_base_offset"]).to_pylist():
        if row["kind"] == UNREAD:
            was[row["partition_dir"]].append(row["file_base_offset"])
        elif row["kind"] == COMPACTED:
            cleaned.discard(row["partition_dir"])
    changed = {f: now.get(f, []) for f in now.keys() | was.keys() if now.get(f, []) != sorted(was.get(f, []))}
    if changed or cleaned:
        intent = Intent(lake.app_id, lake.next_version(), options.run_id, files_left=changed)
        lake.commit(replace(intent, cleaned=sorted(cleaned)))
    return bool(changed or cleaned)


def _cleaned(noted: Noted, rows: pa.Table) -> set[str]:
    """Returns the folders of logs of which a checkpoint says that the log cleaner ran over their files."""
    until = {f: log.witnesses.cleaned_before for f, log in noted.items() if log.witnesses.cleaned_before}
    if not until:
        return set()
    wanted = pc.is_in(rows.column("partition_dir"), pa.array([*until], pa.string()))
    logs = rows.filter(wanted).group_by(["partition_dir", "topic"]).aggregate([("file_base_offset", "min")])
    return {
        row["partition_dir"]
        for row in logs.to_pylist()
        if is_known_compacted(row["topic"], row["file_base_offset_min"], until[row["partition_dir"]])
    }


def _are_of(segments: pa.Table, rows: pa.Table) -> pa.ChunkedArray:
    """Returns bool[n]: the segments of logs that rows of the ledger are of."""
    return pc.is_in(segments.column("partition_dir"), pc.unique(rows.column("partition_dir")))


def _findings(lake: LakeWriter, rows: pa.Table) -> pa.Table:
    """Reads of ``offset_findings`` what is said of missing offsets and of whole logs. rows: of the ledger."""
    names = OFFSET_FINDINGS.arrow_schema().names
    findings = rows_of(lake.read, OFFSET_FINDINGS, names, partitions_of(rows), _SAID)
    return findings.filter(_are_of(findings, rows))


def find_missing(
    lake: LakeWriter, listing: Listing, rows: pa.Table, options: StageOptions
) -> list[tuple[str, Unseen]]:
    """Finds the missing offsets of logs, each with ``<topic>-<partition>``, stores what files say.

    rows: see ``ledger_of_logs``.
    """
    noted = listing.noted_logs()
    findings = _findings(lake, rows)
    if _store_what_files_say(lake, listing, noted, rows, findings, options):
        findings = _findings(lake, rows)
    ended = findings.filter(pc.equal(findings.column("kind"), END))
    ends = dict(
        zip(*(ended.column(name).to_pylist() for name in ("partition_dir", "first_offset")), strict=True)
    )
    return of_findings(rows, findings) + _compare_with_checkpoints(lake, listing, noted, rows, ends, options)


def _compare_with_checkpoints(
    lake: LakeWriter,
    listing: Listing,
    noted: Noted,
    rows: pa.Table,
    ends: Mapping[str, int],
    options: StageOptions,
) -> list[tuple[str, Unseen]]:
    """Finds the offsets at the edges of logs that no segment has, each with ``<topic>-<partition>``.

    rows: of the ledger, all of the logs. ends: see ``edges_of_ledger``. The table ``checkpoints`` gets a
    row where the view ``lost_offsets`` would give something else without it: none of a log that is whole, as
    most are.
    """
    edges = edges_of_ledger(rows, noted, ends)
    if not edges:
        return []
    stored = stored_checkpoints(lake)
    missing: list[tuple[str, Unseen]] = []
    new = []
    for log in sorted(edges):
        witnesses = noted[log.partition_dir].witnesses
        ranges = at_edges(log, witnesses)
        missing += [(f"{log.topic}-{log.partition}", range_) for range_ in ranges]
        start = witnesses.start_of(log.start)
        named_end = witnesses.named_end if (witnesses.named_end or 0) > log.end else None
        known = dict(
            zip(_FIELDS, (start, witnesses.recovery_point, witnesses.high_watermark, named_end), strict=True)
        )
        if _by_table(log, known) != _by_table(log, stored.get(log.partition_dir, {})):
            place = {"topic": log.topic, "partition": log.partition, "partition_dir": log.partition_dir}
            new.append({**place, **known, "read_at": options.began_us, "run_id": options.run_id})
    if new:
        rows_ = with_log_starts(lake, listing, new)
        lake.add_rows(CHECKPOINTS, rows_to_arrow(CHECKPOINTS, rows_))
    return missing


def _by_table(log: Edges, row: Mapping[str, Any]) -> list[Unseen]:
    """Returns what the view ``lost_offsets`` gives at a log's edges for a row of ``checkpoints``."""
    checkpoint = Checkpoint(*(row.get(name) for name in _FIELDS[:3]))
    named = () if row.get("named_end") is None else (row["named_end"],)
    return at_edges(log, with_checkpoint(replace(NO_WITNESSES, snapshots=named), checkpoint))
