"""Protobuf messages of all kinds of fields, in pieces as no serializer writes them, and as canonical JSON."""

from __future__ import annotations

import base64
import random
from typing import Any

_SCALARS = (
    *("int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64"),
    *("uint64", "fixed64", "bool", "float", "double", "string", "bytes"),
)
_FIELDS = {
    "int32": "i32",
    "sint32": "s32",
    "sfixed32": "sf32",
    "uint32": "u32",
    "fixed32": "f32",
    "int64": "i64",
    "sint64": "s64",
    "sfixed64": "sf64",
    "uint64": "u64",
    "fixed64": "f64",
    "bool": "flag",
    "float": "real",
    "double": "double",
    "string": "text",
    "bytes": "raw",
}


def _fields(label: str, first: int) -> str:
    return "\n".join(f"  {label} {t} {_FIELDS[t]} = {first + at};" for at, t in enumerate(_SCALARS))


PROTO3 = f"""syntax = "proto3";
message All {{
{_fields("", 1)}
  repeated int64 numbers = 20;
  repeated sint32 zigzags = 21;
  repeated double reals = 22;
  repeated string texts = 23;
  repeated Color colors = 24;
  optional int32 maybe = 25;
  optional string maybe_text = 26;
  Inner inner = 27;
  repeated Inner inners = 28;
  oneof choice {{ int32 number = 29; string word = 30; Inner message = 31; Empty empty = 32; }}
  map<string, int32> counts = 33;
  map<int64, Inner> by_number = 34;
  map<bool, Color> by_flag = 35;
  Color color = 36;
  All again = 37;
  repeated fixed32 fixed = 2000;
}}
message Inner {{ string name = 1; repeated uint32 ids = 2; repeated Deep deeps = 3; Deep deep = 4; }}
message Deep {{ bytes raw = 1; optional bool flag = 2; map<uint64, string> names = 3; repeated Empty e = 4; }}
message Empty {{}}
enum Color {{ RED = 0; GREEN = 5; BLUE = -3; }}
"""
PROTO2 = f"""syntax = "proto2";
message All {{
{_fields("optional", 1)}
  repeated int32 packed = 20 [packed = true];
  repeated int32 loose = 21;
  optional Color color = 22 [default = GREEN];
  repeated Color colors = 23;
  optional int32 preset = 24 [default = 7];
  optional group Grouped = 25 {{ optional int32 x = 1; }}
  map<string, Kind> by_name = 26;
  optional Inner inner = 27;
  oneof choice {{ int32 number = 28; Inner message = 29; }}
}}
message Inner {{ optional string name = 1; repeated Inner2 inners = 2; }}
message Inner2 {{ optional float real = 1; optional Color color = 2; }}
enum Color {{ RED = 1; GREEN = 5; BLUE = -3; }}
enum Kind {{ NONE = 0; SOME = 1; }}
"""
_INTS = (0, 1, -1, 127, 128, 300, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
_WORDS = ("", "a", "ключ", "日本", "x" * 40, "\0", "😀")


def _is_map(one: Any) -> bool:
    return one.message_type is not None and bool(one.message_type.GetOptions().map_entry)


def _scalar(one: Any, rng: random.Random) -> Any:
    if one.enum_type is not None:
        return rng.choice(one.enum_type.values).number
    kind = one.cpp_type
    if kind == one.CPPTYPE_STRING:
        return rng.randbytes(rng.randrange(20)) if one.type == one.TYPE_BYTES else rng.choice(_WORDS)
    if kind == one.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (one.CPPTYPE_FLOAT, one.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -0.0, 1.5, -2.25, float("inf"), 0.1, 1e30))
    bits = 32 if kind in (one.CPPTYPE_INT32, one.CPPTYPE_UINT32) else 64
    is_signed = kind in (one.CPPTYPE_INT32, one.CPPTYPE_INT64)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return rng.choice([value for value in _INTS if low <= value <= high])


def _fill(message: Any, rng: random.Random, depth: int, share: float) -> Any:
    for one in message.DESCRIPTOR.fields:
        if rng.random() > share or (one.message_type is not None and depth > 2):
            continue
        if _is_map(one):
            key, value = one.message_type.fields_by_name["key"], one.message_type.fields_by_name["value"]
            for _ in range(rng.randrange(3)):
                place = getattr(message, one.name)
                if value.message_type is not None:
                    _fill(place[_scalar(key, rng)], rng, depth + 1, share)
                else:
                    place[_scalar(key, rng)] = _scalar(value, rng)
        elif one.is_repeated:
            for _ in range(rng.randrange(4)):
                if one.message_type is not None:
                    _fill(getattr(message, one.name).add(), rng, depth + 1, share)
                else:
                    getattr(message, one.name).append(_scalar(one, rng))
        elif one.message_type is not None:
            getattr(message, one.name).SetInParent()
            _fill(getattr(message, one.name), rng, depth + 1, share)
        else:
            setattr(message, one.name, _scalar(one, rng))
    return message


def pieces(kind: Any, rng: random.Random) -> bytes:
    """The bytes of a message in up to three pieces, each of a few fields, with unknown fields between."""
    unknown = (b"", b"", b"\x98\x3f\x05", b"\x9a\x3f\x02hi", b"\x9d\x3f\1\2\3\4", b"\x99\x3f12345678")
    share = rng.choice((0.1, 0.3, 0.7))
    parts = [_fill(kind(), rng, 0, share).SerializeToString() for _ in range(rng.randrange(1, 4))]
    return b"".join(part + rng.choice(unknown) for part in parts)


def made(kind: Any, value: Any) -> Any:
    """The message that canonical JSON describes."""
    return _set(kind(), value)


def _set(message: Any, value: dict[str, Any]) -> Any:
    names = {
        one.name.lower() if one.type == one.TYPE_GROUP else one.name: one for one in message.DESCRIPTOR.fields
    }
    for name, held in value.items():
        one = names[name]
        place = getattr(message, one.name)
        if _is_map(one):
            key, inner = one.message_type.fields_by_name["key"], one.message_type.fields_by_name["value"]
            for text, item in held.items():
                of = text == "true" if key.type == key.TYPE_BOOL else text
                of = int(of) if key.cpp_type not in (key.CPPTYPE_STRING, key.CPPTYPE_BOOL) else of
                if inner.message_type is not None:
                    _set(place[of], item)
                else:
                    place[of] = _plain(inner, item)
        elif one.is_repeated:
            for item in held:
                if one.message_type is not None:
                    _set(place.add(), item)
                else:
                    place.append(_plain(one, item))
        elif one.message_type is not None:
            place.SetInParent()
            _set(place, held)
        else:
            setattr(message, one.name, _plain(one, held))
    return message


def _plain(one: Any, value: Any) -> Any:
    if one.enum_type is not None and isinstance(value, str):
        return one.enum_type.values_by_name[value].number
    if isinstance(value, dict):
        return base64.b64decode(value["bytes"])
    return float(value) if one.cpp_type in (one.CPPTYPE_FLOAT, one.CPPTYPE_DOUBLE) else value
