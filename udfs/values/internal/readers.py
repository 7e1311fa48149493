"""Builds readers of messages: a definition in one version becomes functions that read its bytes.

They give what Kafka's JSON converters give of the same bytes: a dict of the fields that the version has,
bytes in Base64, a uuid in Kafka's notation, a tagged field only if it differs from its default. Tagged fields
that the definition does not know are kept under ``_unknownTaggedFields``, where Kafka's JSON leaves them out.

The rules are those of Kafka's generated ``read`` methods, the loose ones too: a bool is any byte but 0, any
negative length is null, the size of a known tagged field is not looked at.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kafka_log_lake.udfs.values.internal.definitions import NONE, MessageDefinition, MessageField, Versions
from kafka_log_lake.udfs.values.schemas.payload import canonical_float

# Reads at a position; gives the value and the position after it
Reader = Callable[[bytes, int], tuple[Any, int]]
Length = Callable[[bytes, int], tuple[int, int]]

UNKNOWN_TAGS = "_unknownTaggedFields"
_LONGEST_TEXT = 0x7FFF
_MOST_INT32 = 0x7FFFFFFF


class UnreadableMessage(ValueError):
    """Bytes that are not the message.

    what: what is wrong. field: where, the names of fields joined by dots.
    """

    def __init__(self, what: str, field: str = "") -> None:
        super().__init__(f"{field}: {what}" if field else what)
        self.what, self.field = what, field

    def inside(self, name: str) -> UnreadableMessage:
        return UnreadableMessage(self.what, f"{name}.{self.field}" if self.field else name)


def unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads Kafka's unsigned varint of 1 to 5 bytes; returns an int32 and the position after it.

    The number may be negative. Raises UnreadableMessage for more bytes, IndexError where the data ends in it.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000, at + 1
    raise UnreadableMessage("a varint of more than 5 bytes")


def _number(code: str) -> Reader:
    layout = struct.Struct(f">{code}")
    unpack, size = layout.unpack_from, layout.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


def _bool(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _float64(data: bytes, at: int) -> tuple[float | str, int]:
    """Reads a double; returns it, NaN and infinities as Jackson's texts, and the position after it."""
    (value,) = struct.unpack_from(">d", data, at)
    return canonical_float(value), at + 8


def _uuid(data: bytes, at: int) -> tuple[str, int]:
    return base64.urlsafe_b64encode(_part(data, at, 16))[:22].decode(), at + 16


def _part(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) < size:
        raise UnreadableMessage(f"a length of {size} at byte {at}, and the bytes end at {len(data)}")
    return part


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        import pyarrow as pa

        from kafka_log_lake.udfs.kernels.jvm_text import repair_utf8  # compiles kernels, which few texts need

        repaired: str = repair_utf8(pa.array([raw], pa.binary()))[0].as_py()
        return repaired


def _compact_length(data: bytes, at: int) -> tuple[int, int]:
    value, at = unsigned_varint(data, at)
    return (value - 1 if value > -_MOST_INT32 - 1 else _MOST_INT32), at


_int8, _int16, _int32 = _number("b"), _number("h"), _number("i")


def _refuse(data: bytes, at: int) -> tuple[object, int]:
    raise UnreadableMessage("not known in this version")


_UNKNOWN = "of a newer version"  # type of a field that no reader knows
_NUMBERS: dict[str, Reader] = {
    _UNKNOWN: _refuse,
    "int8": _int8,
    "int16": _int16,
    "int32": _int32,
    "int64": _number("q"),
    "uint16": _number("H"),
    "uint32": _number("I"),
    "float64": _float64,
    "bool": _bool,
    "uuid": _uuid,
}
_REFUSED = MessageField("struct", _UNKNOWN, False, Versions.parse("0+"), NONE, NONE, -1, None, ())
_DEFAULTS: dict[str, Any] = {"string": "", "bytes": "", "bool": False, "uuid": "A" * 22, "float64": 0.0}


def _sized(length: Length, nullable: bool, make: Callable[[bytes], str], longest: int) -> Reader:
    """Builds a reader of a length and so many bytes, which ``make`` turns into a text.

    Null (a negative length) or a length above ``longest`` raises UnreadableMessage, but null where
    ``nullable``.
    """

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        size, at = length(data, at)
        if size < 0:
            if nullable:
                return None, at
            raise UnreadableMessage("null, which this field cannot be")
        if size > longest:
            raise UnreadableMessage(f"a text of length {size}, and {longest} is the most")
        return make(_part(data, at, size)), at + size

    return read


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _array(length: Length, nullable: bool, item: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        size, at = length(data, at)
        if size < 0:
            if nullable:
                return None, at
            raise UnreadableMessage("null, which this field cannot be")
        if size > len(data) - at:
            raise UnreadableMessage(
                f"an array of length {size} at byte {at}, and the bytes end at {len(data)}"
            )
        items = []
        for _ in range(size):
            value, at = item(data, at)
            items.append(value)
        return items, at

    return read


def _nullable_struct(read_struct: Reader, tagged: bool) -> Reader:
    """Builds a reader of a struct that can be null.

    Before it stands an int8, below 0 for null; in a tagged field a varint, 0 for null.
    """

    def read(data: bytes, at: int) -> tuple[Any, int]:
        mark, at = unsigned_varint(data, at) if tagged else _int8(data, at)
        if mark < 0 or (tagged and mark == 0):
            return None, at
        return read_struct(data, at)

    return read


def _reader(field: MessageField, version: int, flexible: bool) -> Reader:
    nullable = version in field.nullable
    if field.fields:
        item = _struct(field.fields, version, flexible)
        if nullable and not field.is_array:
            return _nullable_struct(item, version in field.tagged)
    elif field.type in _NUMBERS:
        item = _NUMBERS[field.type]
    else:
        is_text = field.type == "string"
        length = _compact_length if flexible else (_int16 if is_text else _int32)
        can_be_null = nullable and not field.is_array
        make = _text if is_text else _base64
        item = _sized(length, can_be_null, make, _LONGEST_TEXT if is_text else _MOST_INT32)
    return _array(_compact_length if flexible else _int32, nullable, item) if field.is_array else item


def default(field: MessageField, version: int) -> Any:
    """Returns the value of a field whose bytes are not there, as Kafka's JSON writes it."""
    text = field.default
    if text == "null":
        return None
    if field.is_array:
        return []
    if field.fields:
        return {
            f.name: default(f, version)
            for f in field.fields
            if version in f.versions and version not in f.tagged
        }
    if text is None or text == "":
        return _DEFAULTS.get(field.type, 0)
    if field.type == "bool":
        return text in (True, "true")
    return text if field.type in ("string", "bytes", "uuid") else int(str(text), 0)


def _struct(fields: Sequence[MessageField], version: int, flexible: bool) -> Reader:
    there = [field for field in fields if version in field.versions]
    plain = [(f.name, _reader(f, version, flexible)) for f in there if version not in f.tagged]
    names = [f.name for f in there]
    # Kafka refuses a tag that the definition has for other versions alone
    tagged: dict[int, _Tagged | None] = {f.tag: None for f in fields if f.tag >= 0}
    for field in there:
        if version in field.tagged:
            reader = _reader(field, version, flexible)
            tagged[field.tag] = _Tagged(field.name, reader, default(field, version))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        name = "tagged fields"
        try:
            for name, reader in plain:  # the handlers below use it
                values[name], at = reader(data, at)
            if flexible:
                name = "tagged fields"
                if data[at]:
                    at = _read_tags(data, at, tagged, values)
                    values = _in_order(names, values)
                else:
                    at += 1
        except (struct.error, IndexError):
            raise UnreadableMessage(f"the bytes end at {len(data)}", name) from None
        except UnreadableMessage as error:
            raise error.inside(name) from None
        return values, at

    return read


def _in_order(names: Sequence[str], values: dict[str, object]) -> dict[str, object]:
    """Returns the values in the order of the definition, as Kafka's JSON has them, with unknown tags last."""
    known = {name: values[name] for name in names if name in values}
    return known | values  # unknown tags come last


class _Tagged(NamedTuple):
    name: str
    reader: Reader
    default: Any


def _read_tags(data: bytes, at: int, known: dict[int, _Tagged | None], values: dict[str, object]) -> int:
    """Reads tagged fields at a position into ``values``, and returns the position after them.

    A field that equals its default is left out. known: by tag; None for a tag that this version does not
    have, which raises UnreadableMessage.
    """
    count, at = unsigned_varint(data, at)
    if count < 0:  # refused since 4.4
        raise UnreadableMessage(f"{count} tagged fields")
    unknown = []
    for _ in range(count):
        tag, at = unsigned_varint(data, at)
        size, at = unsigned_varint(data, at)
        if tag in known:
            field = known[tag]
            if field is None:
                raise UnreadableMessage(f"tag {tag} is not of this version")
            value, at = field.reader(data, at)
            values.pop(field.name, None)
            if value != field.default:
                values[field.name] = value
        else:
            if size < 0:
                raise UnreadableMessage(f"tag {tag} has length {size}")
            unknown.append({"tag": tag, "data": _base64(_part(data, at, size))})
            at += size
    if unknown:
        values[UNKNOWN_TAGS] = unknown
    return at


def newer_reader(message: MessageDefinition, version: int) -> Reader:
    """Builds the reader of a version above all that a message has, as Kafka's tools read it.

    They take its fields for those of the newest version that they know; of a struct in it they read none.
    """
    return message_reader(replace(message, fields=tuple(map(_without_structs, message.fields))), version)


def _without_structs(field: MessageField) -> MessageField:
    return replace(field, fields=(_REFUSED,)) if field.fields else field


def message_reader(message: MessageDefinition, version: int) -> Reader:
    """Builds the reader of a message's bytes in one of its versions.

    It takes (data, position), returns a dict by field and the position after the message, and raises
    UnreadableMessage for bytes that Kafka refuses.
    """
    return _struct(message.fields, version, version in message.flexible)
