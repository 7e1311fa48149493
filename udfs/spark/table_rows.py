"""Makes rows of a table for Spark: decoded columns, with what is the same in every row of a slice.

``read_table`` is the executors' side of the data source: slices in, rows of one table out. No driver looks at
them afterwards, so it verifies itself that a slice ends where the next one starts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from kafka_log_lake.udfs.arrow.batch_columns import batch_columns, damage_columns
from kafka_log_lake.udfs.decoder.decoded import Damage, Group
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, RECORDS, Table
from kafka_log_lake.udfs.spark.protocol import ArrowBatches, TableRead
from kafka_log_lake.udfs.spark.task_input import TaskSlice, slices_of
from kafka_log_lake.udfs.storage.byte_source import SourceError
from kafka_log_lake.udfs.storage.tier_keys import use_key_files
from kafka_log_lake.udfs.words import counted_noun

log = logging.getLogger(__name__)

_SPARK_ROWS = 1 << 14  # rows of one Arrow batch handed to Spark
_SPARK_BYTES = 64 << 20
_OF_A_SLICE = ("topic", "partition", "segment")


class ReadFailed(Exception):
    """The error for a slice that can't be read as it was planned, or is damaged under failfast."""


def table_batch(table: Table, row: Mapping[str, object], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Returns all columns of a table: what is the same in every row of a slice is repeated."""
    schema = table.arrow_schema()
    return _rows(schema, schema.names, row, columns)


def _rows(
    schema: pa.Schema, names: Collection[str], row: Mapping[str, object], columns: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Returns columns of a table by name, in the order of a schema. row: of SLICE_SCHEMA."""
    n = len(next(iter(columns.values())))
    arrays = [
        pa.repeat(pa.scalar(row[name], field.type), n) if name in _OF_A_SLICE else columns[name]
        for name, field in zip(names, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cut_for_spark(batch: pa.RecordBatch) -> ArrowBatches:
    """Cuts a batch into parts of at most about _SPARK_ROWS rows and _SPARK_BYTES bytes."""
    parts = max(1, batch.nbytes // _SPARK_BYTES, batch.num_rows // _SPARK_ROWS)
    step = max(1, -(-batch.num_rows // parts))
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


def read_table(read: TableRead, slices: pa.RecordBatch) -> ArrowBatches:
    """Yields rows of a table from slices (SLICE_SCHEMA), in their order. Raises ReadFailed."""
    use_key_files(read.options.tier_key)
    for slice_ in slices_of(iter([slices])):
        segment = slice_.row["segment"]
        damages: list[Damage] = []
        try:
            for group in _groups(read, slice_):
                damages += group.damages
                if read.failfast and damages:
                    raise ReadFailed(f"{segment} is damaged: {damages[0].reason}: {place_text(damages[0])}")
                yield from _table_rows(read, slice_.row, group)
        except SourceError as error:
            raise ReadFailed(f"{segment} can't be read as it was planned: {error}") from None
        if damages and read.table != QUARANTINE.name:
            log.warning(
                "kafka_log skipped %s in %s of %s, the first: %s: %s (option table=quarantine reads them)",
                counted_noun(sum(damage.size for damage in damages), "byte"),
                counted_noun(len(damages), "damaged range"),
                segment,
                damages[0].reason,
                place_text(damages[0]),
            )


def place_text(damage: Damage) -> str:
    """Returns a text that says where a damaged range lies, and what is wrong there."""
    return f"{counted_noun(damage.size, 'byte')} at position {damage.position}: {damage.detail}"


def _groups(read: TableRead, slice_: TaskSlice) -> Iterator[Group]:
    """Yields the decoded groups of a slice.

    Raises ReadFailed where it does not end at the next one's start.
    """
    decoder = slice_.decoder(read.options, columns=read.decoded)
    decoder.content_crc = False
    yield from slice_.groups(decoder)
    row, reached = slice_.row, decoder.totals.end + decoder.totals.tail_bytes
    if reached != row["stop"]:
        raise ReadFailed(
            f"{row['segment']}: batches from position {row['start']} on end at {reached}, planned at "
            f"{row['stop']}: the file changed, or damage hides where batches begin; read it again, or in one "
            f"task with option sliceBytes={row['length']}"
        )


def _table_rows(read: TableRead, row: Mapping[str, object], group: Group) -> ArrowBatches:
    """Yields a group's rows of the table, nothing where it has none."""
    columns: Mapping[str, pa.Array] = {}
    if read.table == RECORDS.name and group.records is not None:
        columns = dict(zip(group.records.schema.names, group.records.columns, strict=True))
    elif read.table == BATCHES.name and len(group.batches):
        columns = batch_columns(group.batches)
    elif read.table == QUARANTINE.name and group.damages:
        columns = damage_columns(group.damages, read.options.run_id)
    if columns:
        yield from cut_for_spark(_rows(read.schema, read.names, row, columns))
