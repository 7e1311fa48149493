"""What the stage said of its slices, judged before anything is committed.

Every slice comes back with a report. Here the slices of a segment are checked against each other (each must
end exactly where the next began) and against the file's length (every byte is sound, quarantined or tail),
and become the segment's row in the ledger. Pure functions; ``decode`` acts on the verdicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.command.errors import RunFailed
from pipelines.plan.slices import GO_ON, Segment

Report = dict[str, Any]

# Columns of the ledger that say whether a run found anything: modified, run_id and decoded_at alone do not
_FOUND = ("length", "decoded_bytes", "batches", "records", "damaged", "tail", "tail_bytes", "fingerprint")


@dataclass(frozen=True)
class Verdict:
    """One segment after the stage.

    changed: why the file is not what was planned; nothing of it may be committed.
    broken: why its slices do not fit together; it has to be decoded whole.
    row: its row for the ledger, timestamps in microseconds; None where one of the above holds.
    news: whether that row differs from the one that is there in more than when it was written.
    """

    segment: Segment
    reports: tuple[Report, ...]
    changed: str | None = None
    broken: str | None = None
    row: dict[str, Any] | None = field(default=None, compare=False)
    news: bool = False

    def total(self, name: str) -> int:
        """Sum of a count over the slices of this run."""
        return sum(r[name] for r in self.reports)


def judge(segment: Segment, reports: Sequence[Report], run_id: str, decoded_at_us: int) -> Verdict:
    """The verdict on one segment from the reports of all its slices; RunFailed where bytes are missing."""
    ordered = tuple(sorted(reports, key=lambda r: r["start"]))
    changed = next((r["changed"] for r in ordered if r["changed"]), None)
    if changed:
        return Verdict(segment, ordered, changed=changed)
    broken = chain_break(segment, ordered)
    if broken:
        return Verdict(segment, ordered, broken=broken)
    check_accounting(segment, ordered)
    row, was = ledger_row(segment, ordered, run_id, decoded_at_us), segment.was
    news = was is None or segment.action != GO_ON or any(was[c] != row[c] for c in _FOUND)
    return Verdict(segment, ordered, row=row, news=news)


def begun(reports: Sequence[Report]) -> list[Report]:
    """The slices that hold bytes of their own: the first, and those in which an entry proved itself."""
    return [r for i, r in enumerate(reports) if i == 0 or r["begin"] is not None]


def chain_break(segment: Segment, reports: Sequence[Report]) -> str | None:
    """Where a slice did not begin at the end of the one before, or None.

    Nor may bytes be left behind the last: a tail or damage that fills whole slices is nobody's there.
    """
    chain = begun(reports)
    for before, after in itertools.pairwise(chain):
        if before["end"] != after["begin"]:
            return f"one slice ends at {before['end']}, the next begins at {after['begin']}"
    reached = chain[-1]["end"] + sum(r["tail_bytes"] for r in reports)
    if len(reports) > 1 and reached != segment.length:
        return f"the last slice ends at {reached} of {segment.length}"
    return None


def check_accounting(segment: Segment, reports: Sequence[Report]) -> None:
    """Bytes in sound batches + bytes in quarantine + tail = what was planned; else a bug, and no commit."""
    names = ("sound_bytes", "quarantined_bytes", "tail_bytes")
    found = {name: sum(r[name] for r in reports) for name in names}
    if sum(found.values()) != segment.planned_bytes:
        raise RunFailed(
            f"bytes unaccounted for in {segment.segment}: {segment.planned_bytes} planned, found "
            + " + ".join(f"{found[name]} {name}" for name in names)
            + "; this is a bug of the decoder, nothing was committed"
        )


def ledger_row(
    segment: Segment, reports: Sequence[Report], run_id: str, decoded_at_us: int
) -> dict[str, Any]:
    """The segment's row in ``segments``; going on adds to the row that is there."""
    was: dict[str, Any] = (segment.was or {}) if segment.action == GO_ON else {}
    chain = begun(reports)
    last = chain[-1]
    tail_bytes = sum(r["tail_bytes"] for r in reports)
    ends = [r["end_offset"] for r in chain if r["end_offset"] is not None]
    prints = [r["fingerprint"] for r in reports if r.get("fingerprint") is not None]

    def total(column: str, name: str) -> int:
        return int(was.get(column) or 0) + sum(r[name] for r in reports)

    def extreme(column: str, name: str, pick: Any) -> int | None:
        values = [v for v in (was.get(column), *(r[name] for r in reports)) if v is not None]
        return int(pick(values)) if values else None

    return {
        "topic": segment.topic,
        "partition": segment.partition,
        "log_dir": segment.log_dir,
        "segment": segment.segment,
        "file_base_offset": segment.file_base_offset,
        "length": segment.length,
        "modified": segment.modified_us,
        "decoded_bytes": segment.length - tail_bytes,
        "first_offset": extreme("first_offset", "first_offset", min),
        "last_offset": extreme("last_offset", "last_offset", max),
        "min_timestamp": extreme("min_timestamp", "min_timestamp_us", min),
        "max_timestamp": extreme("max_timestamp", "max_timestamp_us", max),
        "batches": total("batches", "entries"),
        "records": total("records", "records"),
        "damaged": total("damaged", "damaged"),
        "offset_regressions": total("offset_regressions", "offset_regressions") + _between(chain),
        "tail": last["tail"],
        "tail_bytes": tail_bytes,
        "fingerprint": prints[-1] if prints else was.get("fingerprint"),
        "content_crc32c": _content_crc32c(was, chain),
        "end_offset": ends[-1] if ends else was.get("end_offset"),
        "run_id": run_id,
        "decoded_at": decoded_at_us,
    }


def _between(chain: Sequence[Report]) -> int:
    """Offset regressions that lie where one slice hands over to the next: no slice sees both sides."""
    count, end_offset = 0, chain[0]["end_offset"]
    for after in chain[1:]:
        first = after["first_base_offset"]
        count += end_offset is not None and first is not None and first <= end_offset
        end_offset = after["end_offset"] if after["end_offset"] is not None else end_offset
    return count


def _content_crc32c(was: dict[str, Any], chain: Sequence[Report]) -> int | None:
    """CRC-32C of all decoded bytes, from those of the slices; None where one of them is not known."""
    crc = was.get("content_crc32c") if was else 0
    if crc is None:
        return None
    for i, report in enumerate(chain):
        size = report["end"] - first_byte(report, i == 0)
        crc = _combined(crc, report["content_crc32c"], size) if crc else report["content_crc32c"]
    return int(crc)


def _combined(crc: int, behind: int, size: int) -> int:
    from udfs.kernels.checksums import (
        crc32c_combine,  # loads Numba, which the drivers of most jobs never need
    )

    return int(crc32c_combine(crc, behind, size))


def first_byte(report: Report, is_first: bool) -> int:
    """Where the bytes of a slice begin: the first slice of a run holds all from its start on."""
    return int(report["start"] if is_first else report["begin"])
