"""Joins the lines that Spark's ``text`` has read to the bytes of their files.

This is the only way in which Spark reads files in parts that it alone can open. Lines may end anywhere: every
byte between two separators is in a line as it is. Two things ``text`` does not bring: a separator that ends a
file, and the byte-order mark of UTF-8 (three bytes) that begins one. No segment begins with that, so such a
file is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.spark.protocol import SLICE_SCHEMA, ArrowBatches

# The high bytes of a base offset below 2**48, so every batch has some. More lines than batches cost little;
# a file without any would be one line. Two bytes, not three: what is missing tells a separator from a mark.
# It overlaps itself, so only a reader from the start of the file knows which zeros are a separator's
SEPARATOR = b"\0\0"
_CHUNK_BYTES = 1 << 20  # at least, but for the last chunk of a file


def join_lines(slices: pa.Table, batches: ArrowBatches) -> ArrowBatches:
    """Yields rows of SLICE_SCHEMA with the bytes of files as chunks that follow each other.

    slices: one of each file, SLICE_SCHEMA without content. batches: ``file_path`` (percent-encoded),
    ``file_size`` (null: Spark has split the file) and ``value`` (binary) of lines, those of a file one after
    the other, in their order. A file that does not come to its size ends in a chunk whose content is null.
    """
    plan = {row["file"] or row["segment"]: row for row in slices.to_pylist()}
    file: _Joined | None = None
    for path, size, values in _runs(batches):
        if file is None or path != file.path:
            if file is not None:
                yield from file.end()
            file = _Joined(path, size, plan[_named_by_sources(path)])
        yield from file.add(values)
    if file is not None:
        yield from file.end()


def _runs(batches: ArrowBatches) -> Iterator[tuple[str, int | None, pa.Array]]:
    """Yields (path, size, lines) of each file in each batch."""
    for batch in batches:
        paths, sizes, values = batch.columns
        ends = pc.run_end_encode(paths).run_ends.to_pylist()
        for begin, end in zip([0, *ends], ends, strict=False):
            yield paths[begin].as_py(), sizes[begin].as_py(), values.slice(begin, end - begin)


def _named_by_sources(path: str) -> str:
    """Returns a path as sources name it: ``file:///a b`` for ``file:/a%20b``."""
    scheme, _, rest = unquote(path).partition(":")
    return f"file:///{rest.lstrip('/')}" if scheme == "file" else f"{scheme}:{rest}"


class _Joined:
    """Collects the bytes of one file from its lines.

    size: bytes of the file when Spark listed it, or None.
    """

    def __init__(self, path: str, size: int | None, row: dict[str, Any]) -> None:
        self.path = path
        self._size, self._row = size, row
        self._parts: list[bytes] = []
        self._held = self._position = 0  # bytes in the parts, and before them
        self._is_first = True

    def add(self, values: pa.Array) -> ArrowBatches:
        """Adds lines; yields the chunk that they complete, if they do."""
        together = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined = pc.binary_join(together, SEPARATOR)[0].as_py()
        self._put(joined if self._is_first else SEPARATOR + joined)
        self._is_first = False
        if self._held >= _CHUNK_BYTES:
            yield self._chunk(b"".join(self._parts))

    def end(self) -> ArrowBatches:
        """Yields the last chunks.

        ``text`` gives no line after a separator that ends the file: it is added.
        """
        if self._position + self._held + len(SEPARATOR) == self._size:
            self._put(SEPARATOR)
        yield self._chunk(b"".join(self._parts))
        if self._position != self._size:
            yield self._chunk(None)

    def _put(self, part: bytes) -> None:
        self._parts.append(part)
        self._held += len(part)

    def _chunk(self, content: bytes | None) -> pa.RecordBatch:
        row = {**self._row, "content": content, "chunk_position": self._position}
        self._position += len(content or b"")
        self._parts, self._held = [], 0
        return pa.RecordBatch.from_pylist([row], schema=SLICE_SCHEMA)
