"""Inspects the batch at a position of a segment: its fields, its checksum, what is wrong and why.

What most likely happened where a checksum is wrong or no batch begins: first what can be proved. A cause is
named only where there are bytes that can't be right, not because they look odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kafka_log_lake.pipelines.inspect_batch import causes
from kafka_log_lake.pipelines.inspect_batch.causes import CERTAIN, LIKELY, POSSIBLE, Cause
from kafka_log_lake.pipelines.inspect_batch.contradictions import contradictions
from kafka_log_lake.pipelines.inspect_batch.fields import (
    FILE,
    PAYLOAD,
    Checksum,
    InspectedField,
    mark,
    read_fields,
)
from kafka_log_lake.pipelines.inspect_batch.mended import mended_records
from kafka_log_lake.pipelines.inspect_batch.other_batches import (
    between_batches,
    end_of_segment,
    header_inside,
    inner_batch,
)
from kafka_log_lake.pipelines.inspect_batch.place import BatchPlace, DamagedBatch, Neighbour, header_of, read
from kafka_log_lake.pipelines.inspect_batch.records import (
    BatchHeader,
    RecordFields,
    Shown,
    read_inner,
    read_message_body,
    read_records,
)
from kafka_log_lake.pipelines.inspect_batch.written_over import (
    file_of_another_kind,
    in_payload,
    over_end,
    over_header,
    over_records,
)
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, SegmentDecoder
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.plain_header import why_no_batch
from kafka_log_lake.udfs.format.plain_reader import wrong_count, wrong_wrapper_offset
from kafka_log_lake.udfs.kernels import framing
from kafka_log_lake.udfs.kernels.codecs import Scratch, expand
from kafka_log_lake.udfs.kernels.framing import batch_size, checksum
from kafka_log_lake.udfs.storage.byte_source import ByteSource, ChunkSource
from kafka_log_lake.udfs.words import count_of

_SHOWN_OF_DAMAGE = 4096  # bytes that are shown where there is no batch


@dataclass
class Inspection:
    """All that is known of the batch, or the damaged range, at ``position``.

    size: bytes that it takes, or of the damaged range. status: ok, suspect, corrupt, invalid, unsupported, or
    damaged where no batch begins; tail where the segment ends in zeros or in an incomplete batch, which is no
    damage in the last segment of a log. problem: in words, "" for none. payload: the expanded records, None
    where they are not compressed or can't be expanded. records: how many can be read; left_out: of them,
    those that are not shown. causes: of damage, the most likely first. mended: records that can be read once
    the first is undone, -1 where it can't be; mended_records: the first of these (``mended_records``), of a
    batch that can't be read as it is stored.
    """

    position: int
    size: int
    content: bytes
    magic: int
    status: str = "ok"
    problem: str = ""
    fields: list[InspectedField] = field(default_factory=list)
    checksum: Checksum | None = None
    payload: bytes | None = None
    records: int = 0
    left_out: int = 0
    causes: list[Cause] = field(default_factory=list)
    mended: int = -1
    mended_records: list[dict[str, Any]] = field(default_factory=list)
    before: Neighbour | None = None
    after: Neighbour | None = None

    @property
    def end(self) -> int:
        return self.position + self.size


def inspect(
    source: ByteSource,
    length: int,
    place: BatchPlace,
    shown: Shown,
    limit: int = MAX_BATCH_UNCOMPRESSED,
    most_mended: int = 0,
) -> Inspection:
    """Inspects the batch, or the damage, at a place of a segment of ``length`` bytes.

    shown: which records are given field by field. limit: bytes that the batch may expand to. most_mended:
    records that are read once the most likely cause is undone.
    """
    position, room = place.position, length - place.position
    head = read(source, position, min(f.V2_HEADER_SIZE, room))
    size = int(batch_size(head, 0, len(head)))
    is_whole = 0 < size <= room
    taken = size if is_whole else min(place.end - position, room)
    content = read(source, position, taken if is_whole else min(taken, _SHOWN_OF_DAMAGE))
    magic = int(head[f.MAGIC_POS]) if len(head) > f.MAGIC_POS else -1
    inspection = Inspection(position, taken, content.tobytes(), magic, before=place.before, after=place.after)
    computed = int(checksum(content, 0, size)) if is_whole else None
    inspection.fields = read_fields(head.tobytes(), position, room, computed)
    in_it = 0
    if is_whole:
        in_it = _of_whole(inspection, content, computed, shown, limit)
    damage = DamagedBatch(source, length, place, taken, size if size > 0 else 0)
    if not is_whole:
        is_cut = size > 0 or size == framing.TOO_SHORT
        inspection.status = "tail" if taken == room and (is_cut or not damage.data.any()) else "damaged"
        inspection.problem = _why_not_whole(is_cut, size, head.tobytes(), position, room, taken)
    if inspection.status in ("corrupt", "damaged", "tail"):
        inspection.causes = causes_of(damage, lambda batch: readable(batch, limit)[0] > 0)
    elif is_whole:
        inspection.causes = contradictions(source, content, place, in_it)
    first = inspection.causes[0] if inspection.causes else None
    if first is not None and first.mended is not None:
        inspection.mended = readable(first.mended, limit)[0]
        if inspection.status in ("corrupt", "damaged", "tail"):
            inspection.mended_records = mended_records(first.mended, limit, most_mended)
    return inspection


def _why_not_whole(is_cut: bool, size: int, head: bytes, position: int, room: int, taken: int) -> str:
    """Returns the problem in words. taken: bytes up to where the log continues; ``room``: it does not."""
    if is_cut and taken == room:
        return f"{faults.cut_text(size, room)}, at {position}"
    if not any(head):
        return "no batch begins here: zeros"
    return why_no_batch(head, position, room, taken).detail


def _of_whole(
    inspection: Inspection, content: np.ndarray, computed: int | None, shown: Shown, limit: int
) -> int:
    """Fills in what is known of a batch that lies whole in the segment; returns how many records are in it.

    ``decode`` may read fewer of them, or none.
    """
    e = header_of(content, inspection.position)
    v2 = inspection.magic == f.MAGIC_V2
    begin = inspection.position + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
    name = "CRC-32C" if v2 else "CRC-32"
    inspection.checksum = Checksum(name, int(e["crc_stored"]), computed, begin, inspection.end)
    records = _records(inspection, content, e, shown, limit)
    inspection.fields += records.fields
    inspection.records, inspection.left_out = records.count, records.left_out
    if not inspection.checksum.is_right:
        inspection.status = "corrupt"
        inspection.problem = faults.describe(
            faults.CRC_MISMATCH, computed or 0, inspection.checksum.stored, inspection.position
        )
        return records.count
    inspection.records, inspection.status, inspection.problem = readable(
        content.tobytes(), limit, inspection.position
    )
    return records.count


def _records(
    inspection: Inspection, content: np.ndarray, e: np.void, shown: Shown, limit: int
) -> RecordFields:
    raw, position = content.tobytes(), inspection.position
    if inspection.magic == f.MAGIC_V2:
        data, base, place = raw[f.V2_HEADER_SIZE :], position + f.V2_HEADER_SIZE, FILE
        if e["codec"] != f.CODEC_NONE:
            if _expanded(inspection, e, f.V2_HEADER_SIZE, data, limit) is None:
                return RecordFields()
            data, base, place = inspection.payload or b"", 0, PAYLOAD
        batch = BatchHeader(
            int(e["base_offset"]),
            int(e["base_timestamp"]),
            int(e["count"]),
            bool(e["attributes"] & f.CONTROL_MASK),
        )
        if (wrong := wrong_count(batch.count, len(data))) is not None:
            mark(inspection.fields, wrong, position, FILE)
        return read_records(data, base, place, batch, shown)
    body, message = read_message_body(raw, position, is_wrapper=bool(e["codec"]))
    if e["codec"] == f.CODEC_NONE or not body.count:
        return body
    inspection.fields += [field for field in body.fields if field.name != "value"]  # which is the payload
    value = message.field("value")
    if _expanded(inspection, e, value.at, value.value, limit) is None:
        return RecordFields()
    inner = read_inner(inspection.payload or b"", shown)
    if (wrong := wrong_wrapper_offset(inspection.payload or b"", inner.last, message)) is not None:
        mark(inspection.fields, wrong, position, FILE)
    return inner


def _expanded(inspection: Inspection, e: np.void, at: int, payload: bytes, limit: int) -> bytes | None:
    """Returns the expanded payload, None if it can't be; adds the field of the compressed one."""
    codec, scratch = int(e["codec"]), Scratch()
    made = expand(codec, inspection.magic, np.frombuffer(payload, dtype=np.uint8), scratch, limit)
    name = f.CODEC_NAMES[codec]
    problem, words = "", f"compressed by {name}: {count_of(len(payload), 'byte')}"
    if made < 0:
        last = f.LAST_CODECS[inspection.magic]
        problem = faults.text_of(-made, last if -made == faults.UNKNOWN_CODEC else limit, codec)
        problem = problem.removeprefix("payload: ")
    else:
        inspection.payload = scratch.data[:made].tobytes()
        words += f", expanded {made}"
    shown = InspectedField(
        "payload", inspection.position + at, len(payload), words, "covered by the checksum", problem=problem
    )
    inspection.fields.append(shown)
    return inspection.payload


def readable(batch: bytes, limit: int, position: int = 0) -> tuple[int, str, str]:
    """Reads a whole batch as ``decode`` does: returns (number of records, status, problem in words)."""
    data = np.frombuffer(batch, dtype=np.uint8)
    decoder = SegmentDecoder(
        ChunkSource(iter([(0, data)])),
        Range(len(data), has_successor=True),
        max_batch_uncompressed=limit,
        columns=(),
        content_crc=False,
    )
    count, status, problem = 0, "ok", ""
    for group in decoder:
        for e in group.batches:
            count += int(e["record_count"])
            fault, marks = int(e["fault"]), int(e["marks"])
            if fault:
                status = faults.STATUS_NAMES[faults.FAULTS[fault].status]
                e["fault_at"] += position if e["fault_at"] >= 0 else 0
                problem = faults.describe_batch(e) or ""
            elif marks:
                status, problem = "suspect", faults.describe_suspect(marks, position)
    return count, status, problem


def causes_of(damage: DamagedBatch, can_read: Callable[[bytes], bool]) -> list[Cause]:
    """Returns causes of damage, at least one, the likeliest first. can_read: whether a batch has records."""
    if damage.is_whole and damage.is_sound(0):
        text = "the checksum of the whole is right: it was written as it is, with what is wrong inside of it"
        return [Cause(causes.UNKNOWN, POSSIBLE, text, damage.position, damage.taken)]
    proved = _proved(damage, can_read)
    if proved and proved[0].certainty != POSSIBLE:
        return proved
    made = [cause for cause in _likely(damage) if cause is not None] + proved
    return made or [_unknown(damage)]


def _proved(damage: DamagedBatch, can_read: Callable[[bytes], bool]) -> list[Cause]:
    """Returns causes that make the checksum right when undone; in a long batch this may be chance."""
    data, position = damage.data, damage.position
    if len(data) >= f.HEADER_UP_TO_MAGIC and not data.any():  # fewer begin any offset
        text = f"all {len(data)} bytes up to the end of the segment are zeros: space that was never written"
        return [Cause(causes.ZEROS, CERTAIN, text, position, len(data))]
    if made := list(causes.flips_of_header(data, position)):
        return made
    ends = [header.begin - position for header in damage.sound] + [len(data)]
    under = causes.change_under_checksum(data[: damage.size], position) if damage.is_whole else None
    if under is not None and under.kind == causes.BYTE and not can_read(under.mended or b""):
        under = None  # by chance
    if under is not None and under.certainty != POSSIBLE:
        return [under]
    if (header := causes.change_of_header(data, position, ends)) is not None:
        return [header]
    if damage.is_whole:
        for end in ends:
            if (more := causes.put_in(data, damage.size, end - damage.size, position)) is not None:
                return [more]
    return [under] if under is not None else []


def _likely(damage: DamagedBatch) -> Iterator[Cause | None]:
    yield inner_batch(damage)
    inside = header_inside(damage)
    broken = damage.break_
    if (
        inside is not None
        and broken is not None
        and broken.at < inside.position - damage.position < broken.end
    ):
        yield replace(inside, certainty=LIKELY)
    yield file_of_another_kind(damage)
    yield over_header(damage)
    yield over_records(damage)
    yield over_end(damage)
    yield between_batches(damage)
    yield in_payload(damage)
    yield end_of_segment(damage)
    yield inside


def _unknown(damage: DamagedBatch) -> Cause:
    text = "more than one byte is changed, in a way that was not recognized"
    if damage.is_whole and damage.header["codec"] == f.CODEC_NONE and damage.ends_right:
        if damage.break_ is None:
            text += "; all lengths are right: what is changed is inside of keys, values or the header"
        else:
            text += f"; the records can be read up to position {damage.position + damage.break_.at}"
    return Cause(causes.UNKNOWN, POSSIBLE, text, damage.position, damage.taken)
