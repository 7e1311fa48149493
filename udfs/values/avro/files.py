"""Reads Avro payloads that carry their schema, or its fingerprint, so that no registry is needed (Avro 1.12).

A single object begins with the fingerprint of its schema: CRC-64-AVRO of the schema's parsing canonical form.
An object container has the schema itself, and blocks of values with a codec.
"""

from __future__ import annotations

import base64
import bz2
import json
import lzma
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import zstandard

from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.avro.schema import AvroType
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.words import count_of

MAGIC = b"Obj\x01"
_SYNC = 16
_EMPTY = 0xC15D213AA4D7A795
_MOST_EXPANDED = 64 << 20  # bytes of a block, as far as a payload is decoded


def canonical_form(type_: AvroType) -> str:
    """Returns the parsing canonical form of a schema: JSON text of what matters to a reader."""
    return _form_of(type_, set())


def _form_of(type_: AvroType, named: set[str]) -> str:
    kind = json.dumps(type_.kind)
    if type_.kind == "union":
        return f"[{','.join(_form_of(branch, named) for branch in type_.branches)}]"
    if type_.items is not None:
        inner = "items" if type_.kind == "array" else "values"
        return f'{{"type":{kind},"{inner}":{_form_of(type_.items, named)}}}'
    if not type_.name:
        return kind
    name = json.dumps(type_.name, ensure_ascii=False)
    if type_.name in named:
        return name
    named.add(type_.name)
    if type_.kind == "fixed":
        return f'{{"name":{name},"type":"fixed","size":{type_.size}}}'
    if type_.kind == "enum":
        symbols = ",".join(json.dumps(symbol, ensure_ascii=False) for symbol in type_.symbols)
        return f'{{"name":{name},"type":"enum","symbols":[{symbols}]}}'
    fields = (
        f'{{"name":{json.dumps(field.name, ensure_ascii=False)},"type":{_form_of(field.type, named)}}}'
        for field in type_.fields
    )
    return f'{{"name":{name},"type":"record","fields":[{",".join(fields)}]}}'


def fingerprint(type_: AvroType) -> int:
    """Returns the CRC-64-AVRO of a schema's parsing canonical form, as an unsigned number."""
    hash_, table = _EMPTY, _table()
    for byte in canonical_form(type_).encode("utf-8", "surrogatepass"):
        hash_ = (hash_ >> 8) ^ table[(hash_ ^ byte) & 0xFF]
    return hash_


@cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_EMPTY & -(value & 1))
        table.append(value)
    return table


def read_container(data: bytes) -> list[object]:
    """Returns the values of an object container in canonical JSON, in their order.

    Raises a PayloadError for a container without a schema, with an unknown codec, or that is cut or damaged.
    """
    metadata, at = _METADATA(data, len(MAGIC), 0)
    declared = {name: _bytes_of(entry) for name, entry in metadata.items()}
    try:
        text, codec = declared["avro.schema"].decode(), declared.get("avro.codec", b"null").decode()
    except (KeyError, UnicodeDecodeError):
        raise PayloadError("unreadable_schema", "a container without a schema") from None
    if codec not in _CODECS:
        raise PayloadError("unreadable_schema", f"a container with the codec {codec[:40]}")
    type_ = avro_schema.parse(text)
    reader = avro.reader_of(type_)
    sync, at = _part(data, at, _SYNC)
    values: list[Any] = []
    while at < len(data):
        count, at = avro.long(data, at)
        size, at = avro.long(data, at)
        block, at = _part(data, at, size)
        values += _values(reader, _expanded(codec, block), count, avro.least_bytes(type_))
        marker, at = _part(data, at, _SYNC)
        if marker != sync:
            raise PayloadError("truncated", "a block without its sync marker", at - _SYNC)
    return values


def _values(reader: avro.Reader, block: bytes, count: int, least: int) -> list[object]:
    if count < 0 or count > (len(block) // least if least else avro.MOST_EMPTY_ITEMS):
        raise PayloadError("huge_count", f"{count} values in a block of {count_of(len(block), 'byte')}")
    values, at = [], 0
    for _ in range(count):
        value, at = reader(block, at, 0)
        values.append(value)
    if at != len(block):
        raise PayloadError(
            "trailing_bytes", f"{count_of(len(block) - at, 'byte')} after the values of a block"
        )
    return values


def _part(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0:
        raise PayloadError("negative_length", f"a length of {size}", at)
    if size > len(data) - at:
        raise PayloadError(
            "truncated", f"a length of {size}, and {count_of(len(data) - at, 'byte')} left", at
        )
    return data[at : at + size], at + size


def _bytes_of(value: Any) -> bytes:
    return base64.b64decode(value["bytes"])


def _expanded(codec: str, block: bytes) -> bytes:
    try:
        return _CODECS[codec](block)
    except (zlib.error, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        raise PayloadError("truncated", f"a block of {codec} that does not expand: {error}"[:200]) from None


def _deflate(block: bytes) -> bytes:
    stream = zlib.decompressobj(-15)
    expanded = stream.decompress(block, _MOST_EXPANDED)
    return _checked(expanded, stream.eof)


def _bzip2(block: bytes) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _checked(stream.decompress(block, _MOST_EXPANDED), stream.eof)


def _xz(block: bytes) -> bytes:
    stream = lzma.LZMADecompressor(memlimit=_MOST_EXPANDED)
    return _checked(stream.decompress(block, _MOST_EXPANDED), stream.eof)


def _zstandard(block: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(block) as stream:
        expanded = stream.read(_MOST_EXPANDED)
        return _checked(expanded, not stream.read(1))


def _snappy(block: bytes) -> bytes:
    import numpy as np

    from kafka_log_lake.udfs.format import layout
    from kafka_log_lake.udfs.kernels import codecs

    scratch = codecs.Scratch()
    made = codecs.expand(layout.CODEC_SNAPPY, 2, np.frombuffer(block[:-4], np.uint8), scratch, _MOST_EXPANDED)
    expanded = b"" if made < 0 else scratch.data[:made].tobytes()
    if made < 0 or zlib.crc32(expanded) != int.from_bytes(block[-4:], "big"):
        raise ValueError("no snappy, or another checksum")
    return bytes(expanded)


def _checked(expanded: bytes, is_whole: bool) -> bytes:
    if not is_whole:
        raise ValueError(f"cut, or more than {_MOST_EXPANDED} bytes")
    return expanded


_METADATA = avro.reader_of(AvroType("map", items=AvroType("bytes")))
_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _deflate,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstandard": _zstandard,
    "snappy": _snappy,
}
