"""The loop over a segment: windows -> sound entries -> expanded payloads -> columns; damage told apart.

Memory follows the window, the largest batch and the bound on one batch's expansion, never the segment.
One decoder serves the Spark stage, ``decode_segment`` and the tests alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from udfs.decoded import Damage, Piece, Range, Summary, describe_entry
from udfs.format import faults
from udfs.format import layout as f
from udfs.kernels import framing
from udfs.kernels.checksums import crc32c
from udfs.kernels.codecs import Scratch, expand
from udfs.kernels.fast_payloads import GROUP_ENDS, PROGRESS_SIZE, USED, expand_regular
from udfs.kernels.framing import ENTRY, scan_entries
from udfs.kernels.libraries import contexts
from udfs.kernels.record_columns import build_columns
from udfs.kernels.record_index import (
    CURSOR_SIZE,
    TOTALS_SIZE,
    group_end,
    index_entries,
    index_entry,
    most_records,
    new_rows,
    set_sums,
    start_cursor,
)
from udfs.recovery.resync import Prover
from udfs.source.byte_source import ByteSource, ChunkSource, FileSource, SourceChanged

WINDOW_BYTES = 2 << 20
MAX_BATCH_UNCOMPRESSED = 256 << 20
QUARANTINE_CONTENT_BYTES = 1 << 20
_ENTRIES = 1 << 13  # entries a scan takes at most
_ROWS = 1 << 17  # rows a group of entries has at most; a batch that can have more goes in chunks
_GROUP_BYTES = 4 << 20  # expanded bytes after which a group of entries ends
_ZEROS = pa.py_buffer(bytes(4 * _ROWS))  # codes of a column that says the same of every row


@dataclass
class SegmentDecoder:
    """Decodes a range of one segment; iterate once, then read ``summary``."""

    source: ByteSource
    range: Range
    window_bytes: int = WINDOW_BYTES
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED
    quarantine_content_bytes: int = QUARANTINE_CONTENT_BYTES
    content_crc: bool = True
    summary: Summary = field(default_factory=Summary)

    def __post_init__(self) -> None:
        self._prover = Prover(self.source, self.range.length)
        self._buf = np.empty(self.window_bytes, dtype=np.uint8)
        self._scratch = Scratch()
        self._entries = np.zeros(_ENTRIES, dtype=ENTRY)
        self._rows = new_rows(_ROWS)
        self._cursor = np.zeros(CURSOR_SIZE, dtype=np.int64)
        self._sums = np.zeros(TOTALS_SIZE, dtype=np.int64)
        self._progress = np.zeros(PROGRESS_SIZE, dtype=np.int64)
        self.summary.end_offset = self.range.previous_last_offset

    def __iter__(self) -> Iterator[Piece]:
        length = self.range.length
        stop = length if self.range.stop is None else min(self.range.stop, length)
        position = self.range.start
        if not self.range.exact:
            position, _ = self._prover.search(position, above=-1)
            if position < 0 or position >= stop:
                self.summary.end = length if position < 0 else position
                self.summary.begin = None if position < 0 else position
                return
        self.summary.begin = position
        while position < stop:
            if isinstance(self.source, ChunkSource):
                last = self.summary.last_entry_position  # its header makes the fingerprint's last mark
                self.source.keep_from(position if last is None else min(last, position))
            size = self._fill(position)
            count, used, why = scan_entries(self._buf, size, position, stop, self._entries)
            self._count_bytes(used)
            if count:
                yield from self._sound_entries(self._entries[:count])
            position += used
            if why in (framing.STOPPED, framing.FULL) or (why == framing.NEED_MORE and used):
                continue
            if why == framing.NEED_MORE and self._grow(position):
                continue
            begin = position
            position, piece = self._damaged(position)
            if self.content_crc:
                crc = self.summary.content_crc32c
                self.summary.content_crc32c = self._prover.content_crc(begin, position, crc)
            yield piece
            if self.summary.tail_bytes:
                break
        self.summary.end = position

    def _count_bytes(self, used: int) -> None:
        if used and self.content_crc:
            self.summary.content_crc32c = int(crc32c(self._buf, 0, used, self.summary.content_crc32c))

    def _fill(self, position: int) -> int:
        """Bring the window to ``position``; bytes in it."""
        wanted = min(len(self._buf), self.range.length - position)
        got = self.source.read_into(position, self._buf[:wanted])
        if got < wanted:
            raise SourceChanged(f"ends at byte {position + got}, planned with {self.range.length}")
        return wanted

    def _grow(self, position: int) -> bool:
        """Make the window hold the one entry at ``position``, if it is there and sound; False if not.

        Its checksum is read block by block first: no length that lies makes the window grow.
        """
        size = self._prover.size_at(position)
        if size <= len(self._buf) or size > self.range.length - position:
            return False
        header = self._prover.header_at(position)[0]
        if header["crc_stored"] != header["crc_computed"]:
            return False
        self._buf = np.empty(size, dtype=np.uint8)
        return True

    # Sound entries

    def _sound_entries(self, entries: np.ndarray) -> Iterator[Piece]:
        """Expand, index and build the columns of entries whose own checksum is right, in groups."""
        begin = 0
        while begin < len(entries):
            end = self._expand_group(entries, begin)
            if end == begin + 1 and most_records(entries[begin]) > _ROWS:
                yield from self._in_chunks(entries[begin:end])
            else:
                yield self._group(entries, begin, end)
            begin = end
        if len(self._buf) > self.window_bytes:
            self._buf = np.empty(self.window_bytes, dtype=np.uint8)
        self._scratch.shrink(4 * _GROUP_BYTES)

    def _expand_group(self, entries: np.ndarray, begin: int) -> int:
        """The end of a group of entries from ``begin`` on, the compressed ones among them expanded."""
        self._scratch.clear()
        k = int(group_end(entries, begin, _ROWS))
        if k > begin:
            return k
        self._progress[:] = 0
        limits, own = (self.max_batch_uncompressed, _ROWS, _GROUP_BYTES), contexts()
        while True:
            work = (self._scratch.data, self._progress, *limits, own.zstd, own.inflate)
            k, why = expand_regular(self._buf, entries, begin, k, *work)
            self._scratch.used = int(self._progress[USED])
            if why == GROUP_ENDS:
                return int(k)
            self._expand(entries[k])
            self._progress[USED] = self._scratch.used

    def _expand(self, entry: np.void) -> None:
        at, size = int(entry["payload_at"]), int(entry["payload_size"])
        codec, magic = int(entry["codec"]), int(entry["magic"])
        if size == 0 and magic == f.MAGIC_V2 and codec <= f.CODEC_ZSTD:
            return
        made = expand(codec, magic, self._buf[at : at + size], self._scratch, self.max_batch_uncompressed)
        entry["data_size"] = max(made, 0)
        if made < 0:
            entry["fault"] = -made
            entry["fault_at"] = entry["position"] + at - entry["at"]
            entry["fault_expected"] = self.max_batch_uncompressed
            if -made == faults.UNKNOWN_CODEC:
                entry["fault_expected"] = f.CODEC_ZSTD if magic == f.MAGIC_V2 else f.CODEC_LZ4
                entry["fault_found"] = codec
            return
        entry["expanded"] = 1
        entry["data_at"] = self._scratch.used
        self._scratch.used += made

    def _group(self, entries: np.ndarray, begin: int, end: int) -> Piece:
        totals = np.zeros(TOTALS_SIZE, dtype=np.int64)
        scratch = self._scratch.data
        work = (self._rows, self._cursor, totals, self._sums)
        n = int(index_entries(self._buf, scratch, entries, begin, end, *work))
        group = entries[begin:end]
        records = None
        if n:
            records, counts = build_columns(self._buf, scratch, group, self._rows, n, totals)
            self.summary.add_records(counts, n)
        return Piece(group, records, self._account(group))

    def _in_chunks(self, entry: np.ndarray) -> Iterator[Piece]:
        """A batch of very many records: checked whole first, then built a chunk of rows at a time."""
        e = entry[0]
        buf = self._scratch.data if e["expanded"] else self._buf
        totals = np.zeros(TOTALS_SIZE, dtype=np.int64)
        count = 0
        if not e["fault"]:
            start_cursor(e, self._cursor)
            count = int(index_entry(buf, e, self._rows, 0, 0, 1 << 62, self._cursor, totals))
            set_sums(e, max(count, 0), totals)
        yield Piece(entry, None, self._account(entry))
        start_cursor(e, self._cursor)
        while count > 0:
            totals[:] = 0
            n = int(index_entry(buf, e, self._rows, 0, 1, _ROWS, self._cursor, totals))
            records, counts = build_columns(self._buf, self._scratch.data, entry, self._rows, n, totals)
            self.summary.add_records(counts, n)
            yield Piece(entry[:0], records, [])
            count -= n

    def _account(self, entries: np.ndarray) -> list[Damage]:
        """Count the entries and make damages of the faulty ones among them."""
        if not self.summary.add_entries(entries):
            return []
        return [self._entry_damage(e) for e in entries[entries["fault"] != 0]]

    # Damage

    def _entry_damage(self, e: np.void) -> Damage:
        fault = faults.FAULTS[int(e["fault"])]
        position, size = int(e["position"]), int(e["size"])
        return self._damage(
            position, position + size, _stored_offset(e), fault.reason, describe_entry(e) or ""
        )

    def _damage(self, position: int, end: int, base_offset: int | None, reason: str, detail: str) -> Damage:
        content = np.empty(min(end - position, self.quarantine_content_bytes), dtype=np.uint8)
        self.source.read_into(position, content)
        self.summary.damaged += 1
        self.summary.quarantined_bytes += end - position
        return Damage(position, end - position, base_offset, reason, detail, end, content.tobytes())

    def _damaged(self, position: int) -> tuple[int, Piece]:
        """What lies at ``position``, where no sound entry begins: a tail, or damage; where it goes on."""
        size = self._prover.size_at(position)
        room = self.range.length - position
        if 0 < size <= room:
            return self._corrupt_entry(position, size)
        if self._prover.is_zero(position):
            return self._tail(position, "zeros")
        end = self._claimed_end(position) if size < 0 else -1
        if end < 0:
            end, _ = self._prover.search(position + 1, self._last_offset())
        if end < 0 and (size > 0 or size == framing.TOO_SHORT):
            if not self.range.has_successor:
                return self._tail(position, "torn")
            text = f"the segment ends inside an entry: expected {size} bytes, found {room}"
            if size < 0:
                text = f"the segment ends inside a header: found {room} bytes"
            damage = self._damage(position, self.range.length, None, "truncated", f"{text}, at {position}")
            return self.range.length, Piece(self._entries[:0], None, [damage])
        end = self.range.length if end < 0 else end
        damage = self._no_entry(position, size, end)
        return end, Piece(self._entries[:0], None, [damage])

    def _corrupt_entry(self, position: int, size: int) -> tuple[int, Piece]:
        """An entry with a wrong checksum; its length is believed if it leads on and swallows no log.

        What lies in it may look like a log up to its end: so a length that ends with the segment is believed.
        """
        entry = self._prover.header_at(position)
        end = position + size
        if end != self.range.length and not self._prover.is_sound(end):
            found, far = self._prover.search(position + 1, self._last_offset())
            if (0 <= found < end and far) or not self._prover.leads_on(end):
                end = self.range.length if found < 0 else found
        e = entry[0]
        e["fault"] = faults.CRC_MISMATCH
        e["fault_at"] = position
        e["fault_expected"], e["fault_found"] = e["crc_stored"], e["crc_computed"]
        e["data_size"] = 0
        last_offset = self.summary.end_offset
        self.summary.add_entries(entry)
        if last_offset is not None:  # a damaged header tells nothing of what may follow
            self.summary.end_offset = last_offset
        fault = faults.FAULTS[faults.CRC_MISMATCH]
        detail = describe_entry(e) or ""
        damage = self._damage(position, end, _stored_offset(e), fault.reason, detail)
        return end, Piece(entry, None, [damage])

    def _last_offset(self) -> int:
        return -1 if self.summary.end_offset is None else self.summary.end_offset

    def _header(self, position: int) -> np.ndarray:
        head = np.zeros(f.HEADER_UP_TO_MAGIC, dtype=np.uint8)
        self.source.read_into(position, head[: min(len(head), self.range.length - position)])
        return head

    def _claimed_end(self, position: int) -> int:
        """Where an entry of unknown magic says it ends, if the log goes on there; else -1."""
        head = self._header(position)
        size = int.from_bytes(head[f.LENGTH_POS : f.LOG_OVERHEAD].tobytes(), "big", signed=True)
        end = position + f.LOG_OVERHEAD + size
        if head[f.MAGIC_POS] <= f.MAGIC_V2 or size < f.V0_MIN_SIZE - f.LOG_OVERHEAD:
            return -1
        return end if end <= self.range.length and self._prover.leads_on(end) else -1

    def _no_entry(self, position: int, size: int, end: int) -> Damage:
        head = self._header(position)
        magic = int(head[f.MAGIC_POS])
        stored = int.from_bytes(head[f.LENGTH_POS : f.LOG_OVERHEAD].tobytes(), "big", signed=True)
        base_offset = int.from_bytes(head[: f.LENGTH_POS].tobytes(), "big", signed=True)
        if size == framing.UNKNOWN_MAGIC and position + f.LOG_OVERHEAD + stored == end:
            text = f"magic: expected 0, 1 or 2, found {magic}, at position {position}"
            return self._damage(position, end, base_offset, "unknown_magic", text)
        if size == framing.ILLEGAL_LENGTH or size > 0:
            least = (f.V0_MIN_SIZE, f.V1_MIN_SIZE, f.V2_HEADER_SIZE)[magic] - f.LOG_OVERHEAD
            most = self.range.length - position - f.LOG_OVERHEAD
            bounds = f"expected {least} to {most} for magic {magic}, found {stored}"
            text = f"length: {bounds}, at position {position}"
            return self._damage(position, end, base_offset, "invalid_header", text)
        text = f"no entry begins here: length {stored}, magic {magic}, at position {position}"
        return self._damage(position, end, None, "garbage", text)

    def _tail(self, position: int, kind: str) -> tuple[int, Piece]:
        self.summary.tail = kind
        self.summary.tail_bytes = self.range.length - position
        return position, Piece(self._entries[:0], None, [])


def _stored_offset(e: np.void) -> int:
    """The offset field of the entry: of a wrapper the outer one."""
    return int(e["last_offset"] if e["magic"] < f.MAGIC_V2 else e["base_offset"])


def decode_segment(
    path: str | os.PathLike[str],
    *,
    start: int = 0,
    window_bytes: int = WINDOW_BYTES,
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED,
    on_damage: Callable[[Damage], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode one segment file: the columns of ``records`` that the file alone knows, without Spark.

    ``start``: byte where an entry begins; ``window_bytes``: read at a time; ``on_damage``: called with each
    damaged range. Yields record batches in the order of the log. Raises FileNotFoundError, PermissionError.
    """
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
    source = FileSource(os.fspath(path))
    segment = pa.array(["file://" + os.path.realpath(path)])
    try:
        limits = (window_bytes, max_batch_uncompressed)
        decoder = SegmentDecoder(source, Range(length, start), *limits, content_crc=False)
        for piece in decoder:
            if on_damage is not None:
                for damage in piece.damages:
                    on_damage(damage)
            if piece.records is not None:
                yield _with_segment(piece.records, segment)
    finally:
        source.close()


def _with_segment(records: pa.RecordBatch, segment: pa.Array) -> pa.RecordBatch:
    n = records.num_rows
    codes = _ZEROS if n <= _ROWS else pa.py_buffer(bytes(4 * n))
    column = pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), n, [None, codes], 0), segment, safe=False
    )
    return records.add_column(records.schema.get_field_index("batch_position"), "segment", column)
