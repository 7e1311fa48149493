"""Protobuf's compiled reader against Google's own, over message types and payloads that are made up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from kafka_log_lake.udfs.values.protobuf import schema as protobuf_schema
from kafka_log_lake.udfs.values.protobuf.columns import ProtobufColumns
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from tests.support.made_messages import PROTO2, PROTO3, made, pieces

FILES = {"proto3": PROTO3, "proto2": PROTO2}
ROWS = 300


def decoded(columns: ProtobufColumns, payloads: Sequence[bytes | None]) -> tuple[list[Any], list[bool]]:
    found, failed = columns.decode(pa.array(payloads, pa.binary()), np.zeros(len(payloads), np.int64))
    found.validate(full=True)
    assert found.type == columns.arrow_type
    return found.to_pylist(), failed.tolist()


def written(message: Any) -> dict[str, Any]:
    """What a message holds, without unknown fields; NaN is a text."""
    found: dict[str, Any] = json_format.MessageToDict(message)
    return found


def maps(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found.get(name) for name in ("counts", "byNumber", "byFlag", "byName") if name in found}


@pytest.mark.parametrize("name", FILES)
def test_columns_are_what_googles_reader_reads(name: str) -> None:
    """Of messages written in pieces: fields twice, in any order, packed or not, with unknown ones."""
    rng = random.Random(name)
    descriptor = protobuf_schema.message_at(protobuf_schema.parse(FILES[name]), (0,))
    kind = message_factory.GetMessageClass(descriptor)
    reader = MessageReader(descriptor)
    columns = ProtobufColumns(reader)
    payloads = [pieces(kind, rng) for _ in range(ROWS)]
    found, failed = decoded(columns, payloads)
    assert failed.count(False) > ROWS // 4  # others are left to the exact reader
    for payload, value, refused in zip(payloads, found, failed, strict=True):
        exact = reader.read(payload)
        expected = pa.array([columns.plain(exact)], columns.arrow_type).to_pylist()[0]
        assert refused or value == expected
        # what the exact reader reads, written again, is the message that Google's reader reads
        assert written(made(kind, exact)) == written(kind.FromString(payload))


@pytest.mark.parametrize("name", FILES)
def test_changed_payloads_are_refused_by_both_or_read_alike(name: str) -> None:
    rng = random.Random(name)
    descriptor = protobuf_schema.message_at(protobuf_schema.parse(FILES[name]), (0,))
    kind = message_factory.GetMessageClass(descriptor)
    reader = MessageReader(descriptor)
    columns = ProtobufColumns(reader)
    payloads = []
    for _ in range(ROWS * 3):
        changed = bytearray(pieces(kind, rng))
        for _ in range(rng.randrange(1, 3)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        payloads.append(bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.2 else changed))
    found, failed = decoded(columns, payloads)
    for payload, value, refused in zip(payloads, found, failed, strict=True):
        try:
            exact = reader.read(payload)
        except PayloadError:
            assert refused
            continue
        expected = pa.array([columns.plain(exact)], columns.arrow_type).to_pylist()[0]
        assert refused or repr(value) == repr(expected)  # NaN too
        # Google's reader knows fewer forms of a long varint, and in Python leaves out entries of a map that
        # have unknown fields, which it keeps in Java
        with suppress(DecodeError):
            expected_maps = written(kind.FromString(payload))
            assert {**written(made(kind, exact)), **maps(expected_maps)} == expected_maps


def test_nulls_and_refused_payloads_are_null_among_others() -> None:
    reader = MessageReader(protobuf_schema.message_at(protobuf_schema.parse(PROTO3), (0,)))
    columns = ProtobufColumns(reader)
    payloads: list[bytes | None] = [b"\x08\x05", None, b"\x08", b""] * 500
    found, failed = decoded(columns, payloads)
    assert failed == [False, False, True, False] * 500
    assert [one is None for one in found] == [False, True, True, False] * 500
    assert [one["i32"] for one in found if one is not None] == [5, 0] * 500


def test_many_items_grow_past_the_first_room() -> None:
    reader = MessageReader(protobuf_schema.message_at(protobuf_schema.parse(PROTO3), (0,)))
    number = next(n for n, one in reader.fields.items() if one.name == "numbers")
    payload = b"".join(bytes([number << 3 & 0x7F | 0x80, number >> 4, i & 0x7F]) for i in range(50_000))
    found, failed = decoded(ProtobufColumns(reader), [payload, None, payload])
    assert failed == [False] * 3
    assert found[2]["numbers"] == [i & 0x7F for i in range(50_000)]


def test_an_entry_of_a_map_without_its_value_has_an_empty_message() -> None:
    text = 'syntax = "proto3"; message Tree { int32 size = 1; map<string, Tree> parts = 2; }'
    reader = MessageReader(protobuf_schema.message_at(protobuf_schema.parse(text), (0,)))
    found, failed = decoded(ProtobufColumns(reader), [b"\x12\x03\x0a\x01a"])
    assert failed == [False]
    assert found[0]["parts"] == [("a", '{"size":0,"parts":{}}')]


def test_a_type_of_too_many_fields_is_no_table() -> None:
    levels = "".join(
        f"message L{at} {{ {' '.join(f'L{at + 1} f{i} = {i + 1};' for i in range(4))} }}\n"
        for at in range(12)
    )
    text = f'syntax = "proto3";\n{levels}message L12 {{ int32 x = 1; }}\n'
    reader = MessageReader(protobuf_schema.message_at(protobuf_schema.parse(text), (0,)))
    with pytest.raises(PayloadError, match="fields"):
        ProtobufColumns(reader)


@pytest.mark.parametrize(("index", "name"), [((0, 0), "B"), ((0, 1), "D"), ((0, 2), "D"), ((0, 1, 0), "E")])
def test_message_indexes_with_and_without_the_entries_of_maps_name_a_message(
    index: tuple[int, ...], name: str
) -> None:
    """Clients in Python and Go count the entry of ``m`` as (0, 1), those in Java do not."""
    inner = "message B {} map<string, int32> m = 1; message D { message E {} }"
    file = protobuf_schema.parse(f'syntax = "proto3"; message A {{ {inner} }}')
    assert protobuf_schema.message_at(file, index).name == name
