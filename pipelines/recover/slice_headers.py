"""Reads headers and checksums of one slice of a segment in a worker process, and no payload but wrappers."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np

from kafka_log_lake.pipelines.plan.headers import claimed_offsets
from kafka_log_lake.pipelines.plan.slices import Slice
from kafka_log_lake.pipelines.recover.entries import (
    BASE_OFFSET,
    LENGTH,
    TORN,
    UNPLACED,
    ZEROS,
    CopyDamage,
    SliceHeaders,
    concatenated,
    entries_of,
    rows_where,
)
from kafka_log_lake.pipelines.recover.whole_batches import MOST_BYTES, whole_batches
from kafka_log_lake.pipelines.tasks.slice_scan import read_slice
from kafka_log_lake.udfs.decoder.decoded import Damage, Totals
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.spark.protocol import SliceReport
from kafka_log_lake.udfs.storage.byte_source import ByteSource

_FEW = 64  # bytes of a damaged range that are kept
_PLACE = ("batch_position", "offset")  # of a record


def read_headers(slice_: Slice, max_batch_uncompressed: int, folder: str) -> SliceHeaders:
    """Reads the headers of a slice into a new file in ``folder``. Never raises for a segment's content."""

    def read(source: ByteSource, report: SliceReport) -> SliceHeaders:
        decoder = SegmentDecoder(
            source,
            slice_.range,
            max_batch_uncompressed=max_batch_uncompressed,
            quarantine_content_bytes=_FEW,
            columns=_PLACE,
            content_crc=False,
            select=_wrappers,
        )
        reading = _Reading(source, slice_.segment.length, decoder)
        report = replace(report, totals=reading.read())
        if not reading.entries:
            return SliceHeaders(report, None, reading.hurts)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".npy", delete=False) as file:
            np.save(file, concatenated(reading.entries))
        return SliceHeaders(report, file.name, reading.hurts)

    return read_slice(slice_, read, SliceHeaders)


def _wrappers(_: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Returns bool[n] of BATCH[n]: wrappers of magic 0 and 1, expanded as their offsets are inside."""
    is_wrapper: np.ndarray = (batches["magic"] < f.MAGIC_V2) & (batches["codec"] != f.CODEC_NONE)
    return is_wrapper


def _set_last(entries: np.ndarray, positions: np.ndarray, lasts: np.ndarray) -> None:
    """Sets the last offsets (int64[n]) of batches of magic 0 and 1 at these positions (int64[n]).

    entries: ENTRY[m] by position. lasts: by content, as no checksum covers the offset in the header.
    """
    at = np.searchsorted(entries["position"], positions)
    is_older = entries["magic"][at] < f.MAGIC_V2
    at, lasts = at[is_older], lasts[is_older]
    entries["mended"][at[lasts != entries["last"][at]]] = BASE_OFFSET
    entries["delta"][at] = np.maximum(lasts - entries["base"][at], 0)
    entries["last"][at] = entries["base"][at] + entries["delta"][at]


class _Reading:
    def __init__(self, source: ByteSource, length: int, decoder: SegmentDecoder) -> None:
        self._source, self._length, self._decoder = source, length, decoder
        self.entries: list[np.ndarray] = []
        self.hurts: list[CopyDamage] = []

    def read(self) -> Totals:
        for group in self._decoder:
            is_sound = group.batches["fault"] == 0
            if is_sound.any():
                self.entries.append(entries_of(rows_where(group.batches, is_sound)))
            if group.records is not None:
                places, offsets = (group.records.column(name).to_numpy() for name in _PLACE)
                ends = np.flatnonzero(np.diff(places, append=-1))
                _set_last(self.entries[-1], places[ends], offsets[ends])
            faulty = group.batches[~is_sound]
            for damage in group.damages:
                header = faulty[faulty["position"] == damage.position]
                if len(header) and header["fault"][0] == faults.WRAPPER_OFFSET:
                    self._add_wrapper(header)
                else:
                    self._add_damage(damage, header)
        totals = self._decoder.totals
        if totals.tail == "torn":
            self._add_tail(self._length - totals.tail_bytes, totals.tail_bytes)
        elif totals.tail_bytes:
            at = self._length - totals.tail_bytes
            self.hurts.append(CopyDamage(0, at, totals.tail_bytes, ZEROS, "zeros to the end of the segment"))
        return totals

    def _add_wrapper(self, header: np.ndarray) -> None:
        """Adds a wrapper (BATCH[1]) that is sound except for its offset, below that of its last message."""
        entries, at = entries_of(header), int(header["data_at"][0])
        first = int.from_bytes(self._decoder.data.scratch[at : at + 8].tobytes(), "big", signed=True)
        entries["base"] = UNPLACED
        _set_last(entries, header["position"], UNPLACED + header["fault_expected"] - first)
        self.entries.append(entries)

    def _add_damage(self, damage: Damage, header: np.ndarray) -> None:
        """Adds a damaged range, and a batch that is not sound if the range has a header.

        header: BATCH[1] where the range begins with a header that can be read; BATCH[0] else.
        """
        for position, size in self._without_whole(damage.position, damage.size):
            first = last = None
            if len(header) and position == damage.position:
                ghost = entries_of(header, is_sound=False)
                ghost["size"] = np.minimum(ghost["size"], size)
                self.entries.append(ghost)
                if ghost["count"][0] == ghost["delta"][0] + 1:  # else one of both is wrong, or both
                    first, last = int(ghost["base"][0]), int(ghost["last"][0])
            self.hurts.append(CopyDamage(0, position, size, damage.reason, damage.detail, first, last))

    def _add_tail(self, position: int, size: int) -> None:
        for begin, rest in self._without_whole(position, size):
            claim = claimed_offsets(self._source, begin, self._length)
            detail = f"the segment ends inside a batch, {rest} bytes of it are there"
            self.hurts.append(CopyDamage(0, begin, rest, TORN, detail, *(claim or (None, None))))

    def _without_whole(self, position: int, size: int) -> list[tuple[int, int]]:
        """Adds batches that are whole except for their length; returns (position, size) of the rest."""
        if size > MOST_BYTES:
            return [(position, size)]
        data = np.zeros(size, dtype=np.uint8)
        self._source.read_into(position, data)
        batches: np.ndarray = whole_batches(data, position)
        if len(batches):
            entries = entries_of(batches)
            entries["mended"] = LENGTH
            self.entries.append(entries)
        begins = [position, *(batches["position"] + batches["size"]).tolist()]
        ends = [*batches["position"].tolist(), position + size]
        return [(begin, end - begin) for begin, end in zip(begins, ends, strict=True) if end > begin]
