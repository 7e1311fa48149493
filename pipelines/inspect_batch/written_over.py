"""Finds causes by the bytes themselves: zeros, text or other bytes where lengths and numbers belong.

Each function looks for one cause; it returns None where that is not the one.
"""

from __future__ import annotations

import re
import struct

from kafka_log_lake.pipelines.inspect_batch import causes
from kafka_log_lake.pipelines.inspect_batch.breaks import Break, record_at
from kafka_log_lake.pipelines.inspect_batch.causes import LIKELY, POSSIBLE, Cause
from kafka_log_lake.pipelines.inspect_batch.place import DamagedBatch, read
from kafka_log_lake.udfs.format import layout as f

_PAGES = (65536, 4096, 512)
_ZEROS, _TEXT = re.compile(rb"\0{8,}"), re.compile(rb"[\t\n\r\x20-\x7e]{12,}")
_LEAST_TEXT = 12
_IN_FIELDS = 3  # bytes of a record, from its begin on, that are no part of its key or value
_IN_HEADER = 64  # zeros: a sound header has fewer in a row
_HEADS = {f.MAGIC_V0: f.V0_KEY_LENGTH_POS, f.MAGIC_V1: f.V1_KEY_LENGTH_POS, f.MAGIC_V2: f.V2_HEADER_SIZE}
_TEXT_IN_GZIP, _TEXT_IN_STORED = 32, 80  # in a block that was stored as it was a value may be text
_MOST_COMPARED = 1 << 20
_STORED = struct.Struct("<HH")
_GZIP = b"\x1f\x8b\x08"
_CODECS = (_GZIP, b"\x82SNAPPY", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")  # what payloads begin with
_SIGNATURES = {
    _GZIP: "a gzip file",
    b"\x7fELF": "an ELF program",
    b"PK\x03\x04": "a zip file",
    b"\x89PNG\r\n": "a PNG picture",
    b"%PDF-": "a PDF file",
    b"SQLite format 3\0": "a SQLite database",
    b"PAR1": "a Parquet file",
    b"\xca\xfe\xba\xbe": "a Java class",
}


def over_header(damage: DamagedBatch) -> Cause | None:
    """Finds a run of text or zeros in the header that a sound header can't have."""
    data = damage.wrong
    if len(data) <= f.MAGIC_POS or not _is_aligned(damage):
        return None
    magic = data[f.MAGIC_POS]
    head = _HEADS.get(magic, 0)
    for begin, end in _runs(_TEXT, data):
        if begin <= f.MAGIC_POS < end or min(end, head) - begin >= _LEAST_TEXT:
            return _text(damage, begin, end, "where the header should be")
    crc = f.V2_CRC_POS if magic == f.MAGIC_V2 else f.LEGACY_CRC_POS
    for begin, end in _runs(_ZEROS, data):
        covers = begin <= crc and end >= crc + 4
        counted = magic == f.MAGIC_V2 and begin <= f.MAX_TIMESTAMP_POS and end > head
        if end - begin >= _IN_HEADER and (covers or counted):
            return _zeros(damage, begin, end, LIKELY)
    return None


def _is_aligned(damage: DamagedBatch) -> bool:
    """Returns whether a batch begins at the position: no missing bytes have moved its fields."""
    data, at = damage.wrong, f.V2_HEADER_SIZE
    return damage.ends_right or data.startswith(_CODECS, at) or record_at(data, at, len(data)) is not None


def over_end(damage: DamagedBatch) -> Cause | None:
    """Finds zeros from inside the batch over the next one's header: whole pages, or up to the end."""
    if not damage.is_whole or damage.ends_right:
        return None
    size = damage.size
    for begin, end in _runs(_ZEROS, damage.data[: size + _MOST_COMPARED].tobytes()):
        over = begin < size and end >= min(size + f.HEADER_UP_TO_MAGIC, damage.room)
        if over and end - begin >= max(_IN_HEADER, 2 * _most(_ZEROS, damage, begin)):
            cause = _zeros(damage, begin, end, POSSIBLE)
            if cause.certainty == LIKELY or end == damage.room:
                return cause
    return None


def over_records(damage: DamagedBatch) -> Cause | None:
    """Finds what lies where fields of records should be, in a batch that is not compressed."""
    broken = damage.break_
    if broken is None or not damage.ends_right:
        return None
    if broken.at == f.V2_HEADER_SIZE and broken.resumes < 0:  # the attributes may hide that it is compressed
        return None
    for at in (broken.at, broken.next):
        for begin, end in _runs(_TEXT, damage.wrong):
            if at >= 0 and begin <= at + _IN_FIELDS and end >= at + _LEAST_TEXT:
                return _text(damage, begin, end, "where a length and numbers should be")
        for begin, end in _runs(_ZEROS, damage.wrong):
            over = at >= 0 and begin <= at + _IN_FIELDS and end >= at + _LEAST_TEXT
            if over and _is_all(damage, broken, end) and end - begin >= 2 * _most(_ZEROS, damage, begin):
                return _zeros(damage, begin, end, LIKELY)
    if broken.lost < 2 or broken.end == broken.at:  # the count is wrong
        return None
    first, last = damage.position + broken.at, damage.position + broken.end
    text = f"{broken.lost} records from position {first} to {last} can't be read"
    text += ", those before and after it can" if broken.resumes >= 0 else ", those before can"
    text += ": bytes that are not of this batch were written over them, in whole or in part"
    return Cause(causes.OTHER, LIKELY, text, first, last - first)


def _is_all(damage: DamagedBatch, broken: Break, end: int) -> bool:
    """Returns whether a run up to ``end`` explains all lost records: about one of them may lie after it."""
    if damage.header["magic"] != f.MAGIC_V2:
        return True
    if broken.resumes < 0:
        return end >= broken.size
    return 0 <= (broken.resumes - end) * broken.lost <= 2 * (broken.resumes - broken.at)


def in_payload(damage: DamagedBatch) -> Cause | None:
    """Finds text in a payload of gzip, which leaves none, or zeros over a whole page of the disk.

    The batches next to the damage must have no run half as long: a codec may store without compressing.
    """
    if damage.ends_right and damage.wrong.startswith(_GZIP, f.V2_HEADER_SIZE):
        begin, end = _longest(_TEXT, damage.wrong)
        least = _TEXT_IN_STORED if _is_stored(damage.wrong, begin, end) else _TEXT_IN_GZIP
        if end - begin >= max(least, 2 * _most(_TEXT, damage, begin)):
            return _text(damage, begin, end, "in a payload that is compressed by gzip")
    begin, end = _longest(_ZEROS, damage.wrong)
    cause = _zeros(damage, begin, end, POSSIBLE)
    is_long = end - begin >= 2 * _most(_ZEROS, damage, begin)
    return cause if is_long and cause.certainty == LIKELY else None


def _is_stored(content: bytes, begin: int, end: int) -> bool:
    """Returns whether a run is in a block that deflate stored as it was, after a length and its complement.

    ``~size`` follows ``size`` there, two bytes each.
    """
    for at in range(max(0, begin - 0xFFFF), begin - 3):
        size, complement = _STORED.unpack_from(content, at)
        if size ^ complement == 0xFFFF and at + 4 + size >= end:
            return True
    return False


def _longest(kind: re.Pattern[bytes], data: bytes) -> tuple[int, int]:
    return max(_runs(kind, data), key=lambda run: run[1] - run[0], default=(0, 0))


def _most(kind: re.Pattern[bytes], damage: DamagedBatch, besides: int) -> int:
    """Returns the most bytes of a run in the batch, except the one at ``besides``, or in its neighbours."""
    runs = [run for run in _runs(kind, damage.wrong) if run[0] != besides]
    for neighbour in (damage.place.before, damage.place.after):
        if neighbour is not None and neighbour.is_sound:
            content = read(damage.source, neighbour.position, min(neighbour.size, _MOST_COMPARED)).tobytes()
            runs.append(_longest(kind, content))
    return max((end - begin for begin, end in runs), default=0)


def file_of_another_kind(damage: DamagedBatch) -> Cause | None:
    """Finds the begin of a file of another kind, at the begin of a page of the disk."""
    content, position = damage.wrong, damage.position
    near = [
        neighbour.position for neighbour in (damage.place.before, damage.place.after) if neighbour is not None
    ]
    heads = [read(damage.source, at, f.V2_HEADER_SIZE + len(_GZIP)).tobytes() for at in near]
    # payloads of gzip may begin at a page, of a batch too whose header moved or can't be read
    is_gzip = damage.header["codec"] == f.CODEC_GZIP or any(head.endswith(_GZIP) for head in heads)
    for page in _PAGES[1:]:
        for place in range(-(-position // page) * page, position + len(content), page):
            at = place - position
            for mark, name in _SIGNATURES.items():
                if content.startswith(mark, at) and not (is_gzip and "gzip" in name):
                    text = f"at position {place}, the begin of a page of {page} bytes, {name} begins: "
                    text += "bytes of another file"
                    return Cause(causes.OTHER, LIKELY, text, place, len(content) - at)
    return None


def _runs(kind: re.Pattern[bytes], data: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in kind.finditer(data)]


def _text(damage: DamagedBatch, begin: int, end: int, where: str) -> Cause:
    first, last = damage.position + begin, damage.position + end
    text = f"the bytes from position {first} to {last} are text {where}: bytes of something else"
    return Cause(causes.OTHER, LIKELY, text, first, last - first)


def _zeros(damage: DamagedBatch, begin: int, end: int, certainty: str) -> Cause:
    """Returns the cause for zeros: LIKELY for whole pages of the disk, else of the given certainty."""
    low, high = damage.position + begin, damage.position + end
    for page in _PAGES:
        first, last = -(-low // page) * page, high // page * page
        if last > first:
            text = f"the bytes from position {first} to {last} are zeros, whole pages of {page} bytes: "
            text += "a write that never reached the disk"
            return Cause(causes.ZEROS, LIKELY, text, low, high - low)
    text = f"the {high - low} bytes from position {low} are zeros"
    return Cause(causes.ZEROS, certainty, text, low, high - low)
