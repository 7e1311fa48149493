"""Prints a segment or a snapshot as the lines of Kafka's tool, in pieces of bytes.

Records of sound batches become lines in a kernel, a group at a time. Batches at fault, control batches and
records of internal topics are read one by one (``kafka_reader``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.dump_log.payloads import (
    STRING,
    Parse,
    control_text,
    fixed,
    plain_parse,
    texts_of,
    topic_parse,
)
from kafka_log_lake.udfs.decoder.decoded import Damage, Group, Range
from kafka_log_lake.udfs.decoder.kafka_reader import Message, Record, Refused, records_of
from kafka_log_lake.udfs.decoder.lenient import LenientDecoder
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, SegmentDecoder
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.plain_header import read_header
from kafka_log_lake.udfs.kernels import log_lines as k
from kafka_log_lake.udfs.kernels.framing import BATCH
from kafka_log_lake.udfs.kernels.jvm_text import repair_bytes
from kafka_log_lake.udfs.storage.byte_source import ByteSource
from kafka_log_lake.udfs.values.internal.releases import NEWEST

_OUT_BYTES = 4 << 20
_COLUMNS = ("key", "value", "offset", "timestamp_ms", "headers", "sequence")
_TIMES = {
    f.NO_TIMESTAMP_TYPE: "NoTimestampType",
    f.CREATE_TIME: "CreateTime",
    f.LOG_APPEND_TIME: "LogAppendTime",
}
_NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Prints:
    """The parts of a log to print.

    records: those of batches, too. contents: keys and values, decoded by key_kind and value_kind, or as
    records of an internal topic. metadata: what is known of a record besides them. more: what the tool does
    not print: values of headers, damage, and what follows it. release: the release of Kafka's tool.
    """

    records: bool = False
    contents: bool = False
    metadata: bool = True
    more: bool = False
    key_kind: str = STRING
    value_kind: str = STRING
    topic: str | None = None
    release: str = NEWEST
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED

    @property
    def bits(self) -> int:
        bits = k.RECORDS * self.records + k.METADATA * self.metadata + k.CONTENTS * self.contents
        return bits + k.HEADER_VALUES * self.more

    @property
    def is_decoded(self) -> bool:
        """Returns whether keys and values are decoded, not printed as the text of their bytes."""
        return bool(self.topic) or (self.key_kind, self.value_kind) != (STRING, STRING)

    @property
    def parse(self) -> Parse:
        if self.topic:
            return topic_parse(self.topic, self.release)
        return plain_parse(self.key_kind, self.value_kind)


@dataclass
class LogText:
    """Prints one file of ``length`` bytes; iterate once. gaps: (offset, the one that follows it), in order.

    Raises Refused where the tool fails, unless ``prints.more``.
    """

    source: ByteSource
    length: int
    prints: Prints
    gaps: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self._out = np.empty(_OUT_BYTES, dtype=np.uint8)
        self._parse = self.prints.parse
        self._last_offset = -1
        self._damages: dict[int, Damage] = {}  # of the group, those that are not printed yet
        self._large: np.ndarray | None = None  # a batch whose records come in chunks

    def __iter__(self) -> Iterator[np.ndarray]:
        decode = SegmentDecoder if self.prints.more else LenientDecoder
        decoder = decode(
            self.source,
            Range(self.length),
            max_batch_uncompressed=self.prints.max_batch_uncompressed,
            quarantine_content_bytes=0,
            columns=_COLUMNS if self.prints.records else (),
            content_crc=False,
        )
        for group in decoder:
            self._damages = {damage.position: damage for damage in group.damages} if self.prints.more else {}
            yield from self._group(group, decoder)
            yield from (_text(_damage_line(damage)) for damage in self._damages.values())
        self.end = self.length - decoder.totals.tail_bytes
        if self.prints.more and decoder.totals.tail_bytes:
            size = decoder.totals.tail_bytes
            line = f"tail: {decoder.totals.tail} position: {self.end} size: {size}\n"
            yield _text(line.encode())

    def _group(self, group: Group, decoder: SegmentDecoder) -> Iterator[np.ndarray]:
        batches, records = group.batches, group.records
        if not len(batches):
            if records is not None and self._large is not None:
                counts = np.array([records.num_rows], dtype=np.int64)
                rows = self._rows(records, None)
                if rows is not None:
                    yield from self._bulk(self._large, counts, rows, [0, 0, 0])
            return
        counts = batches["record_count"].astype(np.int64)
        is_chunked = records is None and bool(counts.any()) and self.prints.records
        rows = self._rows(records, (decoder, batches)) if self.prints.records else None
        alone = self._read_alone(batches, is_chunked, rows is None and records is not None)
        self._large = batches.copy() if is_chunked and not alone.any() else None
        if is_chunked:
            counts[:] = 0
        rows = rows or _no_rows()
        starts = np.cumsum(counts) - counts
        begin = 0
        for at in [*np.flatnonzero(alone).tolist(), len(batches)]:
            if begin < at:
                run = slice(begin, at)
                yield from self._bulk(batches[run], counts[run], rows, [0, -1, int(starts[begin])])
            if at < len(batches):
                yield from self._alone(batches[at])
            begin = at + 1

    def _read_alone(self, batches: np.ndarray, is_chunked: bool, no_columns: bool) -> np.ndarray:
        """Returns bool[n]: which batches have their records read one by one."""
        odd = batches["fault"] != 0
        odd |= batches["codec"] > f.CODEC_ZSTD
        if not self.prints.records:
            return odd
        if self.prints.topic or no_columns:
            return np.ones(len(batches), dtype=bool)
        is_v2 = batches["magic"] >= f.MAGIC_V2
        odd |= is_v2 & (batches["attributes"] & f.CONTROL_MASK != 0)
        odd |= ~is_v2 & (batches["marks"] & faults.LENGTH_BELOW_NULL != 0)  # printed as stored
        return odd | (~is_v2 & is_chunked)

    # By the kernel

    def _rows(
        self, records: pa.RecordBatch | None, of: tuple[SegmentDecoder, np.ndarray] | None
    ) -> k.RecordColumns | None:
        """Returns a group's columns for the kernel; None without records, or if one can't be decoded."""
        if records is None or self.prints.topic:
            return None
        keys = texts_of(records.column("key"), self.prints.key_kind)
        values = texts_of(records.column("value"), self.prints.value_kind)
        if keys is None or values is None:
            return None
        headers = records.column("headers")
        starts = np.frombuffer(headers.buffers()[1], dtype=np.int32, count=len(headers) + 1)
        pairs = headers.values
        crcs, valid = _NO_ROWS, _NO_ROWS.astype(bool)
        if of is not None and (of[1]["magic"] < f.MAGIC_V2).any():
            crcs, valid = np.zeros(len(keys.sizes), dtype=np.int64), np.zeros(len(keys.sizes), dtype=bool)
            k.message_crcs(*of[0].data, of[1], crcs, valid)
        return k.RecordColumns(
            _numbers(records, "offset"),
            _numbers(records, "timestamp_ms"),
            _numbers(records, "sequence"),
            keys,
            values,
            fixed(starts),
            texts_of(pairs.field(0).view(pa.binary()), STRING) or _no_texts(),
            texts_of(pairs.field(1), STRING) or _no_texts(),
            fixed(crcs),
            fixed(valid),
        )

    def _bulk(
        self, batches: np.ndarray, counts: np.ndarray, rows: k.RecordColumns, start: list[int]
    ) -> Iterator[np.ndarray]:
        state = np.array(start, dtype=np.int64)
        while state[0] < len(batches):
            size = int(k.put_lines(self._out, batches, counts, rows, state, self.prints.bits))
            if size:
                yield _text(self._out[:size])
            elif state[0] < len(batches):
                self._out = np.empty(2 * len(self._out), dtype=np.uint8)
        self._note_offsets(rows.offsets[start[2] : int(state[2])])

    def _note_offsets(self, offsets: np.ndarray) -> None:
        if not len(offsets):
            return
        before = np.concatenate([[self._last_offset], offsets[:-1]])
        gaps = (offsets != before + 1) & (before != -1)
        if gaps.any():
            self.gaps += zip(before[gaps].tolist(), offsets[gaps].tolist(), strict=True)
        self._last_offset = int(offsets[-1])

    # One by one

    def _alone(self, e: Any) -> Iterator[np.ndarray]:
        batch = np.zeros(1, dtype=BATCH)
        batch[0] = e
        pieces: list[bytes] = []
        try:
            self._put_batch(batch, pieces)
        except Refused as why:
            text = b"".join(pieces)
            if not self.prints.more:
                yield _text(text)
                raise Refused(f"{why}, in the batch at position {e['position']}") from None
            pieces = [text if text.endswith(b"\n") else text + b"\n"]
        damage = self._damages.pop(int(e["position"]), None)
        if damage is not None:
            pieces.append(_damage_line(damage))
        if any(pieces):
            yield _text(b"".join(pieces))

    def _put_batch(self, batch: np.ndarray, pieces: list[bytes]) -> None:
        e = batch[0]
        out = np.empty(2 * k.BATCH_ROOM, dtype=np.uint8)
        size = k.put_lines(out, batch, np.zeros(1, dtype=np.int64), _no_rows(), np.array([0, -1, 0]), 0)
        line = out[: int(size)].tobytes()
        content = np.empty(int(e["size"]), dtype=np.uint8)
        self.source.read_into(int(e["position"]), content)
        if (e["codec"] > f.CODEC_ZSTD or e["magic"] < f.MAGIC_V0) and not self.prints.more:
            pieces.append(line[: line.index(b" position: ")])
            header = read_header(content.tobytes(), len(content), None)
            wrong = header.field("magic").wrong or header.field("attributes").wrong
            assert wrong is not None
            raise Refused(wrong.describe(int(e["position"])))
        pieces.append(line)
        if not self.prints.records:
            return
        limit = self.prints.max_batch_uncompressed
        for record in records_of(e, content.tobytes(), limit):
            self._note_offsets(np.array([record.offset]))
            self._put_record(e, record, pieces)
            pieces.append(b"\n")

    def _put_record(self, e: Any, record: Record | Message, pieces: list[bytes]) -> None:
        is_control = e["magic"] >= f.MAGIC_V2 and e["attributes"] & f.CONTROL_MASK
        prefix = b"| "
        if self.prints.metadata:
            time = _TIMES[int(e["timestamp_type"])]
            line = f"| offset: {record.offset} {time}: {record.timestamp} keySize: {record.key_size}"
            pieces.append(f"{line} valueSize: {record.value_size}".encode())
            pieces.append(_details(record, self.prints.more))
            prefix = b" "
            if is_control and isinstance(record, Record):
                pieces.append(control_text(record))
        if self.prints.contents and not is_control:
            key, payload = self._parse(record.offset, record.key, record.value)
            if key is not None:
                pieces.append(prefix + b"key: " + key)
            if payload is not None:
                pieces.append(b" payload: " + payload)


def _details(record: Record | Message, more: bool) -> bytes:
    """Returns the end of a record's metadata: sequence and headers of magic 2, else isValid and crc."""
    if isinstance(record, Message):
        return f" isValid: {'true' if record.is_valid else 'false'} crc: {record.crc}}}".encode()
    names = b",".join(name for name, _ in record.headers)
    text = f" sequence: {record.sequence} headerKeys: [".encode() + names + b"]"
    if more and record.headers:
        text += b" headerValues: [" + b",".join(b"null" if v is None else v for _, v in record.headers) + b"]"
    return text


def _damage_line(damage: Damage) -> bytes:
    """Returns the line of a damaged range: where it is, and why."""
    where = f"position: {damage.position} size: {damage.size} nextPosition: {damage.next_position}"
    return f"damage: {damage.reason} {where} detail: {damage.detail}\n".encode()


def _text(data: np.ndarray | bytes) -> np.ndarray:
    """Returns uint8[n]: the bytes as the JVM writes them, with U+FFFD for what is not UTF-8."""
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = pa.py_buffer(np.array([0, len(raw)], dtype=np.int32))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(raw)]).validate(full=True)
        return raw
    except pa.ArrowInvalid:
        out = np.empty(3 * len(raw), dtype=np.uint8)
        return out[: int(repair_bytes(raw, out))]


def _numbers(records: pa.RecordBatch, name: str) -> np.ndarray:
    return fixed(records.column(name).to_numpy())


def _no_texts() -> k.TextColumn:
    none = np.zeros(0, dtype=np.int32)
    return k.TextColumn(fixed(np.zeros(1, dtype=np.int32)), fixed(none), fixed(np.zeros(0, dtype=np.uint8)))


def _no_rows() -> k.RecordColumns:
    numbers, none = fixed(_NO_ROWS), fixed(np.zeros(0, dtype=np.int32))
    starts, flags = fixed(np.zeros(1, dtype=np.int32)), fixed(np.zeros(0, dtype=bool))
    texts = _no_texts()
    return k.RecordColumns(numbers, numbers, none, texts, texts, starts, texts, texts, numbers, flags)
