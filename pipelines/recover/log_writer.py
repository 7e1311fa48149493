"""Writes a healed log: segments of unchanged batches, their indexes, and the files next to them.

A segment is written as a list of pieces of the copies, whose bytes are read where they are; ``copy_log``
writes it with its bytes. Only what no checksum covers is written anew in a batch, where it was corrected. A
file is written under another name first, so that a run that dies leaves no half of a file under a segment's
name. Nothing is flushed to the disk here: each run writes the log anew, and ``--write`` flushes what it gives
away.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.listing.uris import canonical
from kafka_log_lake.pipelines.recover.compare import Compared
from kafka_log_lake.pipelines.recover.entries import MOST_RELATIVE, SegmentFile
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.file_names import file_name
from kafka_log_lake.udfs.indexes.checkpoint_files import LEADER_EPOCH_FILE
from kafka_log_lake.udfs.storage.byte_source import PIECES, ByteSource, path_of_uri, read_at
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.pieces import Piece, PiecesSource, pieces_text, read_pieces

SEGMENT_BYTES = 1 << 30
_INDEX_INTERVAL = 4096  # index.interval.bytes
_COPY_BYTES = 8 << 20
_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">iI"), struct.Struct(">qi")
_TEMPORARY = ".tmp"


@dataclass(frozen=True)
class LogToWrite:
    """A log made of batches of copies.

    files: by number of a copy, its segments. batches: ENTRY[n] by offset. start: first offset of the log.
    epochs: (leader epoch, start offset).
    """

    files: dict[int, list[SegmentFile]]
    batches: np.ndarray
    start: int
    epochs: Sequence[tuple[int, int]] = ()
    topic_id: str | None = None


def healed_log(compared: Compared) -> LogToWrite:
    """Returns the true log of a partition, to be written."""
    files = {copy.number: copy.files for copy in compared.copies}
    return LogToWrite(
        files, compared.healed.batches, compared.history.start, compared.history.epochs, compared.topic_id
    )


def segments_of(log: LogToWrite) -> Iterator[tuple[int, np.ndarray]]:
    """Cuts the log into segments: yields (base offset of the file, its batches: ENTRY[n]).

    No segment has more than SEGMENT_BYTES, unless it is one batch.
    """
    batches = log.batches
    at = 0
    while at < len(batches):
        base = int(batches["base"][at])
        if at == 0 and int(batches["last"][0]) - log.start <= MOST_RELATIVE:
            base = min(base, log.start)
        sizes = np.cumsum(batches["size"][at:])
        reach = batches["last"][at:] - base
        fits = (sizes <= SEGMENT_BYTES) & (reach <= MOST_RELATIVE)
        count = max(1, int(np.argmin(fits)) if not fits.all() else len(fits))
        yield base, batches[at : at + count]
        at += count


def records_of(log: LogToWrite, columns: Collection[str]) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Decodes the log without writing it: yields (int64[m], records), the index of each one's batch first."""
    from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder  # loads compiled kernels

    before, columns = 0, (*columns, "batch_position")
    for base, batches in segments_of(log):
        places = np.cumsum(batches["size"]) - batches["size"]
        with closing(PiecesSource(list(_pieces(log, batches)), open_source)) as source:
            whole = Range(source.size(), file_base_offset=base)
            for group in SegmentDecoder(source, whole, columns=columns, content_crc=False):
                if group.records is not None:
                    positions = group.records.column("batch_position").to_numpy(zero_copy_only=False)
                    yield before + np.searchsorted(places, positions), group.records
        before += len(batches)


def places_of(log: LogToWrite, folder: str) -> tuple[pa.Array, np.ndarray]:
    """Returns where each batch lies once the log is written: (string[n] segment URIs, int64[n] positions)."""
    uris = [pa.array([], pa.string())]
    positions = [np.zeros(0, dtype=np.int64)]
    for base, batches in segments_of(log):
        uris.append(pa.repeat(f"{canonical(folder)}/{file_name(base)}", len(batches)))
        positions.append(np.cumsum(batches["size"]) - batches["size"])
    return pa.concat_arrays(uris), np.concatenate(positions)


def write_log(log: LogToWrite, folder: str) -> list[SegmentFile]:
    """Writes the log into a folder, which it makes; removes other files there.

    Returns the segments by base offset; ``modified`` is the newest time of the files that they are taken
    from.
    """
    os.makedirs(folder, exist_ok=True)
    written, names = [], {LEADER_EPOCH_FILE, "partition.metadata"}
    for base, batches in segments_of(log):
        name = file_name(base)
        stem = name.removesuffix(".log")
        _write(f"{folder}/{name}{PIECES}", pieces_text(list(_pieces(log, batches))).encode())
        offsets, times = _indexes(base, batches)
        _write(f"{folder}/{stem}.index", offsets)
        _write(f"{folder}/{stem}.timeindex", times)
        names |= {f"{name}{PIECES}", f"{stem}.index", f"{stem}.timeindex"}
        uri = f"{canonical(folder)}/{name}"
        written.append(SegmentFile(uri, base, int(batches["size"].sum()), _modified(log, batches)))
    if not written:
        name = file_name(log.start)
        _write(f"{folder}/{name}", b"")
        names.add(name)
        modified = max((file.modified for files in log.files.values() for file in files), default=0)
        written.append(SegmentFile(f"{canonical(folder)}/{name}", log.start, 0, modified))
    _write(f"{folder}/{LEADER_EPOCH_FILE}", epochs_text(log).encode())
    if log.topic_id is not None:
        _write(f"{folder}/partition.metadata", partition_metadata(log.topic_id).encode())
    for name in os.listdir(folder):
        if name not in names:
            os.remove(f"{folder}/{name}")
    return written


def copy_log(folder: str, target: str) -> None:
    """Copies a log of ``write_log`` into a new folder, with bytes of segments for the lists of pieces."""
    os.mkdir(target)
    for name in sorted(os.listdir(folder)):
        if name.endswith(PIECES):
            _write_segment(f"{target}/{name.removesuffix(PIECES)}", read_pieces(f"{folder}/{name}"))
        else:
            shutil.copyfile(f"{folder}/{name}", f"{target}/{name}")


def epochs_text(log: LogToWrite) -> str:
    """Returns ``leader-epoch-checkpoint``: epochs from the log start on; the first begins there."""
    end = int(log.batches["last"][-1]) + 1 if len(log.batches) else log.start
    kept = [(epoch, offset) for epoch, offset in log.epochs if log.start < offset <= end]
    before = [epoch for epoch, offset in log.epochs if offset <= log.start]
    if before:
        kept.insert(0, (before[-1], log.start))
    return f"0\n{len(kept)}\n" + "".join(f"{epoch} {offset}\n" for epoch, offset in kept)


def partition_metadata(topic_id: str) -> str:
    """Returns the text of ``partition.metadata``."""
    return f"version: 0\ntopic_id: {topic_id}"


def _write(path: str, data: bytes) -> None:
    with open(path + _TEMPORARY, "wb") as file:
        file.write(data)
    os.replace(path + _TEMPORARY, path)


def _write_segment(path: str, pieces: Sequence[Piece]) -> None:
    with open(path + _TEMPORARY, "wb") as out:
        for uri, position, size, head in pieces:
            out.write(head)
            done = len(head) or _copied(uri, out, position, size)
            source = open_source(uri, position + size)
            try:
                for data in _read(source, position + done, size - done, _COPY_BYTES):
                    out.write(data.data)
            finally:
                source.close()
    os.replace(path + _TEMPORARY, path)


def _copied(uri: str, out: BinaryIO, position: int, size: int) -> int:
    """Copies a range of a local file within the kernel; returns how many bytes, 0 where that is not possible.

    The files may share blocks afterwards, where the file system can.
    """
    done, path = 0, path_of_uri(uri)
    if path is not None and hasattr(os, "copy_file_range"):
        out.flush()
        with suppress(OSError), open(path, "rb") as file:
            while got := os.copy_file_range(file.fileno(), out.fileno(), size - done, position + done):
                done += got
    return done


def _pieces(log: LogToWrite, batches: np.ndarray) -> Iterator[Piece]:
    """Yields the pieces of a segment: batches that follow each other in one file of one copy are one piece.

    A corrected batch is a piece of its own, with its right offset, length and leader epoch as new first
    bytes. Of magic 0 and 1 that offset is the last one, and there is no epoch: the checksum lies at that
    place.
    """
    follows = np.ones(max(0, len(batches) - 1), dtype=bool)
    for name in ("copy", "file"):
        follows &= batches[name][1:] == batches[name][:-1]
    follows &= batches["position"][1:] == batches["position"][:-1] + batches["size"][:-1]
    follows &= (batches["mended"][1:] == 0) & (batches["mended"][:-1] == 0)
    begins = np.flatnonzero(np.concatenate([[True], ~follows]))
    sizes = np.add.reduceat(batches["size"].astype(np.int64), begins)
    for first, size in zip(batches[begins], sizes.tolist(), strict=True):
        head = b""
        if first["mended"]:
            is_v2 = first["magic"] == f.MAGIC_V2
            head = struct.pack(">qi", int(first["base" if is_v2 else "last"]), size - f.LOG_OVERHEAD)
            head += struct.pack(">i", int(first["epoch"])) if is_v2 else b""
        uri = log.files[int(first["copy"])][int(first["file"])].uri
        yield Piece(uri, int(first["position"]), size, head)


def _modified(log: LogToWrite, batches: np.ndarray) -> int:
    """Returns when the newest source file of the batches was written: microseconds since 1970 UTC."""
    places = np.unique(np.stack([batches["copy"], batches["file"]], axis=1), axis=0)
    return max(log.files[copy][file].modified for copy, file in places.tolist())


def _read(source: ByteSource, position: int, size: int, block: int) -> Iterator[np.ndarray]:
    """Yields the bytes of a range, a block at a time. Raises SourceError where they are no longer there."""
    for at in range(position, position + size, block):
        data = np.empty(min(block, position + size - at), dtype=np.uint8)
        read_at(source, at, data, position + size)
        yield data


def _indexes(base: int, batches: np.ndarray) -> tuple[bytes, bytes]:
    """Returns the bytes of a segment's offset index and time index, as ``LogSegment.recover`` makes them."""
    offsets, times = bytearray(), bytearray()
    noted, position, newest, newest_offset, last_time = 0, 0, -1, base, -1
    for size, last, time in zip(
        batches["size"].tolist(), batches["last"].tolist(), batches["max_timestamp"].tolist(), strict=True
    ):
        if time > newest:
            newest, newest_offset = time, last
        if position - noted > _INDEX_INTERVAL:
            offsets += _OFFSET_ENTRY.pack(last - base, position)
            if newest > last_time:
                times += _TIME_ENTRY.pack(newest, newest_offset - base)
                last_time = newest
            noted = position
        position += size
    if newest > last_time:
        times += _TIME_ENTRY.pack(newest, newest_offset - base)
    return bytes(offsets), bytes(times)
