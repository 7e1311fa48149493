"""Models Kafka's rules of offsets and sequence numbers in plain Python over one log of ``random_logs``.

Written from what brokers and consumers do, batch by batch, with numbers of any size; it knows nothing of SQL.
Every answer is of the facts that lie on disk alone: ``LogBatch.true_base`` is for the tests that hold the
rules to the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.support.log_model import INT32, Log, LogBatch, Segment

INTERNAL = ("__consumer_offsets", "__transaction_state")
LAST = 2**63 - 1


@dataclass
class Place:
    """A sound batch, or a segment that is left out (batch None), where it lies in the files."""

    segment: Segment
    first: int
    last: int | None
    damages: int  # ranges of the log before it
    batch: LogBatch | None = None
    file_limit: int | None = None  # base offset of the next file
    is_misplaced: bool = False

    @property
    def span(self) -> int:
        return 0 if self.last is None else self.last - self.first


class Hole(NamedTuple):
    """Offsets that no batch has: first to next - 1; next None after the last batch, without a file there."""

    first: int | None
    next: int | None
    file_base: int | None  # of the file after it
    damages: int
    misplaced: int
    goes_back: bool
    retention: bool
    confirmed: bool
    compacted: bool


class Lost(NamedTuple):
    first: int | None
    last: int | None
    cause: str
    is_certain: bool
    seek_to: int | None


class Step(NamedTuple):
    base_offset: int
    step: str | None
    missing: int
    cause: str | None


class OffsetModel:
    """The answers about one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.segments = sorted(log.segments, key=lambda one: one.file_base_offset)
        self.retentions, self.stretches = self._stretches()
        self.places, self.damages = self._places()
        self.batches = [one for one in self.places if one.batch is not None]
        find_misplaced(self.batches)
        self.holes, self.is_compacted, self.end = self._holes()

    def _stretches(self) -> tuple[dict[int, int], dict[int, int]]:
        """Returns by a file's base offset how often retention may have deleted unseen files; the stretch."""
        retentions, stretches, deleted = {}, {}, 0
        stretch = int(self.segments[0].left_out < 0) if self.segments else 0
        before: Segment | None = None
        for one in self.segments:
            if before is not None:
                ends = [b.last_offset for b in before.sound] if before.left_out == 0 else []
                end = ends[-1] if ends else before.file_base_offset - 1
                was_gone = before.file_base_offset < one.log_start_offset
                is_deleted = was_gone and end < one.file_base_offset - 1
                deleted += is_deleted
                stretch += is_deleted or one.left_out < 0 or before.left_out < 0
            retentions[one.file_base_offset], stretches[one.file_base_offset] = deleted, stretch
            before = one
        return retentions, stretches

    def _places(self) -> tuple[list[Place], int]:
        places, damages = [], 0
        for segment, following in zip(self.segments, [*self.segments[1:], None], strict=True):
            limit = None if following is None else following.file_base_offset
            if segment.left_out < 0:
                last = None if limit is None else limit - 1
                places.append(Place(segment, segment.file_base_offset, last, damages))
                continue
            for one in segment.batches:
                if one.is_sound:
                    last = max(one.base_offset, one.last_offset)
                    places.append(Place(segment, one.base_offset, last, damages, one, limit))
                else:
                    damages += 1
        return places, damages

    def _holes(self) -> tuple[list[Hole], bool, int | None]:
        if not self.segments:
            return [], False, None
        shows = self.log.topic in INTERNAL or any(_is_cleaned(one.batch) for one in self.batches if one.batch)
        kept = [one for one in self.places if not one.is_misplaced]
        order = {id(one): at for at, one in enumerate(kept, 1)}
        in_file = {id(one): at for at, one in enumerate(self.places)}
        last_file = self.segments[-1].file_base_offset
        ordered = sorted(
            kept, key=lambda one: (one.first, LAST if one.last is None else one.last, in_file[id(one)])
        )
        holes: list[Hole] = []
        end: int | None = self.segments[0].file_base_offset
        reached: int | None = None
        damages = misplaced = number = 0
        before: Place | None = None
        for at, one in enumerate(ordered):
            first = end
            here = len([p for p in self.places[: in_file[id(one)]] if p.is_misplaced])
            skipped = max(here - misplaced, 0) + max(order[id(one)] - number - 1, 0)
            hurt = max(one.damages - damages, 0)
            base = one.segment.file_base_offset
            confirmed = at + 1 < len(ordered) or base != last_file
            goes_back = order[id(one)] < number
            if first is not None and one.first > first:
                deleted = before is not None and (
                    self.retentions[base] > self.retentions[before.segment.file_base_offset]
                )
                if one.first > max(first, base) and not hurt and not skipped and not goes_back and confirmed:
                    shows = True
                holes.append(
                    Hole(first, one.first, base, hurt, skipped, goes_back, deleted, confirmed, False)
                )
            if one.last is not None and (reached is None or one.last > reached):
                reached = one.last
            if reached is not None:
                end = reached + 1 if reached < LAST else None
            damages, misplaced = max(damages, one.damages), max(misplaced, here)
            number, before = order[id(one)], one
        hurt = max(self.damages - damages, 0)
        skipped = max(len([p for p in self.places if p.is_misplaced]) - misplaced, 0)
        # the log had reached the name of an empty last file
        is_empty = not (self.segments[-1].batches or self.segments[-1].left_out) and (
            end is not None and end < last_file
        )
        if is_empty:
            deleted = before is not None and (
                self.retentions[last_file] > self.retentions[before.segment.file_base_offset]
            )
            holes.append(Hole(end, last_file, last_file, hurt, skipped, False, deleted, True, False))
        elif hurt or skipped:
            holes.append(Hole(end, None, None, hurt, skipped, False, False, True, False))
        return [one._replace(compacted=shows) for one in holes], shows, end

    @property
    def gaps(self) -> list[tuple[int | None, int | None, str]]:
        """Returns (first offset, last offset, cause) of what is missing between batches."""
        found: list[tuple[int | None, int | None, str]] = []
        for one in self.holes:
            if one.damages or one.misplaced or one.goes_back:
                cause = "damage" if one.damages else "wrong_base_offset"
                found.append((one.first, None if one.next is None else one.next - 1, cause))
                continue
            assert one.first is not None
            assert one.next is not None
            assert one.file_base is not None
            if one.first < one.file_base:
                cause = "compaction" if one.compacted else "missing_segment"
                cause = "retention" if one.retention else cause
                found.append((one.first, min(one.next, one.file_base) - 1, cause))
            if one.next > one.file_base:
                inside = "compaction" if one.confirmed or one.compacted else "unknown"
                found.append((max(one.first, one.file_base), one.next - 1, inside))
        return found

    @property
    def lost(self) -> list[Lost]:
        """Returns the offsets that a consumer misses, and where it must seek to."""
        found = []
        for one in self.holes:
            last = None if one.next is None else one.next - 1
            if one.damages:
                found.append(Lost(one.first, last, "damage", not one.compacted, one.next))
            elif one.misplaced and not one.goes_back:
                found.append(Lost(one.first, last, "wrong_base_offset", True, one.next))
            elif not (one.goes_back or one.compacted or one.retention):
                assert one.first is not None
                assert one.file_base is not None
                if one.first < one.file_base:
                    found.append(Lost(one.first, last, "missing_segment", True, one.next))
        return found + self._at_edges()

    def _at_edges(self) -> list[Lost]:
        if self.log.checkpoint is None or not self.segments:
            return []
        noted_start, recovery, watermark = self.log.checkpoint
        found = []
        start = min(min(one.file_base_offset, one.log_start_offset) for one in self.segments)
        if noted_start is not None and noted_start < start:
            found.append(Lost(noted_start, start - 1, "missing_start", False, start))
        if self.segments[-1].left_out < 0:
            return found
        end = max(self.segments[-1].file_base_offset, -1 if self.end is None else self.end)
        for noted, is_certain in ((watermark, True), (recovery, False)):
            if noted is not None and noted > end:
                found.append(Lost(end, noted - 1, "missing_end", is_certain, None))
                end = noted
        return found

    @property
    def steps(self) -> list[Step]:
        """Returns the data batches in the order of the files; step None without one to compare with."""
        seen: dict[tuple[int, int, int], tuple[int, int]] = {}  # -> last sequence, damages
        found = []
        for place in self.batches:
            one = place.batch
            assert one is not None
            if one.control:
                continue
            step = cause = None
            missing = 0
            if one.producer_id >= 0 and one.base_sequence >= 0:
                stretch = self.stretches[place.segment.file_base_offset]
                key = (stretch, one.producer_id, one.producer_epoch)
                if key in seen:
                    last, damages = seen[key]
                    step, missing = _step(last, one.base_sequence)
                    if step != "next" and place.damages > damages:
                        cause = "damage"
                    elif step == "gap" and self.is_compacted:
                        cause = "compaction"
                seen[key] = one.last_sequence, place.damages
            found.append(Step(one.base_offset, step, missing, cause))
        return found


def find_misplaced(found: list[Place]) -> None:
    """Marks base offsets that the file's name, or the neighbours, contradict beyond doubt."""
    outside_file, outside_neighbours = [], []
    for at, one in enumerate(found):
        low = one.segment.file_base_offset
        assert one.last is not None
        is_later = at > 0 and found[at - 1].segment is one.segment  # a file is named by its first batch
        is_out = one.first < low + is_later or (one.file_limit is not None and one.last >= one.file_limit)
        outside_file.append(is_out)
        before = found[at - 1].last if at else low - 1
        after = found[at + 1].first if at + 1 < len(found) else None
        contradicts = False
        if after is not None and before is not None and -1 <= before < after and one.first != low:
            fits = before < one.first and one.last < after
            room = after - 1 - before
            contradicts = not fits and room > one.span
        outside_neighbours.append(contradicts)
    wrong = [a or b for a, b in zip(outside_file, outside_neighbours, strict=True)]
    for at, one in enumerate(found):
        trusted_before = at == 0 or not wrong[at - 1]
        if at + 1 < len(found):
            by_neighbours = outside_neighbours[at] and trusted_before and not wrong[at + 1]
        else:
            by_neighbours = at > 0 and one.first <= found[at - 1].first and trusted_before
        one.is_misplaced = outside_file[at] or by_neighbours


def _is_cleaned(one: LogBatch) -> bool:
    if one.status != "ok":
        return False
    return one.has_horizon or (one.base_offset >= 0 and one.last_offset - one.base_offset >= one.count)


def _step(last: int, base: int) -> tuple[str, int]:
    """Returns (step, missing numbers), as ProducerAppendInfo.checkSequence: after 2147483647 comes 0."""
    expected = 0 if last == INT32 - 1 else last + 1
    if base == expected:
        return "next", 0
    if base == 0:
        return "reset", 0
    missing = (base - expected) % INT32
    return ("gap", missing) if missing < INT32 // 2 else ("duplicate", 0)
