"""Runs in Spark's tasks: mapInArrow callables take rows of slices, and yield reports, staged rows or records.

The rows of a group come one after the other in one task.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.arrow.batch_columns import batch_columns, damage_columns
from kafka_log_lake.udfs.arrow.parquet_sink import Codec, Folders, GroupWriter, Origin
from kafka_log_lake.udfs.arrow.rewriting import Rewrite, rewrite
from kafka_log_lake.udfs.decoder.decoded import Group, Totals
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, RAW_SEGMENTS, RECORDS
from kafka_log_lake.udfs.spark.protocol import (
    BATCH_ROW,
    DAMAGE_ROW,
    FILE,
    REPORT_SCHEMA,
    SLICE,
    STAGED_SCHEMA,
    ArrowBatches,
    SliceReport,
    Stage,
    StageOptions,
)
from kafka_log_lake.udfs.spark.table_rows import cut_for_spark, table_batch
from kafka_log_lake.udfs.spark.task_input import FailedSource, TaskSlice, groups_of, slices_of
from kafka_log_lake.udfs.storage.byte_source import SourceChanged, SourceError
from kafka_log_lake.udfs.storage.chunks import cut_chunks
from kafka_log_lake.udfs.storage.fingerprint import fingerprint, mark

_BATCH_ROWS = 1 << 12  # rows of ``batches`` converted at a time, of several small segments


_tasks = itertools.count()


def keep_modules() -> None:
    """Freezes what lives at the first two tasks of a worker: the garbage collector skips it from then on.

    pyspark collects garbage after each task, 0.1 s over the objects of all modules, and 5 ms over
    those of the kernels that the first task has loaded.
    """
    if next(_tasks) < 2:
        gc.freeze()


def _report(slice_: TaskSlice, decoder: SegmentDecoder, first_mark: str | None) -> SliceReport:
    row, totals = slice_.row, decoder.totals
    marks = None
    if totals.begin is not None:
        ends = (totals.end, first_mark, totals.sound_end, row["length"])
        marks = fingerprint(slice_.source, totals.last_position, *ends)
    return SliceReport(*slice_.ids, totals, marks)


def _decode(
    batches: ArrowBatches, options: StageOptions, take: Callable[[TaskSlice, Group], None]
) -> Iterator[SliceReport]:
    """Decodes each slice, hands its groups to ``take``, and yields its report."""
    for slice_ in slices_of(batches):
        row = slice_.row
        decoder = slice_.decoder(options)
        try:
            first_mark = row["fingerprint"]
            if row["start"] == 0 and row["length"] > 0:
                # the chunks of raw content are let go as decoding moves on: mark the first one now
                first_mark = first_mark or mark(slice_.source, 0, row["length"])
            for group in decoder:
                take(slice_, group)
            report = _report(slice_, decoder, first_mark)
            slice_.check_unchanged()
            yield report
        except SourceError as error:
            yield slice_.failed(error)


def _report_batch(rows: list[tuple[int, str, str]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, REPORT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=REPORT_SCHEMA)


def write_tables(options: StageOptions) -> Stage:
    """Returns a stage that decodes, and writes the files of records, batches and quarantine.

    The stage yields rows of REPORT_DDL.
    """

    def write(writer: GroupWriter, rows: ArrowBatches) -> list[SliceReport]:
        tables = _GroupTables(writer, options.run_id)
        reports = list(_decode(rows, options, tables.take))
        tables.flush()
        return reports

    return _by_group(options, write)


def _by_group(
    options: StageOptions, write: Callable[[GroupWriter, ArrowBatches], list[SliceReport]]
) -> Stage:
    """Returns a stage that writes the files of each group of slices. write: returns the slices' reports."""

    def stage(batches: ArrowBatches) -> ArrowBatches:
        folders = Folders(options.lake)
        codec = (options.parquet_compression, options.parquet_compression_level)
        for group_id, rows in groups_of(batches):
            writer = GroupWriter(folders, f"{options.run_id}-{group_id:06d}", *codec)
            try:
                finished = _finished(writer, group_id, write(writer, rows))
            except BaseException:
                writer.abandon()
                raise
            yield finished
        folders.flush()

    return stage


def _finished(writer: GroupWriter, group_id: int, reports: list[SliceReport]) -> pa.RecordBatch:
    """Returns the reports of a group's slices, and its files where none of them has a problem."""
    out = [(group_id, SLICE, report.to_json()) for report in reports]
    if any(report.problem for report in reports):
        writer.abandon()
    else:
        out += [(group_id, FILE, file.to_json()) for file in writer.close()]
    return _report_batch(out)


class _GroupTables:
    """Collects the rows of a group of slices, and writes them to the tables' files.

    Rows of ``batches`` are collected over segments: a small one has few, and converting them costs the same
    for one row as for hundreds.
    """

    def __init__(self, writer: GroupWriter, run_id: str) -> None:
        self._writer, self._run_id = writer, run_id
        self._batches: list[np.ndarray] = []
        self._origins: list[Origin] = []
        self._rows = 0
        self._partition = ("", 0)  # one, whatever the number of segments

    def take(self, slice_: TaskSlice, group: Group) -> None:
        row, records = slice_.row, group.records
        self._partition = partition = (row["topic"], row["partition"])
        origin = Origin(row["segment"], len(group.batches))
        if records is not None:
            self._writer.write(RECORDS, *partition, [origin._replace(rows=records.num_rows)], records)
        if len(group.batches):
            self._batches.append(group.batches.copy())  # the decoder uses the array again
            self._origins.append(origin)
            self._rows += len(group.batches)
            if self._rows >= _BATCH_ROWS:
                self.flush()
        if group.damages:
            damages = pa.RecordBatch.from_pydict(damage_columns(group.damages, self._run_id))
            self._writer.write(QUARANTINE, *partition, [origin._replace(rows=len(damages))], damages)

    def flush(self) -> None:
        if self._rows:
            columns = pa.RecordBatch.from_pydict(batch_columns(_joined(self._batches, self._rows)))
            self._writer.write(BATCHES, *self._partition, self._origins, columns)
            self._batches, self._origins, self._rows = [], [], 0


def _joined(parts: list[np.ndarray], rows: int) -> np.ndarray:
    """Joins several BATCH arrays to BATCH[n], faster than NumPy's ``concatenate``.

    That works out a common type for each pair, field by field.
    """
    joined = np.empty(rows, dtype=parts[0].dtype)
    at = 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined


def rewrite_files(options: StageOptions) -> Stage:
    """Returns a stage that writes files again without superseded rows. In: REWRITE_SCHEMA; out: REPORT_DDL.

    The kind of a report is FILE, with the new file; or SAME or GONE, which says what happens to the old one.
    """

    def stage(batches: ArrowBatches) -> ArrowBatches:
        folders = Folders(options.lake)
        codec = Codec.of(options.parquet_compression, options.parquet_compression_level)
        for batch in batches:
            done: list[tuple[int, str, str]] = []
            for row in batch.to_pylist():
                made = rewrite(folders, Rewrite.from_json(row["payload"]), codec)
                kind, payload = (made, "") if isinstance(made, str) else (FILE, made.to_json())
                done.append((row["number"], kind, payload))
            yield _report_batch(done)
        folders.flush()

    return stage


def stage_rows(options: StageOptions) -> Stage:
    """Returns a stage that decodes without writing: reports, rows of batches and of quarantine.

    The stage yields rows of STAGED_DDL.
    """

    def stage(batches: ArrowBatches) -> ArrowBatches:
        for group_id, rows in groups_of(batches):
            staged: list[pa.RecordBatch] = []

            def take(slice_: TaskSlice, group: Group, staged: list[pa.RecordBatch] = staged) -> None:
                row = slice_.row
                if len(group.batches):
                    batch = table_batch(BATCHES, row, batch_columns(group.batches))
                    staged.append(_staged(BATCH_ROW, row["group_id"], batch))
                if group.damages:
                    batch = table_batch(QUARANTINE, row, damage_columns(group.damages, options.run_id))
                    staged.append(_staged(DAMAGE_ROW, row["group_id"], batch))

            for report in _decode(rows, options, take):
                if not report.problem:
                    yield from staged
                staged.clear()
                yield _staged_columns(*_report_batch([(group_id, SLICE, report.to_json())]).columns)

    return stage


def _staged(kind: str, group_id: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    n = rows.num_rows
    struct = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    reports = [pa.repeat(pa.scalar(group_id, pa.int32()), n), pa.repeat(kind, n), pa.nulls(n, pa.string())]
    return _staged_columns(*reports, **{kind: struct})


def _staged_columns(
    group_ids: pa.Array, kinds: pa.Array, payloads: pa.Array, **rows: pa.Array
) -> pa.RecordBatch:
    missing = {name: pa.nulls(len(kinds), STAGED_SCHEMA.field(name).type) for name in (BATCH_ROW, DAMAGE_ROW)}
    arrays = [group_ids, kinds, payloads, *(missing | rows).values()]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGED_SCHEMA)


def read_records(options: StageOptions) -> Stage:
    """Returns a stage that decodes to rows of ``records``; it fails where bytes are not those expected."""

    def stage(batches: ArrowBatches) -> ArrowBatches:
        for slice_ in slices_of(batches):
            decoder = slice_.decoder(options)
            try:
                for group in slice_.groups(decoder):
                    if group.records is not None:
                        names = group.records.schema.names
                        columns = dict(zip(names, group.records.columns, strict=True))
                        yield from cut_for_spark(table_batch(RECORDS, slice_.row, columns))
            except SourceError as error:
                raise RuntimeError(f"{slice_.row['segment']} changed while it was read: {error}") from None
            expected = slice_.row["expected_crc32c"]
            if expected is not None and decoder.totals.content_crc32c != expected:
                raise RuntimeError(
                    f"{slice_.row['segment']} changed while it was read: other bytes than before"
                )

    return stage


def verify(options: StageOptions) -> Stage:
    """Returns a stage that reports whether the bytes of slices still are those expected; rows: REPORT_DDL."""

    def stage(batches: ArrowBatches) -> ArrowBatches:
        for slice_ in slices_of(batches):
            decoder, report = slice_.decoder(options, columns=()), SliceReport(*slice_.ids)
            try:
                for _ in slice_.groups(decoder):
                    pass
                if decoder.totals.content_crc32c != slice_.row["expected_crc32c"]:
                    raise SourceChanged("other bytes than before")
            except SourceError as error:
                report = slice_.failed(error)
            yield _report_batch([(report.group_id, SLICE, report.to_json())])

    return stage


def check_files(options: StageOptions) -> Stage:
    """Returns a stage that reports whether the files of slices still are those planned; rows: REPORT_DDL."""

    def stage(batches: ArrowBatches) -> ArrowBatches:
        for slice_ in slices_of(batches):
            source, report = slice_.source, SliceReport(*slice_.ids)
            try:
                if isinstance(source, FailedSource):
                    raise source.why
                slice_.check_unchanged()
            except SourceError as error:
                report = slice_.failed(error)
            yield _report_batch([(report.group_id, SLICE, report.to_json())])

    return stage


_RAW_FROM_SLICE = (
    "topic",
    "partition",
    "segment",
    "partition_dir",
    "file_base_offset",
    "length",
    "modified",
    "log_start_offset",
    "topic_id",
)


def _raw_rows(slice_: TaskSlice, options: StageOptions) -> Iterator[pa.RecordBatch]:
    """Yields one row of raw_segments for each chunk of a slice."""
    row, schema = slice_.row, RAW_SEGMENTS.arrow_schema()
    constant = {name: row[name] for name in _RAW_FROM_SLICE}
    constant |= {"run_id": options.run_id, "landed_at": options.began_us}
    chunks = cut_chunks(
        slice_.source, row["start"], row["length"], row["fingerprint"], row["previous_last_offset"]
    )
    for chunk in chunks:
        content, ends = chunk.pop("content"), np.array([0, chunk["chunk_bytes"]], dtype=np.int32)
        values = {**constant, **chunk}
        columns = [pa.array([values.get(field.name)], field.type) for field in schema]
        column = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), content])
        columns[schema.get_field_index("content")] = column  # without a copy of the bytes
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def land_raw(options: StageOptions) -> Stage:
    """Returns a stage that writes segments' bytes as chunks, the files of raw_segments; rows: REPORT_DDL."""

    def write(writer: GroupWriter, rows: ArrowBatches) -> list[SliceReport]:
        return [_land(writer, slice_, options) for slice_ in slices_of(rows)]

    return _by_group(options, write)


def _land(writer: GroupWriter, slice_: TaskSlice, options: StageOptions) -> SliceReport:
    row = slice_.row
    landed, last_offset, marks = row["start"], row["previous_last_offset"], row["fingerprint"]
    try:
        for chunk in _raw_rows(slice_, options):
            landed += chunk.column("chunk_bytes")[0].as_py()
            last_offset, marks = (chunk.column(name)[0].as_py() for name in ("last_offset", "fingerprint"))
            origin = Origin(row["segment"], chunk.num_rows)
            writer.write(RAW_SEGMENTS, row["topic"], row["partition"], [origin], chunk)
        slice_.check_unchanged()
    except SourceError as error:
        return slice_.failed(error)
    return SliceReport(*slice_.ids, Totals(end=landed, end_offset=last_offset), marks)


def read_raw(options: StageOptions) -> Stage:
    """Returns a stage that yields the bytes of segments as rows of raw_segments."""

    def stage(batches: ArrowBatches) -> ArrowBatches:
        for slice_ in slices_of(batches):
            try:
                yield from _raw_rows(slice_, options)
                slice_.check_unchanged()
            except SourceError as error:
                raise RuntimeError(f"{slice_.row['segment']} changed while it was read: {error}") from None

    return stage
