"""Decodes Protobuf's wire format to canonical JSON, strictly, by descriptors (protobuf.dev, "Encoding").

A message descriptor becomes a table of its fields once. What the descriptor does not know, and a field of
another wire type, is an unknown field and left out, as every Protobuf library does; the bytes themselves must
be well-formed to the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_log_lake.udfs.values.schemas.payload import (
    PayloadError,
    canonical_bytes,
    canonical_float,
    text_of,
    unpack,
)
from kafka_log_lake.udfs.words import count_of

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
_MOST_LEVELS = 100  # of nested messages, as Protobuf's own libraries
_MOST_FIELD = (1 << 29) - 1
_U64 = (1 << 64) - 1


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads an unsigned varint of up to 64 bits that ends before ``end``.

    Returns it and the position after it.
    Raises a PayloadError for one that is cut or longer than 10 bytes.
    """
    value = shift = 0
    start = at
    while True:
        if at >= end:
            raise PayloadError("truncated", "a varint that the bytes end in", start)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, at
        shift += 7
        if shift > 63:
            raise PayloadError("varint_too_long", "a varint of more than 10 bytes", start)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _int64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


# Field type of descriptor.proto -> how a varint becomes its value
_OF_VARINT: dict[int, Callable[[int], object]] = {
    3: _int64,
    4: lambda value: value,
    5: _int32,
    8: bool,
    13: lambda value: value & 0xFFFFFFFF,
    14: _int32,  # enum: its number
    17: lambda value: _int32(_zigzag(value & 0xFFFFFFFF)),
    18: lambda value: _int64(_zigzag(value) & _U64),
}
_OF_FIXED: dict[int, tuple[struct.Struct, bool]] = {  # and whether it is a real number
    1: (struct.Struct("<d"), True),
    2: (struct.Struct("<f"), True),
    6: (struct.Struct("<Q"), False),
    7: (struct.Struct("<I"), False),
    15: (struct.Struct("<i"), False),
    16: (struct.Struct("<q"), False),
}
STRING, GROUP, _MESSAGE, BYTES, ENUM = 9, 10, 11, 12, 14
_UNPACKED = (STRING, GROUP, _MESSAGE, BYTES)
_UNKNOWN_SYMBOL = -1  # in place of a field number: a closed enum had a number that it does not know


@dataclass(eq=False)
class ProtobufField:
    """A field of a message, as the reader needs it.

    siblings: numbers of the other members of its oneof. symbols: the names of an enum's numbers. is_closed:
    whether the enum takes no other numbers.
    """

    name: str
    kind: int
    repeated: bool
    has_presence: bool
    siblings: tuple[int, ...]
    default: Any
    message: MessageReader | None = None
    symbols: dict[int, str] = field(default_factory=dict)
    is_closed: bool = False
    is_map: bool = False

    def to_json(self, value: Any) -> Any:
        """Converts one value of the field to canonical JSON."""
        if self.message is not None:
            return self.message.to_json(value)
        if self.kind == ENUM:
            return self.symbols.get(value, value)
        if self.kind == BYTES:
            return canonical_bytes(value)
        return canonical_float(value) if isinstance(value, float) else value

    @property
    def wire(self) -> int:
        if self.kind in _OF_VARINT:
            return VARINT
        if self.kind in _OF_FIXED:
            return FIXED64 if _OF_FIXED[self.kind][0].size == 8 else FIXED32
        return START_GROUP if self.kind == GROUP else LENGTH


class MessageReader:
    """A reader of the messages of one descriptor."""

    def __init__(self, descriptor: Any, made: dict[str, MessageReader] | None = None) -> None:
        made = {} if made is None else made
        made[descriptor.full_name] = self
        self.full_name: str = descriptor.full_name
        self.fields = {field_of.number: _field(field_of, made) for field_of in descriptor.fields}

    def read(self, data: bytes) -> dict[str, Any]:
        """Decodes a message to canonical JSON: a dict by field. Raises a PayloadError."""
        values: dict[int, Any] = {}
        self._read(values, data, 0, len(data), 0, None)
        return self.to_json(values)

    def _read(
        self, values: dict[int, Any], data: bytes, at: int, end: int, depth: int, group: int | None
    ) -> int:
        """Reads fields into the values by field number; the position after them.

        group: the field that a group is in.
        """
        if depth > _MOST_LEVELS:
            raise PayloadError("too_deep", f"more than {_MOST_LEVELS} levels", at)
        while at < end:
            begin = at
            number, wire, at = _tag(data, at, end)
            if wire == END_GROUP:
                if number != group:
                    raise PayloadError("bad_tag", f"an end of group {number} without its start", begin)
                return at
            known = self.fields.get(number)
            if known is not None and wire == known.wire:
                at = self._value(known, number, values, data, at, end, depth)
            elif known is not None and known.repeated and wire == LENGTH and known.kind not in _UNPACKED:
                size, at = _length(data, at, end)
                _packed(known, values.setdefault(number, []), data, at, at + size)
                at += size
            else:
                at = _skip(data, at, end, number, wire, depth)
        if group is not None:
            raise PayloadError("truncated", f"group {group} has no end", at)
        return at

    def _value(
        self,
        known: ProtobufField,
        number: int,
        values: dict[int, Any],
        data: bytes,
        at: int,
        end: int,
        depth: int,
    ) -> int:
        """Reads one value of a field into the others; returns the position after it."""
        value: Any
        if known.message is None:
            value, at = _scalar(known, data, at, end)
            if known.is_closed and value not in known.symbols:
                values[_UNKNOWN_SYMBOL] = value
                return at
        else:
            # a message that comes again goes on where it ended: so they are merged
            value = {} if known.repeated else values.get(number, {})
            if known.kind == GROUP:
                at = known.message._read(value, data, at, end, depth + 1, number)
            else:
                size, at = _length(data, at, end)
                at = known.message._read(value, data, at, at + size, depth + 1, None)
            if known.is_map and _UNKNOWN_SYMBOL in value:
                return at
        if known.repeated:
            values.setdefault(number, []).append(value)
            return at
        for other in known.siblings:
            values.pop(other, None)
        values[number] = value
        return at

    def to_json(self, values: dict[int, Any]) -> dict[str, Any]:
        values_by_name: dict[str, Any] = {}
        for number, known in self.fields.items():
            value = values.get(number)
            if known.is_map:
                assert known.message is not None
                values_by_name[known.name] = known.message.map_to_json(value or [])
            elif known.repeated:
                values_by_name[known.name] = [known.to_json(message) for message in value or []]
            elif value is not None:
                values_by_name[known.name] = known.to_json(value)
            elif not known.has_presence:
                values_by_name[known.name] = known.to_json(known.default)
        return values_by_name

    def map_to_json(self, entries: list[dict[int, object]]) -> dict[str, object]:
        key, value = self.fields[1], self.fields[2]
        members: dict[str, Any] = {}
        for entry in entries:
            held = entry.get(2)
            if held is None:
                held = {} if value.message is not None else value.default
            name = key.to_json(entry.get(1, key.default))
            text = name if isinstance(name, str) else str(name).lower()
            members.pop(text, None)
            members[text] = value.to_json(held)
        return members


def _field(descriptor: Any, made: dict[str, MessageReader]) -> ProtobufField:
    """Builds the entry of a field in the table of its message.

    made: the readers that exist, by the full name of their message.
    """
    kind, message, enum = descriptor.type, descriptor.message_type, descriptor.enum_type
    default = b"" if kind == BYTES else descriptor.default_value if message is None else None
    field_ = ProtobufField(
        descriptor.name.lower() if kind == GROUP else descriptor.name,
        kind,
        descriptor.is_repeated,
        descriptor.has_presence,
        _siblings(descriptor),
        default,
    )
    if message is not None:
        field_.message = made.get(message.full_name) or MessageReader(message, made)
        field_.is_map = field_.repeated and _is_entry(descriptor, message)
    if enum is not None:
        # of several names for a number the first
        field_.symbols = {value.number: value.name for value in reversed(enum.values)}
        field_.is_closed = enum.is_closed
        field_.default = descriptor.default_value if not field_.repeated else enum.values[0].number
    return field_


def _siblings(descriptor: Any) -> tuple[int, ...]:
    members = descriptor.containing_oneof.fields if descriptor.containing_oneof else ()
    return tuple(member.number for member in members if member.number != descriptor.number)


def _is_entry(field_: Any, message: Any) -> bool:
    """Says whether a message is the entry of a map.

    Karapace writes the entry of a serialized descriptor out as a separate message, without its mark; no
    other message may have this name and these fields.
    """
    if message.GetOptions().map_entry:
        return True
    parts = (part[:1].upper() + part[1:] for part in field_.name.split("_"))
    numbers = {member.name: member.number for member in message.fields}
    return message.name == "".join(parts) + "Entry" and numbers == {"key": 1, "value": 2}


def _tag(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Reads a tag, and returns field number, wire type and the position after it. Raises a PayloadError."""
    tag, next_at = varint(data, at, end)
    number, wire = tag >> 3, tag & 7
    if wire > FIXED32:
        raise PayloadError("bad_wire_type", f"wire type {wire}", at)
    if not 0 < number <= _MOST_FIELD:
        raise PayloadError("bad_tag", f"field number {number}", at)
    return number, wire, next_at


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    size, begin = varint(data, at, end)
    if size > end - begin:
        raise PayloadError("truncated", f"a length of {size}, and {count_of(end - begin, 'byte')} left", at)
    return size, begin


def texts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (field number, bytes) of each field of a message that has a length, at the top level alone."""
    at = 0
    while at < len(data):
        number, wire, at = _tag(data, at, len(data))
        next_at = _skip(data, at, len(data), number, wire, 0)
        if wire == LENGTH:
            size, begin = _length(data, at, len(data))
            yield number, data[begin : begin + size]
        at = next_at


def _scalar(known: ProtobufField, data: bytes, at: int, end: int) -> tuple[object, int]:
    of_varint = _OF_VARINT.get(known.kind)
    if of_varint is not None:
        value, at = varint(data, at, end)
        return of_varint(value), at
    if known.kind in _OF_FIXED:
        layout, _ = _OF_FIXED[known.kind]
        if at + layout.size > end:
            raise PayloadError("truncated", f"{count_of(layout.size, 'byte')} wanted, {end - at} left", at)
        return unpack(layout, data, at)[0], at + layout.size
    size, at = _length(data, at, end)
    if known.kind == STRING:
        return text_of(data, at, at + size), at + size
    return data[at : at + size], at + size


def _packed(known: ProtobufField, values: list[object], data: bytes, at: int, end: int) -> None:
    while at < end:
        value, at = _scalar(known, data, at, end)
        if not known.is_closed or value in known.symbols:
            values.append(value)


def _skip(data: bytes, at: int, end: int, number: int, wire: int, depth: int) -> int:
    """Returns the position after an unknown field. Raises a PayloadError where it is cut or not well-formed.

    Raises a PayloadError where it is cut or not well-formed.
    """
    if wire == VARINT:
        at = varint(data, at, end)[1]
    elif wire == LENGTH:
        size, at = _length(data, at, end)
        at += size
    elif wire == START_GROUP:
        if depth > _MOST_LEVELS:
            raise PayloadError("too_deep", f"more than {_MOST_LEVELS} levels", at)
        while True:
            if at >= end:
                raise PayloadError("truncated", f"group {number} has no end", at)
            begin = at
            inner, wire, at = _tag(data, at, end)
            if wire == END_GROUP:
                if inner != number:
                    raise PayloadError("bad_tag", f"an end of group {inner} in group {number}", begin)
                return at
            at = _skip(data, at, end, inner, wire, depth + 1)
    else:
        at += 8 if wire == FIXED64 else 4
    if at > end:
        raise PayloadError("truncated", "a field that the bytes end in", end)
    return at
