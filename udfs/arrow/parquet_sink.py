"""Writes columns to the data files of the tables, in the task itself.

Each group of slices has one file a table (and magic), in the Hive folder of its partition
(``udfs.format.hive``). Until the driver commits them to the table's log the files are invisible to readers of
Delta, so a task that fails or runs twice leaves nothing behind but files for VACUUM.
Values are written PLAIN: they seldom repeat, and a dictionary of them costs more than it saves. Offsets,
timestamps and what is constant in a batch are delta-encoded (measured in benchmarks/README.md).
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafka_log_lake.udfs.format.hive import partition_folder
from kafka_log_lake.udfs.format.schema import RAW_SEGMENTS, Table
from kafka_log_lake.udfs.storage.store import is_object_store, open_store

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
_FLUSH_BYTES = 32 << 20  # of a row group
_RAW_FLUSH_BYTES = 8 << 20  # of landed bytes: a large chunk has a row group of its own, and is read alone
_SMALL_BYTES = 256 << 10  # a file below has no indexes, and numbers in it are not compressed: both cost time
_KEY = "key"  # queries look for it by value; it has no bounds in Delta's log
_FALSE_POSITIVES = 0.1  # rate of its Bloom filter: it takes about a byte a key
_FLUSHES = 16  # files flushed at a time
_LEVELS = {"zstd": 1}  # where no level is given; for other codecs pyarrow's own
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that a task wrote.

    path: below the table's folder. size: bytes. stats: statistics as Delta's log keeps them.
    """

    table: str
    path: str
    partition_values: dict[str, str | None]
    size: int
    stats: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> DataFile:
        return cls(**json.loads(text))


class Origin(NamedTuple):
    """A run of consecutive rows: their segment, and how many they are."""

    segment: str
    rows: int


class Codec(NamedTuple):
    """The compression of a Parquet file, and its level; None for the default of the codec."""

    compression: str
    level: int | None

    @classmethod
    def of(cls, compression: str, level: int | None) -> Codec:
        return cls(compression, _LEVELS.get(compression) if level is None else level)


@dataclass
class _OpenFile:
    """A Parquet file being written, with the rows of a pending row group.

    The file is created with its first row group.

    place: its path in the file system. codes: of each pending row, the place of its segment in ``segments``,
    int32.
    """

    table: Table
    path: str
    partition_values: dict[str, str | None]
    system: fs.FileSystem
    place: str
    codec: Codec
    writer: pq.ParquetWriter | None = None
    collected: list[Any] = field(default_factory=list)
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    codes: list[np.ndarray] = field(default_factory=list)
    segments: dict[str, int] = field(default_factory=dict)

    def write(self, batch: pa.RecordBatch, size: int, origins: Sequence[Origin]) -> None:
        self.pending.append(batch)
        self.pending_bytes += size
        for segment, rows in origins:
            code = self.segments.setdefault(segment, len(self.segments))
            self.codes.append(np.full(rows, code, np.int32))
        if self.pending_bytes >= (_RAW_FLUSH_BYTES if self.table is RAW_SEGMENTS else _FLUSH_BYTES):
            self.flush()

    def flush(self) -> None:
        if not self.pending:
            return
        table = pa.Table.from_batches(self.pending)
        columns = dict(zip(table.column_names, table.columns, strict=True))
        columns["segment"] = pa.DictionaryArray.from_arrays(
            pa.array(np.concatenate(self.codes)), pa.array(list(self.segments))
        )
        writer = self.writer = self.writer or self._open()
        table = pa.Table.from_arrays([columns[name] for name in writer.schema.names], schema=writer.schema)
        writer.write_table(table, row_group_size=table.num_rows)
        self.pending.clear()
        self.codes.clear()
        self.pending_bytes = 0

    def _open(self) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self.place,
            filesystem=self.system,
            metadata_collector=self.collected,
            **index_options(self.pending, self.pending_bytes),
            **_compression(self.table, self.codec, self.pending_bytes < _SMALL_BYTES),
            **writer_options(self.table),
        )


def index_options(group: Sequence[pa.RecordBatch], size: int) -> dict[str, Any]:
    """Returns options of pyarrow's Parquet writer for a file's indexes: none where the file is small.

    group: the rows of the first row group, whose number of keys the Bloom filters of all are made for; size:
    their bytes.
    """
    if size < _SMALL_BYTES:
        return {}
    columns = [batch.column(_KEY) for batch in group if _KEY in batch.schema.names]
    keys = sum(len(column) - column.null_count for column in columns)
    bloom_filter = {_KEY: {"ndv": keys, "fpp": _FALSE_POSITIVES}} if keys else None
    return {"write_page_index": True, "bloom_filter_options": bloom_filter}


def flush(path: str) -> None:
    """Has the operating system write a local file, or the entries of a local folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a file system that flushes nothing at request
            raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


class Folders:
    """The folders of a task's data files. Each is created once."""

    def __init__(self, lake: str) -> None:
        self.system, self._root = open_store(lake)
        self._has_folders = not is_object_store(lake)
        self._made: set[str] = set()
        self._written: list[str] = []

    def new_file(self, table: Table, values: Mapping[str, str | None], name: str) -> str:
        """Returns the path of a new file below a table's folder.

        Creates its folder where the store has folders.
        """
        folder = f"{table.name}/{partition_folder(values)}"
        if folder not in self._made and self._has_folders:
            self.system.create_dir(f"{self._root}/{folder}", recursive=True)
        self._made.add(folder)
        return f"{folder.partition('/')[2]}/part-{name}-{uuid.uuid4().hex[:12]}.parquet"

    def path(self, table: Table, path: str) -> str:
        """Returns the path in the file system of a path below a table's folder."""
        return f"{self._root}/{table.name}/{path}"

    def add(self, path: str) -> None:
        """Notes a file that has been written and closed, for ``flush``."""
        self._written.append(path)

    def flush(self) -> None:
        """Flushes the files that were added, and all folders above them, to the disk of a local lake.

        The driver writes what it is going to commit when the tasks have ended: a power cut after that finds
        the files. At the end of the task, because a journal takes many files at once for the price of one.
        """
        if not isinstance(self.system, fs.LocalFileSystem):
            return
        above = {"/".join(parts[:n]) for parts in (f.split("/") for f in self._made) for n in range(1, 5)}
        with ThreadPoolExecutor(_FLUSHES) as threads:
            list(threads.map(flush, self._written))
            list(threads.map(flush, (f"{self._root}/{folder}" for folder in sorted(above))))
        self._written.clear()


class GroupWriter:
    """Writes the rows that one group of slices decodes to, into the tables' folders."""

    def __init__(self, folders: Folders, name: str, compression: str, level: int | None = None) -> None:
        self._folders = folders
        self._name = name
        self._codec = Codec.of(compression, level)
        self._files: dict[tuple[str, str, int, int | None], _OpenFile] = {}

    def write(
        self, table: Table, topic: str, partition: int, origins: Sequence[Origin], batch: pa.RecordBatch
    ) -> None:
        """Appends rows of ``table``.

        origins: of all rows, in their order. batch: the columns of the table but topic, partition and
        segment; others are left out.
        """
        size, by_magic = batch.get_total_buffer_size(), "magic" in table.partitioned_by
        for begin, end, magic in _runs(batch.column("magic") if by_magic else None, batch.num_rows):
            file = self._file(table, topic, partition, magic)
            if end - begin == batch.num_rows:
                file.write(batch, size, origins)
            else:
                part = batch.slice(begin, end - begin)
                file.write(part, size * part.num_rows // batch.num_rows, _cut(origins, begin, end))

    def _file(self, table: Table, topic: str, partition: int, magic: int | None) -> _OpenFile:
        key = (table.name, topic, partition, magic)
        if key not in self._files:
            values: dict[str, str | None] = {"topic": topic, "partition": str(partition)}
            if magic is not None:
                values["magic"] = str(magic)
            path = self._folders.new_file(table, values, self._name)
            place = self._folders.path(table, path)
            self._files[key] = _OpenFile(table, path, values, self._folders.system, place, self._codec)
        return self._files[key]

    def close(self) -> list[DataFile]:
        """Finishes the files, and returns one report each, as the driver's commit takes them."""
        return [self._finish(file) for file in self._files.values()]

    def _finish(self, file: _OpenFile) -> DataFile:
        file.flush()
        assert file.writer is not None  # a file has rows
        file.writer.close()
        info = file.system.get_file_info(file.place)
        self._folders.add(file.place)
        stats = statistics(file.collected, _bounded(file.table), file.segments)
        return DataFile(file.table.name, file.path, file.partition_values, info.size, stats)

    def abandon(self) -> None:
        """Closes and removes the files of a group that can't be committed, on a full disk too."""
        for file in self._files.values():
            if file.writer is None:
                continue
            with suppress(OSError, RuntimeError):  # pyarrow's RuntimeError: closed before, and that failed
                file.writer.close()
            file.writer.is_open = False  # else its destructor closes it once more, and prints the error
            with suppress(FileNotFoundError):  # an object that never came to its end
                file.system.delete_file(file.place)
        self._files.clear()


@cache
def writer_options(table: Table) -> dict[str, Any]:
    """Returns options of pyarrow's Parquet writer that a table's declaration tells."""
    segment = pa.dictionary(pa.int32(), pa.string())
    fields = table.file_schema()
    return {
        "schema": pa.schema([f.with_type(segment) if f.name == "segment" else f for f in fields]),
        "use_dictionary": [f.name for f in fields if f.name in _DICTIONARY],
        "column_encoding": {
            f.name: "DELTA_BINARY_PACKED"
            for f in fields
            if f.name not in _DICTIONARY and (pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type))
        },
        "write_statistics": [name for name in table.bounded if name != "segment"],
        "store_schema": False,
    }


@cache
def _leaves(table: Table) -> tuple[pq.ColumnSchema, ...]:
    """Returns the columns of a Parquet file of the table, those of nested ones too, in their order."""
    file = pa.BufferOutputStream()
    pq.write_table(writer_options(table)["schema"].empty_table(), file, store_schema=False)
    schema = pq.read_metadata(pa.BufferReader(file.getvalue())).schema
    return tuple(schema.column(j) for j in range(len(schema)))


@cache
def _compression(table: Table, codec: Codec, is_small: bool) -> dict[str, object]:
    """Returns pyarrow's options for compression. In a small file only texts and bytes are compressed."""
    if not is_small:
        return {"compression": codec.compression, "compression_level": codec.level}
    texts = {leaf.path for leaf in _leaves(table) if leaf.physical_type == "BYTE_ARRAY"}
    return {
        "compression": {
            leaf.path: codec.compression if leaf.path in texts else "none" for leaf in _leaves(table)
        },
        "compression_level": None if codec.level is None else dict.fromkeys(texts, codec.level),
    }


def _runs(magic: pa.Array | None, rows: int) -> list[tuple[int, int, int | None]]:
    """Returns (begin, end, magic) of each run of rows with the same magic.

    magic: None where the table has no such column.
    """
    if magic is None:
        return [(0, rows, None)]
    values = magic.to_numpy()
    cuts = [0, *((values[1:] != values[:-1]).nonzero()[0] + 1).tolist(), rows]
    return [(a, b, int(values[a])) for a, b in itertools.pairwise(cuts) if b > a]


def _cut(origins: Sequence[Origin], begin: int, end: int) -> list[Origin]:
    """Returns the origins of the rows from ``begin`` to ``end``."""
    ends = list(itertools.accumulate(origin.rows for origin in origins))
    firsts = [0, *ends]
    return [
        origin._replace(rows=min(last, end) - max(first, begin))
        for origin, first, last in zip(origins, firsts, ends, strict=False)
        if first < end and last > begin
    ]


@cache
def _bounded(table: Table) -> tuple[tuple[int, str], ...]:
    """Returns place and name of the columns of a Parquet file of this writer that have statistics."""
    gathered = writer_options(table)["write_statistics"]
    return tuple((j, leaf.path) for j, leaf in enumerate(_leaves(table)) if leaf.path in gathered)


def statistics(
    written: Sequence[pq.FileMetaData], columns: Iterable[tuple[int, str]], segments: Collection[str] = ()
) -> dict[str, Any]:
    """Returns Delta's statistics object from those that a Parquet writer gathered; all bounds are tight.

    columns: place in the file and name of those with bounds. segments: the segments of the rows, where the
    writer gathered no bounds of them.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()  # other writers may leave bounds out
    groups = [metadata.row_group(i) for metadata in written for i in range(metadata.num_row_groups)]
    for group, (j, name) in itertools.product(groups, columns):
        stats = group.column(j).statistics
        if stats is None or not (stats.has_min_max or stats.null_count == group.num_rows):
            unknown.add(name)
            continue
        nulls[name] = nulls.get(name, 0) + stats.null_count
        if stats.has_min_max:
            least, most = stats.min, stats.max
            low[name], high[name] = min(low.get(name, least), least), max(high.get(name, most), most)
    if segments:
        low["segment"], high["segment"], nulls["segment"] = min(segments), max(segments), 0
    return {
        "numRecords": sum(group.num_rows for group in groups),
        "minValues": {name: _plain(value) for name, value in low.items() if name not in unknown},
        "maxValues": {name: _plain(value) for name, value in high.items() if name not in unknown},
        "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
    }


def _plain(value: object) -> Any:
    """Returns a value as Delta's log holds it: a timestamp as ISO 8601 with milliseconds, others as is."""
    if isinstance(value, datetime):
        milliseconds = (value - _EPOCH) // timedelta(milliseconds=1)
        return f"{value:%Y-%m-%dT%H:%M:%S}".zfill(19) + f".{milliseconds % 1000:03d}Z"
    return value
