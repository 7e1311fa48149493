"""Decodes Avro's binary encoding to canonical JSON, strictly: each byte must be what the schema says.

A type becomes a function once, which reads its bytes at a position. This is the exact reader: for one
payload, for what the compiled reader (``avro.columns``) leaves to it, and for the words of an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from kafka_log_lake.udfs.values.avro.schema import MOST_DECIMAL_BYTES, AvroType
from kafka_log_lake.udfs.values.schemas.payload import (
    MAX_DEPTH,
    PayloadError,
    canonical_bytes,
    canonical_float,
    text_of,
    unpack,
)
from kafka_log_lake.udfs.words import count_of

# data, position, depth -> value, the position after it
Reader = Callable[[bytes, int, int], tuple[Any, int]]

_FLOAT, _DOUBLE, _DURATION = struct.Struct("<f"), struct.Struct("<d"), struct.Struct("<III")
_INT_BITS, _LONG_BITS = 32, 64
# Items that take no bytes (null, an empty record) may claim any count: this is the limit for a payload
MOST_EMPTY_ITEMS = 1 << 12


def read(type_: AvroType, reader: Reader, data: bytes, at: int = 0) -> Any:
    """Decodes a payload from a byte to its end, and returns the value in canonical JSON.

    reader: ``reader_of(type_)``. A schema that is ``bytes`` alone has no length in the payload: Confluent's
    serializers write such values bare. Raises a PayloadError, also for bytes after the value.
    """
    if type_.kind == "bytes":
        return _bytes_value(type_, data[at:])
    value, end = reader(data, at, 0)
    if end != len(data):
        raise PayloadError("trailing_bytes", f"{count_of(len(data) - end, 'byte')} after the value", end)
    return value


@dataclass
class _Making:
    """The readers of a schema while they are built.

    readers: by the id of their type. empties: how many items without bytes the payload has had so far.
    """

    readers: dict[int, list[Reader]] = field(default_factory=dict)
    empties: int = 0


def reader_of(type_: AvroType) -> Reader:
    """Builds the function that reads values of a type. Not for several threads at once.

    It takes (data, position, depth), and returns the value in canonical JSON and the position after it.
    """
    made = _Making()
    inner = _reader(type_, made)

    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        made.empties = 0
        return inner(data, at, depth)

    return of


def _reader(type_: AvroType, made: _Making) -> Reader:
    if id(type_) in made.readers:  # it refers to itself: the function is there once it is called
        later = made.readers[id(type_)]
        return lambda data, at, depth: later[0](data, at, depth)
    made.readers[id(type_)] = place = []
    place.append(_READERS[type_.kind](type_, made))
    return place[0]


def long(data: bytes, at: int, bits: int = _LONG_BITS) -> tuple[int, int]:
    """Reads a zigzag varint, and returns the number and the position after it.

    bits: 64, or 32 for an int. Raises a PayloadError for a varint that is cut, too long or of more bits.
    """
    value = shift = 0
    start = at
    while True:
        if at >= len(data):
            raise PayloadError("truncated", "a varint that the payload ends in", start)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise PayloadError("varint_too_long", "a varint of more than 10 bytes", start)
    if value >> bits:
        raise PayloadError("int_overflow", f"a varint of more than {bits} bits", start)
    return (value >> 1) ^ -(value & 1), at


def _length(data: bytes, at: int) -> tuple[int, int]:
    size, begin = long(data, at)
    if size < 0:
        raise PayloadError("negative_length", f"a length of {size}", at)
    if size > len(data) - begin:
        raise PayloadError(
            "truncated", f"a length of {size}, and {count_of(len(data) - begin, 'byte')} left", at
        )
    return size, begin


def _null(_: AvroType, __: object) -> Reader:
    return lambda data, at, depth: (None, at)


def _boolean(_: AvroType, __: object) -> Reader:
    def of(data: bytes, at: int, depth: int) -> tuple[bool, int]:
        if at >= len(data):
            raise PayloadError("truncated", "a boolean wanted, no byte left", at)
        if data[at] > 1:
            raise PayloadError("bad_boolean", f"a boolean of {data[at]}", at)
        return data[at] == 1, at + 1

    return of


def _whole(bits: int) -> Callable[[AvroType, Any], Reader]:
    def make(type_: AvroType, _: object) -> Reader:
        unit = type_.logical

        def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
            value, at = long(data, at, bits)
            return ({unit: value} if unit else value), at

        return of

    return make


def _real(layout: struct.Struct) -> Callable[[AvroType, Any], Reader]:
    def make(_: AvroType, __: object) -> Reader:
        def of(data: bytes, at: int, depth: int) -> tuple[float | str, int]:
            return canonical_float(unpack(layout, data, at)[0]), at + layout.size

        return of

    return make


def _string(_: AvroType, __: object) -> Reader:
    def of(data: bytes, at: int, depth: int) -> tuple[str, int]:
        size, at = _length(data, at)
        return text_of(data, at, at + size), at + size

    return of


def _bytes_value(type_: AvroType, value: bytes) -> object:
    if type_.logical == "decimal":
        if len(value) > MOST_DECIMAL_BYTES:
            raise PayloadError("int_overflow", f"a decimal of {len(value)} bytes")
        return decimal_text(int.from_bytes(value, "big", signed=True), type_.scale)
    return canonical_bytes(value)


def decimal_text(unscaled: int, scale: int) -> str:
    """Returns a decimal as text with exactly ``scale`` digits after the point."""
    return format(Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale)), "f")


def _bytes(type_: AvroType, _: object) -> Reader:
    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        size, at = _length(data, at)
        return _bytes_value(type_, data[at : at + size]), at + size

    return of


def _fixed(type_: AvroType, _: object) -> Reader:
    size, logical = type_.size, type_.logical

    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        value = data[at : at + size]
        if len(value) < size:
            raise PayloadError("truncated", f"a fixed of {size} bytes, and {len(value)} left", at)
        if logical == "uuid":
            return str(UUID(bytes=value)), at + size
        if logical == "duration":
            return {"duration": list(_DURATION.unpack(value))}, at + size
        return _bytes_value(type_, value), at + size

    return of


def _enum(type_: AvroType, _: object) -> Reader:
    symbols = type_.symbols

    def of(data: bytes, at: int, depth: int) -> tuple[str, int]:
        index, end = long(data, at, _INT_BITS)
        if not 0 <= index < len(symbols):
            raise PayloadError("enum_index", f"symbol {index} of an enum of {len(symbols)}", at)
        return symbols[index], end

    return of


def _union(type_: AvroType, made: _Making) -> Reader:
    readers = [_reader(branch, made) for branch in type_.branches]
    is_bare = sum(branch.kind != "null" for branch in type_.branches) < 2
    names = [None if is_bare or branch.kind == "null" else branch.branch_name for branch in type_.branches]

    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        index, begin = long(data, at)
        if not 0 <= index < len(readers):
            raise PayloadError("union_index", f"branch {index} of a union of {len(readers)}", at)
        value, end = readers[index](data, begin, depth)
        name = names[index]
        return (value if name is None else {name: value}), end

    return of


def _record(type_: AvroType, made: _Making) -> Reader:
    readers = [(field.name, _reader(field.type, made)) for field in type_.fields]

    def of(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
        check_depth(depth, at)
        value = {}
        for name, reader in readers:
            value[name], at = reader(data, at, depth + 1)
        return value, at

    return of


def check_depth(depth: int, at: int) -> None:
    """Raises a PayloadError for a value at byte ``at`` that is MAX_DEPTH levels deep or more."""
    if depth >= MAX_DEPTH:
        raise PayloadError("too_deep", f"more than {MAX_DEPTH} levels", at)


def _count(data: bytes, at: int, least: int) -> tuple[int, int]:
    """Reads the count of items that begins a block of an array or map; returns it and the position after it.

    least: the fewest bytes of an item; a count that the bytes left can't hold raises a PayloadError. A
    negative count precedes a size in bytes, which is skipped.
    """
    count, begin = long(data, at)
    if count < 0:
        count = -count
        size, begin = long(data, begin)
        if size < 0:
            raise PayloadError("negative_length", f"a block of {size} bytes", at)
    left = len(data) - begin
    if count > (left // least if least else MOST_EMPTY_ITEMS):
        # a payload that was cut claims no more than it had bytes
        reason = "huge_count" if not least or count > len(data) else "truncated"
        raise PayloadError(reason, f"{count} items, and {count_of(left, 'byte')} left", at)
    return count, begin


def _array(type_: AvroType, made: _Making) -> Reader:
    assert type_.items is not None
    reader, least = _reader(type_.items, made), least_bytes(type_.items)

    def of(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
        check_depth(depth, at)
        values: list[Any] = []
        while True:
            begin = at
            count, at = _count(data, at, least)
            if not count:
                return values, at
            if not least:
                made.empties += count
                if made.empties > MOST_EMPTY_ITEMS:
                    raise PayloadError(
                        "huge_count", f"more than {MOST_EMPTY_ITEMS} items without bytes", begin
                    )
            for _ in range(count):
                value, at = reader(data, at, depth + 1)
                values.append(value)

    return of


def _map(type_: AvroType, made: _Making) -> Reader:
    assert type_.items is not None
    reader, least = _reader(type_.items, made), least_bytes(type_.items) + 1

    def of(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
        check_depth(depth, at)
        values: dict[str, Any] = {}
        while True:
            count, at = _count(data, at, least)
            if not count:
                return values, at
            for _ in range(count):
                size, at = _length(data, at)
                key = text_of(data, at, at + size)
                values[key], at = reader(data, at + size, depth + 1)

    return of


_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


def least_bytes(type_: AvroType, above: tuple[int, ...] = ()) -> int:
    """Returns the fewest bytes that a value of the type takes; 0 for a record within itself."""
    if type_.kind in _LEAST:
        return _LEAST[type_.kind]
    if type_.kind == "fixed":
        return type_.size
    if type_.kind != "record" or id(type_) in above:
        return 0 if id(type_) in above else 1
    return sum(least_bytes(field.type, (*above, id(type_))) for field in type_.fields)


_READERS: dict[str, Callable[[AvroType, _Making], Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(_INT_BITS),
    "long": _whole(_LONG_BITS),
    "float": _real(_FLOAT),
    "double": _real(_DOUBLE),
    "bytes": _bytes,
    "string": _string,
    "fixed": _fixed,
    "enum": _enum,
    "union": _union,
    "record": _record,
    "array": _array,
    "map": _map,
}
