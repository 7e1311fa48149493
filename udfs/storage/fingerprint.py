"""Fingerprints of segments, which tell whether a file still holds what was decoded before.

The log cleaner rewrites a file under its name and keeps its modification time, so content decides. A
fingerprint holds marks, each a hash of a few bytes with their place, separated by slashes:

    first/last        the headers of the first batch and of the last one before decoded_bytes
    first/last/tail   and the first bytes after the last sound batch, where there are any: a tail, damage

A header holds its batch's checksum, so another batch shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from enum import StrEnum

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.format.layout import V2_HEADER_SIZE
from kafka_log_lake.udfs.storage.byte_source import ByteSource, ChunkSource, SourceChanged, SourceError
from kafka_log_lake.udfs.storage.opening import open_source

_TAIL_BYTES = 1 << 16
_BLOCK = 1 << 20

TO_CHECK_SCHEMA = pa.schema(
    [
        ("segment", pa.string()),
        ("decoded_bytes", pa.int64()),
        ("fingerprint", pa.string()),
        ("content_crc32c", pa.int64()),  # null: the marks alone
    ]
)
CHECKED_SCHEMA = pa.schema([("segment", pa.string()), ("marks", pa.string())])


class FileMatch(StrEnum):
    """How the bytes of a file match the fingerprint that was stored before."""

    SAME = "same"
    TAIL_CHANGED = "tail changed"
    CHANGED = "changed"
    UNREADABLE = "unreadable"


def mark(source: ByteSource, position: int, end: int, most: int = V2_HEADER_SIZE) -> str:
    """Makes one mark, ``position:bytes:hash``, of up to ``most`` bytes from ``position``, before ``end``."""
    head = np.zeros(max(0, min(most, end - position)), dtype=np.uint8)
    got = source.read_into(position, head)
    return f"{position}:{len(head)}:{hashlib.sha256(head[:got].tobytes()).hexdigest()[:16]}"


def fingerprint(
    source: ByteSource, last: int | None, end: int, stored: str | None, sound_end: int, length: int
) -> str:
    """Returns the fingerprint of a segment of ``length`` bytes, decoded up to ``end``.

    last: position of the last batch before ``end``, None where no batch came since. sound_end: where the last
    sound batch ends; what follows it, up to ``length``, is damage or a tail. stored: the fingerprint before,
    whose marks are kept where decoding continued after them.

    What was decoded last is read first: a source may still hold it.
    """
    before = stored.split("/") if stored else []
    known = last is None and len(before) > 1
    marks = [before[1] if known else mark(source, last or 0, end)]
    if length > sound_end:
        marks.append(mark(source, sound_end, length, _TAIL_BYTES))
    return "/".join([before[0] if before else mark(source, 0, end), *marks])


def compare_fingerprint(source: ByteSource, stored: str) -> FileMatch:
    """Compares the bytes of a source with a stored fingerprint."""
    for number, stored_mark in enumerate(stored.split("/")):
        position, size, _ = stored_mark.split(":")
        if isinstance(source, ChunkSource):  # the marks are in the order of their places
            source.keep_from(int(position))
        if mark(source, int(position), int(position) + int(size), int(size)) != stored_mark:
            return FileMatch.CHANGED if number < 2 else FileMatch.TAIL_CHANGED
    return FileMatch.SAME


def check_fingerprint(
    segment: str, decoded_bytes: int, stored: str | None, content_crc32c: int | None = None
) -> FileMatch:
    """Opens a segment and tells whether it still begins with what was decoded of it.

    content_crc32c: CRC-32C of its first ``decoded_bytes`` bytes then, to compare all of them.
    """
    try:
        source = open_source(segment)
    except SourceError:
        return FileMatch.UNREADABLE
    try:
        if source.size() < decoded_bytes:
            return FileMatch.CHANGED
        marks = compare_fingerprint(source, stored) if stored else FileMatch.SAME
        if marks is FileMatch.CHANGED or content_crc32c is None:
            return marks
        return marks if _content_crc32c(source, decoded_bytes) == content_crc32c else FileMatch.CHANGED
    except SourceError:
        return FileMatch.UNREADABLE
    finally:
        source.close()


def _content_crc32c(source: ByteSource, end: int) -> int:
    from kafka_log_lake.udfs.kernels.checksums import crc32c  # loads LLVM, which most planning does not need

    block, value, at = np.empty(_BLOCK, dtype=np.uint8), 0, 0
    while at < end:
        got = source.read_into(at, block[: min(_BLOCK, end - at)])
        if got == 0:
            raise SourceChanged(f"ends at byte {at}, had {end}")
        value = int(crc32c(block, 0, got, value))
        at += got
    return value


def check_stage() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns ``check_fingerprint`` as a mapInArrow callable: TO_CHECK_SCHEMA in, CHECKED_SCHEMA out."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = [check_fingerprint(*row.values()) for row in batch.to_pylist()]
            arrays = [batch.column("segment"), pa.array(marks, pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, schema=CHECKED_SCHEMA)

    return stage
