"""The summary of a job, as text for a person and as JSON for a program."""

from __future__ import annotations

import json
import logging
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pipelines.command.terminal import counted_noun, first_names, printable
from pipelines.source.naming import UNREADABLE, UNREADABLE_FOLDER

log = logging.getLogger(__name__)
MB = 1_000_000


@dataclass
class Summary:
    """Totals over the bounded runs of one job.

    segments: decoded or landed in this job. unchanged: known segments that have nothing new.
    bytes: decoded or landed, as stored on disk. damaged: rows of quarantine from this job.
    chunks: landed in this job; None if the job decodes.
    skipped: reason -> number of files or folders.
    unreadable: segment -> bytes of it that the storage could not read.
    unreadable_chunks: (segment, position) of landed chunks with such bytes.
    regressing: number of segments in which offsets go backwards.
    uncertain: partition_dir of logs whose last stable offset is held by a transaction of uncertain outcome.
    unknown_outcomes: number of transactions whose outcome can't be known.
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
    partitions: set[tuple[str, int]] = field(default_factory=set)
    magics: set[int] = field(default_factory=set)
    skipped: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, int] = field(default_factory=dict)
    regressing: int = 0
    unreadable_chunks: list[tuple[str, int]] = field(default_factory=list)
    uncertain: set[str] = field(default_factory=set)
    unknown_outcomes: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """Whether bytes were lost: damage in this job's segments, or files that could not be read."""
        return bool(self.damaged or UNREADABLE in self.skipped or UNREADABLE_FOLDER in self.skipped)

    def damage(self) -> str:
        """The damage in one line."""
        parts = []
        if self.damaged:
            parts.append(f"{counted_noun(self.damaged, 'damaged range')}: see the table quarantine")
        unreadable = sum(self.skipped.get(reason, 0) for reason in (UNREADABLE, UNREADABLE_FOLDER))
        if unreadable:
            parts.append(f"{counted_noun(unreadable, 'path')} can't be read")
        return "; ".join(parts)

    def own_warnings(self) -> list[str]:
        """Warnings about the segments and transactions of this job."""
        warnings = [
            f"{size:,} bytes of {segment} could not be read from the storage: see the table quarantine"
            for segment, size in sorted(self.unreadable.items())
        ]
        warnings += [
            f"not all bytes of {segment} from {position:,} on could be read from the storage: "
            "zeros were landed for them (raw_segments.crc32c is null)"
            for segment, position in sorted(self.unreadable_chunks)
        ]
        if self.regressing:
            where = counted_noun(self.regressing, "segment")
            warnings.append(f"offsets go backwards in {where} (segments.offset_regressions)")
        warnings += [
            f"a transaction of uncertain outcome holds the last stable offset of {folder}: "
            "its marker may lie in damaged bytes"
            for folder in sorted(self.uncertain)
        ]
        if self.unknown_outcomes:
            warnings.append(
                f"the outcome of {counted_noun(self.unknown_outcomes, 'transaction')} can't be known: "
                "the markers were deleted before they were decoded (transactions.outcome_uncertain)"
            )
        return warnings

    def to_json(self) -> str:
        """The object of ``--json``, on one line."""
        counted: dict[str, Any] = {"batches": self.batches, "records": self.records, "damaged": self.damaged}
        if self.chunks is not None:
            counted = {"chunks": self.chunks}
        return json.dumps(
            {
                "run_id": self.run_id,
                "segments": self.segments,
                **counted,
                "bytes": self.bytes,
                "seconds": round(self.seconds, 3),
                "lake": self.lake,
                "unchanged": self.unchanged,
                "skipped": self.skipped,
                "warnings": self.warnings,
            }
        )

    def to_text(self) -> str:
        """The summary in about a dozen lines."""
        landed = self.chunks is not None
        did = "landed" if landed else "decoded"
        rate = self.bytes / MB / self.seconds if self.seconds else 0.0
        lines = []
        if self.segments:
            topics = sorted({topic for topic, _ in self.partitions})
            lines.append(
                f"{did} {counted_noun(self.segments, 'segment')} ({self.bytes / MB:,.1f} MB) "
                f"in {self.seconds:.1f} s, {rate:,.1f} MB/s"
            )
            lines.append(f"  topics      {len(topics):,}: {first_names(topics)}")
            lines.append(f"  partitions  {len(self.partitions):,}")
            lines += [f"  chunks      {self.chunks:,}"] if landed else self._decoded_lines()
        else:
            lines.append(f"nothing new to {'land' if landed else 'decode'}")
        if self.unchanged:
            lines.append(f"  unchanged   {counted_noun(self.unchanged, 'segment')}")
        lines += [f"  skipped     {count:,} x {reason}" for reason, count in self.skipped.items()]
        lines.append(f"tables are in {printable(self.lake)}")
        return "\n".join(lines + ([] if landed else self._queries()))

    def _decoded_lines(self) -> list[str]:
        damage = f"{counted_noun(self.damaged, 'range')} in quarantine" if self.damaged else "none found"
        if self.is_damaged and not self.damaged:
            damage += " in what could be read"
        return [
            f"  magic       {', '.join(str(m) for m in sorted(self.magics)) or '-'}",
            f"  batches     {self.batches:,}",
            f"  records     {self.records:,}",
            f"  damage      {damage}",
        ]

    def _queries(self) -> list[str]:
        command = f"python -m pipelines.query --lake {printable(shlex.quote(self.lake))}"
        return [
            "three queries to try:",
            f'  {command} "SELECT topic, partition, count(*) AS records, max(offset) FROM committed_records'
            ' GROUP BY ALL ORDER BY ALL"',
            f'  {command} "SELECT offset, timestamp, CAST(key AS STRING), CAST(value AS STRING) FROM records'
            ' WHERE NOT is_control LIMIT 10"',
            f'  {command} "SELECT * FROM crc_report WHERE crc_failures > 0 OR damaged_bytes > 0"',
        ]


def print_summary(summary: Summary, as_json: bool) -> None:
    """Logs the warnings, then prints the summary as the last lines of standard output."""
    for text in summary.warnings:
        log.warning("%s", text)
    print(summary.to_json() if as_json else summary.to_text(), flush=True)


def counted(what: Counter[str]) -> list[str]:
    """Each warning once, with its number if it came several times."""
    return [text if n == 1 else f"{text} ({n:,} times)" for text, n in what.items()]
