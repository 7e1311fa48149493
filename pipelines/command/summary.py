"""What a job did, for a person and for a program."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MB = 1_000_000
_SHOWN = 10


@dataclass
class Summary:
    """Totals over the runs of one job.

    segments: decoded in this job; unchanged: known and not looked at again.
    bytes: decoded or landed, as they lie on disk. damaged: rows in quarantine, from this job alone.
    skipped: why files or folders were passed over, and how many.
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
    warnings: list[str] = field(default_factory=list)

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
        """A dozen lines."""
        landed = self.chunks is not None
        did = "landed" if landed else "decoded"
        rate = self.bytes / MB / self.seconds if self.seconds else 0.0
        lines = []
        if self.segments:
            topics = sorted({topic for topic, _ in self.partitions})
            lines.append(
                f"{did} {_of(self.segments, 'segment')} ({self.bytes / MB:,.1f} MB) in {self.seconds:.1f} s, "
                f"{rate:,.1f} MB/s"
            )
            lines.append(f"  topics      {len(topics):,}: {_listed(topics)}")
            lines.append(f"  partitions  {len(self.partitions):,}")
            lines += [f"  chunks      {self.chunks:,}"] if landed else self._decoded_lines()
        else:
            lines.append(f"nothing new to {'land' if landed else 'decode'}")
        if self.unchanged:
            lines.append(f"  unchanged   {_of(self.unchanged, 'segment')}")
        lines += [f"  skipped     {count:,} x {reason}" for reason, count in self.skipped.items()]
        lines.append(f"tables are in {self.lake}")
        return "\n".join(lines + ([] if landed else self._queries()))

    def _decoded_lines(self) -> list[str]:
        damage = f"{_of(self.damaged, 'range')} in quarantine" if self.damaged else "none found"
        return [
            f"  magic       {', '.join(str(m) for m in sorted(self.magics)) or '-'}",
            f"  batches     {self.batches:,}",
            f"  records     {self.records:,}",
            f"  damage      {damage}",
        ]

    def _queries(self) -> list[str]:
        command = f"python -m pipelines.query --lake {_quoted(self.lake)}"
        return [
            "three queries to try:",
            f'  {command} "SELECT topic, partition, count(*) AS records, max(offset) FROM committed_records'
            ' GROUP BY ALL ORDER BY ALL"',
            f'  {command} "SELECT offset, timestamp, CAST(key AS STRING), CAST(value AS STRING) FROM records'
            ' WHERE NOT is_control LIMIT 10"',
            f'  {command} "SELECT * FROM crc_report WHERE crc_failures > 0 OR damaged_bytes > 0"',
        ]


def counted(what: Counter[str]) -> list[str]:
    """Warnings that came more than once, each with its number."""
    return [text if n == 1 else f"{text} ({n:,} times)" for text, n in what.items()]


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _listed(names: list[str]) -> str:
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
