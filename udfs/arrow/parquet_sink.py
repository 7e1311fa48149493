"""Columns -> the data files of the tables, written by the task itself.

One file a group of slices and table (and magic). Until the driver commits them to the table's log the
files are invisible, so a task that fails or runs twice leaves nothing behind but files for VACUUM.
Values are written PLAIN: they seldom repeat, and a dictionary of them costs more than it saves. Offsets,
timestamps and what is constant in a batch are delta-encoded (measured in docs/performance.md).
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from udfs.format.schema import BATCHES, QUARANTINE, RAW_SEGMENTS, RECORDS, Table
from udfs.source.byte_source import local_path

_TABLES = {table.name: table for table in (RECORDS, BATCHES, QUARANTINE, RAW_SEGMENTS)}
_DICTIONARY = (
    "segment",
    "control_type",
    "compression",
    "status",
    "timestampType",
    "reason",
    "partition_dir",
    "run_id",
)
_PLAIN_TYPES = (pa.binary(), pa.string(), pa.bool_(), pa.float64())
_TOLD = ("segment", "generation")  # their bounds are known without a look at the rows
_FLUSH_BYTES = 32 << 20
_SAFE_FOLDER = re.compile(r"[A-Za-z0-9._-]{1,200}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that a task wrote. path: below the table's folder; stats: as Delta's log keeps them."""

    table: str
    path: str
    partition_values: dict[str, str]
    size: int
    stats: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DataFile:
        return cls(**json.loads(text))


def file_system_of(lake: str) -> tuple[fs.FileSystem, str]:
    """The file system of a lake and its path there; local lakes by path or ``file:`` URI."""
    path = local_path(lake)
    if path is not None:
        return fs.LocalFileSystem(), path
    system, path = fs.FileSystem.from_uri(lake)
    return system, path


def _folder(topic: str, partition: int, magic: int | None) -> str:
    """The folder of a data file. A name of the topic that could lead elsewhere does not go into it."""
    name = topic if _SAFE_FOLDER.fullmatch(topic) else f"~{uuid.uuid5(uuid.NAMESPACE_OID, topic)}"
    tail = "" if magic is None else f"/magic={magic}"
    return f"topic={name}/partition={partition}{tail}"


def _encodings(table: Table) -> dict[str, str]:
    return {
        column.name: "DELTA_BINARY_PACKED"
        for column in table.columns
        if column.name not in _DICTIONARY
        and column.name not in table.partitioned_by
        and (pa.types.is_integer(column.arrow_type) or pa.types.is_timestamp(column.arrow_type))
    }


@dataclass
class _File:
    """One Parquet file being written, with a row group pending."""

    table: Table
    path: str
    partition_values: dict[str, str]
    writer: pq.ParquetWriter
    collected: list[Any]
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    segments: set[str] = field(default_factory=set)
    generations: set[int] = field(default_factory=set)
    rows: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.pending.append(batch)
        self.pending_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self.pending_bytes >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.pending:
            table = pa.Table.from_batches(self.pending)
            self.writer.write_table(table, row_group_size=table.num_rows)
            self.pending.clear()
            self.pending_bytes = 0


class GroupWriter:
    """Writes what one group of slices decodes to, into the tables' folders."""

    def __init__(self, lake: str, name: str, compression: str) -> None:
        self._system, self._root = file_system_of(lake)
        self._name = f"part-{name}-{uuid.uuid4().hex[:12]}.parquet"
        self._compression = compression
        self._files: dict[tuple[str, str, int, int | None], _File] = {}

    def write(
        self,
        table: Table,
        topic: str,
        partition: int,
        segment: str,
        generation: int | None,
        columns: dict[str, pa.Array],
    ) -> None:
        """Append rows of ``table``. columns: by name, all but topic, partition, segment and generation."""
        rows = len(next(iter(columns.values())))
        columns = {**columns, "segment": _constant(segment, rows)}
        if generation is not None:
            columns["generation"] = pa.repeat(pa.scalar(generation, pa.int64()), rows)
        for begin, end, magic in _runs(
            columns.get("magic") if "magic" in table.partitioned_by else None, rows
        ):
            file = self._file(table, topic, partition, magic)
            file.segments.add(segment)
            if generation is not None:
                file.generations.add(generation)
            arrays = [columns[name].slice(begin, end - begin) for name in file.writer.schema.names]
            file.write(pa.RecordBatch.from_arrays(arrays, schema=file.writer.schema))

    def _file(self, table: Table, topic: str, partition: int, magic: int | None) -> _File:
        key = (table.name, topic, partition, magic)
        if key not in self._files:
            folder = f"{_folder(topic, partition, magic)}"
            self._system.create_dir(f"{self._root}/{table.name}/{folder}", recursive=True)
            values = {"topic": topic, "partition": str(partition)}
            if magic is not None:
                values["magic"] = str(magic)
            collected: list[Any] = []
            path = f"{folder}/{self._name}"
            writer = pq.ParquetWriter(
                f"{self._root}/{table.name}/{path}",
                _file_schema(table),
                filesystem=self._system,
                compression=self._compression,
                compression_level=1 if self._compression == "zstd" else None,
                use_dictionary=[c.name for c in table.columns if c.name in _DICTIONARY],
                column_encoding=_encodings(table),
                write_statistics=[n for n in table.bounded if n not in _TOLD],
                store_schema=False,
                metadata_collector=collected,
            )
            self._files[key] = _File(table, path, values, writer, collected)
        return self._files[key]

    def close(self) -> list[DataFile]:
        """Finish the files; one report each, as the driver's commit takes them."""
        return [self._finish(file) for file in self._files.values()]

    def _finish(self, file: _File) -> DataFile:
        file.flush()
        file.writer.close()
        info = self._system.get_file_info(f"{self._root}/{file.table.name}/{file.path}")
        return DataFile(file.table.name, file.path, file.partition_values, info.size, _statistics(file))

    def abandon(self) -> None:
        """Close and remove the files of a group that can't be committed, on a full disk too."""
        for file in self._files.values():
            with suppress(OSError, RuntimeError):  # pyarrow's RuntimeError: closed before, and that failed
                file.writer.close()
            file.writer.is_open = False  # else its destructor closes it once more, and prints the error
            self._system.delete_file(f"{self._root}/{file.table.name}/{file.path}")
        self._files.clear()


def _file_schema(table: Table) -> pa.Schema:
    fields = []
    for column in table.columns:
        if column.name in table.partitioned_by:
            continue
        kind = pa.dictionary(pa.int32(), pa.string()) if column.name in ("segment",) else column.arrow_type
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)


def _constant(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([text]))


def _runs(magic: pa.Array | None, rows: int) -> list[tuple[int, int, int | None]]:
    """(begin, end, magic) of rows that follow each other with the same magic."""
    if magic is None:
        return [(0, rows, None)]
    values = magic.to_numpy()
    cuts = [0, *((values[1:] != values[:-1]).nonzero()[0] + 1).tolist(), rows]
    return [(a, b, int(values[a])) for a, b in itertools.pairwise(cuts) if b > a]


def _statistics(file: _File) -> dict[str, Any]:
    """Delta's statistics object from those that the Parquet writer gathered; all bounds are tight."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for metadata in file.collected:
        names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
        for j, name in enumerate(names):
            if name not in file.table.bounded or name in _TOLD:
                continue
            for i in range(metadata.num_row_groups):
                stats = metadata.row_group(i).column(j).statistics
                nulls[name] = nulls.get(name, 0) + stats.null_count
                if stats.has_min_max:
                    low[name] = min(low.get(name, stats.min), stats.min)
                    high[name] = max(high.get(name, stats.max), stats.max)
    for name, values in (("segment", file.segments), ("generation", file.generations)):
        if values:
            low[name], high[name], nulls[name] = min(values), max(values), 0
    return {
        "numRecords": file.rows,
        "minValues": {name: _plain(value) for name, value in low.items()},
        "maxValues": {name: _plain(value) for name, value in high.items()},
        "nullCount": nulls,
    }


def _plain(value: Any) -> Any:
    """Timestamps as Delta writes them: ISO 8601, milliseconds, which ours never pass."""
    if isinstance(value, datetime):
        milliseconds = (value - _EPOCH) // timedelta(milliseconds=1)
        return f"{value:%Y-%m-%dT%H:%M:%S}".zfill(19) + f".{milliseconds % 1000:03d}Z"
    return value
