"""Lists what a search could not see: the reasons why a record that is not found may exist all the same.

``udfs.batches.account`` has the rules: which offsets the files of a disk name, and which of these were not
read soundly. Here stands which of them concern a search.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names
from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.listing.leftovers import passed_over_texts
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import NOT_LOOKED_AT, left_state, parse_folder
from kafka_log_lake.pipelines.listing.witnesses import logs_without_segments
from kafka_log_lake.pipelines.plan.headers import claimed_offsets
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.pipelines.tasks.accounts import of_tail
from kafka_log_lake.pipelines.tasks.scanned_log import damages_of, end_of, missing_in, placed
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange, SliceScan
from kafka_log_lake.udfs.batches.account import (
    MISSING,
    NO_WITNESSES,
    NOT_READ,
    ZEROS,
    Unseen,
    Witnesses,
    account_of,
    after_end,
)
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, misplaced
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS
from kafka_log_lake.udfs.storage.byte_source import SourceError, path_of_uri
from kafka_log_lake.udfs.storage.opening import open_source

_LEFT = "passed over; --include-deleted reads what a broker left behind"
_SWAP = "passed over; --include-swap reads it in place of the segments that it replaces"
_MOST_BYTES = 64 << 20  # of a torn or damaged range that are searched for a text
Scans = Mapping[Segment, list[SliceScan]]


@dataclass(frozen=True)
class Unsearched:
    """Something that could not be searched: with ``damage`` bytes of the log ``name``, else a whole file or
    folder, or offsets that no segment has. held: says that the searched bytes are there; else "".
    """

    name: str
    why: str
    damage: DamagedRange | None = None
    held: str = ""


def offsets_of(log: str, unseen: Unseen) -> Unsearched:
    """Describes offsets of a log that were not read soundly. log: its topic and partition."""
    last = "the end" if unseen.last is None else unseen.last
    return Unsearched(f"{log}: offsets {unseen.first} to {last}", unseen.why)


TopicPartition = tuple[str | None, int | None]


def known_partitions(listing: Listing, roots: Sequence[str], topics: TopicFilter) -> set[TopicPartition]:
    """Returns the topics and partitions that the sources hold or name.

    (None, None) stands for an unknown one, in a folder or file that can't be read.
    """
    places = [listing.segments.column(name).to_pylist() for name in ("topic", "partition")]
    wanted = listing.segments.column("wanted").to_pylist()  # Arrow's functions take long to load
    known = set(compress(zip(*places, strict=True), wanted))
    known |= {(passed.topic, passed.partition) for passed in listing.passed_over}
    known |= {place for place, named in _without_segments(listing, roots, topics) if named != NO_WITNESSES}
    return known | {(None, None) for _ in listing.unreadable}


def check_partitions(known: Collection[TopicPartition], request: Request) -> None:
    """Raises a UserError where no source has a partition that is requested by its number."""
    there = {number for _, number in known}
    for numbers, is_wanted in request.partitions:
        if is_wanted and None not in there and not numbers & there:
            named = ", ".join(map(str, sorted(numbers)))
            names = first_names(sorted(f"{topic}-{number}" for topic, number in known), 5)
            raise UserError(f"--partition {named}: no source has it; there are {names}")


def not_listed(
    listing: Listing, request: Request, roots: Sequence[str], topics: TopicFilter
) -> Iterator[Unsearched]:
    """Yields what is on the disks, or is named there, and is in no log that is searched.

    roots: local folders that the sources name.
    """
    for uri, why in sorted(listing.unreadable.items()):
        if _concerns(uri, request, topics):
            yield Unsearched(uri, why)
    for reason, noun in NOT_LOOKED_AT.items():
        if count := listing.skipped[reason]:
            yield Unsearched(counted_noun(count, noun), reason)
    passed = [
        folder
        for folder in listing.passed_over
        if request.takes(folder.partition) and request.may_hide(folder.first_offset, None)
    ]
    yield from (Unsearched(text, _LEFT) for text in passed_over_texts(passed))
    for text in listing.checkpoints.warnings:
        yield Unsearched("what a checkpoint file names", text)
    for place, witnesses in _without_segments(listing, roots, topics):
        first = witnesses.start_of(NO_LIMIT) or 0  # no segment is there
        for range_ in after_end(first, witnesses) if request.takes(place[1]) else ():
            if request.may_hide(range_.first, range_.last):
                why = f"no segment of this partition is there; {range_.witness}"
                yield offsets_of(f"{place[0]}-{place[1]}", replace(range_, detail=why))


def _without_segments(
    listing: Listing, roots: Sequence[str], topics: TopicFilter
) -> Iterator[tuple[tuple[str, int], Witnesses]]:
    """Yields the partitions without a segment that files of the disks name, with what names them."""
    listed = set(listing.segments.column("partition_dir").to_pylist())
    for place, witnesses in logs_without_segments(listing.witnesses, listing.checkpoints, listed, roots):
        if topics(place.topic):
            yield place, witnesses


def _concerns(uri: str, request: Request, topics: TopicFilter) -> bool:
    """Returns whether a folder or file may be of a requested partition, by its name or its folder's."""
    places = [
        place for place in map(parse_folder, (uri, uri.rpartition("/")[0])) if not isinstance(place, str)
    ]
    return not places or (topics(places[0].topic) and request.takes(places[0].partition))


def unsearched_asides(log: str, witnesses: Witnesses, request: Request) -> Iterator[Unsearched]:
    """Yields passed-over swap files next to a log's segments, and witnesses that can't be read."""
    for left in witnesses.aside:
        if left.kind == "swap" and left.length and request.may_hide(left.base, None):
            yield Unsearched(f"{log}: {os.path.basename(left.name)}", _SWAP)
    for problem in witnesses.problems:
        yield Unsearched(f"{log}: what a file next to its segments names", problem)


def unseen_at_edges(
    segments: Sequence[Segment],
    witnesses: Witnesses,
    scans: Scans,
    passed: Mapping[Segment, int],
    request: Request,
    is_past: bool,
) -> list[Unseen]:
    """Returns the offsets before a log's first segment and after its last batch that were not searched.

    segments: all of the log. passed: last offsets of the segments that were passed over. is_past: whether the
    search ended before the end of the log, as what follows lies after the offsets that are requested.
    """
    start, last = segments[0].file_base_offset, segments[-1]
    slices = [] if is_past else scans.get(last, [])
    if not slices or any(scan.report.problem for scan in slices):
        account = account_of(start, last.file_base_offset, replace(_of_start(witnesses), problems=()))
        unseen = list(account.unseen)
    else:
        end = max(last.file_base_offset, passed.get(last, -1) + 1, end_of(list(scans.items()), segments))
        tail = _tail(last, slices, end, request)
        account = account_of(start, end, witnesses, (), tail)
        unseen = list(account.unseen)
        # zeros after batches may be room that was never written, or pages that a crash lost; and what is cut
        # may have held more than files name
        if tail is not None and tail.last is None and not any(range_.last is None for range_ in unseen):
            unseen.append(replace(tail, first=max(tail.first, account.end)))
    is_left = left_state(segments[0].partition_dir) is not None  # nobody keeps on writing it
    if account.unexplained is not None and request.offsets and not is_left:
        first, last_offset = account.unexplained
        why = "no file says whether they were deleted or are lost"
        unseen.insert(0, Unseen(first, last_offset, is_certain=False, detail=why))
    return unseen


def _of_start(witnesses: Witnesses) -> Witnesses:
    """Returns only the witnesses that say where a log begins."""
    return replace(
        NO_WITNESSES,
        epochs=witnesses.epochs and witnesses.epochs[:1],
        log_start=witnesses.log_start,
        is_tiered=witnesses.is_tiered,
        remote=witnesses.remote,
        aside=witnesses.aside,
    )


def _tail(segment: Segment, slices: Sequence[SliceScan], end: int, request: Request) -> Unseen | None:
    """Returns the offsets in the torn batch or zeros at the end of a log's last segment; None without any."""
    totals = slices[-1].report.totals
    size = sum(scan.report.totals.tail_bytes for scan in slices)
    if not size:
        return None
    position, claimed, held = segment.length - size, None, ""
    if totals.tail == "torn":
        try:
            with closing(open_source(segment.uri, segment.length)) as source:
                claimed = claimed_offsets(source, position, segment.length)
        except SourceError:
            pass
        held = held_text(segment.uri, position, size, request)
    tail = of_tail(totals.tail, size, claimed, end, segment.file_base_offset < end)
    return tail and replace(tail, detail=tail.detail + held)


def held_text(uri: str, position: int, size: int, request: Request) -> str:
    """Says that the bytes of a torn or damaged range hold what is looked for; "" if they do not.

    A batch that is compressed does not show what it holds.
    """
    wanted = [condition.literals for condition in request.conditions if condition.literals]
    if not wanted or size > _MOST_BYTES:
        return ""
    content = np.zeros(size, dtype=np.uint8)
    try:
        with closing(open_source(uri, position + size)) as source:
            data = content[: source.read_into(position, content)].tobytes()
    except SourceError:
        return ""
    first_texts = [next((text for text in texts if text and text in data), None) for texts in wanted]
    if None in first_texts:
        return ""
    name = path_of_uri(uri) or uri
    place = position + data.index(first_texts[0] or b"")
    return f"; the searched bytes are there, at byte {place} of {os.path.basename(name)}"


def not_covered(unseen: Unseen, covered: Sequence[tuple[int, int]]) -> Iterator[Unseen]:
    """Yields the parts of offsets outside of the covered ranges (first and last offset of each)."""
    at, end = unseen.first, NO_LIMIT if unseen.last is None else unseen.last
    for first, last in sorted(covered):
        if at < first <= end:
            yield replace(unseen, first=at, last=first - 1)
        at = max(at, last + 1) if first <= end else at
    if at <= end:
        yield replace(unseen, first=at, last=unseen.last)


def covered_by(scans: Scans, passed: Mapping[Segment, int]) -> list[tuple[int, int]]:
    """Returns the offsets of batches that were searched or passed over, first and last of each range."""
    runs = [scan.runs for of_segment in scans.values() for scan in of_segment]
    covered = [(segment.file_base_offset, last) for segment, last in passed.items()]
    return covered + [(int(run["first"]), int(run["last"])) for some in runs for run in some]


def not_selected(segments: Sequence[Segment], request: Request) -> Iterator[Unseen]:
    """Yields the requested offsets in segments that no source names; none if no offsets are requested.

    segments: those that no source names.
    """
    for segment in segments if request.offsets else ():
        last = None if segment.file_limit == NO_LIMIT else segment.file_limit - 1
        if segment.length and request.overlaps(segment.file_base_offset, last):
            name = segment.segment.rpartition("/")[2]
            why = f"{name} is next to a file that was named, and was not searched"
            yield Unseen(segment.file_base_offset, last, state=NOT_READ, detail=why)


def unseen_within(scans: Scans, passed: Mapping[Segment, int], together: Judged | None) -> Iterator[Unseen]:
    """Yields the offsets after the last batch of segments that others follow: in zeros, in a cut batch, or
    in following segments without a byte.

    passed: last offsets of the segments that were passed over. together: what the whole log lacks, which is
    left out; None where it is not judged.
    """
    lost = [] if together is None else together.lost
    is_cleaned = (together is not None and together.is_compacted) or any(
        segment.topic in COMPACTED_TOPICS or any(scan.runs["is_cleaned"].any() for scan in slices)
        for segment, slices in scans.items()
    )
    for segment, slices in scans.items():
        totals, is_end = slices[-1].report.totals, not segment.has_successor and not is_cleaned
        ends = [int(scan.runs["last"].max()) for scan in slices if len(scan.runs)]
        first = max([segment.file_base_offset, passed.get(segment, -1) + 1, *(end + 1 for end in ends)])
        is_known = any(range_.first <= first and (range_.last or first) >= first for range_ in lost)
        if is_known or not first < segment.file_limit < NO_LIMIT or not (totals.tail_bytes or is_end):
            continue
        detail = "" if segment.length else "a segment without a byte"
        if totals.tail_bytes:
            what = "an incomplete batch" if totals.tail == "torn" else "zeros"
            detail = f"{what} ({counted_noun(totals.tail_bytes, 'byte')}) at the end of a segment"
        state = ZEROS if totals.tail == "zeros" else MISSING
        yield Unseen(first, segment.file_limit - 1, state=state, detail=detail)


def has_gap(scans: Scans, request: Request, passed: Mapping[Segment, int]) -> bool:
    """Returns whether offsets between two segments may match, and no log cleaner removed them."""
    if any(scan.runs["is_cleaned"].any() for of_segment in scans.values() for scan in of_segment):
        return False
    for segment, of_segment in scans.items():
        ends, limit = np.concatenate([scan.runs["last"] for scan in of_segment]), segment.file_limit
        ends = np.append(ends, passed.get(segment, -1))
        # a wrong base offset may lie past the limit
        first = int(ends[ends < limit].max(initial=segment.file_base_offset - 1)) + 1
        if first < limit < NO_LIMIT and request.may_hide(first, limit - 1):
            return True
    return False


def has_wrong_base(scans: Scans) -> bool:
    """Tells whether a batch of a log has a base offset that its neighbours contradict (``misplaced``)."""
    runs = [scan.runs for of_segment in scans.values() for scan in of_segment]
    return bool(runs) and bool(misplaced(np.concatenate(runs)).any())


class Judged(NamedTuple):
    """What a whole log lacks: offsets that no segment has, and damaged ranges, in the log's order.

    is_compacted: the log shows that the log cleaner ran.
    """

    missing: list[Unseen]
    damages: list[DamagedRange]
    is_compacted: bool = False

    @property
    def lost(self) -> list[Unseen]:
        """Returns the missing offsets, and those that may have been in damaged ranges."""
        damages = [(damage.first_lost, damage.last_lost) for damage in self.damages]
        return [*self.missing, *(Unseen(first, last) for first, last in damages if first is not None)]


def judged(scans: Scans, witnesses: Witnesses) -> Judged:
    """Judges the scans of a whole log by the order of its offsets. witnesses: what files say of the log."""
    ordered = sorted(scans, key=lambda segment: segment.file_base_offset)
    problems = [segment for segment in ordered if any(scan.report.problem for scan in scans[segment])]
    read = [(segment, list(scans[segment])) for segment in ordered if segment not in problems]
    unread = [segment.file_base_offset for segment in problems]
    if not read:
        return Judged([], [])
    order, damages = placed(read, unread, witnesses.cleaned_before)
    return Judged(missing_in(read, unread, order), damages, order.is_compacted)


def damages_in(scans: Scans) -> Iterator[DamagedRange]:
    """Yields the damaged ranges of segments, in their order, with the offsets of the file around them."""
    for segment in sorted(scans, key=lambda segment_: segment_.file_base_offset):
        if not any(scan.report.problem for scan in scans[segment]):
            yield from damages_of(segment, list(scans[segment]))
