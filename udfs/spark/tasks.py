"""The adapter to Spark: rows of slices in, reports, facts or records out, each by one mapInArrow callable.

The rows of a group come one after the other in one task. A slice that brings no content is read from its
URI; content may come in several rows, chunk by chunk.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from udfs.arrow.batch_columns import damage_columns, entry_columns
from udfs.arrow.parquet_sink import GroupWriter
from udfs.decoded import Piece, Range
from udfs.format.schema import BATCHES, QUARANTINE, RAW_SEGMENTS, RECORDS
from udfs.segment_decoder import SegmentDecoder
from udfs.source.byte_source import ByteSource, ChunkSource, SourceChanged, open_source
from udfs.source.chunks import cut_chunks
from udfs.source.fingerprint import fingerprint, holds
from udfs.spark.protocol import FACTS_SCHEMA, REPORT_SCHEMA, SLICE_SCHEMA, Batches, Stage, StageOptions

_SPARK_ROWS = 1 << 14  # rows of one Arrow batch handed to Spark
_SPARK_BYTES = 64 << 20


@dataclass
class _Slice:
    """One slice of the task's input, with its bytes."""

    row: dict[str, Any]
    source: ByteSource

    def decoder(self, options: StageOptions) -> SegmentDecoder:
        row = self.row
        return SegmentDecoder(
            self.source,
            Range(
                length=row["length"],
                start=row["start"],
                stop=row["stop"],
                exact=row["exact_start"],
                has_successor=row["has_successor"],
                previous_last_offset=row["previous_last_offset"],
            ),
            options.window_bytes,
            options.max_batch_uncompressed,
            options.quarantine_content_bytes,
        )


def _rows(batches: Batches) -> Iterator[tuple[dict[str, Any], pa.Buffer | None]]:
    """Input rows, the content apart as a buffer that is not copied."""
    at = SLICE_SCHEMA.get_field_index("content")
    for batch in batches:
        content = batch.column(at)
        for i, row in enumerate(batch.drop_columns(["content"]).to_pylist()):
            yield row, content[i].as_buffer() if content[i].is_valid else None


def _slices(batches: Batches) -> Iterator[_Slice]:
    """Slices in their order; a slice's chunks are taken as its source needs them."""

    def key(item: tuple[dict[str, Any], Any]) -> tuple[int, str, int]:
        return item[0]["group_id"], item[0]["segment"], item[0]["start"]

    for _, items in itertools.groupby(_rows(batches), key):
        piece = _with_source(items)
        yield piece
        piece.source.close()


def _with_source(items: Iterator[tuple[dict[str, Any], Any]]) -> _Slice:
    row, content = next(items)
    try:
        if content is None:
            source = open_source(row["uri"])
            try:
                _check_as_planned(row, source, source.size())
            except SourceChanged:
                source.close()
                raise
            return _Slice(row, source)
        size = row["chunk_position"] + len(content)
        if row["chunk_position"] == 0 and size >= row["start"]:  # else the marks are in no chunk that came
            _check_as_planned(row, ChunkSource(iter([(0, content)])), max(size, row["length"]))
    except SourceChanged as error:
        return _Slice(row, _Gone(str(error)))
    rest = itertools.chain([(row, content)], items)
    return _Slice(row, ChunkSource((r["chunk_position"], _cut(r, c)) for r, c in rest))


def _check_as_planned(row: dict[str, Any], source: ByteSource, size: int) -> None:
    """The log cleaner puts another file in a segment's place, so what one opened file gives fits together.

    Whether it is the file of the plan is asked here: a segment that has a successor does not grow, and one
    that goes on still begins as it did.
    """
    if size < row["length"] or (size > row["length"] and row["has_successor"]):
        raise SourceChanged(f"has {size} bytes, planned with {row['length']}")
    if row["fingerprint"] and not holds(source, row["fingerprint"]):
        raise SourceChanged("does not begin as what was decoded of it before")


def _cut(row: dict[str, Any], content: Any) -> Any:
    """Content up to the planned length: a segment that is being written may have brought more."""
    return content[: max(0, row["length"] - row["chunk_position"])]


class _Gone:
    """A segment that could not be opened: every read says so."""

    def __init__(self, why: str) -> None:
        self._why = why

    def read_into(self, position: int, view: Any) -> int:
        raise SourceChanged(self._why)

    def close(self) -> None:
        pass


def _report(piece: _Slice, decoder: SegmentDecoder, changed: str | None) -> dict[str, Any]:
    summary = decoder.summary
    stored = piece.row["fingerprint"]
    last = summary.last_entry_position
    marks = None
    if changed is None and (last is not None or piece.row["start"] == 0):
        marks = fingerprint(piece.source, last or 0, summary.end, stored)
    return {
        "group_id": piece.row["group_id"],
        "segment": piece.row["segment"],
        "start": piece.row["start"],
        **asdict(summary),
        "fingerprint": marks,
        "warnings": [],
        "changed": changed,
    }


def _decode(
    batches: Batches, options: StageOptions, take: Callable[[_Slice, Piece], None]
) -> Iterator[tuple[_Slice, dict[str, Any]]]:
    """Decode each slice, hand its pieces to ``take``, give its report."""
    for piece in _slices(batches):
        decoder = piece.decoder(options)
        changed = None
        try:
            if piece.row["start"] == 0 and piece.row["length"] > 0:
                # the chunks of raw content are let go as decoding moves on: mark the first one now
                piece.row["fingerprint"] = piece.row["fingerprint"] or _first_mark(piece)
            for found in decoder:
                take(piece, found)
            report = _report(piece, decoder, None)
        except SourceChanged as error:
            changed = str(error)
            report = _report(piece, decoder, changed)
        yield piece, report


def _first_mark(piece: _Slice) -> str:
    from udfs.source.fingerprint import mark

    return mark(piece.source, 0, piece.row["length"])


def _report_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=REPORT_SCHEMA)


def _report_row(kind: str, group_id: int, payload: dict[str, Any]) -> dict[str, Any]:
    return {"group_id": group_id, "kind": kind, "payload": json.dumps(payload)}


def _groups(batches: Batches) -> Iterator[tuple[int, Batches]]:
    """The task's rows a group at a time; a batch that holds several groups is cut."""

    def runs() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            begin = 0
            for end in range(1, len(ids) + 1):
                if end == len(ids) or ids[end] != ids[begin]:
                    yield ids[begin], batch.slice(begin, end - begin)
                    begin = end

    for group_id, parts in itertools.groupby(runs(), lambda item: item[0]):
        yield group_id, map(itemgetter(1), parts)


def write_tables(options: StageOptions) -> Stage:
    """Decode and write the Parquet files of records, batches and quarantine; rows: REPORT_DDL."""

    def stage(batches: Batches) -> Batches:
        for group_id, rows in _groups(batches):
            writer = GroupWriter(
                options.lake, f"{options.run_id}-{group_id:06d}", options.parquet_compression
            )

            def take(piece: _Slice, found: Piece, writer: GroupWriter = writer) -> None:
                _write_piece(writer, piece.row, found, options.run_id)

            try:
                reports = [report for _, report in _decode(rows, options, take)]
            except BaseException:
                writer.abandon()
                raise
            out = [_report_row("slice", group_id, report) for report in reports]
            if any(report["changed"] for report in reports):
                writer.abandon()
            else:
                out += [_report_row("file", group_id, file) for file in writer.close()]
            yield _report_batch(out)

    return stage


def _write_piece(writer: GroupWriter, row: dict[str, Any], found: Piece, run_id: str) -> None:
    place = (row["topic"], row["partition"], row["segment"])
    if found.records is not None:
        columns = dict(zip(found.records.schema.names, found.records.columns, strict=True))
        writer.write(RECORDS, *place, columns)
    if len(found.entries):
        writer.write(BATCHES, *place, entry_columns(found.entries))
    if found.damages:
        writer.write(QUARANTINE, *place, damage_columns(found.damages, run_id))


def _placed(table: Any, row: dict[str, Any], columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """All columns of a table for Spark: topic, partition and segment repeated."""
    n = len(next(iter(columns.values())))
    constant = {
        name: pa.repeat(pa.scalar(row[name], _kind(table, name)), n)
        for name in ("topic", "partition", "segment")
    }
    schema = table.arrow_schema()
    return pa.RecordBatch.from_arrays([{**columns, **constant}[name] for name in schema.names], schema=schema)


def _kind(table: Any, name: str) -> pa.DataType:
    return table.arrow_schema().field(name).type


def read_facts(options: StageOptions) -> Stage:
    """Decode without writing: reports, rows of batches and of quarantine; rows: FACTS_DDL."""

    def stage(batches: Batches) -> Batches:
        for group_id, rows in _groups(batches):
            facts: list[pa.RecordBatch] = []

            def take(piece: _Slice, found: Piece, facts: list[pa.RecordBatch] = facts) -> None:
                if len(found.entries):
                    batch = _placed(BATCHES, piece.row, entry_columns(found.entries))
                    facts.append(_fact("batch", piece.row["group_id"], batch))
                if found.damages:
                    damage = _placed(QUARANTINE, piece.row, damage_columns(found.damages, options.run_id))
                    facts.append(_fact("damage", piece.row["group_id"], damage))

            for _, report in _decode(rows, options, take):
                if not report["changed"]:
                    yield from facts
                facts.clear()
                yield _facts_of_reports([_report_row("slice", group_id, report)])

    return stage


def _fact(kind: str, group_id: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    n = rows.num_rows
    struct = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    arrays = {
        "group_id": pa.repeat(pa.scalar(group_id, pa.int32()), n),
        "kind": pa.repeat(kind, n),
        "payload": pa.nulls(n, pa.string()),
        "batch": pa.nulls(n, FACTS_SCHEMA.field("batch").type),
        "damage": pa.nulls(n, FACTS_SCHEMA.field("damage").type),
        kind: struct,
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in FACTS_SCHEMA.names], schema=FACTS_SCHEMA)


def _facts_of_reports(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=FACTS_SCHEMA)


def read_records(options: StageOptions) -> Stage:
    """Decode to rows of ``records``. A slice whose bytes are not those expected fails the task."""

    def stage(batches: Batches) -> Batches:
        for piece in _slices(batches):
            decoder = piece.decoder(options)
            try:
                for found in decoder:
                    if found.records is not None:
                        names = found.records.schema.names
                        columns = dict(zip(names, found.records.columns, strict=True))
                        yield from _for_spark(_placed(RECORDS, piece.row, columns))
            except SourceChanged as error:
                raise RuntimeError(f"{piece.row['segment']} changed during the run: {error}") from None
            expected = piece.row["expected_crc32c"]
            if expected is not None and decoder.summary.content_crc32c != expected:
                raise RuntimeError(f"{piece.row['segment']} changed during the run: other bytes than before")

    return stage


def _for_spark(batch: pa.RecordBatch) -> Batches:
    """Cut a batch so that no piece of it is more than Spark takes well."""
    parts = max(1, batch.nbytes // _SPARK_BYTES, batch.num_rows // _SPARK_ROWS)
    step = max(1, -(-batch.num_rows // parts))
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


def _raw_rows(piece: _Slice, options: StageOptions) -> Iterator[dict[str, Any]]:
    row = piece.row
    for chunk in cut_chunks(piece.source, row["start"], row["length"], row["fingerprint"]):
        yield {
            **{
                name: row[name]
                for name in ("topic", "partition", "segment", "log_dir", "file_base_offset", "length")
            },
            "modified": row["modified_us"],
            "run_id": options.run_id,
            **chunk,
        }


def _raw_batch(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=RAW_SEGMENTS.arrow_schema())


def land_raw(options: StageOptions) -> Stage:
    """Write the bytes of segments as chunks, the Parquet files of raw_segments; rows: REPORT_DDL."""

    def stage(batches: Batches) -> Batches:
        for group_id, rows in _groups(batches):
            writer = GroupWriter(
                options.lake, f"{options.run_id}-{group_id:06d}", options.parquet_compression
            )
            out = []
            changed = False
            for piece in _slices(rows):
                report = {"group_id": group_id, "segment": piece.row["segment"], "start": piece.row["start"]}
                landed = piece.row["start"]
                try:
                    for row in _raw_rows(piece, options):
                        batch = _raw_batch(row)
                        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                        place = (row["topic"], row["partition"], row["segment"])
                        writer.write(RAW_SEGMENTS, *place, columns)
                        landed += row["chunk_bytes"]
                    out.append({**report, "end": landed, "changed": None})
                except SourceChanged as error:
                    changed = True
                    out.append({**report, "end": landed, "changed": str(error)})
            files: list[dict[str, Any]] = []
            if changed:
                writer.abandon()
            else:
                files = writer.close()
            yield _report_batch(
                [_report_row("slice", group_id, r) for r in out]
                + [_report_row("file", group_id, file) for file in files]
            )

    return stage


def read_raw(options: StageOptions) -> Stage:
    """The bytes of segments as rows of raw_segments."""

    def stage(batches: Batches) -> Batches:
        for piece in _slices(batches):
            try:
                for row in _raw_rows(piece, options):
                    yield _raw_batch(row)
            except SourceChanged as error:
                raise RuntimeError(f"{piece.row['segment']} changed during the run: {error}") from None

    return stage
