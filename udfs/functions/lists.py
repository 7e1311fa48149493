"""Decodes each value of a column to the list of its batches, or of its records.

Values side by side that consist of batches with right checksums are decoded as one range of bytes, a run:
each gets of it what it would get alone, for a fraction of the cost. Each other value is decoded alone, where
damage cannot reach into its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.arrow.batch_columns import batch_columns
from kafka_log_lake.udfs.decoder.decoded import Damage, Range
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, WINDOW_BYTES, SegmentDecoder
from kafka_log_lake.udfs.functions.columns import BinaryColumn, binary_column
from kafka_log_lake.udfs.functions.declared import KAFKA_BATCHES, KAFKA_RECORDS, TableFunction
from kafka_log_lake.udfs.kernels.column_functions import are_framed, batches_of_each
from kafka_log_lake.udfs.kernels.framing import BATCH
from kafka_log_lake.udfs.storage.byte_source import ChunkSource

# What one value may give: it becomes one row of Spark, which lies in memory as a whole
MOST_BYTES = MAX_BATCH_UNCOMPRESSED
MOST_RECORDS = 1_000_000
_RUN_BYTES = 1 << 20
_RUN_EXPANDED = 64 << 20
_OUTPUT_BYTES = 64 << 20  # of an array of results, after which it is cut

_BATCH_SCHEMA = KAFKA_BATCHES.rows.arrow_schema()
_RECORD_SCHEMA = KAFKA_RECORDS.rows.arrow_schema()
_NO_BATCHES, _NO_OWNERS = np.zeros(0, dtype=BATCH), np.zeros(0, dtype=np.int64)
_ZEROS = "zeros"  # the reason of a tail


@dataclass
class _DecodedValues:
    """What the bytes of some values hold, in the order of the values.

    owners: int64[m], the value that each batch is of. records: of the batches without a fault, in order.
    damages: (value, damaged range).
    """

    owners: np.ndarray
    batches: np.ndarray
    records: list[pa.RecordBatch]
    damages: list[tuple[int, Damage]]


# Rows of ``kafka_batches`` or of ``kafka_records``: the value that each is of, and the rows
_Rows = Callable[[_DecodedValues], tuple[np.ndarray, pa.Table]]


def kafka_batches_array(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Yields for each value the list of its rows of KAFKA_BATCHES; null for null."""
    return _lists(columns, KAFKA_BATCHES, _batch_rows)


def kafka_records_array(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Yields for each value the list of its rows of KAFKA_RECORDS; null for null."""
    return _lists(columns, KAFKA_RECORDS, _record_rows)


def _lists(columns: Iterator[pa.Array], function: TableFunction, rows: _Rows) -> Iterator[pa.Array]:
    for column in columns:
        values = binary_column(function.name, column)
        pieces: list[pa.Table] = []
        counts: list[np.ndarray] = []
        done = reached = size = 0
        for end, piece in _merged(_pieces(values, rows is _record_rows)):
            owners, table = rows(piece)
            pieces.append(table)
            counts.append(np.bincount(owners - reached, minlength=end - reached))
            reached = end
            size += table.nbytes
            if size > _OUTPUT_BYTES:
                yield _list_array(function, pieces, counts, values.valid[done:reached])
                pieces, counts, done, size = [], [], reached, 0
        yield _list_array(function, pieces, counts, values.valid[done:])


def _list_array(
    function: TableFunction, pieces: list[pa.Table], counts: list[np.ndarray], valid: np.ndarray
) -> pa.Array:
    table = pa.concat_tables([function.rows.arrow_schema().empty_table(), *pieces]).combine_chunks()
    columns = [column.combine_chunks() for column in table.columns]
    structs = pa.StructArray.from_arrays(columns, fields=list(table.schema))
    ends = np.cumsum(np.concatenate([[0], *counts]), dtype=np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends), structs, type=function.arrow_type(), mask=pa.array(~valid)
    )


def _merged(pieces: Iterator[tuple[int, _DecodedValues]]) -> Iterator[tuple[int, _DecodedValues]]:
    """Joins small pieces that follow each other, as rows are made faster of many at a time."""
    held: list[_DecodedValues] = []
    end = size = 0
    for end, piece in pieces:
        held.append(piece)
        size += int(piece.batches["data_size"].sum()) + 1024
        if size > _RUN_BYTES:
            yield end, _joined(held)
            held, size = [], 0
    if held:
        yield end, _joined(held)


def _joined(held: list[_DecodedValues]) -> _DecodedValues:
    if len(held) == 1:
        return held[0]
    with_batches = [piece for piece in held if len(piece.batches)] or held[:1]
    return _DecodedValues(
        np.concatenate([piece.owners for piece in with_batches]),
        np.concatenate([piece.batches for piece in with_batches]),
        [records for piece in held for records in piece.records],
        [damage for piece in held for damage in piece.damages],
    )


def _pieces(values: BinaryColumn, wants_records: bool) -> Iterator[tuple[int, _DecodedValues]]:
    """Yields (end, what was decoded) of all values in their order.

    end: the value before which the piece ends. Framed values side by side are decoded as one run, all others
    alone.
    """
    framed = np.zeros(len(values), dtype=np.bool_)
    are_framed(values.data, values.offsets, framed)
    stops = np.append(np.flatnonzero(~framed), len(values))  # a run ends before a value that is not
    begin = 0
    while begin < len(values):
        end = int(np.searchsorted(values.offsets, values.offsets[begin] + _RUN_BYTES, side="right")) - 1
        end = min(end, int(stops[np.searchsorted(stops, begin)]))
        if end > begin + 1:
            yield from _run(values, begin, end, wants_records)
        else:
            end = begin + 1
            yield end, _alone(values, begin, wants_records)
        begin = end


def _alone(values: BinaryColumn, i: int, wants_records: bool) -> _DecodedValues:
    data = values.data[values.offsets[i] : values.offsets[i + 1]]
    decoded = _decode(data, wants_records, MOST_BYTES, MOST_RECORDS)
    decoded.owners += i
    decoded.damages = [(i, damage) for _, damage in decoded.damages]
    return decoded


def _run(
    values: BinaryColumn, begin: int, end: int, wants_records: bool
) -> Iterator[tuple[int, _DecodedValues]]:
    """Decodes framed values ``begin`` to ``end`` together.

    A value with a fault in a batch is decoded again alone.

    A value with a fault in a batch is decoded again alone.
    """
    n = end - begin
    offsets = values.offsets[begin : end + 1] - values.offsets[begin]
    data = values.data[values.offsets[begin] : values.offsets[end]]
    decoded = _decode(data, wants_records, _RUN_EXPANDED, MOST_RECORDS)
    first, count = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    batches_of_each(offsets, decoded.batches, first, count)
    before = np.append(
        0, np.cumsum(decoded.batches["record_count"], dtype=np.int64)
    )  # records before a batch
    records = pa.Table.from_batches(decoded.records) if decoded.records else None
    edges = np.flatnonzero(np.diff(count < 0)) + 1
    for i, j in zip([0, *edges], [*edges, n], strict=True):
        if count[i] < 0:
            yield from ((begin + k + 1, _alone(values, begin + k, wants_records)) for k in range(i, j))
            continue
        low, high = first[i], first[j - 1] + count[j - 1]
        batches = decoded.batches[low:high]
        batches["position"] -= np.repeat(offsets[i:j], count[i:j])
        owners = np.repeat(np.arange(begin + i, begin + j), count[i:j])
        cut = records.slice(before[low], before[high] - before[low]).to_batches() if records else []
        yield begin + j, _DecodedValues(owners, batches, cut, [])


def _decode(data: np.ndarray, wants_records: bool, most_bytes: int, most_records: int) -> _DecodedValues:
    """Decodes ``data`` (uint8) as value 0, up to the batch with which it exceeds the limits.

    What is after the limit is a damaged range.
    """
    batches: list[np.ndarray] = []
    decoded = _DecodedValues(_NO_OWNERS, _NO_BATCHES, [], [])
    if not len(data):
        return decoded
    # With a successor a batch that is cut by the end is damage, not the tail of a log
    decoder = SegmentDecoder(
        ChunkSource(iter([(0, data)])),
        Range(len(data), has_successor=True),
        window_bytes=min(WINDOW_BYTES, len(data)),
        max_batch_uncompressed=most_bytes,
        quarantine_content_bytes=0,
        columns=_RECORD_SCHEMA.names if wants_records else (),
        content_crc=False,
    )
    expanded = records = 0
    for group in decoder:
        sizes = expanded + np.cumsum(group.batches["data_size"])
        counts = records + np.cumsum(group.batches["record_count"], dtype=np.int64)
        over = np.flatnonzero((sizes > most_bytes) | (counts > most_records))
        if len(over):
            stop, last = int(group.batches["position"][over[0]]), int(over[0])
            batches.append(group.batches[:last].copy())
            if group.records is not None:
                kept = int(group.batches["record_count"][:last].sum())
                decoded.records.append(group.records.slice(0, kept))
            decoded.damages += [(0, damage) for damage in group.damages if damage.position < stop]
            decoded.damages.append((0, _too_large(stop, len(data), most_bytes, most_records)))
            break
        if len(sizes):
            expanded, records = int(sizes[-1]), int(counts[-1])
        if len(group.batches):
            batches.append(group.batches.copy())
        decoded.damages += [(0, damage) for damage in group.damages]
        if group.records is not None:
            decoded.records.append(group.records)
    if decoder.totals.tail == "zeros":
        decoded.damages.append((0, _zeros(decoder.totals.end, decoder.totals.tail_bytes)))
    if batches:
        decoded.batches = batches[0] if len(batches) == 1 else np.concatenate(batches)
        decoded.owners = np.zeros(len(decoded.batches), dtype=np.int64)
    return decoded


def _too_large(position: int, end: int, most_bytes: int, most_records: int) -> Damage:
    text = f"value: expected at most {most_bytes} bytes expanded and {most_records} records, found more"
    text = f"{text}, from position {position} on"
    return Damage(position, end - position, None, "decompressed_too_large", text, end, b"")


def _zeros(position: int, size: int) -> Damage:
    text = f"zeros to the end, {size} bytes, at position {position}"
    return Damage(position, size, None, _ZEROS, text, position + size, b"")


def _record_rows(decoded: _DecodedValues) -> tuple[np.ndarray, pa.Table]:
    """Returns int64[m], the value that each record is of, and m rows of KAFKA_RECORDS."""
    counts = decoded.batches["record_count"]
    if not decoded.records:
        return _NO_OWNERS, _RECORD_SCHEMA.empty_table()
    table = pa.Table.from_batches(decoded.records)
    positions = pa.array(np.repeat(decoded.batches["position"], counts))
    table = table.set_column(table.schema.get_field_index("batch_position"), "batch_position", positions)
    return np.repeat(decoded.owners, counts), table.select(_RECORD_SCHEMA.names).cast(_RECORD_SCHEMA)


def _batch_rows(decoded: _DecodedValues) -> tuple[np.ndarray, pa.Table]:
    """Returns int64[m], the value that each row is of, and m rows of KAFKA_BATCHES.

    These are the batches, and the damaged ranges that begin with none of them, by value and position.
    """
    batches, owners = decoded.batches, decoded.owners
    ends = batches["position"] + batches["size"]
    reasons: list[str | None] = [None] * len(batches)
    ranges = {(owner, damage.position): damage for owner, damage in decoded.damages}
    for k in np.flatnonzero(batches["fault"]):
        damage = ranges.pop((int(owners[k]), int(batches["position"][k])))
        reasons[k], ends[k] = damage.reason, damage.next_position
    columns = {
        **batch_columns(batches),
        "reason": pa.array(reasons, pa.string()),
        "next_position": pa.array(ends),
    }
    table = pa.table([columns[name] for name in _BATCH_SCHEMA.names], schema=_BATCH_SCHEMA)
    if not ranges:
        return owners, table
    table = pa.concat_tables([table, _range_rows(list(ranges.values()))])
    owners = np.append(owners, [owner for owner, _ in ranges])
    positions = np.append(batches["position"], [position for _, position in ranges])
    order = np.lexsort((positions, owners))
    return owners[order], table.take(pa.array(order))


def _range_rows(damages: list[Damage]) -> pa.Table:
    """Returns a row of KAFKA_BATCHES for each damaged range.

    Nothing is known of a batch there, so most is null.

    Nothing is known of a batch there, so most is null.
    """
    known = {
        "position": [damage.position for damage in damages],
        "size_bytes": [damage.size for damage in damages],
        "base_offset": [damage.base_offset for damage in damages],
        "status": ["tail" if damage.reason == _ZEROS else "quarantined" for damage in damages],
        "error": [damage.detail for damage in damages],
        "reason": [damage.reason for damage in damages],
        "next_position": [damage.next_position for damage in damages],
    }
    n = len(damages)
    return pa.table(
        [pa.array(known[f.name], f.type) if f.name in known else pa.nulls(n, f.type) for f in _BATCH_SCHEMA],
        schema=_BATCH_SCHEMA,
    )
