"""Describes the header of a damaged batch, field by field: the stored bytes, and what was expected there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_log_lake.udfs.format import layout as f

_ROW, _DUMPED = 16, f.V2_HEADER_SIZE + 3  # bytes in a line of a dump, and in all of it
_UNREADABLE = ("garbage", "unreadable")  # reasons of ranges that begin with no header


@dataclass(frozen=True)
class Expected:
    """What the tables say about a damaged range and its neighbours; None where nothing is known.

    last_before, epoch_before: last offset and leader epoch of the sound batch before. base_after,
    epoch_after: base offset and leader epoch of the sound batch after. magic: of the batch before, else of
    the batch after. size: bytes of the damaged range. crc: the checksum as computed over the stored bytes,
    unsigned.
    """

    last_before: int | None = None
    base_after: int | None = None
    epoch_before: int | None = None
    epoch_after: int | None = None
    magic: int | None = None
    size: int | None = None
    crc: int | None = None


@dataclass(frozen=True)
class Field:
    """A field of a header. stored: hexadecimal. agrees: whether the value is what was expected."""

    name: str
    position: int
    stored: str
    value: str
    expected: str
    agrees: bool


@dataclass(frozen=True)
class _Part:
    name: str
    position: int
    size: int
    signed: bool = True


_LEGACY = (
    _Part("offset", f.OFFSET_POS, 8),
    _Part("length", f.LENGTH_POS, 4),
    _Part("checksum", f.LEGACY_CRC_POS, 4, signed=False),
    _Part("magic", f.MAGIC_POS, 1),
    _Part("attributes", f.LEGACY_ATTRIBUTES_POS, 1, signed=False),
)
_V0 = (*_LEGACY, _Part("key length", f.V0_KEY_LENGTH_POS, 4))
_V1 = (*_LEGACY, _Part("timestamp", f.V1_TIMESTAMP_POS, 8), _Part("key length", f.V1_KEY_LENGTH_POS, 4))
_V2 = (
    _Part("base offset", f.OFFSET_POS, 8),
    _Part("length", f.LENGTH_POS, 4),
    _Part("leader epoch", f.LEADER_EPOCH_POS, 4),
    _Part("magic", f.MAGIC_POS, 1),
    _Part("checksum", f.V2_CRC_POS, 4, signed=False),
    _Part("attributes", f.V2_ATTRIBUTES_POS, 2, signed=False),
    _Part("last offset delta", f.LAST_OFFSET_DELTA_POS, 4),
    _Part("base timestamp", f.BASE_TIMESTAMP_POS, 8),
    _Part("max timestamp", f.MAX_TIMESTAMP_POS, 8),
    _Part("producer id", f.PRODUCER_ID_POS, 8),
    _Part("producer epoch", f.PRODUCER_EPOCH_POS, 2),
    _Part("base sequence", f.BASE_SEQUENCE_POS, 4),
    _Part("records count", f.RECORDS_COUNT_POS, 4),
)
_PARTS = {f.MAGIC_V0: _V0, f.MAGIC_V1: _V1, f.MAGIC_V2: _V2}
_LEAST_LENGTH = {
    f.MAGIC_V0: f.V0_MIN_SIZE - f.LOG_OVERHEAD,
    f.MAGIC_V1: f.V1_MIN_SIZE - f.LOG_OVERHEAD,
    f.MAGIC_V2: f.V2_HEADER_SIZE - f.LOG_OVERHEAD,
}
_UNUSED = {f.MAGIC_V0: f.V0_UNUSED_MASK, f.MAGIC_V1: f.V1_UNUSED_MASK, f.MAGIC_V2: f.V2_UNUSED_MASK}
# Least legal value of fields that have nothing else to be compared with
_LEAST = {
    "last offset delta": 0,
    "timestamp": f.NO_TIMESTAMP,
    "base timestamp": f.NO_TIMESTAMP,
    "producer id": f.NO_PRODUCER_ID,
    "producer epoch": -1,
    "base sequence": f.NO_SEQUENCE,
    "records count": 0,
    "key length": -1,
}


def fields(content: bytes, reason: str, expected: Expected) -> list[Field]:
    """Returns the fields of the header at the start of a damaged range; [] if it begins with no header."""
    if reason in _UNREADABLE or len(content) < f.HEADER_UP_TO_MAGIC:
        return []
    stored_magic = int.from_bytes(content[f.MAGIC_POS : f.MAGIC_POS + 1], "big", signed=True)
    magic = stored_magic if stored_magic in _PARTS else expected.magic
    parts = _PARTS[f.MAGIC_V2 if magic is None else magic]
    values = {
        part.name: int.from_bytes(
            content[part.position : part.position + part.size], "big", signed=part.signed
        )
        for part in parts
        if part.position + part.size <= len(content)
    }
    return [_field(part, content, values, expected) for part in parts if part.name in values]


def _field(part: _Part, content: bytes, values: dict[str, int], expected: Expected) -> Field:
    value = values[part.name]
    text, agrees = _judged(part.name, value, values, expected)
    stored = content[part.position : part.position + part.size].hex(" ")
    shown = f"0x{value:0{2 * part.size}x}" if not part.signed else str(value)
    return Field(part.name, part.position, stored, shown, text, agrees)


def _judged(name: str, value: int, values: dict[str, int], expected: Expected) -> tuple[str, bool]:
    """Returns what was expected of a field, in words, and whether the value agrees with it."""
    magic = values["magic"] if values["magic"] in _PARTS else f.MAGIC_V2
    match name:
        case "base offset" | "offset":
            # The offset of a wrapper of magic 0 or 1 is its last: it too lies between the neighbours
            low = -1 if expected.last_before is None else expected.last_before
            return _between(value, low + 1, None if expected.base_after is None else expected.base_after - 1)
        case "length":
            if expected.size is None:
                return _between(value, _LEAST_LENGTH[magic], None)
            length = expected.size - f.LOG_OVERHEAD
            return f"{length}, as the damaged range ends there", value == length
        case "leader epoch":
            low = -1 if expected.epoch_before is None else expected.epoch_before
            return _between(value, low, expected.epoch_after)
        case "magic":
            if expected.magic is None:
                return "0, 1 or 2", value in _PARTS
            return f"{expected.magic}, as in the neighbouring batches", value == expected.magic
        case "checksum":
            if expected.crc is None:
                return "not computed", True
            return f"0x{expected.crc:08x}, as computed", value == expected.crc
        case "attributes":
            codec, unused = value & f.CODEC_MASK, value & _UNUSED[magic]
            last = f.CODEC_ZSTD if magic == f.MAGIC_V2 else f.CODEC_LZ4
            return f"a codec from 0 to {last}, no unused bits", codec <= last and not unused
        case "max timestamp":
            return _between(value, values["base timestamp"], None)
    return _between(value, _LEAST[name], None)


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
