"""Describes the header of a damaged batch, field by field: the stored bytes, and what was expected there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import fields as stored_fields
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.plain_header import HEADERS, legal_values, magic_of, read_header

_MOST_ROOM = 1 << 32  # the row of a damaged range does not say where its segment ends
_ROW, _DUMPED = 16, f.V2_HEADER_SIZE + 3  # bytes in a line of a dump, and in all of it
_UNREADABLE = ("garbage", "unreadable")  # reasons of ranges that begin with no header


@dataclass(frozen=True)
class Expected:
    """What the tables say about a damaged range and its neighbours; None where nothing is known.

    last_before, epoch_before: last offset and leader epoch of the sound batch before. base_after,
    epoch_after: base offset and leader epoch of the sound batch after. magic: of the batch before, else of
    the batch after. size: bytes of the damaged range. crc: the checksum as computed over the stored bytes,
    unsigned. fault: ``quarantine.detail``; if it names a field of the header, that one is marked.
    """

    last_before: int | None = None
    base_after: int | None = None
    epoch_before: int | None = None
    epoch_after: int | None = None
    magic: int | None = None
    size: int | None = None
    crc: int | None = None
    fault: str | None = None


@dataclass(frozen=True)
class HeaderField:
    """A field of a header. stored: hexadecimal. agrees: whether the value is what was expected."""

    name: str
    position: int
    stored: str
    value: str
    expected: str
    agrees: bool


def fields(content: bytes, reason: str, expected: Expected) -> list[HeaderField]:
    """Returns the fields of the header at the start of a damaged range; [] if it begins with no header."""
    if reason in _UNREADABLE or len(content) < f.HEADER_UP_TO_MAGIC:
        return []
    magic = magic_of(content)
    layout = magic if magic in HEADERS else expected.magic
    header = read_header(content[: f.V2_HEADER_SIZE], _MOST_ROOM, expected.crc, layout)
    values = {field.name: field.value for field in header.fields}
    return [_field(field, content, values, expected) for field in header.fields]


def _field(
    field: stored_fields.Field, content: bytes, values: dict[str, int], expected: Expected
) -> HeaderField:
    text, agrees = _judged(field, values, expected)
    name, _, words = (expected.fault or "").partition(": expected ")
    if name == field.name:
        text, agrees = words.rpartition(", found ")[0], False
    raw = content[field.at : field.at + field.size].hex(" ")
    shown = f"{field.value:#010x}" if field.name == "crc" else str(field.value)
    return HeaderField(field.name, field.at, raw, shown, text, agrees)


def _judged(field: stored_fields.Field, values: dict[str, int], expected: Expected) -> tuple[str, bool]:
    """Returns what was expected of a field, in words, and whether its value agrees with it.

    First as the format has it, then as the neighbours have it.
    """
    if field.wrong is not None:
        return faults.expected_of(field.wrong.fault, field.wrong.expected), False
    match field.name:
        case "baseOffset" | "offset":
            # The offset of a wrapper of magic 0 or 1 is its last: it too lies between the neighbours
            low = -1 if expected.last_before is None else expected.last_before
            high = None if expected.base_after is None else expected.base_after - 1
            return _between(field.value, low + 1, high)
        case "batchLength" | "messageSize" if expected.size is not None:
            length = expected.size - f.LOG_OVERHEAD
            return f"{length}, as the damaged range ends there", field.value == length
        case "partitionLeaderEpoch":
            low = -1 if expected.epoch_before is None else expected.epoch_before
            return _between(field.value, low, expected.epoch_after)
        case "magic":
            if expected.magic is None:
                return faults.expected_of(faults.UNKNOWN_MAGIC, 0), True
            return f"{expected.magic}, as in the neighbouring batches", field.value == expected.magic
        case "crc":
            if expected.crc is None:
                return "not computed", True
            return faults.expected_of(faults.CRC_MISMATCH, expected.crc), True
        case "maxTimestamp":
            return _between(field.value, values["baseTimestamp"], None)
    return legal_values(field.name, values["magic"]), True


def _between(value: int, low: int, high: int | None) -> tuple[str, bool]:
    if high is None or high < low:  # neighbours that contradict each other tell nothing of an upper bound
        return f"{low} or more", value >= low
    return (str(low) if low == high else f"{low} to {high}"), low <= value <= high


def dump(content: bytes) -> Iterator[tuple[str, str, str]]:
    """Yields lines of a dump of the first bytes: (position, hexadecimal, text with dots for other bytes)."""
    content = content[:_DUMPED]
    for at in range(0, len(content), _ROW):
        row = content[at : at + _ROW]
        yield f"{at:04x}", row.hex(" "), "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
