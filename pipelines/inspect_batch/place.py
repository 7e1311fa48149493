"""A place in a segment, the batches next to it, and what can be read of damage there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kafka_log_lake.pipelines.inspect_batch.breaks import Break, break_of_message, break_of_records
from kafka_log_lake.udfs.decoder.batch_search import BatchSearch
from kafka_log_lake.udfs.decoder.range_checksums import RangeChecksums
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.framing import BATCH, batch_size, is_sound, read_header
from kafka_log_lake.udfs.storage.byte_source import ByteSource


class Neighbour(NamedTuple):
    """The batch before or after. base_offset: as stored; of magic 0 and 1 the offset of the message."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    is_sound: bool


@dataclass(frozen=True)
class BatchPlace:
    """The place of a batch or a damaged range. end: where it ends, as far as headers tell.

    first_offset: of the segment, by its name; -1 unknown. epoch_at: returns the leader epoch at an offset by
    the epoch file next to the segment; -1 unknown.
    """

    position: int
    end: int
    before: Neighbour | None = None
    after: Neighbour | None = None
    first_offset: int = -1
    epoch_at: Callable[[int], int] = lambda _: -1


def read(source: ByteSource, position: int, size: int) -> np.ndarray:
    """Returns uint8[n]: the bytes of a segment from ``position`` on; fewer than ``size`` at its end."""
    data = np.empty(max(0, size), dtype=np.uint8)
    return data[: source.read_into(position, data)]


def header_of(data: np.ndarray, position: int) -> np.void:
    """Returns the header (BATCH) of the batch in ``data`` (uint8[n]), with zeros for missing bytes."""
    head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
    head[: min(len(head), len(data))] = data[: len(head)]
    row = np.zeros(1, dtype=BATCH)
    read_header(head, 0, len(data), position, row[0])
    e: np.void = row[0]
    return e


_MOST_TRIED = 1 << 29
MOST_FOLLOWED = 64  # sound batches after damage, at most


class SoundBatch(NamedTuple):
    """A sound batch that begins after the begin of the damage."""

    begin: int
    end: int
    first: int
    last: int


@dataclass(frozen=True)
class DamagedBatch:
    """A damaged batch, or a damaged range, in a segment of ``length`` bytes.

    taken: bytes that it takes; size: of the batch by its header, 0 where it has none.
    """

    source: ByteSource
    length: int
    place: BatchPlace
    taken: int
    size: int

    @property
    def position(self) -> int:
        return self.place.position

    @property
    def room(self) -> int:
        return self.length - self.position

    @property
    def is_whole(self) -> bool:
        return 0 < self.size <= self.room

    @cached_property
    def data(self) -> np.ndarray:
        """Returns uint8[n]: the bytes of the segment from the position on, at most _MOST_TRIED."""
        return read(self.source, self.position, min(self.room, _MOST_TRIED))

    @cached_property
    def wrong(self) -> bytes:
        """Returns the bytes of the batch or the damaged range."""
        return self.data[: max(0, self.taken)].tobytes()

    @cached_property
    def header(self) -> np.void:
        """Returns the header (BATCH) at the position, right or wrong."""
        return header_of(self.data, self.position)

    @cached_property
    def sound(self) -> list[SoundBatch]:
        """Returns the first sound batches after the position, each beginning where the one before ends."""
        checksums = RangeChecksums(self.source, self.position, self.length)
        at = BatchSearch(self.source, self.position, self.length, checksums).first_from(self.position + 1)
        batches: list[SoundBatch] = []
        while 0 <= at < self.length and len(batches) < MOST_FOLLOWED:
            rest = self.data[at - self.position :]
            size = int(batch_size(rest, 0, len(rest)))
            if not self.is_sound(at - self.position):
                break
            e = header_of(rest, at)
            first = "base_offset" if rest[f.MAGIC_POS] == f.MAGIC_V2 else "last_offset"
            batches.append(SoundBatch(at, at + size, int(e[first]), int(e["last_offset"])))
            at += size
        return batches

    def is_sound(self, at: int) -> bool:
        """Returns whether a sound batch begins at ``at``, which counts from the position."""
        rest = self.data[at:]
        size = int(batch_size(rest, 0, len(rest)))
        return 0 < size <= len(rest) and bool(is_sound(rest, 0, size))

    @cached_property
    def ends_right(self) -> bool:
        """Returns whether the segment ends, or a sound batch begins, where the batch ends by its header."""
        return self.is_whole and (self.size == self.room or self.is_sound(self.size))

    @cached_property
    def break_(self) -> Break | None:
        """Returns where records of a whole, uncompressed batch can't be read; None for others, or nowhere."""
        if not self.is_whole or self.header["codec"] != f.CODEC_NONE:
            return None
        if self.header["magic"] != f.MAGIC_V2:
            return break_of_message(self.wrong, self.size)
        return break_of_records(self.wrong, int(self.header["count"]), int(self.header["last_offset_delta"]))

    @property
    def offset_before(self) -> int:
        """Returns the last offset before the position; -1 where it is not known."""
        before = self.place.before
        return before.last_offset if before is not None else max(-1, self.place.first_offset - 1)
