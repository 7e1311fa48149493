"""Prints indexes, producer snapshots and checkpoints as Kafka's tool does, with what it finds wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.kafka_reader import Refused, records_of
from kafka_log_lake.udfs.decoder.lenient import LEAST_LENGTH, LenientDecoder
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX, leading_offset, stem_of
from kafka_log_lake.udfs.indexes.checkpoint_files import LEADER_EPOCH_FILE, leader_epochs, offset_checkpoint
from kafka_log_lake.udfs.indexes.entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TRANSACTION_ENTRY,
    TRANSACTION_VERSION,
    whole_entries,
)
from kafka_log_lake.udfs.indexes.files import (
    DELETED,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from kafka_log_lake.udfs.indexes.producer_snapshot import read_producer_snapshot
from kafka_log_lake.udfs.storage.opening import open_named
from kafka_log_lake.udfs.storage.regular_file import MOST_INDEX_BYTES, read_beside, read_regular

MAX_MESSAGE_SIZE = 5 * 1024 * 1024  # what the tool takes an entry's batch to have at most
_MOST = 0x7FFFFFFF
Pairs = dict[str, list[tuple[int, int]]]


@dataclass
class IndexProblems:
    """Problems that the tool finds: by file, pairs of what the index says and what the log has.

    refused: why producer snapshots are not read.
    """

    refused: list[str] = field(default_factory=list)
    offsets: Pairs = field(default_factory=dict)
    timestamps: Pairs = field(default_factory=dict)
    out_of_order: Pairs = field(default_factory=dict)
    missing: Pairs = field(default_factory=dict)
    gaps: Pairs = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yields what the tool prints at the end, on standard error; of some kinds the newest first."""
        yield from self.refused
        for path, pairs in self.offsets.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {index}, log offset: {log}" for index, log in reversed(pairs))
        for path, pairs in self.timestamps.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {index}, log timestamp: {log}" for index, log in pairs)
        for path, pairs in self.out_of_order.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (f"  Index timestamp: {a}, Previously indexed timestamp: {b}" for a, b in pairs)
        for pairs in self.missing.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {index}, found log offset: {log}" for index, log in pairs)
        for path, pairs in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {first} is followed by {second}" for first, second in reversed(pairs))


def _read(path: str, beside: str | None) -> bytes:
    """Reads an index, or the file of this name next to it."""
    return read_beside(path, beside, MOST_INDEX_BYTES) if beside else read_regular(path, MOST_INDEX_BYTES)


@dataclass(frozen=True)
class IndexText:
    """Prints indexes, snapshots and checkpoint files; notes problems in ``found``.

    read: gives the bytes of an index by its path, or of a file next to it by its name.
    """

    found: IndexProblems
    sanity_only: bool = False
    verify_only: bool = False
    max_message_size: int = MAX_MESSAGE_SIZE
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED
    read: Callable[[str, str | None], bytes] = _read

    def lines(self, path: str) -> Iterator[str]:
        """Yields the lines of a file, by its name's end. Raises Refused where the tool fails, and OSError."""
        name = os.path.basename(path).removesuffix(DELETED)
        data = self.read(path, None)
        if name.endswith(TIME_INDEX):
            yield from self._time_index(path, data)
        elif name.endswith(TRANSACTION_INDEX):
            yield from _transactions(data)
        elif name.endswith(OFFSET_INDEX):
            yield from self._offset_index(path, data)
        elif name.endswith(PRODUCER_SNAPSHOT):
            yield from self._producers(data)
        else:
            yield from _checkpoint(name, data)

    def _offset_index(self, path: str, data: bytes) -> Iterator[str]:
        base = base_of(path)
        with closing(_Log(log_of(path))) as log:
            entries = whole_entries(data, OFFSET_ENTRY)
            if not len(entries):
                yield f"{path} is empty."
                return
            if self.sanity_only:
                _check_offset_index(data, entries)
                yield f"{path} passed sanity check."
                return
            for i, (relative, position) in enumerate(entries.tolist()):
                if relative == 0 and i > 0:
                    return
                last = log.batch_at(position, self.max_message_size)
                if last is None:
                    raise Refused(f"entry {i} points to position {position}, where no batch begins")
                if last.last_offset != base + relative:
                    pair = (base + relative, last.last_offset)
                    self.found.offsets.setdefault(os.path.abspath(path), []).append(pair)
                if not self.verify_only:
                    yield f"offset: {base + relative} position: {position}"

    def _time_index(self, path: str, data: bytes) -> Iterator[str]:
        base = base_of(path)
        entries = whole_entries(data, TIME_ENTRY)
        with closing(_Log(log_of(path))) as log:
            name = f"{stem_of(path)}{OFFSET_INDEX}"
            index = whole_entries(self.read(path, name), OFFSET_ENTRY)
            if self.sanity_only:
                _check_time_index(data, entries)
                yield f"{path} passed sanity check."
                return
            before = f.NO_TIMESTAMP
            for i, (timestamp, relative) in enumerate(entries.tolist()):
                if relative == 0 and i > 0:
                    return
                self._verify_time(path, log, index, relative, base, timestamp, before)
                if not self.verify_only:
                    yield f"timestamp: {timestamp} offset: {base + relative}"
                before = timestamp

    def _verify_time(
        self,
        path: str,
        log: _Log,
        index: np.ndarray,
        relative: int,
        base: int,
        timestamp: int,
        before: int,
    ) -> None:
        """Notes if an entry of a time index and the batch that it names disagree."""
        offset, where = base + relative, os.path.abspath(path)
        position = _lookup(index, relative)
        if not 0 <= position <= log.length:  # where the tool fails, it reads a part of the log from there on
            raise Refused(
                f"the index leads to position {position} for offset {offset}, and the segment has "
                f"{log.length} bytes"
            )
        batch = log.first_reaching(offset=offset, position=position)
        if batch is None or batch.last_offset != offset:
            last_offset = -1 if batch is None else batch.last_offset
            self.found.missing.setdefault(where, []).append((offset, last_offset))
            return
        newest = log.newest_timestamp(batch, self.max_batch_uncompressed)
        if newest != timestamp:
            self.found.timestamps.setdefault(where, []).append((timestamp, newest))
        if before >= timestamp:
            self.found.out_of_order.setdefault(where, []).append((timestamp, before))

    def _producers(self, data: bytes) -> Iterator[str]:
        snapshot = read_producer_snapshot(data)
        rows = snapshot.entries.tolist()
        if snapshot.problem is not None:
            self.found.refused.append(snapshot.problem)
            return
        for producer, epoch, sequence, last, delta, timestamp, coordinator, first in rows:
            open_from = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
            line = f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator} "
            line += f"currentTxnFirstOffset: {open_from} lastTimestamp: {timestamp} "
            if last >= 0:
                line += f"firstSequence: {_decrement(sequence, delta)} lastSequence: {sequence} "
                line += f"lastOffset: {last} offsetDelta: {delta} timestamp: {timestamp}"
            yield line


def base_of(path: str) -> int:
    """Returns the base offset in a file's name. Raises Refused if there is none."""
    base = leading_offset(path)
    if base is None:
        raise Refused(f"its name begins with {stem_of(path)!r}, not with a base offset")
    return base


def log_of(path: str) -> str:
    """Returns the path of the segment next to an index; for ``.deleted`` ones the ``.log.deleted`` file."""
    name = f"{stem_of(path)}{SEGMENT_SUFFIX}{DELETED if path.endswith(DELETED) else ''}"
    return os.path.join(os.path.dirname(path), name)


def _lookup(index: np.ndarray, relative: int) -> int:
    """Returns the position of the last OFFSET_ENTRY at or before a relative offset; 0 without one."""
    place = int(np.searchsorted(index["offset"], relative, side="right")) - 1
    return int(index["position"][place]) if place >= 0 else 0


def _check_offset_index(data: bytes, entries: np.ndarray) -> None:
    if entries["offset"][-1] < 0:
        raise Refused("its last offset is below the base offset")
    _check_size(data, OFFSET_ENTRY)


def _check_time_index(data: bytes, entries: np.ndarray) -> None:
    if len(entries) and entries["timestamp"][-1] < entries["timestamp"][0]:
        raise Refused("its last timestamp is below the first")
    if len(entries) and entries["offset"][-1] < 0:
        raise Refused("its last offset is below the base offset")
    _check_size(data, TIME_ENTRY)


def _check_size(data: bytes, entry: np.dtype) -> None:
    if len(data) % entry.itemsize:
        raise Refused(f"{len(data)} bytes are no multiple of {entry.itemsize}")


def _transactions(data: bytes) -> Iterator[str]:
    for i, entry in enumerate(whole_entries(data, TRANSACTION_ENTRY)):
        version = int(entry["version"]) >> 8  # the tool reads the first of its two bytes
        if version > TRANSACTION_VERSION:
            raise Refused(f"entry {i} has version {version}, and {TRANSACTION_VERSION} is the highest known")
        _, producer, first, last, stable = entry.tolist()
        offsets = f"firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"
        yield f"version: {version} producerId: {producer} {offsets}"


def _decrement(sequence: int, by: int) -> int:
    """Subtracts from a sequence as Kafka's ``decrementSequence``: before 0 comes 2^31-1."""
    sequence_before = sequence - by if sequence >= by else _MOST - (by - sequence) + 1
    return ((sequence_before + _MOST + 1) & 0xFFFFFFFF) - _MOST - 1


def _checkpoint(name: str, data: bytes) -> Iterator[str]:
    """Yields one line per entry of a checkpoint file, which the tool does not know. Raises Refused."""
    is_epochs = name.endswith((LEADER_EPOCH_FILE, ".leader_epoch_checkpoint"))
    for row in (leader_epochs(data) if is_epochs else offset_checkpoint(data)).to_pylist():
        if row["entry"] is None:
            raise Refused(row["error"])
        if is_epochs:
            yield f"epoch: {row['leader_epoch']} startOffset: {row['start_offset']}"
        else:
            yield f"topic: {row['topic']} partition: {row['partition']} offset: {row['offset']}"


class _IndexedBatch(NamedTuple):
    position: int
    size: int
    last_offset: int


class _Log:
    """Reads the batch headers of the segment next to an index."""

    def __init__(self, path: str) -> None:
        self._source = open_named(path)
        self.length = self._source.size()

    def close(self) -> None:
        self._source.close()

    def batch_at(self, position: int, most: int) -> _IndexedBatch | None:
        """Returns the batch at a position, of at most ``most`` bytes; None where the tool finds none."""
        end = min(self.length, position + most)
        if position < 0 or position >= end - f.HEADER_UP_TO_MAGIC:
            return None
        head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
        self._source.read_into(position, head[: min(len(head), self.length - position)])
        raw = head.tobytes()
        length = int.from_bytes(raw[f.LENGTH_POS : f.LOG_OVERHEAD], "big", signed=True)
        if length < LEAST_LENGTH:
            raise Refused(f"a length of {length} at position {position}, and the smallest is {LEAST_LENGTH}")
        if length + f.LOG_OVERHEAD > end - position:
            return None
        offset = int.from_bytes(raw[: f.LENGTH_POS], "big", signed=True)
        if int.from_bytes(raw[f.MAGIC_POS : f.HEADER_UP_TO_MAGIC], "big", signed=True) >= f.MAGIC_V2:
            place = f.LAST_OFFSET_DELTA_POS
            offset += int.from_bytes(raw[place : place + 4], "big", signed=True)
        return _IndexedBatch(position, length + f.LOG_OVERHEAD, offset)

    def first_reaching(self, *, offset: int, position: int) -> _IndexedBatch | None:
        """Returns the first batch from a position on whose last offset is ``offset`` or higher; else None."""
        batch = self.batch_at(position, self.length)
        while batch is not None and batch.last_offset < offset:
            batch = self.batch_at(batch.position + batch.size, self.length)
        return batch

    def newest_timestamp(self, batch: _IndexedBatch, limit: int) -> int:
        """Returns the highest timestamp of the records of a batch, ms; -1 without any."""
        newest = f.NO_TIMESTAMP
        range_ = Range(batch.position + batch.size, batch.position)
        decoder = LenientDecoder(self._source, range_, columns=("timestamp_ms",), content_crc=False)
        for group in decoder:
            if group.records is not None:
                newest = max(newest, int(group.records.column("timestamp_ms").to_numpy().max()))
            for e in group.batches[group.batches["fault"] != 0]:
                content = np.empty(batch.size, dtype=np.uint8)
                self._source.read_into(batch.position, content)
                newest = max([newest, *(r.timestamp for r in records_of(e, content.tobytes(), limit))])
        return newest
