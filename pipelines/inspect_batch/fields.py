"""Fields of a batch as a person sees them: what the plain reader read, with the meaning of each value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.fields import Field, Wrong
from kafka_log_lake.udfs.format.plain_header import read_header

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


def shown_bytes(raw: bytes) -> str:
    """Returns bytes as a reader sees them: quoted if they are text, else as hexadecimal digits."""
    text = _as_text(raw)
    if text is not None:
        return f'"{text[:_SHOWN]}"' + ("…" if len(text) > _SHOWN else "")
    return raw[: _SHOWN // 4].hex(" ") + (" …" if len(raw) > _SHOWN // 4 else "")


def kind_of(raw: bytes) -> str:
    """Says what bytes are: empty, text (printable UTF-8), or bytes."""
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


def inspected(
    field: Field, base: int, place: str, level: int = 0, meaning: str = "", value: str | None = None
) -> InspectedField:
    """Returns a field that was read. base: position of the data in the segment, or 0 for a payload.

    value: in words; None: as it is stored.
    """
    if value is None:
        if field.value is None:
            value = "null"
        elif isinstance(field.value, int):
            value = str(field.value)
        else:
            value, meaning = (
                shown_bytes(field.value),
                f"{meaning}; {kind_of(field.value)}" if meaning else kind_of(field.value),
            )
    return InspectedField(
        field.name, base + field.at, field.size, value, meaning, level, place, field.problem
    )


def mark(fields: list[InspectedField], wrong: Wrong, base: int, place: str, size: int = 0) -> None:
    """Marks the field that is wrong; adds it, with its ``size`` bytes, where it could not be read.

    base: position of the data in the segment, 0 for a payload.
    """
    at, problem = base + wrong.at, wrong.text.removeprefix(f"{wrong.name}: ")
    for i, field in enumerate(fields):
        if (field.name, field.at) == (wrong.name, at):
            fields[i] = replace(field, problem=problem)
            return
    fields.append(InspectedField(wrong.name, at, size, "", "", 2, place, problem))


_MAGICS = {
    f.MAGIC_V0: "a message of format 0 (Kafka 0.8 and 0.9)",
    f.MAGIC_V1: "a message of format 1 (Kafka 0.10)",
    f.MAGIC_V2: "a record batch, format 2 (Kafka 0.11 and later)",
}


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
    """Returns the fields of the header at the begin of ``data``, by its magic, as far as the data go.

    position: of it in the segment. room: bytes of the segment from there on. computed: the checksum, or None
    where the length does not allow one.
    """
    return body_fields(read_header(data, room, computed).fields, position, FILE, 0, computed)


def body_fields(
    fields: list[Field], base: int, place: str, level: int, computed: int | None = None
) -> list[InspectedField]:
    """Returns the fields of the header of a batch, or of a message, with what they mean.

    base: position of the data in the segment, 0 for a payload. computed: the checksum, None where it is not
    known. level: as of ``InspectedField``; above 0 for a message in a wrapper.
    """
    stored = {field.name: field.value for field in fields}
    meaning = _meaning_of_batch if "baseOffset" in stored else _meaning_of_message
    inspected_fields = []
    for field in fields:
        value, words = None, meaning(field, stored, base, level)
        if field.name == "crc":
            value, words = f"{field.value:#010x}", words + _verdict(field.value, computed)
        shown = inspected(field, base, place, level, words, value)
        if field.name == "baseTimestamp" and stored["attributes"] & f.DELETE_HORIZON_MASK:
            shown = replace(shown, name="deleteHorizonMs")
        inspected_fields.append(shown)
    return inspected_fields


def _verdict(stored: int, computed: int | None) -> str:
    if computed is None:
        return ": can't be computed"
    return ": right" if stored == computed else f": computed {computed:#010x}"


def _meaning_of_batch(field: Field, stored: dict[str, object], position: int, level: int) -> str:
    value = field.value
    match field.name:
        case "baseOffset":
            return "outside the checksum"
        case "batchLength":
            return _length(value, level)
        case "partitionLeaderEpoch":
            return "set by the broker; outside the checksum"
        case "magic":
            return _MAGICS.get(value, "not known")
        case "crc":
            return f"CRC-32C of all from position {position + f.V2_ATTRIBUTES_POS} to the end of the batch"
        case "attributes":
            return _v2_attributes(value)
        case "lastOffsetDelta":
            return f"the last offset is {stored['baseOffset'] + value}"
        case "baseTimestamp" | "maxTimestamp":
            return timestamp_text(value)
        case "producerId" | "producerEpoch" | "baseSequence" if value == -1:
            return "-1: none"
        case "baseSequence":
            return "of the first record"
    return ""


def _meaning_of_message(field: Field, stored: dict[str, object], position: int, level: int) -> str:
    value, magic = field.value, stored.get("magic")
    match field.name:
        case "offset":
            inner = "relative to the wrapper's in format 1"
            return inner if level else "of a wrapper that of its last inner message; outside the checksum"
        case "messageSize":
            return _length(value, level)
        case "crc":
            whole = f"from position {position + f.MAGIC_POS} to the end of the message"
            return "CRC-32 of all from magic on" if level else f"CRC-32 of all {whole}"
        case "magic":
            return _MAGICS.get(value, "not known")
        case "attributes":
            text = f"codec {f.CODEC_NAMES[value & f.CODEC_MASK]}"
            append = value & f.TIMESTAMP_TYPE_MASK
            return (
                text if magic == f.MAGIC_V0 else text + (", log append time" if append else ", create time")
            )
        case "timestamp":
            return timestamp_text(value)
        case "keyLength" | "valueLength" if value < 0:
            return "null"
        case "surplus":
            return "bytes after the value"
    return ""


def _length(value: int, level: int) -> str:
    words = "bytes that follow this field"
    return words if level else f"{words}: the whole has {value + f.LOG_OVERHEAD}; outside the checksum"


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
