"""The functions that give JSON, column by column: the texts of the exact readers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory

from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.json import texts as json_texts
from kafka_log_lake.udfs.values.json.texts import JsonTextDecoder
from kafka_log_lake.udfs.values.protobuf import schema as protobuf_schema
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE
from kafka_log_lake.udfs.values.schemas.registry import Schema
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from tests.support import typed_corpus as corpus
from tests.support.made_messages import PROTO2, PROTO3, pieces
from tests.unit.values.test_avro_columns import PAYLOADS, type_of
from tests.unit.values.test_payloads import same


@pytest.mark.parametrize("topic", corpus.TOPICS)
def test_texts_are_those_of_the_exact_reader(topic: str) -> None:
    functions, rows = TypedFunctions(corpus.registry()), list(corpus.records(topic).values())
    headers = [[{"key": key, "value": value} for key, value in row["headers"]] or None for row in rows]
    topics = pa.repeat(topic, len(rows))
    for side in (KEY, VALUE):
        payloads = pa.array([row[side] for row in rows], pa.binary())
        texts = functions.kafka_payload_json(
            topics, pa.repeat(side, len(rows)), payloads, pa.array(headers, HEADER_TYPE)
        )
        for row, found in zip(rows, texts.to_pylist(), strict=True):
            one = corpus.reader().read(topic, side, row[side], row["headers"])
            if one.reason is not None or row[side] is None:
                assert found is None
            else:
                assert same(json.loads(found), one.value)


def changed(data: bytes, chance: random.Random, start: int = 0) -> bytes:
    made = bytearray(data)
    if len(made) > start and chance.random() < 0.5:
        made[chance.randrange(start, len(made))] = chance.choice((0, 1, 2, 0x22, 0x5C, 0x7F, 0x80, 0xFF))
    return bytes(made)


def check_same(columns: JsonTextDecoder, payloads: Sequence[bytes], read: Callable[[bytes], Any]) -> int:
    """Fails where a text differs from what is read; returns how many texts there are."""
    starts = np.zeros(len(payloads), np.int64)
    texts, failed = columns.decode(pa.array(payloads, pa.binary()), starts)
    texts.validate(full=True)
    for payload, text, is_refused in zip(payloads, texts.to_pylist(), failed.tolist(), strict=True):
        if is_refused:
            continue
        assert same(json.loads(text), read(payload)), payload
    return int((~failed).sum())


SOUND = [one for one in PAYLOADS if one.subject.startswith("avro-")]


@pytest.mark.parametrize("schema", SOUND[::3], ids=lambda one: f"{one.subject}-{one.version}")
def test_changed_payloads_of_avro(schema: Schema) -> None:
    chance, type_ = random.Random(schema.id), type_of(schema)
    if type_.kind == "bytes" or type_.is_recursive():
        with pytest.raises(PayloadError):
            json_texts.of_avro(type_)
        return
    reader = avro.reader_of(type_)
    payloads = [changed(data[start:], chance) for data, start in PAYLOADS[schema][:150]]
    read = check_same(json_texts.of_avro(type_), payloads, lambda one: avro.read(type_, reader, one))
    assert read > len(payloads) // 4


@pytest.mark.parametrize("text", [PROTO2, PROTO3])
def test_messages_in_pieces(text: str) -> None:
    chance = random.Random(len(text))
    descriptor = protobuf_schema.message_at(protobuf_schema.parse(text), (0,))
    kind, reader = message_factory.GetMessageClass(descriptor), MessageReader(descriptor)
    payloads = [changed(pieces(kind, chance), chance) for _ in range(400)]
    assert check_same(json_texts.of_message(reader), payloads, reader.read) > 100


def test_long_columns_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_texts, "_MOST_BYTES", 50)
    schema = next(one for one in PAYLOADS if one.subject == "avro-nested-value")
    type_ = type_of(schema)
    reader = avro.reader_of(type_)
    payloads = [data[start:] for data, start in PAYLOADS[schema][:40]]
    columns = json_texts.of_avro(type_)
    assert check_same(columns, payloads, lambda one: avro.read(type_, reader, one)) == 40


def test_no_value_of_a_schema_is_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = TypedFunctions(corpus.registry())
    for topic in ("avro-nested", "avro-logical", "avro-unions"):
        lines = [one for one in corpus.oracle(topic) if one["value_format"] != "null"]
        payloads = [corpus.records(topic)[one["partition"], one["offset"]]["value"] for one in lines]
        monkeypatch.setattr(functions._reader, "read", None)
        texts = functions.kafka_value(pa.array(payloads, pa.binary()), pa.repeat(topic, len(payloads)))
        for line, text in zip(lines, texts.to_pylist(), strict=True):
            assert same(json.loads(text), line["value"])
