"""Reads a segment's bytes from where they were landed: chunks in the Parquet files of ``raw_segments``.

A task gets the files that may hold chunks of the segment and finds the rows itself. Files are opened when a
byte of theirs is read, and a row group is read when a chunk of it is: a task holds a few chunks, whatever the
length of the segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.storage.byte_source import (
    SourceChanged,
    SourceUnreadable,
    UnreadableRange,
    reason_of,
)
from kafka_log_lake.udfs.storage.spool import Chunks
from kafka_log_lake.udfs.storage.store import open_store

_OPEN = 4  # files of a task that are open at a time: small segments that follow each other share one
_HELD = 2  # chunks: that before, for damage is read again, and the current one
_BATCH_BYTES = 16 << 20  # of ``content`` that are read at a time, at least one chunk
_PLACE = ("segment", "chunk_position", "chunk_bytes", "crc32c", "whole_bytes")
CURE = "delete its rows from raw_segments and land the file again"


class Chunk(NamedTuple):
    """A row of ``raw_segments``. crc32c: of its bytes; None where the storage could not read them all.

    whole_bytes: where the last batch ends that was landed so far, by length fields.
    """

    position: int
    size: int
    crc32c: int | None
    whole_bytes: int
    row: int

    @property
    def end(self) -> int:
        return self.position + self.size


class LandedFile:
    """One data file of ``raw_segments``. Raises a SourceError where it can't be read."""

    def __init__(self, uri: str) -> None:
        try:
            system, path = open_store(uri)
            self._input = system.open_input_file(path)
            self._file = pq.ParquetFile(self._input)
            rows = self._file.read(columns=list(_PLACE), use_threads=False)
        except FileNotFoundError as error:
            raise SourceChanged("a file of raw_segments with its bytes is gone") from error
        except (OSError, ValueError) as error:  # pyarrow's errors are of these classes
            raise _unreadable(error) from error
        groups = [self._file.metadata.row_group(i) for i in range(self._file.num_row_groups)]
        self._begins = np.cumsum([0, *(group.num_rows for group in groups)]).tolist()
        sizes = (sum(g.column(j).total_uncompressed_size for j in range(g.num_columns)) for g in groups)
        self._rows_at_a_time = [
            max(1, group.num_rows * _BATCH_BYTES // max(1, size))
            for group, size in zip(groups, sizes, strict=True)
        ]
        self._chunks: dict[str, list[Chunk]] = defaultdict(list)
        columns = (rows.column(name).to_pylist() for name in _PLACE)
        for row, (segment, position, size, crc, whole) in enumerate(zip(*columns, strict=True)):
            self._chunks[segment].append(Chunk(position, size, crc, whole, row))
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._read: tuple[int, pa.Array] = (0, pa.array([], pa.binary()))  # its first row, and the rows

    def chunks(self, segment: str) -> list[Chunk]:
        """Returns the chunks of a segment in this file, in the order of its rows."""
        return self._chunks.get(segment, [])

    def content(self, row: int) -> pa.Scalar:
        """Reads ``content`` of a row. The rows of a row group are read one after the other."""
        first, values = self._read
        if not first <= row < first + len(values):
            group = bisect_right(self._begins, row) - 1
            if row < first or first + len(values) <= self._begins[group]:
                first, values = self._begins[group], values[:0]
                self._batches = self._file.iter_batches(
                    self._rows_at_a_time[group], row_groups=[group], columns=["content"], use_threads=False
                )
            try:
                while row >= first + len(values):
                    first, values = first + len(values), next(self._batches).column(0)
            except (OSError, ValueError) as error:
                raise _unreadable(error) from error
            self._read = first, values
        return values[row - first]

    def close(self) -> None:
        self._file.close()
        self._input.close()


def _unreadable(error: Exception) -> SourceUnreadable:
    return SourceUnreadable(f"a file of raw_segments with its bytes can't be read: {reason_of(error)}")


class LandedFiles:
    """The data files that a task has open, and the contents of chunks: the last few of both that it used."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, LandedFile] = OrderedDict()
        self._held: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()  # by file and row

    def open(self, uri: str) -> LandedFile:
        file = self._open.pop(uri, None) or LandedFile(uri)
        self._open[uri] = file
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)[1].close()
        return file

    def content(self, chunk: Chunk, uri: str) -> np.ndarray:
        """Reads the bytes of a chunk, uint8[size]. Raises SourceUnreadable if they are not those landed."""
        place = uri, chunk.row
        if place not in self._held:
            self._held[place] = self._read(chunk, uri)
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        return self._held[place]

    def _read(self, chunk: Chunk, uri: str) -> np.ndarray:
        stored: Any = self.open(uri).content(chunk.row).as_buffer()
        if stored is None or stored.size != chunk.size:
            held = "is null" if stored is None else f"has {stored.size} bytes"
            raise SourceUnreadable(
                f"content of its chunk at byte {chunk.position} in raw_segments {held}, {chunk.size} were "
                f"landed: {CURE}"
            )
        content = np.frombuffer(stored, dtype=np.uint8)
        if chunk.crc32c is not None and crc32c(content, 0, chunk.size, 0) != chunk.crc32c:
            raise SourceUnreadable(
                f"content of its chunk at byte {chunk.position} in raw_segments is not what was landed "
                f"(crc32c): {CURE}"
            )
        return content

    def close(self) -> None:
        self._held.clear()
        while self._open:
            self._open.popitem()[1].close()


class LandedChunks(Chunks):
    """Chunks that stay in the files of ``raw_segments`` and are read from there when needed."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = LandedFiles()
        self._known: set[tuple[str, str, int]] = set()
        self._begins: list[int] = []  # of each chunk in the bytes of all
        self._chunks: list[tuple[Chunk, str]] = []

    def add(self, place: Hashable, segment: str, position: int, uri: str) -> None:
        """Adds the chunks at a position of a segment in a file, unless these three were added before.

        Raises a SourceError where the file can't be read.
        """
        if (uri, segment, position) in self._known:
            return
        self._known.add((uri, segment, position))
        for chunk in self._opened.open(uri).chunks(segment):
            if chunk.position == position:
                self._begins.append(self._end)
                self._chunks.append((chunk, uri))
                self._place(place, position, chunk.size)

    def read_at(self, at: int, view: np.ndarray) -> int:
        number = bisect_right(self._begins, at) - 1
        part = self._opened.content(*self._chunks[number])[at - self._begins[number] :][: len(view)]
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._opened.close()


class LandedSource:
    """The bytes of one landed segment.

    uris: of the data files that may hold chunks of it, those with its last chunks first. length: bytes of it
    that were landed.
    """

    def __init__(self, segment: str, uris: Sequence[str], length: int, opened: LandedFiles) -> None:
        self._segment, self._length, self._opened = segment, length, opened
        self._unopened = list(uris)
        self._chunks: list[tuple[Chunk, str]] = []  # of the files that were opened, by position

    def size(self) -> int:
        return self._length

    def read_into(self, position: int, view: np.ndarray) -> int:
        done = 0
        while done < len(view) and position + done < self._length:
            chunk, uri = self._find(position + done)
            content = self._opened.content(chunk, uri)
            part = content[position + done - chunk.position :][: len(view) - done]
            view[done : done + len(part)] = part
            done += len(part)
        return done

    def _find(self, position: int) -> tuple[Chunk, str]:
        while True:
            at = bisect_right(self._chunks, position, key=lambda known: known[0].position) - 1
            chunk = self._chunks[at][0] if at >= 0 else None
            if chunk is not None and position < chunk.end:
                return self._chunks[at]
            if not self._unopened:
                raise SourceUnreadable(f"raw_segments has no chunk with byte {position} of it: {CURE}")
            uri = self._unopened.pop(0)
            self._chunks += [(chunk, uri) for chunk in self._opened.open(uri).chunks(self._segment)]
            self._chunks.sort(key=lambda known: known[0].position)

    def cut_at(self, position: int) -> tuple[int, bool]:
        """Returns where to cut the segment in place of ``position``, and whether a batch begins there.

        It is cut at the end of a chunk where that is the end of a batch by length fields: a chunk is read
        whole, so parts that end within it read it twice, and a search for a batch reads several. Elsewhere it
        is cut at ``position``.
        """
        chunk = self._find(position - 1)[0]
        return (chunk.end, True) if chunk.end == chunk.whole_bytes < self._length else (position, False)

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        return []

    def close(self) -> None:
        """Does nothing: the files belong to the task."""
