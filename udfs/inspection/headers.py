"""The header of a batch, field by field: ``DefaultRecordBatch`` and ``LegacyRecord`` of kafka-clients."""

from __future__ import annotations

from dataclasses import dataclass

from udfs.format import layout as f
from udfs.inspection.fields import Field, Reader, moment

_MAGICS = {
    f.MAGIC_V0: "a message of format 0 (Kafka 0.8 and 0.9)",
    f.MAGIC_V1: "a message of format 1 (Kafka 0.10)",
    f.MAGIC_V2: "a record batch, format 2 (Kafka 0.11 and later)",
}
_LEAST = {f.MAGIC_V0: f.V0_MIN_SIZE, f.MAGIC_V1: f.V1_MIN_SIZE, f.MAGIC_V2: f.V2_HEADER_SIZE}
_NO = "-1: none"


@dataclass(frozen=True)
class Checksum:
    """begin, end: the bytes of the segment that are covered."""

    name: str
    stored: int
    computed: int | None
    begin: int
    end: int

    @property
    def is_right(self) -> bool:
        return self.stored == self.computed


def read_fields(data: bytes, position: int, room: int, computed: int | None) -> list[Field]:
    """The fields of the header at the begin of ``data``, by its magic.

    position: of it in the segment. room: bytes of the segment from there on. computed: the checksum, or None
    where the length does not allow one. Raises Broken where the bytes end inside the header.
    """
    reader = Reader(data, position, "file")
    magic = data[f.MAGIC_POS] if len(data) > f.MAGIC_POS else f.MAGIC_V2
    v2 = magic not in (f.MAGIC_V0, f.MAGIC_V1)
    of_wrapper = "" if v2 else "of a wrapper that of its last inner message; "
    reader.integer("baseOffset" if v2 else "offset", 8, f"{of_wrapper}outside the checksum")
    least = _LEAST.get(magic, f.V2_HEADER_SIZE)
    length_name = "batchLength" if v2 else "messageSize"
    reader.integer(
        length_name,
        4,
        lambda n: f"bytes that follow this field: the whole has {n + f.LOG_OVERHEAD}; outside the checksum",
        check=lambda n: _length_problem(n, least, room),
    )
    (_read_v2 if v2 else _read_message)(reader, position, computed)
    return reader.fields


def _length_problem(length: int, least: int, room: int) -> str:
    low, high = least - f.LOG_OVERHEAD, room - f.LOG_OVERHEAD
    return "" if low <= length <= high else f"expected {low} to {high}, found {length}"


def _crc(reader: Reader, name: str, covers: str, computed: int | None) -> None:
    def words(stored: int) -> str:
        if computed is None:
            return f"{name} of {covers}: can't be computed"
        return f"{name} of {covers}: " + ("right" if stored == computed else f"computed {computed:#010x}")

    def check(stored: int) -> str:
        if computed is None or stored == computed:
            return ""
        return f"expected {computed:#010x} as computed, found {stored:#010x}"

    reader.integer("crc", 4, words, signed=False, shown=lambda n: f"{n:#010x}", check=check)


def _read_v2(reader: Reader, position: int, computed: int | None) -> None:
    data = reader.data
    base = int.from_bytes(data[:8], "big", signed=True)
    reader.integer("partitionLeaderEpoch", 4, "set by the broker; outside the checksum")
    reader.integer(
        "magic",
        1,
        lambda n: _MAGICS.get(n, "not known"),
        check=lambda n: "" if n in _MAGICS else f"expected 0, 1 or 2, found {n}",
    )
    covers = f"all from position {position + f.V2_ATTRIBUTES_POS} to the end of the batch"
    _crc(reader, "CRC-32C", covers, computed)
    attributes = reader.integer("attributes", 2, _v2_attributes, signed=False, check=_v2_unused)
    reader.integer(
        "lastOffsetDelta",
        4,
        lambda n: f"the last offset is {base + n}",
        check=lambda n: "" if n >= 0 else f"expected 0 or more, found {n}",
    )
    name = "deleteHorizonMs" if attributes & f.DELETE_HORIZON_MASK else "baseTimestamp"
    reader.integer(name, 8, moment)
    reader.integer("maxTimestamp", 8, moment)
    reader.integer("producerId", 8, lambda n: _NO if n == -1 else "")
    reader.integer("producerEpoch", 2, lambda n: _NO if n == -1 else "")
    reader.integer("baseSequence", 4, lambda n: _NO if n == -1 else "of the first record")
    reader.integer("recordsCount", 4, "", check=lambda n: "" if n >= 0 else f"expected 0 or more, found {n}")


def _v2_attributes(attributes: int) -> str:
    words = [
        f"codec {f.CODEC_NAMES[attributes & f.CODEC_MASK]}",
        "log append time" if attributes & f.TIMESTAMP_TYPE_MASK else "create time",
    ]
    for mask, name in (
        (f.TRANSACTIONAL_MASK, "transactional"),
        (f.CONTROL_MASK, "control batch"),
        (f.DELETE_HORIZON_MASK, "delete horizon set"),
    ):
        if attributes & mask:
            words.append(name)
    return ", ".join(words)


def _v2_unused(attributes: int) -> str:
    if attributes & f.CODEC_MASK > f.CODEC_ZSTD:
        return f"codec: expected 0 to {f.CODEC_ZSTD}, found {attributes & f.CODEC_MASK}"
    unused = attributes & f.V2_UNUSED_MASK
    return f"unused bits: expected none, found {unused:#06x}" if unused else ""


def _read_message(reader: Reader, position: int, computed: int | None) -> None:
    magic = reader.data[f.MAGIC_POS]
    _crc(reader, "CRC-32", f"all from position {position + f.MAGIC_POS} to the end of the message", computed)
    reader.integer("magic", 1, lambda n: _MAGICS.get(n, "not known"))
    unused = f.V0_UNUSED_MASK if magic == f.MAGIC_V0 else f.V1_UNUSED_MASK

    def words(attributes: int) -> str:
        text = f"codec {f.CODEC_NAMES[attributes & f.CODEC_MASK]}"
        if magic == f.MAGIC_V0:
            return text
        return text + (", log append time" if attributes & f.TIMESTAMP_TYPE_MASK else ", create time")

    def check(attributes: int) -> str:
        if attributes & f.CODEC_MASK > f.CODEC_LZ4:
            return f"codec: expected 0 to {f.CODEC_LZ4}, found {attributes & f.CODEC_MASK}"
        left = attributes & unused
        return f"unused bits: expected none, found {left:#04x}" if left else ""

    reader.integer("attributes", 1, words, signed=False, check=check)
    if magic == f.MAGIC_V1:
        reader.integer("timestamp", 8, moment)
