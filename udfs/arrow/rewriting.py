"""Writes data files again without rows that a commit replaces, and files of rows that are at hand.

A file that holds rows of other segments too can't leave its table as a whole. The columns of the file are
kept as they are, also those that a user added.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_log_lake.udfs.arrow.parquet_sink import (
    Codec,
    DataFile,
    Folders,
    index_options,
    statistics,
    writer_options,
)
from kafka_log_lake.udfs.format.schema import (
    BATCHES,
    OFFSET_FINDINGS,
    QUARANTINE,
    RAW_SEGMENTS,
    RECORDS,
    TABLES,
    TRANSACTIONS,
    Table,
)

_BY_NAME = {table.name: table for table in TABLES}
# Of each table the columns that name the owner of a row and its position; None: all rows of the owner go
KEYS: dict[str, tuple[str, str | None]] = {
    RECORDS.name: ("segment", "batch_position"),
    BATCHES.name: ("segment", "position"),
    QUARANTINE.name: ("segment", "position"),
    RAW_SEGMENTS.name: ("segment", "chunk_position"),
    TRANSACTIONS.name: ("partition_dir", None),
    OFFSET_FINDINGS.name: ("segment", None),
}
# Results for a file of which no row goes, or all of them
SAME, GONE = "same", "gone"
_ROWS, _BYTES = 1 << 17, 32 << 20  # read at a time, at most


@dataclass(frozen=True)
class Rewrite:
    """A file that may hold superseded rows.

    path: below the table's folder. starts: segment (of ``transactions``: partition_dir) -> the byte from
    which on its rows are superseded.
    """

    table: str
    path: str
    partition_values: dict[str, str | None]
    starts: dict[str, int]

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Rewrite:
        return cls(**json.loads(text))


def rewrite(folders: Folders, task: Rewrite, codec: Codec) -> DataFile | str:
    """Rewrites a file without superseded rows, and returns the new one.

    It returns SAME where no row is removed, GONE where all are.
    """
    table = _BY_NAME[task.table]
    with folders.system.open_input_file(folders.path(table, task.path)) as source:
        # Spark writes a time as INT96, which pyarrow reads as nanoseconds: they end in the year 2262
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        keys = [name for name in KEYS[table.name] if name is not None]
        some = _rows_at_a_time(file.metadata)
        masks = [_stays(rows, task) for rows in file.iter_batches(some, columns=keys)]
        stay = sum(int(mask.sum()) for mask in masks)
        if stay == file.metadata.num_rows:
            return SAME
        if stay == 0:
            return GONE
        kept = (
            batch.filter(pa.array(mask))
            for batch, mask in zip(file.iter_batches(some), masks, strict=True)
            if mask.any()
        )
        return write_rows(folders, table, task.partition_values, file.schema_arrow, kept, codec)


def _rows_at_a_time(file: pq.FileMetaData) -> int:
    """Returns how many rows of a file have about _BYTES bytes, _ROWS at most."""
    size = sum(file.row_group(i).total_byte_size for i in range(file.num_row_groups))
    return max(1, min(_ROWS, file.num_rows * _BYTES // max(1, size)))


def _stays(rows: pa.RecordBatch, task: Rewrite) -> np.ndarray:
    """Returns bool[n]: which rows stay, as they are not superseded."""
    owner, position = KEYS[task.table]
    place = pc.index_in(rows.column(owner).cast(pa.string()), value_set=pa.array(task.starts, pa.string()))
    place = place.fill_null(-1).to_numpy()
    if position is None:
        return np.asarray(place < 0)
    starts = np.array([*task.starts.values(), np.iinfo(np.int64).max], dtype=np.int64)  # -1 is the last
    return np.asarray((place < 0) | (rows.column(position).to_numpy() < starts[place]))


def write_rows(
    folders: Folders,
    table: Table,
    values: dict[str, str | None],
    schema: pa.Schema,
    rows: Iterable[pa.RecordBatch],
    codec: Codec,
) -> DataFile:
    """Writes rows of one partition, at least one, to a new file. values: the partition's, by column."""
    path, collected = folders.new_file(table, values, "rewritten"), list[pq.FileMetaData]()
    place, options = folders.path(table, path), writer_options(table)
    column_types = {column.name: column.arrow_type for column in table.columns}
    written = pa.schema([pa.field(f.name, column_types.get(f.name, f.type)) for f in schema])
    bounded = [name for name in table.bounded if name in written.names]
    rows = iter(rows)
    first = next(rows)
    with pq.ParquetWriter(
        place,
        written,
        filesystem=folders.system,
        metadata_collector=collected,
        compression=codec.compression,
        compression_level=codec.level,
        use_dictionary=[name for name in options["use_dictionary"] if name in written.names],
        column_encoding={n: e for n, e in options["column_encoding"].items() if n in written.names},
        write_statistics=bounded,
        store_schema=False,
        **index_options([first], first.nbytes),
    ) as writer:
        for some in itertools.chain([first], rows):
            writer.write_table(pa.Table.from_batches([some]).cast(written))
    folders.add(place)
    leaves = collected[0].schema
    columns = [(j, leaves.column(j).path) for j in range(len(leaves)) if leaves.column(j).path in bounded]
    size = folders.system.get_file_info(place).size
    return DataFile(table.name, path, values, size, statistics(collected, columns))
