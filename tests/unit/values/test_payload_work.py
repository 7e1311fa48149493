"""Payloads that are made to cost much: the work for them is bounded, by what it is and not by a clock."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.avro.columns import AvroColumns
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.protobuf import schema as protobuf_schema
from kafka_log_lake.udfs.values.schemas.payload import MAX_DEPTH, PayloadError
from kafka_log_lake.udfs.values.schemas.payloads import PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, Registry, Schema
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from tests.support import typed_corpus as corpus


def test_a_schema_is_compiled_once_whatever_message_indexes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    parse = protobuf_schema.parse

    def noted(text: str, references: Any) -> Any:
        compiled.append(text)
        return parse(text, references)

    monkeypatch.setattr(protobuf_schema, "parse", noted)
    rng = random.Random(1)
    sound = [row["value"] for row in corpus.records("pb-txn").values() if row["value"]]
    payloads = [
        one[:5] + bytes([2 * rng.randrange(1, 4), *(2 * rng.randrange(60) for _ in range(3))]) + one[6:]
        for one in sound[:100]
    ]
    decoder = SideDecoder(PayloadReader(corpus.registry()), "pb-txn", "value")
    found = decoder.decode(pa.array(payloads, pa.binary()))
    assert {one.decoded.reason for one in found.wrong} >= {"invalid_index"}
    assert len(compiled) == 1


ARRAYS_OF_NULLS = '{"type":"array","items":{"type":"array","items":"null"}}'


@pytest.mark.parametrize(("inner", "is_sound"), [(4, True), (2000, False)])
def test_items_without_bytes_are_counted_over_the_whole_payload(inner: int, is_sound: bool) -> None:
    payload = number(50) + (number(inner) + b"\0") * 50 + b"\0"
    type_ = avro_schema.parse(ARRAYS_OF_NULLS)
    found, failed = AvroColumns(type_).decode(pa.array([payload] * 2, pa.binary()), np.zeros(2, np.int64))
    assert failed.tolist() == [not is_sound] * 2
    if is_sound:
        assert found.to_pylist() == [[[None] * inner] * 50] * 2
        return
    with pytest.raises(PayloadError) as caught:
        avro.read(type_, avro.reader_of(type_), payload)
    assert caught.value.reason == "huge_count"


def number(value: int) -> bytes:
    """A zigzag varint."""
    raw, out = value << 1, bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def test_a_decimal_of_a_million_digits_is_refused() -> None:
    type_ = avro_schema.parse('{"type":"bytes","logicalType":"decimal","precision":60,"scale":2}')
    record = avro_schema.AvroType("record", name="r", fields=[avro_schema.AvroField("d", type_)])
    payloads = [number(len(one)) + one for one in (b"\x04\xd2", b"\x7f" * 1024, b"\x7f" * 500_000)]
    columns = AvroColumns(record)
    found, failed = columns.decode(pa.array(payloads, pa.binary()), np.zeros(3, np.int64))
    assert failed.tolist() == [False, False, True]
    assert found[0].as_py() == {"d": "12.34"}
    with pytest.raises(PayloadError) as caught:
        avro.read(record, avro.reader_of(record), payloads[2])
    assert caught.value.reason == "int_overflow"


def test_a_decimal_whose_scale_is_mad_stays_bytes() -> None:
    text = '{"type":"bytes","logicalType":"decimal","precision":1000000000,"scale":999999999}'
    assert avro_schema.parse(text).logical == ""


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 30_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_json_is_read_to_a_fixed_depth(levels: int, begin: str, end: str) -> None:
    text = (begin * levels + "1" + end * levels).encode()
    if levels == MAX_DEPTH:
        assert parse_json(text)
        return
    with pytest.raises(PayloadError) as caught:
        parse_json(text)
    assert caught.value.reason == "too_deep"


def nested(levels: int) -> str:
    """A schema of records that each have the next one twice."""
    inner: Any = "int"
    for at in range(levels):
        name = f"L{at}"
        fields = [
            {"name": "a", "type": inner},
            {"name": "b", "type": inner if isinstance(inner, str) else f"L{at - 1}"},
        ]
        inner = {"type": "record", "name": name, "fields": fields}
    return json.dumps(inner)


def test_values_of_a_schema_that_is_too_wide_for_columns_are_json_texts() -> None:
    registry = Registry([Schema("t-value", 1, 1, "", AVRO, nested(13))])
    decoder = SideDecoder(PayloadReader(registry), "t", "value")
    found = decoder.decode(pa.array([b"\0\0\0\0\1" + b"\2" * (1 << 13)], pa.binary()))
    assert not found.wrong
    assert found.column(decoder.types)[0].as_py().count(":1") == 1 << 13


def test_a_schema_that_grows_without_end_is_an_error_of_its_payloads() -> None:
    registry = Registry([Schema("t-value", 1, 1, "", AVRO, nested(60))])
    found = SideDecoder(PayloadReader(registry), "t", "value").decode(
        pa.array([b"\0\0\0\0\1\2"], pa.binary())
    )
    assert [one.decoded.reason for one in found.wrong] == ["unreadable_schema"]


@pytest.mark.parametrize("plain", ["text", "bytes", ""])
def test_texts_and_bytes_without_framing_are_not_read_one_by_one(
    plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    framed = [b"\0\0\0\0\7", b"\1" * 17, b"Obj\1", b"\xc3\1" + bytes(9)]
    payloads = [b"customer-%d" % at for at in range(500)] + [b"\0\0\0\5", "é".encode(), *framed]
    reader = PayloadReader(Registry())
    read: list[bytes] = []
    of_reader = reader.read

    def noted(topic: str, side: str, payload: bytes, *others: Any) -> Any:
        read.append(payload)
        return of_reader(topic, side, payload, *others)

    monkeypatch.setattr(reader, "read", noted)
    decoder = SideDecoder(reader, "t", "value", plain)
    column = decoder.decode(pa.array(payloads, pa.binary())).column(decoder.types)
    assert set(read) <= {*framed, "é".encode()}
    values = {"text": "customer-499", "bytes": b"customer-499", "": {"text": "customer-499", "bytes": None}}
    assert column[499].as_py() == values[plain]


def test_text_is_utf8_without_control_characters_but_blanks() -> None:
    """Drawn from what is near the rule: each control character, blanks, a byte order mark, broken UTF-8."""
    rng = random.Random(3)
    pieces = [bytes([one]) for one in range(256)] + [chr(one).encode() for one in range(0x7E, 0xA2)]
    pieces += [b"\xef\xbb\xbf", "é€😀".encode(), b"\xed\xa0\x80", b"{}", b"[1]", b'{"a": 1}', b"words " * 3]
    payloads = [b"".join(rng.choices(pieces, k=rng.randrange(1, 5))) for _ in range(4000)]
    payloads += [b"x" * at + one + b"y" * 9 for one in pieces for at in range(1, 10)]
    found = TypedFunctions(Registry()).kafka_payload(
        pa.repeat("t", len(payloads)), pa.repeat("value", len(payloads)), pa.array(payloads, pa.binary()),
        pa.nulls(len(payloads), HEADER_TYPE),
    )  # fmt: skip
    seen = set()
    for payload, look in zip(payloads, found.to_pylist(), strict=True):
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            expected = {"bytes", "number"}
        else:
            has_control = any(unicodedata.category(one) == "Cc" and not one.isspace() for one in text)
            is_broken_json = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
            expected = {"bytes", "number"} if has_control and not is_broken_json else {"text", "json"}
        if payload[0] not in (0, 1, 3, 0xC3):  # what framings begin with
            assert look["format"] in expected, payload
            seen.add(look["format"])
    assert seen == {"bytes", "number", "text", "json"}


def test_a_text_is_a_string_of_json() -> None:
    rng = random.Random(4)
    texts = ["x" + "".join(rng.choices('ab"\\/\t\x1cé\u2028😀<{', k=rng.randrange(6))) for _ in range(3000)]
    column = pa.array([one.encode() for one in texts], pa.binary())
    found = TypedFunctions(Registry()).kafka_value(column, pa.repeat("t", len(texts)))
    assert found.to_pylist() == [json.dumps(one, ensure_ascii=False) for one in texts]


def test_thousands_of_texts_and_arrays_take_the_memory_of_their_payloads() -> None:
    fields: list[dict[str, Any]] = [{"name": f"t{at}", "type": "string"} for at in range(2_500)]
    fields += [{"name": f"a{at}", "type": {"type": "array", "items": "long"}} for at in range(1_000)]
    record = avro_schema.parse(json.dumps({"type": "record", "name": "Wide", "fields": fields}))
    wide = b"\x0cabcdef" * 2_500 + (number(3) + number(7) * 3 + b"\0") * 1_000
    found, failed = AvroColumns(record).decode(pa.array([wide] * 1_000), np.zeros(1_000, np.int64))
    assert not failed.any()
    expected = {f"t{at}": "abcdef" for at in range(2_500)} | {f"a{at}": [7, 7, 7] for at in range(1_000)}
    assert found[0].as_py() == found[999].as_py() == expected
