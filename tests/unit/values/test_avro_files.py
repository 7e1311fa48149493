"""Avro payloads that name their schema by a fingerprint, and containers that hold it, against fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard

from kafka_log_lake.udfs.values.avro import files as avro_files
from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.schemas.payloads import PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, Registry, Schema
from kafka_log_lake.udfs.values.typed.columns import SideDecoder

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "int"], "doc": "d"}]}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Outer",
    "namespace": "a.b",
    "doc": "left out",
    "aliases": ["Other"],
    "fields": [
        {"name": "one", "type": INNER, "default": {}},
        {"name": "two", "type": {"type": "array", "items": "Inner"}, "order": "ignore"},
        {"name": "kind", "type": {"type": "enum", "name": "c.Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {
            "name": "map",
            "type": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}},
        },
    ],
}
RECORDS = [
    {"one": {"x": at}, "two": [{"x": None}] * at, "kind": "B", "raw": b"ab", "map": {"k": at}}
    for at in range(50)
]
CANONICAL = [
    {
        "one": {"x": at},
        "two": [{"x": None}] * at,
        "kind": "B",
        "raw": {"bytes": "YWI="},
        "map": {"k": {"timestamp-millis": at}},
    }
    for at in range(50)
]


def container(codec: str) -> bytes:
    out = io.BytesIO()
    if codec == "zstandard":  # fastavro wants another library for it
        return by_hand(codec, zstandard.compress)
    fastavro.writer(out, SCHEMA, RECORDS, codec=codec, sync_interval=100)
    return out.getvalue()


def by_hand(codec: str, compress: Callable[[bytes], bytes]) -> bytes:
    metadata = {"avro.schema": json.dumps(SCHEMA).encode(), "avro.codec": codec.encode()}
    block = compress(b"".join(binary(SCHEMA, one) for one in RECORDS))
    sync = bytes(range(16))
    head = b"Obj\x01" + binary({"type": "map", "values": "bytes"}, metadata) + sync
    return head + binary("long", len(RECORDS)) + binary("bytes", block) + sync


def binary(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def single_object() -> bytes:
    text = fastavro.schema.to_parsing_canonical_form(SCHEMA)
    mark = bytes.fromhex(fastavro.schema.fingerprint(text, "CRC-64-AVRO"))
    return b"\xc3\x01" + mark + binary(SCHEMA, RECORDS[3])


@pytest.mark.parametrize("schema", [SCHEMA, "int", ["null", "string"], INNER], ids=lambda one: str(one)[:20])
def test_the_canonical_form_is_fastavros(schema: Any) -> None:
    type_ = avro_schema.parse(json.dumps(schema))
    expected = fastavro.schema.to_parsing_canonical_form(schema)
    assert avro_files.canonical_form(type_) == expected
    mark = bytes.fromhex(fastavro.schema.fingerprint(expected, "CRC-64-AVRO"))
    assert avro_files.fingerprint(type_) == int.from_bytes(mark, "little")


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy", "bzip2", "xz"])
def test_containers_are_lists_of_their_values(codec: str) -> None:
    found = PayloadReader(Registry()).read("t", "value", container(codec))
    assert (found.format, found.reason) == ("avro-container", None)
    assert found.value == CANONICAL


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy"])
def test_damaged_containers_have_a_reason(codec: str) -> None:
    whole = container(codec)
    for at in range(5, len(whole), max(1, len(whole) // 97)):
        for broken in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            found = PayloadReader(Registry()).read("t", "value", broken)
            assert found.reason is not None or isinstance(found.value, list)
    assert PayloadReader(Registry()).read("t", "value", whole[:-3]).reason == "truncated"


def test_a_single_object_is_typed_by_its_fingerprint() -> None:
    registry = Registry([Schema("other-value", 1, 7, "g", AVRO, json.dumps(SCHEMA))])
    decoder = SideDecoder(PayloadReader(registry), "t", "value")
    found = decoder.decode(pa.array([single_object(), b"\xc3\x01" + bytes(8) + b"?"], pa.binary()))
    column = found.column(decoder.types)
    assert column[0].as_py()["one"] == {"x": 3}
    assert found.ids().to_pylist() == [7, None]
    assert [(one.row, one.decoded.reason) for one in found.wrong] == [(1, "no_registry")]
