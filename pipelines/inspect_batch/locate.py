"""Finds the batch at a position, or with an offset, and its neighbours, by following headers.

A length may lie: where headers do not lead on, the log continues where ``Resynchronizer`` finds that it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.inspect_batch.place import BatchPlace, Neighbour, read
from kafka_log_lake.pipelines.listing.naming import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    offset_left,
    parse_file,
)
from kafka_log_lake.pipelines.plan.headers import Header, headers
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.resync import LastOffset, Resynchronizer
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, SegmentDecoder
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX, file_name, leading_offset
from kafka_log_lake.udfs.indexes.checkpoint_files import LEADER_EPOCH_FILE, MOST_BYTES, leader_epochs
from kafka_log_lake.udfs.kernels.framing import is_sound
from kafka_log_lake.udfs.storage.opening import open_named
from kafka_log_lake.udfs.storage.regular_file import read_beside

_OF_BATCHES = (SEGMENT_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX, DELETED_SUFFIX, ".checkpoint")


class Stretch(NamedTuple):
    """A batch by its header, or a damaged range, without ``header``. before: the last batch before it."""

    position: int
    end: int
    header: Header | None
    before: Header | None


class Locator:
    """Finds batches in one segment file. Its methods raise UserErrors that say what to do."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.source = open_named(path)
        self.length = self.source.size()
        base = leading_offset(path)
        self.base = -1 if base is None else base
        self._resync = Resynchronizer(self.source, 0, self.length)
        self._epochs = _epochs(path)

    def close(self) -> None:
        self.source.close()

    def stretches(self) -> Iterator[Stretch]:
        """Yields batches by their headers, and what lies where these lead nowhere. No checksum is read."""
        at: int = 0
        before: Header | None = None
        while at < self.length:
            for header in headers(self.source, at, self.length):
                yield Stretch(at, header.end, header, before)
                at, before = header.end, header
            if at < self.length:
                last = before.last_offset if before else self.base - 1
                end = self._resync.next_batch(at, LastOffset(last, at))
                end = self.length if end <= at else end
                yield Stretch(at, end, None, before)
                at = end

    def is_sound(self, header: Header) -> bool:
        """Returns whether the checksum of a batch is right."""
        data = read(self.source, header.position, header.size)
        return len(data) == header.size and bool(is_sound(data, 0, header.size))

    def at_position(self, position: int) -> BatchPlace:
        """Returns the batch, or the damaged range, that begins at a position.

        Raises a UserError where none does.
        """
        if not 0 <= position < self.length:
            have = f"it has {self.length} bytes, from 0 to {self.length - 1}"
            raise UserError(f"position {position} is outside the file: {have}")
        for stretch in self.stretches():
            if stretch.position == position:
                return self.place(stretch)
            if stretch.position < position < stretch.end:
                return self._inside(stretch, position)
        raise UserError(f"no batch is at position {position}")

    def _inside(self, stretch: Stretch, position: int) -> BatchPlace:
        """Returns the sound batch at a position inside of a damaged one. Raises a UserError for none."""
        header = stretch.header
        outer_is_sound = header is not None and self.is_sound(header)
        if not outer_is_sound:
            following = self._next(position)
            if following is not None and self.is_sound(following):
                return self.place(Stretch(position, following.end, following, header or stretch.before))
        what = "the batch" if outer_is_sound else "the damaged batch" if header is not None else "the damage"
        offsets = "" if header is None else f" (last offset {header.last_offset})"
        raise UserError(
            f"position {position} is inside {what} that begins at {stretch.position}{offsets}: "
            f"give --position {stretch.position}"
        )

    def at_offset(self, offset: int) -> BatchPlace:
        """Returns the place of the batch with an offset. Raises a UserError where there is none."""
        lowest, highest, are_rising = 2**63, -(2**63) - 1, True
        for stretch in self.stretches():
            if stretch.header is None:
                continue
            low, high = self._offsets(stretch.header)
            if low <= offset <= high:
                return self.place(stretch)
            are_rising &= low > highest
            lowest, highest = min(low, lowest), max(high, highest)
        if lowest == 2**63:
            raise UserError(f"{self.path} has no batch: see --position 0")
        raise UserError(
            f"no batch has offset {offset}: "
            f"the batches of {self.path} have offsets from {lowest} to {highest}"
            + ("" if are_rising else ", which do not rise: scan shows a wrong base offset")
        )

    def first_damage(self, max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED) -> BatchPlace:
        """Returns the first damage that decode finds; the first batch where there is none.

        Raises a UserError for a file that is empty or no segment.
        max_batch_uncompressed: bytes; a batch that is larger once expanded is damage, as for decode.
        """
        first = next(self.stretches(), None)
        if first is None:
            raise UserError(f"{self.path} is empty: it has no batch")
        if first == Stretch(0, self.length, None, None) and not self.path.endswith(_OF_BATCHES):
            why = "no record batch is in it, and its name does not end in .log"
            raise UserError(f"{self.path} is not a segment: {why}")
        at = self._first_damage(max_batch_uncompressed)
        return self.place(
            next((stretch for stretch in self.stretches() if stretch.position <= at < stretch.end), first)
        )

    def _first_damage(self, max_batch_uncompressed: int) -> int:
        """Returns the position of the first damage, or of the tail, that decode finds; -1 for none."""
        segment = Range(
            self.length, has_successor=True, file_base_offset=self.base if self.base >= 0 else None
        )
        decoder = SegmentDecoder(
            self.source,
            segment,
            max_batch_uncompressed=max_batch_uncompressed,
            columns=(),
            content_crc=False,
        )
        for group in decoder:
            if group.damages:
                return min(damage.position for damage in group.damages)
        return self.length - decoder.totals.tail_bytes if decoder.totals.tail_bytes else -1

    def _offsets(self, header: Header) -> tuple[int, int]:
        """Returns a batch's first and last offset; -(1 << 62) as the first of a wrapper, which lacks it."""
        attributes = read(self.source, header.position + f.LEGACY_ATTRIBUTES_POS, 1)
        if header.magic == f.MAGIC_V2 or not (len(attributes) and attributes[0] & f.CODEC_MASK):
            return header.offset, header.last_offset
        return -(1 << 62), header.last_offset

    def place(self, stretch: Stretch) -> BatchPlace:
        """Returns a batch, or a damaged range, with its neighbours."""
        after = self._next(stretch.end)
        if stretch.header and not self.is_sound(stretch.header) and not (after and self.is_sound(after)):
            last = stretch.before.last_offset if stretch.before else -1
            next_position = self._resync.next_batch(stretch.position, LastOffset(last, stretch.position))
            after = self._next(next_position) if next_position > 0 else None
        neighbours = self._neighbour(stretch.before), self._neighbour(after)
        return BatchPlace(stretch.position, stretch.end, *neighbours, self.base, self._epoch_at)

    def _next(self, position: int) -> Header | None:
        return next(headers(self.source, position, self.length), None)

    def _neighbour(self, header: Header | None) -> Neighbour | None:
        if header is None:
            return None
        epoch = -1
        if header.magic == f.MAGIC_V2:
            raw = read(self.source, header.position + f.LEADER_EPOCH_POS, 4).tobytes()
            epoch = int.from_bytes(raw, "big", signed=True)
        return Neighbour(*header[:-1], epoch, self.is_sound(header))

    def _epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of an offset by the epoch file; -1 where the file does not tell."""
        epoch_here = -1
        for epoch, start in self._epochs:
            if start > offset:
                break
            epoch_here = epoch
        return epoch_here


def _has(path: str, offset: int) -> bool:
    """Returns whether a segment has a batch with an offset."""
    locator = Locator(path)
    try:
        locator.at_offset(offset)
    except UserError:
        return False
    finally:
        locator.close()
    return True


def _epochs(segment: str) -> list[tuple[int, int]]:
    """Reads (epoch, start offset) from the epoch file next to a segment; [] if any line of it is wrong."""
    try:
        rows = leader_epochs(read_beside(segment, LEADER_EPOCH_FILE, MOST_BYTES)).to_pylist()
    except OSError:
        return []
    if any(row["error"] for row in rows):
        return []
    return [(row["leader_epoch"], row["start_offset"]) for row in rows]


def segment_of(folder: str, offset: int | None, include_deleted: bool = False) -> str:
    """Returns the segment of a partition's folder that has an offset, by names of files.

    Raises a UserError where there is none. include_deleted: whether ``.log.deleted`` files are searched too,
    by their headers, where those of no live segment lead to the offset.
    """
    names = os.listdir(folder)
    bases = sorted(base for name in names if isinstance(base := parse_file(name), int))
    if include_deleted and offset is not None:
        deleted = sorted(name for name in names if offset_left(name, DELETED_SUFFIX) is not None)
        live = [file_name(base) for base in bases if base <= offset][-1:]
        for name in (*live, *reversed(deleted)):
            if _has(path := os.path.join(folder, name), offset):
                return path
    if not bases:
        if not include_deleted and any(name.endswith(DELETED_SUFFIX) for name in names):
            raise UserError(f"{folder} has .log.deleted files alone: --include-deleted looks into them")
        raise UserError(
            f"{folder} has no segment: give a partition's folder, such as logs/orders-0, or a .log file"
        )
    if offset is None:
        first = os.path.join(folder, file_name(bases[0]))
        raise UserError(f"{folder} is a folder: give --offset N, or one of its segments, such as {first}")
    able = [base for base in bases if base <= offset]
    if not able:
        raise UserError(f"offset {offset} is before the first segment, which begins with {bases[0]}")
    return os.path.join(folder, file_name(able[-1]))
