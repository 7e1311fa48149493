"""Sums up a job: as text for a person, as JSON for a program, as a row of ``runs``."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kafka_log_lake.pipelines.cli.terminal import (
    counted_noun,
    first_lines,
    first_names,
    printable,
)
from kafka_log_lake.pipelines.cli.text_tables import (
    Section,
    shortened,
    size_text,
    text_lines,
)
from kafka_log_lake.pipelines.cli.verdict import Tails, Verdict, segments_text
from kafka_log_lake.pipelines.decode.next_steps import query_line, topic_query, typed_line
from kafka_log_lake.pipelines.listing.naming import UNREADABLE, UNREADABLE_FOLDER, unlooked_texts
from kafka_log_lake.pipelines.plan.ledger import rows_to_arrow
from kafka_log_lake.pipelines.plan.missing import elsewhere_texts, lost_texts
from kafka_log_lake.udfs import reads
from kafka_log_lake.udfs.batches.account import Unseen
from kafka_log_lake.udfs.format.report_tables import RUNS

log = logging.getLogger(__name__)


@dataclass
class TopicTotals:
    """Totals of what a job decoded or landed of one topic. damaged: rows of quarantine."""

    partitions: set[int] = field(default_factory=set)
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damaged: int = 0


@dataclass
class Summary:
    """Totals over the bounded runs of one job.

    topics: totals by topic. phases: name -> seconds.
    damaged_segments: segment -> rows of quarantine, of segments that this job decoded.
    known_damage: the same, of segments that earlier runs decoded and that have nothing new.

    segments: decoded or landed in this job. unchanged: known segments that have nothing new.
    bytes: decoded or landed, as stored on disk. damaged: rows of quarantine from this job.
    chunks: landed in this job; None if the job decodes.
    skipped: reason -> number of files or folders.
    unreadable: segment -> bytes of it that the storage could not read.
    unread: files and folders that could not be read.
    unreadable_chunks: (segment, position) of landed chunks with such bytes.
    in_part: segments of which records are left out. undecoded: those that hold nothing that was requested.
    regressing: segments in which offsets go backwards. damaged_bytes: in the rows of ``damaged``.
    touched: of the unchanged ones, those with another modification time; their contents were not compared.
    uncertain: partition_dir of logs whose last stable offset is held by a transaction of uncertain outcome.
    unknown_outcomes: number of transactions whose outcome can't be known.
    missing: offsets that no segment of the logs has, each range with ``<topic>-<partition>``.
    tails: what logs end in, if it is no batch.
    swap_files: segments of the sources whose bytes are in ``.log.swap`` files.
    cluster_id: of the sources, by ``meta.properties``; None where it names none.
    has_schemas: whether the sources have the topic of a schema registry.
    typed: what changed in the typed table of each topic; None where none were updated. kept: lines on the
    tables of --mode. value_errors: keys and values of the lake that could not be decoded.
    read_before: what this process had read when the run began: earlier rounds of --watch.
    """

    run_id: str
    lake: str
    segments: int = 0
    unchanged: int = 0
    batches: int = 0
    records: int = 0
    damaged: int = 0
    bytes: int = 0
    seconds: float = 0.0
    chunks: int | None = None
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    damaged_segments: dict[str, int] = field(default_factory=dict)
    known_damage: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, int] = field(default_factory=dict)
    in_part: int = 0
    undecoded: int = 0
    regressing: set[str] = field(default_factory=set)
    damaged_bytes: int = 0
    touched: int = 0
    unread: list[str] = field(default_factory=list)
    unreadable_chunks: list[tuple[str, int]] = field(default_factory=list)
    uncertain: set[str] = field(default_factory=set)
    unknown_outcomes: int = 0
    missing: list[tuple[str, Unseen]] = field(default_factory=list)
    tails: Tails = field(default_factory=Tails)
    swap_files: int = 0
    cluster_id: str | None = None
    has_schemas: bool = False
    typed: list[dict[str, Any]] | None = None
    kept: list[str] = field(default_factory=list)
    value_errors: int = 0
    read_before: reads.Reads = field(default_factory=reads.Reads)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """Returns whether the sources have damage, found by this job or before, or files that can't be read.

        So too where the verdict is "not sound".
        """
        return bool(
            self.damaged
            or self.known_damage
            or UNREADABLE in self.skipped
            or UNREADABLE_FOLDER in self.skipped
            or self.verdict().is_faulty
        )

    @property
    def missing_offsets(self) -> int:
        """Returns the number of offsets that no segment has, without those that are elsewhere."""
        return sum(range_.count for _, range_ in self.missing if range_.is_lost)

    def own_warnings(self) -> list[str]:
        """Returns warnings about the segments and transactions of this job."""
        warnings = first_lines(
            [
                f"{counted_noun(size, 'byte')} of {segment} could not be read from the storage: "
                "see the table quarantine"
                for segment, size in sorted(self.unreadable.items())
            ],
            "segments, parts of which could not be read from the storage",
        )
        warnings += first_lines(
            [
                f"not all bytes of {segment} from {position:,} on could be read from the storage: "
                "zeros were landed for them (raw_segments.crc32c is null)"
                for segment, position in sorted(self.unreadable_chunks)
            ],
            "chunks with zeros for bytes that could not be read from the storage",
        )
        if self.in_part or self.undecoded:
            requested = "as --since, --until or --offsets request"
            parts = [f"{counted_noun(self.in_part, 'segment')} decoded in part"] if self.in_part else []
            parts += [f"{counted_noun(self.undecoded, 'segment')} not at all"] if self.undecoded else []
            warnings.append(
                f"{' and '.join(parts)} (segments.left_out), {requested}: "
                "run it again without these options to load the rest"
            )
        if self.regressing:
            where = counted_noun(len(self.regressing), "segment")
            verb = "contains" if len(self.regressing) == 1 else "contain"
            names = first_names(sorted(self.regressing), 3)
            warnings.append(
                f"{where} {verb} offsets that go backwards (segments.offset_regressions): {names}"
            )
        if self.touched:
            where = counted_noun(self.touched, "segment")
            warnings.append(
                f"{where} with another modification time: length and fingerprint are the same, the bytes "
                "between were not compared; --verify-content compares them"
            )
        warnings += first_lines(
            [
                f"a transaction of uncertain outcome holds the last stable offset of {folder}: "
                "its marker may lie in damaged bytes"
                for folder in sorted(self.uncertain)
            ],
            "last stable offsets that a transaction of uncertain outcome holds",
        )
        if self.unknown_outcomes:
            warnings.append(
                f"the outcome of {counted_noun(self.unknown_outcomes, 'transaction')} can't be known: "
                "the markers are in damaged bytes, or in segments that were deleted before they were "
                "decoded, or left out (transactions.outcome_uncertain)"
            )
        return warnings

    def to_json(self) -> str:
        """Returns the object of ``--json``, on one line."""
        counted: dict[str, Any] = {"batches": self.batches, "records": self.records, "damaged": self.damaged}
        if self.chunks is not None:
            counted = {"chunks": self.chunks}
        return json.dumps(
            {
                "run_id": self.run_id,
                "segments": self.segments,
                **counted,
                "damaged_before": sum(self.known_damage.values()),
                **({} if self.chunks is not None else {"verdict": self.verdict().sentence}),
                "missing_offsets": self.missing_offsets,
                "missing": [{"log": log, **range_.to_json()} for log, range_ in self.missing],
                "in_part": self.in_part,
                "undecoded": self.undecoded,
                "swap_files": self.swap_files,
                "bytes": self.bytes,
                "reads": reads.counted().less(self.read_before).to_json(),
                "seconds": round(self.seconds, 3),
                "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
                "lake": self.lake,
                "unchanged": self.unchanged,
                "skipped": self.skipped,
                "warnings": self.warnings,
                **({} if self.typed is None else {"typed": self.typed, "value_errors": self.value_errors}),
            }
        )

    def add(self, topic: str, partition: int, totals: TopicTotals) -> None:
        """Adds the totals of one segment."""
        of_topic = self.topics.setdefault(topic, TopicTotals())
        of_topic.partitions.add(partition)
        for counts in (of_topic, self):
            counts.segments += 1
            counts.batches += totals.batches
            counts.records += totals.records
            counts.bytes += totals.bytes
            counts.damaged += totals.damaged

    def to_row(self, began_us: int) -> pa.Table:
        """Returns the row of the table ``runs``. began_us: microseconds since 1970 UTC."""
        row = {
            **vars(self),
            "job": "decode" if self.chunks is None else "ingest",
            "began_at": began_us,
            "phases": list(self.phases.items()),
            "warnings": len(self.warnings),
            "unreadable": self.unread,
        }
        return rows_to_arrow(RUNS, [row])

    def headline(self) -> str:
        """Returns what the job did, in one line."""
        did = "decoded" if self.chunks is None else "landed"
        if not self.segments:
            known = f" in {counted_noun(self.unchanged, 'known segment')}" if self.unchanged else ""
            return f"nothing new to {'decode' if self.chunks is None else 'land'}{known}"
        rate = f", {size_text(self.bytes / self.seconds)}/s" if self.seconds else ""
        size = f"{counted_noun(self.segments, 'segment')} ({size_text(self.bytes)})"
        return f"{did} {size} in {self.seconds:.1f} s{rate}"

    def sections(self) -> Iterator[Section]:
        """Yields the tables of the summary that have rows."""
        landed = self.chunks is not None
        counts = ("batches", "records") if not landed else ()
        last = ("damaged ranges",) if not landed else ()
        rows = [
            (
                printable(topic),
                f"{len(count.partitions):,}",
                f"{count.segments:,}",
                *(f"{getattr(count, name):,}" for name in counts),
                size_text(count.bytes),
                *(f"{count.damaged:,}" for _ in last),
            )
            for topic, count in sorted(self.topics.items(), key=lambda item: (-item[1].damaged, item[0]))
        ]
        columns = ("topic", "partitions", "segments", *counts, "bytes", *last)
        damage = [
            (printable(segment), f"{ranges:,}", when)
            for when, by_segment in (("this run", self.damaged_segments), ("before", self.known_damage))
            for segment, ranges in sorted(by_segment.items())
        ]
        missing = [
            (printable(log), f"{range_.first:,}", range_.last_text, range_.why)
            for log, range_ in self.missing
        ]
        yield from shortened(
            [
                Section("", columns, rows, tuple(range(1, len(columns)))),
                Section("damage", ("segment", "ranges", "found by"), damage, (1,)),
                Section("missing", ("log", "first lost", "last lost", "why"), missing, (1, 2)),
            ]
        )

    def other_lines(self) -> list[str]:
        """Returns the lines on chunks, unchanged segments, swap files, typed and kept tables, skips."""
        lines = [f"chunks: {self.chunks:,}"] if self.chunks else []
        if self.unchanged and self.segments:
            lines.append(f"nothing new in {counted_noun(self.unchanged, 'known segment')}")
        if self.swap_files:
            lines.append(f"in place of segments: {counted_noun(self.swap_files, 'swap file')}")
        if self.typed:
            lines.append(typed_line(self.typed))
        lines += self.kept
        return lines + [f"skipped: {count:,} x {reason}" for reason, count in self.skipped.items()]

    def verdict(self) -> Verdict:
        """Returns the verdict on this run, and on what earlier runs found in the same sources."""
        before = sum(self.known_damage.values())
        known = f"{counted_noun(self.unchanged, 'known segment')} (by length and fingerprint)"
        checked = segments_text(self.segments, self.bytes)
        if self.unchanged:
            checked = f"{checked} and {known}" if self.segments else known
        damage = f"{counted_noun(self.damaged, 'damaged range')} ({counted_noun(self.damaged_bytes, 'byte')})"
        segments = counted_noun(len(self.regressing), "segment")
        left_out = self.in_part + self.undecoded
        unreadable = sum(self.skipped.get(reason, 0) for reason in (UNREADABLE, UNREADABLE_FOLDER))
        contents = f"the contents of {counted_noun(self.touched, 'segment')} with a new modification time"
        return Verdict(
            checked,
            self.bytes,
            None if self.unchanged and self.tails.bytes else self.damaged_bytes + self.tails.bytes,
            [
                damage if self.damaged else "",
                f"{counted_noun(before, 'damaged range')} found by earlier runs" if before else "",
                f"offsets go backwards in {segments}" if self.regressing else "",
                *self.tails.faults,
            ],
            [
                "the offsets of damaged ranges, in the view lost_offsets" if self.damaged or before else "",
                *lost_texts(range_ for _, range_ in self.missing),
                *self.tails.lost,
            ],
            [
                f"{counted_noun(unreadable, 'path')} that can't be read" if unreadable else "",
                *self.tails.unchecked,
                *elsewhere_texts(range_ for _, range_ in self.missing),
                *unlooked_texts(Counter(self.skipped)),
                f"{counted_noun(left_out, 'segment')} left out, in part or whole" if left_out else "",
                contents if self.touched else "",
                f"{counted_noun(self.value_errors, 'value')} that could not be decoded (table value_errors)"
                if self.value_errors
                else "",
            ],
            self.tails.notes,
        )

    def verdict_line(self) -> str:
        """Returns the last line. Bytes that were landed are not checked before they are decoded."""
        if self.chunks is None:
            return self.verdict().line
        failed = counted_noun(len(self.unreadable_chunks), "chunk")
        lost = f"; not sound: {failed} could not be read whole" if self.unreadable_chunks else ""
        landed = segments_text(self.segments, self.bytes)
        return f"verdict: {landed} landed as they are{lost}; not checked: what they hold (decode --from-raw)"

    def next_lines(self) -> list[str]:
        """Returns the lines on where the tables are, and what to do next."""
        place = f"tables are in {printable(self.lake)}"
        if self.chunks is not None:
            return [place]
        on_state = "SELECT * FROM crc_report"
        if self.is_damaged or self.missing:
            on_state = "SELECT topic, partition, first_lost, last_lost, cause, next_offset FROM lost_offsets"
        elif self.tails.bytes:
            on_state = "SELECT segment, last_offset, tail, tail_bytes FROM segments WHERE tail <> 'none'"
        records = {topic: count.records for topic, count in self.topics.items()}
        queries = ["SELECT * FROM topics", on_state, topic_query(records, self.typed or ())]
        return [place, "three queries to try:", *(f"  {query_line(self.lake, query)}" for query in queries)]

    def to_text(self) -> str:
        """Returns the summary as text for a pipe, a file or a notebook."""
        lines = [self.headline()]
        for section in self.sections():
            lines += text_lines(section)
        return "\n".join([*lines, *self.other_lines(), *self.next_lines(), self.verdict_line()])


def counted(what: Counter[str]) -> list[str]:
    """Returns each warning once, with its number if it came several times."""
    return [text if n == 1 else f"{text} ({n:,} times)" for text, n in what.items()]
