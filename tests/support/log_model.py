"""Describes logs: their batches, segments and what was done to them, with the bytes that these have."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import segment_maker as make

NOW = 1_700_000_000_000  # ms
HOUR = 3_600_000
INT32 = 2**31
SIZE = 200  # bytes of a batch, of a damaged range too; of files they differ


@dataclass(frozen=True)
class LogBatch:
    """A batch. true_base: the base offset that the broker gave it; base_offset: the stored one.

    count: records that are left; span: offsets that it covers. flags: as ``segment_maker``. control: ABORT,
    COMMIT or None. status: ok, suspect or corrupt. A range of bytes without a header has is_garbage.
    """

    true_base: int
    base_offset: int
    count: int
    span: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    flags: int = 0
    control: str | None = None
    leader_epoch: int = 0
    base_timestamp_ms: int = NOW
    max_timestamp_ms: int = NOW
    status: str = "ok"
    is_garbage: bool = False

    @property
    def last_offset(self) -> int:
        return wrapped(self.base_offset + self.span - 1)

    @property
    def last_sequence(self) -> int:
        return -1 if self.base_sequence < 0 else (self.base_sequence + self.span - 1) % INT32

    @property
    def is_sound(self) -> bool:
        return self.status in ("ok", "suspect") and not self.is_garbage

    @property
    def is_transactional(self) -> bool:
        return bool(self.flags & make.TRANSACTIONAL)

    @property
    def is_log_append(self) -> bool:
        return bool(self.flags & make.LOG_APPEND)

    @property
    def has_horizon(self) -> bool:
        return bool(self.flags & make.DELETE_HORIZON)

    @property
    def places(self) -> list[int]:
        """Returns the offset deltas of its records."""
        return [*range(self.count - 1), self.span - 1] if self.count else []

    def encode(self) -> bytes:
        """Returns the batch's bytes as a broker stores it; with a wrong checksum where it is corrupt."""
        if self.is_garbage:
            return b"\xff" * SIZE
        if self.control:
            key = struct.pack(">hh", 0, int(self.control == "COMMIT"))
            records = [make.Record(key=key, value=struct.pack(">hi", 0, 1))]
        else:
            # deltas are rebuilt against a delete horizon (KIP-534), in 64 bits that wrap
            delta = wrapped(self.max_timestamp_ms - self.base_timestamp_ms) if self.has_horizon else 0
            records = [
                make.Record(key=b"k%d" % (at % 7), value=b"v", offset_delta=at, timestamp_delta=delta)
                for at in self.places
            ]
        data = make.Batch(
            records=tuple(records),
            flags=self.flags | (make.CONTROL if self.control else 0),
            base_offset=self.base_offset,
            leader_epoch=self.leader_epoch,
            last_offset_delta=self.span - 1,
            base_timestamp=self.base_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        ).encode()
        return data if self.status != "corrupt" else make.flip(data, 21)


@dataclass(frozen=True)
class Segment:
    """A segment file. log_start_offset: base offset of the folder's first segment when it was first decoded.

    left_out: -1 where nothing of it was decoded, as ``--offsets`` requested; else 0.
    """

    file_base_offset: int
    batches: tuple[LogBatch, ...]
    log_start_offset: int = 0
    left_out: int = 0
    modified_ms: int = NOW + HOUR

    @property
    def sound(self) -> list[LogBatch]:
        return [one for one in self.batches if one.is_sound]

    def places(self) -> Iterator[tuple[int, LogBatch]]:
        """Yields its batches, each with its position in the file."""
        position = 0
        for one in self.batches:
            yield position, one
            position += len(one.encode())


@dataclass(frozen=True)
class Log:
    """The log of one folder. checkpoint: (log_start_offset, recovery_point, high_watermark), or None.

    is_compacted: whether the cleaner ran over it.
    """

    topic: str
    partition: int
    folder: str
    segments: tuple[Segment, ...]
    is_compacted: bool = False
    checkpoint: tuple[int | None, int | None, int | None] | None = None

    @property
    def partition_dir(self) -> str:
        return f"file://{self.folder}/{self.topic}-{self.partition}"

    def uri(self, segment: Segment) -> str:
        return f"{self.partition_dir}/{make.segment_name(segment.file_base_offset)}"


def wrapped(value: int) -> int:
    """Returns a number wrapped to int64."""
    return (value + 2**63) % 2**64 - 2**63
