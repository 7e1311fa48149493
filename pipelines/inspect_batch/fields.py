"""Fields of a batch: place, name in Kafka's words, value, meaning, and what is wrong with it.

The fields of a header are those of ``DefaultRecordBatch`` and ``LegacyRecord`` of kafka-clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.varints import varint_at
from kafka_log_lake.udfs.words import count_of

FILE, PAYLOAD = "file", "payload"  # where a field is: in the segment, or in the expanded payload
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 240


@dataclass(frozen=True)
class InspectedField:
    """A field of a batch or a record.

    at: its first byte, in the segment or in the expanded payload, as ``place`` says. size: in bytes, 0 for
    what is missing. level: 0 for fields of the batch, 1 for a record, 2 for its fields, 3 for its headers.
    problem: what was expected and found, where it is wrong; else "".
    """

    name: str
    at: int
    size: int
    value: str
    meaning: str = ""
    level: int = 0
    place: str = FILE
    problem: str = ""


class Broken(Exception):
    """Bytes after which reading can't go on: where, how many bytes, what was expected and found."""

    def __init__(self, at: int, size: int, problem: str) -> None:
        super().__init__(problem)
        self.at, self.size, self.problem = at, size, problem


class Reader:
    """Reads a buffer field by field into ``fields``. base: is added to the positions of fields."""

    def __init__(self, data: bytes, base: int, place: str, at: int = 0) -> None:
        self.data, self.at, self._base, self._place = data, at, base, place
        self.fields: list[InspectedField] = []

    def add(
        self, name: str, at: int, size: int, value: str, meaning: str = "", level: int = 0, problem: str = ""
    ) -> None:
        """Adds a field; ``at`` counts from the begin of the buffer."""
        place = self._base + at
        self.fields.append(InspectedField(name, place, size, value, meaning, level, self._place, problem))

    def broken(self, at: int, size: int, problem: str) -> Broken:
        """Returns the error that says why reading can't go on; ``at`` counts from the begin of the buffer."""
        return Broken(self._base + at, size, problem)

    def integer(
        self,
        name: str,
        size: int,
        meaning: str | Callable[[int], str] = "",
        level: int = 0,
        *,
        signed: bool = True,
        shown: Callable[[int], str] = str,
        check: Callable[[int], str] = lambda _: "",
    ) -> int:
        """Reads a big-endian integer. check: says what is wrong with a value, "" for nothing."""
        raw = self.data[self.at : self.at + size]
        if len(raw) < size:
            problem = f"{name}: expected {count_of(size, 'byte')}, found {len(raw)}"
            raise self.broken(self.at, len(raw), problem)
        number = int.from_bytes(raw, "big", signed=signed)
        words = meaning(number) if callable(meaning) else meaning
        self.add(name, self.at, size, shown(number), words, level, check(number))
        self.at += size
        return number

    def varint(
        self, name: str, end: int, meaning: str = "", level: int = 2, *, bits: int = 32, problem: str = ""
    ) -> int:
        """Reads a zigzag varint that ends at or before ``end``. Raises Broken where there is none."""
        begin = self.at
        found = varint_at(self.data, begin, end, bits)
        if found is None:
            most = f.MAX_VARINT_BYTES if bits == 32 else f.MAX_VARLONG_BYTES
            if end - begin >= most:
                wrong = f"a varint of {most} bytes at most, found a longer one"
            else:
                most, wrong = end - begin, "a varint, found the end inside of it"
            raise self.broken(begin, most, f"{name}: expected {wrong}")
        number, self.at = found
        size = self.at - begin
        kind = "varint" if bits == 32 else "varlong"
        zigzag = number << 1 if number >= 0 else ~(number << 1)
        words = f"{kind} of {size} byte{'s' * (size > 1)}, zigzag of {zigzag}"
        words = f"{meaning}; {words}" if meaning else words
        self.add(name, begin, size, str(number), words, level, problem)
        return number

    def content(self, name: str, size: int, meaning: str = "", level: int = 2) -> bytes:
        """Reads ``size`` bytes; the caller has checked that they are there."""
        raw = self.data[self.at : self.at + size]
        self.add(name, self.at, size, shown_bytes(raw), f"{meaning}{kind_of(raw)}", level)
        self.at += size
        return raw


def shown_bytes(raw: bytes) -> str:
    """Returns bytes as a reader sees them: quoted if they are text, else as hexadecimal digits."""
    text = _as_text(raw)
    if text is not None:
        return f'"{text[:_SHOWN]}"' + ("…" if len(text) > _SHOWN else "")
    return raw[: _SHOWN // 4].hex(" ") + (" …" if len(raw) > _SHOWN // 4 else "")


def kind_of(raw: bytes) -> str:
    if not raw:
        return "empty, which is not null"
    return "text" if _as_text(raw) is not None else "bytes"


def _as_text(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\n\t\r" for c in text) else None


def timestamp_text(milliseconds: int) -> str:
    """Returns a timestamp (ms since 1970 UTC) as ISO 8601, or in words what is wrong with it."""
    if milliseconds == f.NO_TIMESTAMP:
        return "no timestamp"
    if not f.MIN_TIMESTAMP_MS <= milliseconds <= f.MAX_TIMESTAMP_MS:
        return "outside the years 1 to 9999"
    when = _EPOCH + timedelta(milliseconds=milliseconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_MAGICS = {
    f.MAGIC_V0: "a message of format 0 (Kafka 0.8 and 0.9)",
    f.MAGIC_V1: "a message of format 1 (Kafka 0.10)",
    f.MAGIC_V2: "a record batch, format 2 (Kafka 0.11 and later)",
}
_LEAST = {f.MAGIC_V0: f.V0_MIN_SIZE, f.MAGIC_V1: f.V1_MIN_SIZE, f.MAGIC_V2: f.V2_HEADER_SIZE}
_NO = "-1: none"


@dataclass(frozen=True)
class Checksum:
    """A batch's checksum, stored and computed. begin, end: the bytes of the segment that it covers."""

    name: str
    stored: int
    computed: int | None
    begin: int
    end: int

    @property
    def is_right(self) -> bool:
        return self.stored == self.computed


def read_fields(data: bytes, position: int, room: int, computed: int | None) -> list[InspectedField]:
    """Returns the fields of the header at the begin of ``data``, by its magic.

    position: of it in the segment. room: bytes of the segment from there on. computed: the checksum, or None
    where the length does not allow one. Raises Broken where the bytes end inside the header.
    """
    reader = Reader(data, position, "file")
    magic = data[f.MAGIC_POS] if len(data) > f.MAGIC_POS else f.MAGIC_V2
    v2 = magic not in (f.MAGIC_V0, f.MAGIC_V1)
    of_wrapper = "" if v2 else "of a wrapper that of its last inner message; "
    reader.integer("baseOffset" if v2 else "offset", 8, f"{of_wrapper}outside the checksum")
    low, high = _LEAST.get(magic, f.V2_HEADER_SIZE) - f.LOG_OVERHEAD, room - f.LOG_OVERHEAD
    reader.integer(
        "batchLength" if v2 else "messageSize",
        4,
        lambda n: f"bytes that follow this field: the whole has {n + f.LOG_OVERHEAD}; outside the checksum",
        check=lambda n: "" if low <= n <= high else f"expected {low} to {high}, found {n}",
    )
    (_read_v2 if v2 else _read_message)(reader, position, computed)
    return reader.fields


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
    reader.integer(name, 8, timestamp_text)
    reader.integer("maxTimestamp", 8, timestamp_text)
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
        reader.integer("timestamp", 8, timestamp_text)
