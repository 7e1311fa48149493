"""Marks of a segment: is what was decoded before still the beginning of this file?

The log cleaner rewrites a file under its name and keeps its modification time, so content decides. A
fingerprint holds two marks, each a hash of an entry's header with its place: the first entry's, and that of
the last entry before the decoded end. A header holds its batch's checksum, so another batch shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from udfs.format.layout import V2_HEADER_SIZE
from udfs.source.byte_source import ByteSource, SourceChanged, open_source

MARKS_DDL = "segment string, unchanged boolean"
_MARKS_SCHEMA = pa.schema([("segment", pa.string()), ("unchanged", pa.bool_())])


def mark(source: ByteSource, position: int, end: int) -> str:
    """One mark: ``position:bytes:hash`` of the header at ``position``, nothing at or past ``end`` of it."""
    head = np.zeros(max(0, min(V2_HEADER_SIZE, end - position)), dtype=np.uint8)
    got = source.read_into(position, head)
    return f"{position}:{len(head)}:{hashlib.sha256(head[:got].tobytes()).hexdigest()[:16]}"


def fingerprint(source: ByteSource, last_entry: int, end: int, stored: str | None) -> str:
    """The fingerprint of what was decoded up to ``end``; ``last_entry``: position of the last entry in it.

    ``stored``: the one before, whose first mark holds on where decoding went on behind it.
    """
    first = stored.split("/")[0] if stored else mark(source, 0, end)
    return f"{first}/{mark(source, last_entry, end)}"


def holds(source: ByteSource, stored: str) -> bool:
    """Whether the bytes at both marks of a fingerprint are still those that it was made of."""
    for one in stored.split("/"):
        position, size, _ = one.split(":")
        if mark(source, int(position), int(position) + int(size)) != one:
            return False
    return True


def _unchanged(uri: str, decoded_bytes: int, stored: str, content_crc32c: int | None) -> bool:
    try:
        source = open_source(uri)
    except SourceChanged:
        return False
    try:
        if source.size() < decoded_bytes or not holds(source, stored):
            return False
        if content_crc32c is None:
            return True
        from udfs.recovery.resync import Prover

        return Prover(source, decoded_bytes).content_crc(0, decoded_bytes) == content_crc32c
    except SourceChanged:
        return False
    finally:
        source.close()


def _reader(whole: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.to_pylist()
            verdicts = [
                _unchanged(
                    row["uri"],
                    row["decoded_bytes"],
                    row["fingerprint"],
                    row.get("content_crc32c") if whole else None,
                )
                for row in rows
            ]
            yield pa.RecordBatch.from_arrays(
                [pa.array([row["segment"] for row in rows], pa.string()), pa.array(verdicts, pa.bool_())],
                schema=_MARKS_SCHEMA,
            )

    return read


def read_marks() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A mapInArrow stage over (segment, uri, length, decoded_bytes, fingerprint): do the marks still hold?

    False also where the file is gone, unreadable or shorter than ``decoded_bytes``. Rows: MARKS_DDL.
    """
    return _reader(whole=False)


def read_content_marks() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As ``read_marks``, and the CRC-32C of the first ``decoded_bytes`` bytes is ``content_crc32c``."""
    return _reader(whole=True)
