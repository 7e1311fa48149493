"""Defines the stages of the report on formats: callables over sorted records in Arrow batches.

``size_records`` adds up what records take in each format, batch by batch; ``recompress`` rebuilds sampled
batches in each format and compresses them with each codec. Both give sums, a few rows for each segment.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.encode import PlainRecord, batch_records, messages
from kafka_log_lake.udfs.format.levels import CodecLevel
from kafka_log_lake.udfs.format.sizes import RecordSizes, Sizes, as_stored, batched, varint_size
from kafka_log_lake.udfs.kernels.compress import compress
from kafka_log_lake.udfs.spark.protocol import ArrowBatches, Stage, schema_of

BATCHINGS = (1, 10, 100, 1000)

# Input of size_records, sorted by the first four. segment: a number for it; content: bytes of key
# and value in a V2 record; header_sizes: list of the bytes of each header
SIZED_COLUMNS = (
    *("segment", "magic", "batch_position", "offset"),
    *("timestamp_ms", "content", "header_sizes", "size_bytes"),
)
# Output of size_records; batch_records is null for the batches on disk
SIZES_DDL = (
    "segment int, magic tinyint, batch_records int, "
    "records bigint, batches bigint, v2 bigint, v3 bigint, v3_headers bigint"
)
# Input of recompress; sorted so that the records of a batch follow each other
SAMPLED_COLUMNS = (
    *("topic", "partition", "magic", "segment", "batch_position"),
    *("offset", "timestamp_ms", "key", "value", "headers", "size_bytes"),
)
# Of a sampled batch only the records are compressed that begin within this many bytes: a task
# holds them in memory
MOST_BYTES = 16 << 20
# Output of recompress: bytes of the payloads before and after
COMPRESSED_DDL = (
    "topic string, partition int, magic tinyint, layout string, codec string, level int, "
    "batches bigint, bytes_in bigint, bytes_out bigint, seconds double"
)
Encoder = Callable[[Sequence[PlainRecord]], bytes]
LAYOUTS: dict[str, tuple[int, Encoder]] = {
    "v0": (f.MAGIC_V0, lambda records: messages(f.MAGIC_V0, records)),
    "v1": (f.MAGIC_V1, lambda records: messages(f.MAGIC_V1, records)),
    "v2": (f.MAGIC_V2, batch_records),
    "v3_proposal": (f.MAGIC_V2, lambda records: batch_records(records, has_attributes=False)),
}


class _BatchSizes:
    """Cuts the records of one segment and magic into batches, and adds up their sizes.

    records: of one batch; None for the batches on disk. Records of a batch that may go on wait for the rest.
    """

    def __init__(self, magic: int, records: int | None) -> None:
        self.records, self.total = records, Sizes()
        self._is_on_disk = records is None and magic == f.MAGIC_V2
        self._waiting: RecordSizes | None = None

    def add(self, more: RecordSizes, is_last: bool) -> None:
        if self._is_on_disk:
            self.total.add(as_stored(more))
            return
        ready = self._waiting.then(more) if self._waiting is not None else more
        starts = ready.starts_as_stored() if self.records is None else ready.starts_of(self.records)
        if not is_last and len(starts):
            self._waiting = ready.part(int(starts[-1]))
            ready, starts = ready.part(0, int(starts[-1])), starts[:-1]
        self.total.add(batched(ready, starts))


def size_records(batches: ArrowBatches) -> ArrowBatches:
    """Yields rows of SIZES_DDL from rows of SIZED_COLUMNS."""
    rows = []
    for (segment, magic), parts in itertools.groupby(_runs(batches), lambda part: part[0]):
        cuts = [_BatchSizes(magic, records) for records in (None, *BATCHINGS)]
        for _, records in parts:
            for cut in cuts:
                cut.add(records, is_last=False)
        empty = RecordSizes(*(np.empty(0, dtype=np.int64) for _ in range(5)))
        for cut in cuts:
            cut.add(empty, is_last=True)
            rows.append((segment, magic, cut.records, *astuple(cut.total)))
    yield _record_batch(rows, SIZES_DDL)


def _runs(batches: ArrowBatches) -> Iterator[tuple[tuple[int, int], RecordSizes]]:
    """Yields ((segment, magic), records) for each run of rows with the same segment and magic."""
    for batch in batches:
        segment, magic = batch.column("segment").to_numpy(), batch.column("magic").to_numpy()
        changes = np.flatnonzero((segment[1:] != segment[:-1]) | (magic[1:] != magic[:-1])) + 1
        names = ("offset", "timestamp_ms", "content", "size_bytes", "batch_position")
        columns = {name: batch.column(name).to_numpy().astype(np.int64) for name in names}
        columns["content"] += _headers(batch.column("header_sizes"))
        records = RecordSizes(*columns.values())
        for begin, end in itertools.pairwise([0, *changes.tolist(), batch.num_rows]):
            if begin < end:
                yield (int(segment[begin]), int(magic[begin])), records.part(begin, end)


def _headers(sizes: pa.ListArray) -> np.ndarray:
    """Returns int64[n]: bytes that the headers of each V2 record take, with the varint of their number."""
    ends = sizes.offsets.to_numpy().astype(np.int64)
    sums = np.append(0, np.cumsum(sizes.values.to_numpy(zero_copy_only=False)))
    of_records: np.ndarray = varint_size(np.diff(ends)) + sums[ends[1:]] - sums[ends[:-1]]
    return of_records


@dataclass
class _CompressedSums:
    """The sums of the sampled batches of one partition and magic, before and after compression."""

    batches: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0

    def add(self, plain: bytes, how: CodecLevel) -> None:
        began = time.process_time()
        size = len(compress(how, plain))
        self.seconds += time.process_time() - began
        self.batches += 1
        self.bytes_in += len(plain)
        self.bytes_out += size


def recompress(levels: Sequence[CodecLevel]) -> Stage:
    """Returns a callable that makes rows of COMPRESSED_DDL from rows of SAMPLED_COLUMNS."""

    def run(batches: ArrowBatches) -> ArrowBatches:
        sums: dict[tuple[Any, ...], _CompressedSums] = {}
        for partition, records in _sampled(batches):
            for layout, (magic, encode) in LAYOUTS.items():
                plain = encode(records)
                for how in levels:
                    if how.allows(magic):
                        key = (*partition, layout, how.codec, how.level)
                        sums.setdefault(key, _CompressedSums()).add(plain, how)
        yield _record_batch([(*key, *astuple(total)) for key, total in sums.items()], COMPRESSED_DDL)

    return run


def _sampled(batches: ArrowBatches) -> Iterator[tuple[tuple[str, int, int], list[PlainRecord]]]:
    """Yields ((topic, partition, magic), records) of each sampled batch."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, of_batch in itertools.groupby(rows, lambda row: (row["segment"], row["batch_position"])):
        records: list[PlainRecord] = []
        size = 0
        for row in of_batch:
            if size < MOST_BYTES:
                records.append(_plain(row))
            size += row["size_bytes"]
        yield (row["topic"], row["partition"], row["magic"]), records


def _plain(row: dict[str, Any]) -> PlainRecord:
    headers = [(header["key"].encode(), header["value"]) for header in row["headers"] or ()]
    return PlainRecord(row["offset"], row["timestamp_ms"], row["key"], row["value"], headers)


def _record_batch(rows: Sequence[tuple[object, ...]], ddl: str) -> pa.RecordBatch:
    schema = schema_of(ddl)
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
