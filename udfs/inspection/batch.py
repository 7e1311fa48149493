"""The batch at a position of a segment: its fields, its checksum, what is wrong, and what happened to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from udfs.decoded import Range
from udfs.format import faults
from udfs.format import layout as f
from udfs.inspection import causes
from udfs.inspection.causes import Cause
from udfs.inspection.fields import FILE, PAYLOAD, Broken, Field
from udfs.inspection.headers import Checksum, read_fields
from udfs.inspection.records import Batch, Records, Shown, read_inner, read_message_body, read_records
from udfs.kernels import framing
from udfs.kernels.codecs import Scratch, expand
from udfs.kernels.framing import BATCH, batch_size, checksum, locate_wrapped, read_header
from udfs.recovery.batch_search import BatchSearch
from udfs.recovery.range_checksums import RangeChecksums
from udfs.rules.offsets import NO_LIMIT, RUN, misplaced
from udfs.segment_decoder import MAX_BATCH_UNCOMPRESSED, SegmentDecoder
from udfs.source.byte_source import ByteSource, ChunkSource

_SHOWN_OF_DAMAGE = 4096  # bytes that are shown where there is no batch
_MOST_TRIED = 1 << 29


class Neighbour(NamedTuple):
    """A batch before or behind. base_offset: as stored, of magic 0 and 1 that of the batch itself."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    is_sound: bool


@dataclass
class Inspection:
    """All that is known of the batch at ``position``.

    size: bytes that it takes, or of the damaged range. status: ok, suspect, corrupt, invalid, unsupported, or
    damaged where no batch begins. problem: in words, "" for none. payload: the expanded records, None where
    they are not compressed or can't be expanded. records: how many can be read; left_out: of them, those that
    are not shown. causes: of damage, the most likely first. mended: records that can be read once the first
    is undone, -1 where it can't be.
    """

    position: int
    size: int
    content: bytes
    magic: int
    status: str = "ok"
    problem: str = ""
    fields: list[Field] = field(default_factory=list)
    checksum: Checksum | None = None
    payload: bytes | None = None
    records: int = 0
    left_out: int = 0
    causes: list[Cause] = field(default_factory=list)
    mended: int = -1
    before: Neighbour | None = None
    after: Neighbour | None = None

    @property
    def end(self) -> int:
        return self.position + self.size


@dataclass(frozen=True)
class Place:
    """Where to look. end: where a damaged range ends, as far as headers tell.

    first_offset: of the segment, by its name; -1 unknown. epoch_at: the leader's epoch at an offset, by the
    epoch file next to the segment; -1 unknown.
    """

    position: int
    end: int
    before: Neighbour | None = None
    after: Neighbour | None = None
    first_offset: int = -1
    epoch_at: Callable[[int], int] = lambda _: -1


def read(source: ByteSource, position: int, size: int) -> np.ndarray:
    """uint8: the bytes of a segment, fewer at its end."""
    data = np.empty(max(0, size), dtype=np.uint8)
    return data[: source.read_into(position, data)]


def inspect(
    source: ByteSource, length: int, place: Place, shown: Shown, limit: int = MAX_BATCH_UNCOMPRESSED
) -> Inspection:
    """Inspects the batch, or the damage, at a place of a segment of ``length`` bytes.

    shown: which records are given field by field. limit: bytes that the batch may expand to.
    """
    position, room = place.position, length - place.position
    head = read(source, position, min(f.V2_HEADER_SIZE, room))
    size = int(batch_size(head, 0, len(head)))
    is_whole = 0 < size <= room
    taken = size if is_whole else min(place.end - position, room)
    content = read(source, position, taken if is_whole else min(taken, _SHOWN_OF_DAMAGE))
    magic = int(head[f.MAGIC_POS]) if len(head) > f.MAGIC_POS else -1
    found = Inspection(position, taken, content.tobytes(), magic, before=place.before, after=place.after)
    computed = int(checksum(content, 0, size)) if is_whole else None
    try:
        found.fields = read_fields(head.tobytes(), position, room, computed)
    except Broken as why:
        found.problem = why.problem
    in_it = 0
    if is_whole:
        in_it = _of_whole(found, content, computed, shown, limit)
    else:
        found.status = "damaged"
        found.problem = found.problem or _why_not_whole(size, room, head)
    if found.status in ("corrupt", "damaged"):
        found.causes = _causes(source, length, place, found, is_whole, size)
    elif is_whole:
        found.causes = _contradictions(content, place, in_it)
    first = found.causes[0] if found.causes else None
    if first is not None and first.mended is not None:
        found.mended = readable(first.mended, limit)[0]
    return found


def _why_not_whole(size: int, room: int, head: np.ndarray) -> str:
    if size > 0:
        return f"the segment ends inside a batch: expected {size} bytes, found {room}"
    if size == framing.TOO_SHORT:
        return f"the segment ends inside a header: found {room} bytes"
    if not head.any():
        return "no batch begins here: zeros"
    return "no batch begins here: see the fields that are marked"


def _of_whole(found: Inspection, content: np.ndarray, computed: int | None, shown: Shown, limit: int) -> int:
    """Fills in what is known of a batch that lies in the segment as a whole; how many records are in it.

    ``decode`` may read fewer of them, or none.
    """
    row = np.zeros(1, dtype=BATCH)
    e = row[0]
    read_header(content, 0, len(content), found.position, e)
    v2 = found.magic == f.MAGIC_V2
    begin = found.position + (f.V2_ATTRIBUTES_POS if v2 else f.MAGIC_POS)
    name = "CRC-32C" if v2 else "CRC-32"
    found.checksum = Checksum(name, int(e["crc_stored"]), computed, begin, found.end)
    records = _records(found, content, e, shown, limit)
    found.fields += records.fields
    found.records, found.left_out = records.count, records.left_out
    if records.broken is not None:
        broken = records.broken
        place = PAYLOAD if found.payload is not None else FILE
        found.fields.append(Field("here", broken.at, broken.size, "", "", 2, place, broken.problem))
    if not found.checksum.is_right:
        found.status = "corrupt"
        found.problem = faults.describe(
            faults.CRC_MISMATCH, found.checksum.stored, computed or 0, found.position
        )
        return records.count
    found.records, found.status, found.problem = readable(content.tobytes(), limit, found.position)
    return records.count


def _records(found: Inspection, content: np.ndarray, e: np.void, shown: Shown, limit: int) -> Records:
    raw, position = content.tobytes(), found.position
    if found.magic == f.MAGIC_V2:
        payload_at, payload = f.V2_HEADER_SIZE, raw[f.V2_HEADER_SIZE :]
        batch = Batch(
            int(e["base_offset"]),
            int(e["base_timestamp"]),
            int(e["count"]),
            bool(e["attributes"] & f.CONTROL_MASK),
        )
        if e["codec"] == f.CODEC_NONE:
            return read_records(payload, position + payload_at, FILE, batch, shown)
        expanded = _expanded(found, e, payload_at, payload, limit)
        return Records() if expanded is None else read_records(expanded, 0, PAYLOAD, batch, shown)
    at = f.V1_KEY_LENGTH_POS if found.magic == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS
    own, value = read_message_body(raw, position, at, FILE, 0)
    if e["codec"] == f.CODEC_NONE or value is None:
        return own
    locate_wrapped(content, e)
    found.fields += [one for one in own.fields if one.name != "value"]  # which is the payload
    expanded = _expanded(found, e, int(e["payload_at"]), value, limit)
    return Records(broken=own.broken) if expanded is None else read_inner(expanded, shown)


def _expanded(found: Inspection, e: np.void, at: int, payload: bytes, limit: int) -> bytes | None:
    """The expanded payload, and the field of the compressed one."""
    codec, scratch = int(e["codec"]), Scratch()
    made = expand(codec, found.magic, np.frombuffer(payload, dtype=np.uint8), scratch, limit)
    name = f.CODEC_NAMES[codec]
    problem, words = "", f"compressed by {name}: {len(payload)} bytes"
    if made < 0:
        problem = faults.FAULTS[-made].text.format(limit, codec)
    else:
        found.payload = scratch.data[:made].tobytes()
        words += f", expanded {made}"
    shown = Field(
        "payload", found.position + at, len(payload), words, "covered by the checksum", problem=problem
    )
    found.fields.append(shown)
    return found.payload


def readable(batch: bytes, limit: int, position: int = 0) -> tuple[int, str, str]:
    """(records, status, problem) of a whole batch, as ``decode`` reads it."""
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


# What happened


def _causes(
    source: ByteSource, length: int, place: Place, found: Inspection, is_whole: bool, size: int
) -> list[Cause]:
    """Of damage, the most likely cause first; one at least."""
    position = place.position
    data = read(source, position, min(length - position, _MOST_TRIED))
    made = list(causes.flips_of_header(data, position))
    if is_whole and not made:
        under = causes.change_under_checksum(data[:size], position)
        made += [under] if under is not None else []
    if any(cause.kind == causes.BIT for cause in made):
        return made
    wrong = data[: max(found.size, 0)].tobytes()
    if not is_whole and len(data) and not data.any():
        text = f"all {len(data)} bytes up to the end of the segment are zeros: space that was never written"
        return [Cause(causes.ZEROS, causes.CERTAIN, text, position, len(data))]
    others = [causes.zeros(wrong, position), causes.bytes_of_a_file(wrong, position)]
    others.append(_inner_batch(source, length, place, size if is_whole else found.size))
    found_others = [cause for cause in others if cause is not None]
    if size > length - position:
        text = (
            f"the segment ends {size - (length - position)} bytes before the batch does: a write that was cut"
        )
        found_others.append(Cause(causes.CUT, causes.LIKELY, text, length, size - (length - position)))
    made = found_others + made
    if not made:
        cut = causes.cut_batch_inside(wrong, position)
        made = [cut] if cut is not None else []
    if not made:
        text = "more than one byte is changed, in a way that was not recognized"
        made = [Cause(causes.UNKNOWN, causes.POSSIBLE, text, position, found.size)]
    return made


def _inner_batch(source: ByteSource, length: int, place: Place, size: int) -> Cause | None:
    """A sound batch that begins inside a damaged one: bytes are missing before it, or are of another log."""
    position, end = place.position, min(length, place.position + size)
    checksums = RangeChecksums(source, position, length)
    inside = BatchSearch(source, position, length, checksums).first_from(position + 1)
    if not position < inside < end:
        return None
    row = np.zeros(1, dtype=BATCH)
    head = read(source, inside, min(f.V2_HEADER_SIZE, length - inside))
    head = np.concatenate([head, np.zeros(f.V2_HEADER_SIZE - len(head), dtype=np.uint8)])
    read_header(head, 0, len(head), inside, row[0])
    v2 = head[f.MAGIC_POS] == f.MAGIC_V2
    base, last = int(row[0]["base_offset" if v2 else "last_offset"]), int(row[0]["last_offset"])
    where = f"at position {inside}, {inside - position} bytes behind its begin, a sound batch begins"
    words = f"{where} (offsets {base} to {last})"
    before = place.before.last_offset if place.before is not None else place.first_offset - 1
    after = place.after.base_offset if place.after is not None and place.after.position != inside else None
    if base > before and (after is None or last < after):
        missing = position + size - inside
        text = f"{words}: {missing} bytes of the batch are missing, it was cut"
        return Cause(causes.CUT, causes.LIKELY, text, inside, missing)
    text = f"{words}, whose offsets do not belong here: bytes of another log, or an older state of this one"
    return Cause(causes.OTHER, causes.LIKELY, text, inside, position + size - inside)


def _contradictions(content: np.ndarray, place: Place, records: int) -> list[Cause]:
    """Flipped bits outside the checksum, in the base offset or the epoch, by what is next to the batch."""
    row = np.zeros(1, dtype=BATCH)
    e = row[0]
    read_header(content, 0, len(content), place.position, e)
    v2 = e["magic"] == f.MAGIC_V2
    found = []
    # in a log without gaps; a wrapper's offset is its last message's
    span = int(e["last_offset_delta"]) if v2 else max(records, 1) - 1
    offset = _offset_flip(content, int(e["base_offset" if v2 else "last_offset"]), place, span, bool(v2))
    if offset is not None:
        found.append(offset)
    if v2:
        epoch = _epoch_flip(content, e, place)
        if epoch is not None:
            found.append(epoch)
    return found


def _offset_flip(content: np.ndarray, stored: int, place: Place, span: int, v2: bool) -> Cause | None:
    """span: from the first offset to the last; the stored one is the first of magic 2, else the last."""
    before, after = place.before, place.after
    low = before.last_offset + 1 if before is not None else place.first_offset
    if low < 0:
        return None
    wanted = low if v2 else low + span
    # of magic 0 and 1 the header behind has its last offset
    behind = 1 << 62 if after is None else after.base_offset if v2 else after.last_offset
    high = behind - span if v2 else behind
    is_wrong = _is_misplaced(place, stored if v2 else stored - span, stored + span if v2 else stored)
    if not is_wrong and (stored == wanted or (v2 and stored + 1 == high)):
        return None
    flips = [(bit, v) for bit, v in causes.single_bits(stored, 8) if low <= v < high or v == wanted]
    flips.sort(key=lambda flip: (flip[1] != wanted, flip[1] + 1 != high))
    if not flips or (not is_wrong and flips[0][1] != wanted):
        return None
    bit, value = flips[0]
    name, sure = ("baseOffset" if v2 else "offset"), causes.LIKELY if is_wrong else causes.POSSIBLE
    why = f"the batch before ends with {low - 1}" if before is not None else f"the file's name has {low}"
    if after is not None:
        why += f", the one behind has {behind}"
    if not is_wrong and low <= stored < high:
        why += ". Nothing contradicts it: a compacted log has such gaps"
    return _outside(content, place.position, f.OFFSET_POS, 8, bit, (name, stored, value, why, sure))


def _is_misplaced(place: Place, first: int, last: int) -> bool:
    """Whether the offsets of the batch are wrong, by the batches next to it and the file's name."""
    before, after = (
        [] if one is None else [(one.base_offset, one.last_offset)] for one in (place.before, place.after)
    )
    limits = np.iinfo(np.int64)
    own = max(first, limits.min), min(last, limits.max)
    runs = np.zeros(len(before) + 1 + len(after), dtype=RUN)
    runs["file_base"], runs["file_limit"], runs["batches"] = place.first_offset, NO_LIMIT, 1
    runs["first"], last_offsets = np.array([*before, own, *after]).T
    runs["last"] = np.maximum(runs["first"], last_offsets)
    runs["last_base"] = runs["first"]
    return bool(misplaced(runs)[len(before)])


def _epoch_flip(content: np.ndarray, e: np.void, place: Place) -> Cause | None:
    stored = int(e["leader_epoch"])
    known = [n.leader_epoch for n in (place.before, place.after) if n is not None and n.magic == f.MAGIC_V2]
    noted = place.epoch_at(int(e["base_offset"]))
    low = place.before.leader_epoch if place.before is not None and place.before.magic == f.MAGIC_V2 else -1
    is_last = place.after is None or place.after.magic != f.MAGIC_V2
    high = (1 << 31) - 1 if is_last or place.after is None else place.after.leader_epoch
    fits = low <= stored <= high and (noted < 0 or stored == noted)
    if fits and (stored in known or noted == stored or not known):
        return None
    wanted = [noted] if noted >= 0 else [*known, *range(max(low, 0), min(high, low + 64) + 1)]
    by_value = {value: bit for bit, value in causes.single_bits(stored, 4)}
    value = next((v for v in wanted if v in by_value and v != stored), None)
    if value is None:
        return None
    why = (
        f"the epoch file next to the segment has {noted} here"
        if noted >= 0
        else "neighbours have " + " and ".join(map(str, known))
    )
    if fits:
        why += ". Nothing contradicts it: a new leader may begin here"
    sure = causes.POSSIBLE if fits else causes.LIKELY
    words = ("partitionLeaderEpoch", stored, value, why, sure)
    return _outside(content, place.position, f.LEADER_EPOCH_POS, 4, by_value[value], words)


def _outside(
    content: np.ndarray, position: int, at: int, size: int, bit: int, words: tuple[str, int, int, str, str]
) -> Cause:
    name, stored, value, why, sure = words
    byte = at + size - 1 - bit // 8
    mended = content.copy()
    mended[byte] ^= 1 << (bit % 8)
    what = f"bit {bit % 8} of the byte at position {position + byte} is flipped ({name})"
    text = f"{what}: {stored}, expected {value}: {why}"
    return Cause(causes.BIT, sure, text, position + byte, 1, 1 << (bit % 8), mended.tobytes())
