"""Judges the workers' reports on a segment's slices, before anything is committed.

A worker sends a report on each slice. The slices of a segment are checked against each other (each must begin
exactly where the one before it ended) and against the file's length (every byte is in a sound batch, in
quarantine or in the tail); then they give the segment's ledger row. Pure functions; ``decode`` acts on the
verdicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kafka_log_lake.pipelines.cli.errors import RunFailed
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.plan.segment_actions import Action
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.udfs.decoder.decoded import Totals
from kafka_log_lake.udfs.spark.protocol import Problem, SliceReport, StageOptions

# Fields of Totals to add up over slices
_COUNTS = (
    *("batches", "records", "left_out", "damaged", "unreadable_bytes", "offset_regressions"),
    *("transactional", "sound_bytes", "quarantined_bytes", "tail_bytes"),
)
# If none of these columns changed, a continued segment had no new bytes, and its row is not written again
_CONTENT = (
    *("length", "decoded_bytes", "batches", "records", "damaged", "tail", "tail_bytes", "fingerprint"),
    "topic_id",
)


@dataclass(frozen=True)
class SegmentVerdict:
    """The result of a stage for one segment.

    problem: why nothing of it may be committed, with ``detail`` in words; None if there is no problem.
    broken: why its slices do not fit together, so that it has to be decoded as one slice; None if they do.
    row: its new ledger row; None with a problem or broken slices.
    changes_ledger: whether the row has to be written: not if only modified, run_id or decoded_at differ.
    """

    segment: Segment
    reports: tuple[SliceReport, ...]
    problem: Problem | None = None
    detail: str = ""
    broken: str | None = None
    row: LedgerRow | None = field(default=None, compare=False)
    changes_ledger: bool = False

    @property
    def totals(self) -> Totals:
        """Sums the totals of all slices in this run."""
        return Totals(**{name: sum(getattr(r.totals, name) for r in self.reports) for name in _COUNTS})


def shortened(verdicts: Iterable[SegmentVerdict]) -> list[LedgerRow]:
    """Returns the new ledger rows of rewritten segments whose last offset is no higher than before.

    These were truncated or compacted.
    """
    return [
        v.row
        for v in verdicts
        if v.row is not None
        and v.segment.was is not None
        and v.segment.action is Action.REPLACE
        and v.row.fingerprint != v.segment.was.fingerprint
        and v.row.reach <= v.segment.was.reach
    ]


def judge(segment: Segment, reports: Sequence[SliceReport], run: StageOptions) -> SegmentVerdict:
    """Judges a segment by the reports on all its slices. Raises RunFailed if bytes are missing."""
    ordered = tuple(sorted(reports, key=lambda r: r.start))
    broken = chain_break(segment, ordered)
    if broken:
        return SegmentVerdict(segment, ordered, broken=broken)
    check_accounting(segment, ordered)
    row, was = ledger_row(segment, ordered, run), segment.was
    goes_on = segment.action is Action.GO_ON and was is not None
    changes = not goes_on or any(getattr(was, name) != getattr(row, name) for name in _CONTENT)
    return SegmentVerdict(segment, ordered, row=row, changes_ledger=changes)


def with_batches(reports: Sequence[SliceReport]) -> list[SliceReport]:
    """Returns the first report, and those of slices in which a worker found the beginning of a batch."""
    return [r for i, r in enumerate(reports) if i == 0 or r.totals.begin is not None]


def chain_break(segment: Segment, reports: Sequence[SliceReport]) -> str | None:
    """Says where a slice does not begin at the end of the one before it; None if the slices fit together.

    The last slice and the tail must reach the end of the segment: if a tail or damage fills whole slices, no
    slice reports its bytes.
    """
    chain = with_batches(reports)
    for before, after in itertools.pairwise(chain):
        if before.totals.end != after.totals.begin:
            return f"one slice ends at {before.totals.end}, the next begins at {after.totals.begin}"
    reached = chain[-1].totals.end + sum(r.totals.tail_bytes for r in reports)
    if len(reports) > 1 and reached != segment.length:
        return f"the last slice ends at {reached} of {segment.length}"
    return None


def check_accounting(segment: Segment, reports: Sequence[SliceReport]) -> None:
    """Raises RunFailed unless bytes of sound batches + bytes in quarantine + tail bytes = planned bytes."""
    totals = SegmentVerdict(segment, tuple(reports)).totals
    if totals.sound_bytes + totals.quarantined_bytes + totals.tail_bytes != segment.planned_bytes:
        raise RunFailed(
            f"bytes unaccounted for in {segment.segment}: {segment.planned_bytes} planned, found "
            f"{totals.sound_bytes} sound + {totals.quarantined_bytes} quarantined + {totals.tail_bytes} of a "
            "tail; this is a bug of the decoder, nothing was committed"
        )


def ledger_row(segment: Segment, reports: Sequence[SliceReport], run: StageOptions) -> LedgerRow:
    """Returns the segment's new ledger row; with GO_ON it adds to the row that the ledger has."""
    log_start_offset = segment.was.log_start_offset if segment.was else segment.log_start_offset
    fresh = segment.new_row(log_start_offset=log_start_offset, content_crc32c=0)
    was = segment.was if segment.action is Action.GO_ON and segment.was else fresh
    totals = [r.totals for r in reports]
    chain = with_batches(reports)
    last = chain[-1].totals
    tail_bytes = sum(t.tail_bytes for t in totals)
    ends = [r.totals.end_offset for r in chain if r.totals.end_offset is not None]
    fingerprints = [r.fingerprint for r in reports if r.fingerprint is not None]
    return replace(
        was,
        length=segment.length,
        modified=segment.modified,
        decoded_bytes=segment.length - tail_bytes,
        first_offset=lowest(was.first_offset, *(t.first_offset for t in totals)),
        last_offset=highest(was.last_offset, *(t.last_offset for t in totals)),
        min_timestamp=lowest(was.min_timestamp, *(t.min_timestamp_us for t in totals)),
        max_timestamp=highest(was.max_timestamp, *(t.max_timestamp_us for t in totals)),
        batches=was.batches + sum(t.batches for t in totals),
        records=was.records + sum(t.records for t in totals),
        damaged=was.damaged + sum(t.damaged for t in totals),
        offset_regressions=was.offset_regressions
        + sum(t.offset_regressions for t in totals)
        + _regressions_between(chain),
        tail=last.tail,
        tail_bytes=tail_bytes,
        fingerprint=fingerprints[-1] if fingerprints else was.fingerprint,
        content_crc32c=_content_crc32c(was.content_crc32c, chain),
        end_offset=ends[-1] if ends else was.end_offset,
        ends_in_damage=last.end > last.sound_end,
        topic_id=segment.topic_id or was.topic_id,
        scope=segment.scope.condition,
        left_out=was.left_out + sum(t.left_out for t in totals),
        run_id=run.run_id,
        decoded_at=run.began_us,
    )


def lowest(*values: int | None) -> int | None:
    """Returns the lowest value that is not None; None where all are."""
    return min((v for v in values if v is not None), default=None)


def highest(*values: int | None) -> int | None:
    """Returns the highest value that is not None; None where all are."""
    return max((v for v in values if v is not None), default=None)


def _regressions_between(chain: Iterable[SliceReport]) -> int:
    """Counts offset regressions from the last batch of a slice to the first of the next.

    No slice sees these.
    """
    count, end_offset = 0, None
    for report in chain:
        first = report.totals.first_base_offset
        count += end_offset is not None and first is not None and first <= end_offset
        end_offset = end_offset if report.totals.end_offset is None else report.totals.end_offset
    return count


def _content_crc32c(crc: int | None, chain: Sequence[SliceReport]) -> int | None:
    """Returns the CRC-32C of all decoded bytes; None if unknown.

    crc: of the bytes decoded before this run; 0 without any, None if unknown.
    """
    if crc is None:
        return None
    for i, report in enumerate(chain):
        size = report.totals.end - first_byte(report, i == 0)
        of_slice = report.totals.content_crc32c
        if crc:
            from kafka_log_lake.udfs.kernels.checksums import (
                crc32c_combine,  # loads LLVM, which most drivers never need
            )

            of_slice = int(crc32c_combine(crc, of_slice, size))
        crc = of_slice
    return crc


def first_byte(report: SliceReport, is_first: bool) -> int:
    """Returns the position of a slice's first batch; in the first slice of a run, of the slice's start."""
    return report.start if is_first or report.totals.begin is None else report.totals.begin
