"""Finds causes of damage by the batches after it: a cut, bytes of another log, bytes between batches.

Each function looks for one cause; it returns None where that is not the one.
"""

from __future__ import annotations

import re

from kafka_log_lake.pipelines.inspect_batch import causes
from kafka_log_lake.pipelines.inspect_batch.breaks import (
    Break,
    break_of_message,
    break_of_records,
    ends_inside,
    record_at,
)
from kafka_log_lake.pipelines.inspect_batch.causes import LIKELY, POSSIBLE, Cause
from kafka_log_lake.pipelines.inspect_batch.place import MOST_FOLLOWED, DamagedBatch, SoundBatch, header_of
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.fields import integer
from kafka_log_lake.udfs.format.plain_header import HEADERS, read_header
from kafka_log_lake.udfs.words import count_of

_MOST_BYTES = 1 << 30  # of a batch that is taken for one though no checksum says so
_MOST_OFFSET = 1 << 40  # that is taken for one though no checksum says so
_ALIKE = 3.0  # how many times larger or smaller than others records may be on average
_MOST_MISSING = 1 << 20  # offsets that a log may leave out before a batch that is cut, or a batch has


def inner_batch(damage: DamagedBatch) -> Cause | None:
    """Finds a sound batch inside a damaged one: bytes before it are missing, or it is of another log.

    A value may hold batches, and so may the messages of a wrapper: these are no cause.
    """
    position, end, before = damage.position, damage.position + damage.size, damage.offset_before
    inside = damage.sound[0] if damage.sound else None
    if inside is None or not damage.size:
        return None
    if not position < inside.begin < min(end, damage.length):
        return _lost_batch(damage, inside)
    at, last = inside.begin - position, int(damage.header["last_offset"])
    words = f"at position {inside.begin}, {count_of(at, 'byte')} after its begin, a sound batch begins "
    words += f"(offsets {inside.first} to {inside.last})"
    if damage.ends_right:
        if not _was_written_over(damage, at):
            return None
    elif inside.first > last > before:
        is_far = inside.first > last + _MOST_MISSING
        if is_far or not _leads_on(damage, end) or damage.size > damage.length:
            return None
        if _ends_at(damage, at):
            if inside.first > last + 1:  # of two batches, perhaps, each has a part
                return None
            text = f"{words}, where the records end: the length is wrong, and more is"
            return Cause(causes.OTHER, LIKELY, text, position + f.LENGTH_POS, 4)
        missing = end - inside.begin
        text = f"{words}: the batch lacks {count_of(missing, 'byte')}, it was cut"
        return _cut(damage, text, inside.begin, missing)
    elif inside.first < 0 or any(header.first > before for header in damage.sound[:2]):
        return None
    text = f"{words}, whose offsets do not belong here: bytes of another log, or an older state of this one"
    return Cause(causes.OTHER, LIKELY, text, inside.begin, end - inside.begin)


def _was_written_over(damage: DamagedBatch, at: int) -> bool:
    """Returns whether the sound batch at ``at``, inside of one whose length is right, is no part of it."""
    end = damage.position + damage.size
    # as many bytes as a batch has may be missing
    leads_there = any(end == header.end for header in damage.sound)
    if leads_there and damage.sound[0].first > damage.offset_before:
        return False
    if damage.header["codec"] != f.CODEC_NONE:
        return bool(damage.header["magic"] == f.MAGIC_V2)
    return damage.break_ is not None and at < damage.break_.end


def _ends_at(damage: DamagedBatch, size: int) -> bool:
    """Returns whether the records, or key and value of a message, end after ``size`` bytes of the batch."""
    e, data = damage.header, damage.data[:size].tobytes()
    if e["magic"] != f.MAGIC_V2:
        return size >= f.V0_MIN_SIZE and break_of_message(data, size) is None
    is_plain = e["codec"] == f.CODEC_NONE and size > f.V2_HEADER_SIZE
    return is_plain and break_of_records(data, int(e["count"]), int(e["last_offset_delta"])) is None


def _lost_batch(damage: DamagedBatch, after: SoundBatch) -> Cause | None:
    """Finds that offsets are missing after the batch, in fewer bytes than a batch needs: it was cut."""
    end, last = damage.position + damage.size, int(damage.header["last_offset"])
    room = after.begin - end
    is_one = damage.header["magic"] == f.MAGIC_V2 and _header_agrees(damage.wrong, 0)
    if not is_one or not 0 < room < f.V2_HEADER_SIZE or after.first <= last + 1 or not _leads_on(damage, end):
        return None
    text = f"offsets {last + 1} to {after.first - 1} are missing before position {after.begin}, where the "
    text += f"next sound batch begins, and {count_of(room, 'byte')} can't hold them: the batch was cut"
    return Cause(causes.CUT, LIKELY, text, end, 0)


def _leads_on(damage: DamagedBatch, end: int) -> bool:
    """Returns whether the sound batches have rising offsets, and reach the segment's end or far past ``end``.

    They reach far where there are MOST_FOLLOWED of them.
    """
    rising = all(one.last < two.first for one, two in zip(damage.sound, damage.sound[1:], strict=False))
    last = damage.sound[-1].end
    return rising and (last == damage.length or (last > end and len(damage.sound) == MOST_FOLLOWED))


def _header_agrees(content: bytes, at: int) -> bool:
    """Returns whether the fields of a header of magic 2 fit each other, as random bytes would not."""
    if not 0 <= integer(content, at, 8) < _MOST_OFFSET:
        return False
    header = read_header(content[at : at + f.V2_HEADER_SIZE], _MOST_BYTES, None, f.MAGIC_V2)
    value = {field.name: field.value for field in header.fields}
    return bool(
        len(header.fields) == len(HEADERS[f.MAGIC_V2])
        and value["magic"] == f.MAGIC_V2
        and header.wrong is None
        and value["lastOffsetDelta"] < _MOST_MISSING
        and value["partitionLeaderEpoch"] >= -1
        and 0 < value["recordsCount"] <= value["lastOffsetDelta"] + 1
        and (value["baseTimestamp"] <= value["maxTimestamp"] or value["attributes"] & f.DELETE_HORIZON_MASK)
    )


def header_inside(damage: DamagedBatch) -> Cause | None:
    """Finds a header of magic 2 inside a damaged batch whose own batch was overwritten or cut."""
    for match in re.finditer(rb"(?<=.{16})\x02(?=.{44})", damage.wrong, re.DOTALL):
        at = match.start() - f.MAGIC_POS
        if at > 0 and _header_agrees(damage.wrong, at) and not damage.is_sound(at):
            begin, e = damage.position + at, header_of(damage.data[at:], damage.position + at)
            offsets = f"offsets {e['base_offset']} to {e['last_offset']}"
            text = f"at position {begin} the header of a batch lies ({offsets}), cut: "
            text += "bytes of another file"
            return Cause(causes.OTHER, POSSIBLE, text, begin, len(damage.wrong) - at)
    return None


def between_batches(damage: DamagedBatch) -> Cause | None:
    """Finds bytes that were put in between two batches: no offset is missing between these."""
    after, before = damage.place.after, damage.place.before
    if damage.size or after is None or before is None or not after.is_sound or after.magic != f.MAGIC_V2:
        return None
    if after.position != damage.position + damage.taken or after.base_offset != before.last_offset + 1:
        return None
    put_in = count_of(damage.taken, "byte")
    text = f"{put_in} from position {damage.position} on, put in between two batches: "
    text += f"offset {after.base_offset} after them goes on from {before.last_offset} before, none is missing"
    return Cause(causes.OTHER, LIKELY, text, damage.position, damage.taken)


def end_of_segment(damage: DamagedBatch) -> Cause | None:
    """Finds that the segment ends inside a batch whose header and records up to there are right."""
    missing = damage.size - damage.room
    if not damage.size:
        return _end_inside_header(damage)
    if missing <= 0 or damage.sound:
        return None
    broken = _break_at_end(damage)
    if broken is not None and broken.resumes >= 0:
        first, last = damage.position + broken.at, damage.position + broken.resumes
        text = f"the batch lacks {count_of(missing, 'byte')} between position {first} and {last}: "
        text += "the records after it end with the segment"
        return _cut(damage, text, first, missing)
    if not _begins_right(damage, broken):
        return None
    text = f"the segment ends {count_of(missing, 'byte')} before the batch does: a write that was cut"
    return _cut(damage, text, damage.length, missing)


def _cut(damage: DamagedBatch, text: str, place: int, missing: int) -> Cause:
    """Returns the cause for a batch that was cut, as certain as its length is.

    A cut, and a wrong length together with another fault, look the same to the checksum, so the length needs
    another witness. text: says that it was cut. place: position of the missing bytes. missing: their number.
    """
    size, present = damage.size, damage.size - missing
    changed = (size - f.LOG_OVERHEAD) ^ (present - f.LOG_OVERHEAD)
    if changed & (changed - 1) == 0:
        at = damage.position + f.LENGTH_POS
        words = (
            f"the length leads {count_of(missing, 'byte')} too far, which one flipped bit in it would explain"
        )
        text = f"{words}; more is changed then, as the checksum is wrong without it too. Or {text}"
        return Cause(causes.UNKNOWN, POSSIBLE, text, at, 4)
    if not _is_size_plausible(damage, size, present):
        text += ", or its length is wrong and more is: nothing else says how long it was"
        return Cause(causes.CUT, POSSIBLE, text, place, missing)
    return Cause(causes.CUT, LIKELY, text, place, missing)


def _is_size_plausible(damage: DamagedBatch, size: int, present: int) -> bool:
    """Returns whether the missing records would take about as many bytes as are missing."""
    e, data = damage.header, damage.data[:present].tobytes()
    if e["magic"] != f.MAGIC_V2:
        return True
    near = [
        (neighbour.size - f.V2_HEADER_SIZE) / (neighbour.last_offset - neighbour.base_offset + 1)
        for neighbour in (damage.place.before, damage.place.after)
        if neighbour is not None
        and neighbour.is_sound
        and neighbour.magic == f.MAGIC_V2
        and neighbour.last_offset >= neighbour.base_offset
    ]
    count = max(1, int(e["count"]))
    if e["codec"] != f.CODEC_NONE or present <= f.V2_HEADER_SIZE:
        if present < damage.room:  # and not the end of a write
            return False
        mean_size = (size - f.V2_HEADER_SIZE) / count
        return bool(near) and min(near) / _ALIKE <= mean_size <= _ALIKE * max(near)
    broken = break_of_records(data, count, int(e["last_offset_delta"]))
    if broken is None:
        return False
    resumes = broken.resumes if broken.resumes >= 0 else present
    if broken.resumes >= 0 and broken.lost == 1 and broken.next >= 0:
        return broken.next == resumes + size - present
    lost = broken.lost if broken.resumes >= 0 else count - _records_before(data, broken.at)
    if lost < count:
        near.append((broken.at - f.V2_HEADER_SIZE + present - resumes) / (count - lost))
    mean_size = (resumes - broken.at + size - present) / max(1, lost)
    return bool(near) and min(near) / _ALIKE <= mean_size <= _ALIKE * max(near)


def _records_before(data: bytes, end: int) -> int:
    """Counts the records from the header of a batch up to ``end``."""
    at, count = f.V2_HEADER_SIZE, 0
    while at < end and (record := record_at(data, at, len(data))) is not None:
        at, count = record[0], count + 1
    return count


def _break_at_end(damage: DamagedBatch) -> Break | None:
    e, data = damage.header, damage.data.tobytes()
    if e["magic"] != f.MAGIC_V2:
        return break_of_message(data, damage.size)
    if e["codec"] != f.CODEC_NONE or len(data) < f.V2_HEADER_SIZE:
        return None
    return break_of_records(data, int(e["count"]), int(e["last_offset_delta"]))


def _begins_right(damage: DamagedBatch, broken: Break | None) -> bool:
    """Returns whether the batch in which the segment ends is right, as far as it is there."""
    e, data = damage.header, damage.data.tobytes()
    first = int(e["base_offset"] if e["magic"] == f.MAGIC_V2 else e["last_offset"])
    if not damage.offset_before < first <= damage.offset_before + _MOST_MISSING:
        return False
    if e["magic"] != f.MAGIC_V2:
        return broken is None or broken.at + 4 > damage.room
    if len(data) < f.V2_HEADER_SIZE:
        return True
    return _header_agrees(data, 0) and (broken is None or ends_inside(data, broken.at))


def _end_inside_header(damage: DamagedBatch) -> Cause | None:
    """Finds that the segment ends inside a header that begins with one of the next offsets."""
    first, before = int.from_bytes(damage.data[:8].tobytes(), "big", signed=True), damage.offset_before
    if not 8 <= damage.room < f.V2_HEADER_SIZE or damage.taken != damage.room:
        return None
    if not before < first <= before + _MOST_MISSING:
        return None
    text = f"the segment ends inside of a header that begins with offset {first}: a write that was cut"
    return Cause(causes.CUT, LIKELY, text, damage.length, 0)
