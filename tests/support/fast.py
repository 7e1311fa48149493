"""Runs the decoder under test, ``udfs.decoder.segment_decoder``, with the reference decoder's results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.arrow.batch_columns import batch_columns, damage_columns
from kafka_log_lake.udfs.decoder.decoded import Range, Totals
from kafka_log_lake.udfs.decoder.segment_decoder import WINDOW_BYTES, SegmentDecoder
from tests.support.reference_decoder import DEFAULT_LIMIT, Decoded


class BytesSource:
    """A ByteSource over the bytes of a segment in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, dtype=np.uint8)

    def read_into(self, position: int, view: np.ndarray) -> int:
        part = self._data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def unreadable(self, position: int, end: int) -> list[Any]:
        return []

    def close(self) -> None:
        """Does nothing, as nothing was opened."""


@dataclass
class FastDecoded(Decoded):
    """A ``Decoded`` with the totals of the range, and the schema of its record batches."""

    totals: Totals = field(default_factory=Totals)
    schema: pa.Schema | None = None


def _record(row: dict[str, Any]) -> dict[str, Any]:
    headers = row["headers"]
    row["headers"] = None if headers is None else [(header["key"], header["value"]) for header in headers]
    return row


def record_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns a record batch of ``records`` as dicts: timestamps in microseconds, headers as pairs."""
    batch.validate(full=True)
    if "timestamp" in batch.schema.names:
        at = batch.schema.get_field_index("timestamp")
        batch = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    return [_record(row) for row in batch.to_pylist()]


def batch_rows(batches: np.ndarray) -> list[dict[str, Any]]:
    """Returns an array of dtype BATCH as dicts of ``batches``: max_timestamp in microseconds."""
    columns = batch_columns(batches)
    columns["max_timestamp"] = columns["max_timestamp"].cast(pa.int64())
    rows: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return rows


def decode(
    data: bytes,
    *,
    has_successor: bool = False,
    limit: int = DEFAULT_LIMIT,
    window_bytes: int = WINDOW_BYTES,
    start: int = 0,
    stop: int | None = None,
    exact: bool = True,
) -> FastDecoded:
    """Decodes a segment, or its slice [start, stop) in bytes, with the compiled kernels."""
    what = Range(len(data), start, stop, exact, has_successor)
    decoder = SegmentDecoder(BytesSource(data), what, window_bytes, limit)
    decoded = FastDecoded()
    for group in decoder:
        decoded.batches += batch_rows(group.batches)
        decoded.quarantine += pa.table(damage_columns(group.damages, "run")).to_pylist()
        if group.records is not None:
            decoded.schema = group.records.schema
            decoded.records += record_rows(group.records)
    decoded.totals = decoder.totals
    decoded.tail, decoded.tail_bytes = decoder.totals.tail, decoder.totals.tail_bytes
    return decoded
