"""Computes how many bytes records take as V0, V1, V2, and as the V3 that KIP-931 proposed.

All sizes are before compression. Sources, of Apache Kafka's ``org.apache.kafka.common.record``:

* ``LegacyRecord.recordSize``: a message of magic 0 has 26 bytes beside its key and value, of magic 1 has 34;
  a null key or value takes nothing more. Neither has headers.
* ``DefaultRecord.sizeOfBodyInBytes``: attributes int8, timestamp delta varlong, offset delta varint, key and
  value each after a varint of its length (-1 for null), a varint number of headers, each with its key and
  value after varints. The record is this body after a varint of its size.
* ``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``: 61 bytes a batch. Deltas count from the batch's first record.

The proposal, which was discarded, leaves the attributes byte of each record out, and ends the batch header
with varints: last offset delta, base timestamp, and max timestamp as a delta of the base timestamp. It is
silent about the count of the records, which stays int32 here, and about the encoding, which is Kafka's zigzag
here. A delta of timestamps past int32 takes a varlong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kafka_log_lake.udfs.format import layout as f

V0_OVERHEAD = f.V0_MIN_SIZE
V1_OVERHEAD = f.V1_MIN_SIZE
V2_OVERHEAD = f.V2_HEADER_SIZE
# The V2 header without last offset delta, base timestamp and max timestamp
V3_FIXED_OVERHEAD = V2_OVERHEAD - 4 - 8 - 8
ATTRIBUTES_SIZE = 1

# A zigzag varint of k bytes holds -VARINT_BOUNDS[k - 1] to VARINT_BOUNDS[k - 1] - 1; past the last: 10 bytes
VARINT_BOUNDS = tuple(1 << (7 * size - 1) for size in range(1, 10))
_BOUNDS = np.array(VARINT_BOUNDS, dtype=np.int64)

Integers = Any  # int64[n]


def varint_size(values: Integers) -> Integers:
    """Returns the bytes of each value as a zigzag varint (int32) or varlong (int64).

    Both take the same bytes where both can hold the value.
    """
    return 1 + np.searchsorted(_BOUNDS, values ^ (values >> 63), side="right")


def body_size(record_size: Integers) -> Integers:
    """Returns the size of each record's body, from the size of the body with its length varint.

    The varint is the shortest one.
    """
    body = record_size - 1
    for bound in VARINT_BOUNDS[:4]:
        body -= body >= bound
    return body


@dataclass(frozen=True)
class RecordSizes:
    """The sizes, offsets and timestamps (ms) of records of one segment, in order; each array is int64[n].

    content: bytes of key, value and headers in a V2 record with their varints. record_size: size_bytes of
    ``records``. batch_position: the batch that each lies in on disk.
    """

    offset: Integers
    timestamp: Integers
    content: Integers
    record_size: Integers
    batch_position: Integers

    def __len__(self) -> int:
        return len(self.offset)

    def part(self, begin: int, end: int | None = None) -> RecordSizes:
        return RecordSizes(*(column[begin:end] for column in vars(self).values()))

    def then(self, more: RecordSizes) -> RecordSizes:
        """Returns these records and the ones that follow them."""
        if not len(self):
            return more
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return RecordSizes(*(np.concatenate(pair) for pair in pairs))

    def starts_of(self, records: int) -> Integers:
        """Returns the indexes at which batches of this many records begin."""
        return np.arange(0, len(self), records)

    def starts_as_stored(self) -> Integers:
        """Returns the indexes at which the batches on disk begin."""
        changes = np.flatnonzero(self.batch_position[1:] != self.batch_position[:-1]) + 1
        return np.concatenate([np.zeros(min(1, len(self)), dtype=np.int64), changes])


@dataclass
class Sizes:
    """The bytes of some records as V2 and as the proposed V3. v3_headers: bytes of batch headers in v3."""

    records: int = 0
    batches: int = 0
    v2: int = 0
    v3: int = 0
    v3_headers: int = 0

    def add(self, other: Sizes) -> None:
        self.records += other.records
        self.batches += other.batches
        self.v2 += other.v2
        self.v3 += other.v3
        self.v3_headers += other.v3_headers


def batched(records: RecordSizes, starts: Integers) -> Sizes:
    """Returns the sizes of whole batches, written anew. starts: index of the first record of each batch."""
    if not len(records):
        return Sizes()
    counts = np.diff(np.append(starts, len(records)))
    base_offset, base_timestamp = records.offset[starts], records.timestamp[starts]
    body = ATTRIBUTES_SIZE + records.content
    body += varint_size(records.timestamp - np.repeat(base_timestamp, counts))
    body += varint_size(records.offset - np.repeat(base_offset, counts))
    last_offset_delta = records.offset[starts + counts - 1] - base_offset
    max_timestamp_delta = np.maximum.reduceat(records.timestamp, starts) - base_timestamp
    v3_headers = V3_FIXED_OVERHEAD * len(starts)
    for field in (last_offset_delta, base_timestamp, max_timestamp_delta):
        v3_headers += int(varint_size(field).sum())
    v2 = V2_OVERHEAD * len(starts) + _with_lengths(body)
    v3 = v3_headers + _with_lengths(body - ATTRIBUTES_SIZE)
    return Sizes(len(records), len(starts), v2, v3, v3_headers)


def as_stored(records: RecordSizes) -> Sizes:
    """Returns the sizes of records of magic 2 with the deltas that are on disk, without batch headers.

    Compaction keeps a batch's base offset and timestamp though it removes the first record, and with log
    append time ``records`` does not hold the timestamps that the deltas were made of.
    """
    body = body_size(records.record_size)
    return Sizes(len(records), 0, int(records.record_size.sum()), _with_lengths(body - ATTRIBUTES_SIZE))


def _with_lengths(body: Integers) -> int:
    return int((body + varint_size(body)).sum())
