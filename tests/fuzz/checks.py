"""What must hold for an input, whatever its bytes: checked of the whole decoder.

No exception. Every byte lies in a sound batch, a damaged range or the tail, and nothing overlaps. Arrow finds
its columns valid. Every batch with a right checksum is what the plain reference decoder says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.arrow.batch_columns import batch_columns, damage_columns
from kafka_log_lake.udfs.decoder.decoded import Damage, Range, Totals
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.kernels.framing import BATCH
from tests.support import fast, reference_decoder
from tests.support.agreement import check_batch_and_records
from tests.support.fast import BytesSource

LIMIT = 1 << 20  # bytes that one batch may expand to


@dataclass
class Outcome:
    """What the decoder gave for an input."""

    totals: Totals
    batches: list[np.ndarray] = field(default_factory=list)
    records: list[pa.RecordBatch] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def outcome(decoder: SegmentDecoder) -> Outcome:
    """Run the decoder to its end and keep what it gave."""
    found = Outcome(decoder.totals)
    for group in decoder:
        found.batches.append(group.batches.copy())
        found.damages += group.damages
        if group.records is not None:
            found.records.append(group.records)
    return found


def check_bytes(found: Outcome, length: int) -> None:
    """Sound + damaged + tail = all, one after the other, and the rows that are counted are there."""
    totals = found.totals
    assert totals.sound_bytes + totals.quarantined_bytes + totals.tail_bytes == length, "bytes unaccounted"
    ranges = [(d.position, d.next_position) for d in found.damages]
    damaged = {d.position for d in found.damages}
    sound = 0
    for batches in found.batches:
        for position, size, fault in batches[["position", "size", "fault"]].tolist():
            if position not in damaged:
                assert not fault, "a faulty batch without a damaged range"
                ranges.append((position, position + size))
                sound += size
    position = 0
    for begin, end in sorted(ranges):
        assert begin == position < end, "ranges overlap or leave a gap"
        position = end
    assert position + totals.tail_bytes == length, "the ranges end elsewhere"
    assert totals.end in (position, length)
    assert sound == totals.sound_bytes
    assert totals.damaged == len(found.damages)


def check_slice(data: bytes, start: int, stop: int, window: int) -> None:
    """What a task does that begins in the middle of a segment: it looks for its first batch itself."""
    what = Range(len(data), start, stop, exact=False)
    totals = outcome(SegmentDecoder(BytesSource(data), what, window, LIMIT)).totals
    if totals.begin is None or totals.begin >= stop:
        assert not totals.batches, "batches of a slice that has none"
    else:
        assert start <= totals.begin <= totals.end <= len(data)
        assert totals.sound_bytes + totals.quarantined_bytes == totals.end - totals.begin


def check_columns(found: Outcome) -> None:
    """The record batches are valid Arrow and as long as counted; every row can be described in words."""
    for batch in found.records:
        batch.validate(full=True)
    rows = sum(batch.num_rows for batch in found.records)
    batches = np.concatenate([np.zeros(0, dtype=BATCH), *found.batches])
    assert rows == found.totals.records
    assert len(batches) == found.totals.batches
    if len(batches):
        assert rows == int(batches["record_count"].sum())
        pa.table(batch_columns(batches)).validate(full=True)
    pa.table(damage_columns(found.damages, "run")).validate(full=True)


def check_reference(found: Outcome, data: bytes, limit: int = LIMIT) -> int:
    """Each batch with a right checksum, against the reference decoder's reading of it; how many they were.

    Where damage ends is not compared: both decoders search for the next batch in their own way.
    """
    records: dict[int, list[dict[str, Any]]] = {}
    for batch in found.records:
        for row in fast.record_rows(batch):
            records.setdefault(row["batch_position"], []).append(row)
    compared = 0
    for batches in found.batches:
        for row in fast.batch_rows(batches) if len(batches) else ():
            position = row["position"]
            if not row["crc_ok"]:
                assert position not in records, "records of a batch whose checksum is wrong"
                continue
            stored = data[position : position + row["size_bytes"]]
            check_batch_and_records(
                row, records.pop(position, []), reference_decoder.decode_batch(stored, position, limit)
            )
            compared += 1
    assert not records, "records of no batch"
    return compared


def own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of the record batch in separate memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()
