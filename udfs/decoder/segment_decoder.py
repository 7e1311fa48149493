"""Decodes a segment in a loop: windows -> sound batches -> expanded payloads -> columns.

Damage is quarantined. Memory follows the window, the largest batch and the bound on one batch's expansion,
never the segment. One decoder serves the Spark stage, ``decode_segment`` and the tests alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder.compile_kernels import ensure_compiled
from kafka_log_lake.udfs.decoder.counting import add_batches, add_records
from kafka_log_lake.udfs.decoder.decoded import Damage, Group, Range, Totals, min_max, runs, stored_offset
from kafka_log_lake.udfs.decoder.resync import LastOffset, Resynchronizer
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.explain import explain
from kafka_log_lake.udfs.format.plain_header import why_no_batch
from kafka_log_lake.udfs.kernels import framing
from kafka_log_lake.udfs.kernels.checksums import crc32c, crc32c_combine
from kafka_log_lake.udfs.kernels.codecs import Scratch, expand
from kafka_log_lake.udfs.kernels.fast_payloads import GROUP_ENDS, PROGRESS, expand_regular
from kafka_log_lake.udfs.kernels.framing import BATCH, scan_batches
from kafka_log_lake.udfs.kernels.libraries import contexts
from kafka_log_lake.udfs.kernels.record_batches import group_end, most_records
from kafka_log_lake.udfs.kernels.record_builder import CHUNK_BYTES, MOST_ROWS, Built, Data, RecordBuilder
from kafka_log_lake.udfs.storage.byte_source import ByteSource, ChunkSource, SourceChanged, what_failed

WINDOW_BYTES = 2 << 20
MAX_BATCH_UNCOMPRESSED = 256 << 20
QUARANTINE_CONTENT_BYTES = 1 << 20
Select = Callable[[np.ndarray, np.ndarray], np.ndarray]
_BATCHES = 1 << 13  # batches a scan takes at most
_LAST_BATCH_BYTES = 1 << 16  # read past the end of a slice; more where its last batch needs it
_GROUP_BYTES = 4 << 20  # expanded bytes after which a group of batches ends


@dataclass
class SegmentDecoder:
    """Decodes a range of one segment; iterate once, then read ``totals``.

    columns: names of columns of ``records``; of these, those are built that the bytes alone tell. None: all.
    With no name at all groups have no ``records``: every record is still checked and counted, but ``totals``
    tells no offsets and timestamps of records.
    select: of batches in a window (uint8[n], BATCH[m]) those whose records count: bool[m]; None: all. Others
    may be passed over: known by their headers and checksums, neither expanded nor counted.
    """

    source: ByteSource
    range: Range
    window_bytes: int = WINDOW_BYTES
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED
    quarantine_content_bytes: int = QUARANTINE_CONTENT_BYTES
    columns: Collection[str] | None = None
    content_crc: bool = True
    select: Select | None = None
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        ensure_compiled()
        self._resync = Resynchronizer(self.source, self.range.start, self.range.length, self.range.stop)
        self._headers = self._resync.headers
        self._buf = np.empty(self.window_bytes, dtype=np.uint8)
        self._filled = (0, 0)  # the range of the segment that lies in it
        self._window = self._buf[:0]  # of that, what lies from the position on
        self._scratch = Scratch()
        self._batches = np.zeros(_BATCHES, dtype=BATCH)
        self._builder = RecordBuilder(self.columns)
        self._progress = np.zeros(1, dtype=PROGRESS)
        self._progress["batch_bytes"] = self.max_batch_uncompressed
        self._progress["group_rows"], self._progress["group_bytes"] = MOST_ROWS, _GROUP_BYTES
        before = self.totals.end_offset = self.range.previous_last_offset
        self._before = LastOffset(before, self.range.start, self.range.file_base_offset)

    def __iter__(self) -> Iterator[Group]:
        length = self.range.length
        stop = length if self.range.stop is None else min(self.range.stop, length)
        position = self.range.start
        if not self.range.exact:
            position = self._resync.first_batch(position, stop)
            if position < 0:
                self.totals.end = length
                return
        self.totals.begin = self.totals.sound_end = position
        refill = True
        while position < stop:
            if isinstance(self.source, ChunkSource):
                last = self.totals.last_position  # the fingerprint's last mark is over this batch's header
                self.source.keep_from(position if last is None else min(last, position))
            self._view(position, stop, refill)
            work = (self._window, len(self._window), position, stop, self._headers.trusted, self._batches)
            count, used, why, trusted = scan_batches(*work)
            self._headers.trust(trusted)
            self._count_bytes(used)
            if count:
                yield from self._selected(self._batches[:count])
            position += used
            refill = why == framing.NEED_MORE and not used and self._needs_more(position)
            if refill or why in (framing.STOPPED, framing.FULL) or (why == framing.NEED_MORE and used):
                continue
            begin = position
            position, group = self._damaged(position)
            if self.content_crc and position > begin:
                crc = self._resync.content_crc(begin, position)
                before = self.totals.content_crc32c
                self.totals.content_crc32c = int(crc32c_combine(before, crc, position - begin))
            yield group
            if self.totals.tail_bytes:
                break
        self.totals.end = position

    def _count_bytes(self, used: int) -> None:
        if used and self.content_crc:
            self.totals.content_crc32c = int(crc32c(self._window, 0, used, self.totals.content_crc32c))

    def _view(self, position: int, stop: int, refill: bool) -> None:
        """Makes the window begin at ``position``. It is read again where requested, or if little is left.

        Past ``stop``, where the last batch begins at the latest, little is read unless it is requested.
        """
        begin, end = self._filled
        left, wanted = end - position, min(len(self._buf), self.range.length - position)
        if not refill:
            wanted = min(wanted, stop - position + _LAST_BATCH_BYTES)
        if refill or begin > position or left < (wanted + 1) // 2:
            got = self.source.read_into(position, self._buf[:wanted])
            if got < wanted:
                raise SourceChanged(f"ends at byte {position + got}, planned with {self.range.length}")
            begin, left = position, wanted
            self._filled = position, position + wanted
        self._window = self._buf[position - begin : position - begin + left]

    def _needs_more(self, position: int) -> bool:
        """Tells whether more has to be read to decode the batch at ``position``.

        False where none is sound there. Before the window grows for it the checksum is read block by block:
        so no false length makes it grow.
        """
        size, room = self._headers.size_at(position), self.range.length - position
        if size > room:
            return False
        if size <= len(self._buf):
            return len(self._window) < min(len(self._buf), room)
        header = self._headers.header_at(position)[0]
        if header["crc_stored"] != header["crc_computed"]:
            return False
        self._buf = np.empty(size, dtype=np.uint8)
        return True

    # Sound batches

    def _selected(self, batches: np.ndarray) -> Iterator[Group]:
        wanted = None if self.select is None else self.select(self._window, batches)
        for begin, end, is_wanted in runs(batches, wanted):
            if is_wanted:
                yield from self._sound_batches(batches[begin:end])
            else:
                yield Group(batches[begin:end], None, self._account(batches[begin:end]))

    def _sound_batches(self, batches: np.ndarray) -> Iterator[Group]:
        """Expands batches whose own checksum is right, and yields them with their records, in groups."""
        begin = 0
        while begin < len(batches):
            end = self._expand_group(batches, begin)
            if end == begin + 1 and _is_large(batches[begin]):
                yield from self._in_chunks(batches[begin:end])
            else:
                while begin < end:
                    begin, group = self._group(batches, begin, end)
                    yield group
            begin = end
        if len(self._buf) > self.window_bytes:
            self._buf, self._filled = np.empty(self.window_bytes, dtype=np.uint8), (0, 0)
        self._scratch.shrink(4 * _GROUP_BYTES)

    @property
    def data(self) -> Data:
        """Returns the data of the batches of the last group; they hold until the next group is requested."""
        return Data(self._window, self._scratch.data)

    def _expand_group(self, batches: np.ndarray, begin: int) -> int:
        """Expands a group of batches from ``begin`` on, and returns the index after its last one."""
        self._scratch.clear()
        k = int(group_end(batches, begin, MOST_ROWS))
        if k > begin:
            return k
        progress, codec_contexts = self._progress[0], contexts()
        progress["first"] = progress["next"] = begin
        progress["used"] = progress["rows"] = 0
        while True:
            work = (self._scratch.data, self._progress, codec_contexts.zstd, codec_contexts.inflate)
            why = expand_regular(self._window, batches, *work)
            k, self._scratch.used = int(progress["next"]), int(progress["used"])
            if why == GROUP_ENDS:
                return k
            self._expand(batches[k])
            progress["used"] = self._scratch.used

    def _expand(self, batch: np.void) -> None:
        at, size = int(batch["payload_at"]), int(batch["payload_size"])
        codec, magic = int(batch["codec"]), int(batch["magic"])
        if size == 0 and magic == f.MAGIC_V2 and codec <= f.CODEC_ZSTD:
            return
        made = expand(codec, magic, self._window[at : at + size], self._scratch, self.max_batch_uncompressed)
        batch["data_size"] = max(made, 0)
        if made < 0:
            batch["fault"] = -made
            return
        batch["expanded"] = 1
        batch["data_at"] = self._scratch.used
        self._scratch.used += made

    def _group(self, batches: np.ndarray, begin: int, end: int) -> tuple[int, Group]:
        """Builds the records of batches from ``begin`` on, as many as fit.

        Returns where the group ends, and the group.
        """
        taken, built = self._builder.group(self.data, batches[begin:end])
        records = self._in_scope(built)
        group = batches[begin : begin + taken]
        return begin + taken, Group(group, records, self._account(group), group)

    def _in_chunks(self, batch: np.ndarray) -> Iterator[Group]:
        """Yields the groups of a batch of very many records.

        The batch is checked whole, then built a chunk of rows at a time.
        """
        records = self._builder.check(self.data, batch)
        yield Group(batch, None, self._account(batch))
        if self.columns is not None and not self.columns:
            add_records(self.totals, records)
            return
        for built in self._builder.chunks(self.data, batch):
            yield Group(batch[:0], self._in_scope(built), [], batch)

    def _in_scope(self, built: Built) -> pa.RecordBatch | None:
        """Returns the records that are requested, None without any.

        It counts them and the records that are left out.
        """
        records = built.records
        if records is None or (kept := self.range.scope.within(records)) is records:
            add_records(self.totals, built)
            return records
        self.totals.records += kept.num_rows
        self.totals.left_out += records.num_rows - kept.num_rows
        if not kept.num_rows:
            return None
        self.totals.add_bounds(*min_max(kept, "offset"), *min_max(kept, "timestamp"))
        return kept

    def _account(self, batches: np.ndarray) -> list[Damage]:
        """Counts the batches, and returns a damage for each faulty one."""
        total = add_batches(self.totals, batches)
        faulty = total["faulty"]
        if total["counted"]:
            self._before.add(total, batches[-1])
        sound = batches[batches["fault"] == 0] if faulty else batches
        if len(sound):
            self.totals.sound_end = int(sound["position"][-1] + sound["size"][-1])
        return [self._batch_damage(batches[k]) for k in np.flatnonzero(batches["fault"])] if faulty else []

    # Damage

    def _batch_damage(self, e: np.void) -> Damage:
        """Returns the damage of the whole faulty batch ``e``.

        It fills in the details of the fault in the batch's row while its data are still there.
        """
        explain(e, self._scratch.data if e["expanded"] else self._window, self.max_batch_uncompressed)
        position, size, at = int(e["position"]), int(e["size"]), int(e["at"])
        content = self._window[at : at + min(size, self.quarantine_content_bytes)].tobytes()
        reason, detail = faults.FAULTS[int(e["fault"])].reason, faults.describe_batch(e) or ""
        return self._damage(
            position,
            position + size,
            base_offset=stored_offset(e),
            reason=reason,
            detail=detail,
            content=content,
        )

    def _damage(
        self,
        position: int,
        end: int,
        *,
        base_offset: int | None,
        reason: str,
        detail: str,
        content: bytes | None = None,
    ) -> Damage:
        """Returns one damaged range, and counts it.

        A read error of the storage takes precedence as its reason.
        """
        if content is None:
            kept = np.empty(min(end - position, self.quarantine_content_bytes), dtype=np.uint8)
            self.source.read_into(position, kept)
            content = kept.tobytes()
        failed = self.source.unreadable(position, end)
        if failed:
            reason, detail = "unreadable", f"{what_failed(failed)}; {detail}"
            self.totals.unreadable_bytes += sum(batch.size for batch in failed)
        self.totals.damaged += 1
        self.totals.quarantined_bytes += end - position
        return Damage(position, end - position, base_offset, reason, detail, end, content)

    def _damaged(self, position: int) -> tuple[int, Group]:
        """Returns where decoding continues after ``position``, where no sound batch begins, and a group.

        The group holds nothing for a tail, else the damage.
        """
        size, length = self._headers.size_at(position), self.range.length
        room = length - position
        if 0 < size <= room:
            return self._corrupt_batch(position, size)
        if self._headers.is_zero(position) and not self.source.unreadable(position, length):
            return self._tail(position, "zeros")
        end = self._claimed_end(position) if size < 0 else -1
        if end < 0:
            end = self._resync.next_batch(position, self._before)
        if end >= 0:
            return end, Group(self._batches[:0], None, [self._no_batch(position, end)])
        torn = size > 0 or size == framing.TOO_SHORT
        if torn and not self.range.has_successor and not self.source.unreadable(position, length):
            return self._tail(position, "torn")
        if torn:
            text = f"{faults.cut_text(size, room)}, at {position}"
            damage = self._damage(position, length, base_offset=None, reason="truncated", detail=text)
        else:
            damage = self._no_batch(position, length)
        return length, Group(self._batches[:0], None, [damage])

    def _corrupt_batch(self, position: int, size: int) -> tuple[int, Group]:
        """Quarantines a batch with a wrong checksum.

        Its length is believed where the log continues at its end.
        """
        batch = self._headers.header_at(position)
        end = self._resync.end_of(position, size)
        if end < 0:
            end = self._resync.next_batch(position, self._before)
            end = self.range.length if end < 0 else end
        e = batch[0]
        e["fault"] = faults.CRC_MISMATCH
        e["data_size"] = 0
        explain(e, self._window, self.max_batch_uncompressed)
        add_batches(self.totals, batch)
        detail = faults.describe_batch(e) or ""
        damage = self._damage(
            position, end, base_offset=stored_offset(e), reason="crc_mismatch", detail=detail
        )
        return end, Group(batch, None, [damage])

    def _header(self, position: int) -> np.ndarray:
        head = np.zeros(f.HEADER_UP_TO_MAGIC, dtype=np.uint8)
        self.source.read_into(position, head[: min(len(head), self.range.length - position)])
        return head

    def _claimed_end(self, position: int) -> int:
        """Returns where a batch of unknown magic ends by its length, if the log continues there; else -1."""
        head = self._header(position)
        size = int.from_bytes(head[f.LENGTH_POS : f.LOG_OVERHEAD].tobytes(), "big", signed=True)
        end = position + f.LOG_OVERHEAD + size
        if head[f.MAGIC_POS] <= f.MAGIC_V2 or size < f.V0_MIN_SIZE - f.LOG_OVERHEAD:
            return -1
        return end if end <= self.range.length and self._headers.leads_on(end) else -1

    def _no_batch(self, position: int, end: int) -> Damage:
        room = self.range.length - position
        head = self._header(position)[:room].tobytes()
        why = why_no_batch(head, position, room, end - position)
        return self._damage(position, end, base_offset=why.base_offset, reason=why.reason, detail=why.detail)

    def _tail(self, position: int, kind: str) -> tuple[int, Group]:
        self.totals.tail = kind
        self.totals.tail_bytes = self.range.length - position
        return position, Group(self._batches[:0], None, [])


def _is_large(e: np.void) -> bool:
    """Tells whether a batch may have more rows, or more bytes, than one column of Arrow should have."""
    return bool(most_records(e) > MOST_ROWS or e["data_size"] > CHUNK_BYTES)
