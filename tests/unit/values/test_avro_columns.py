"""Avro's compiled program against the exact reader: the same values, and the same payloads refused."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.avro.arrow_types import plain_value
from kafka_log_lake.udfs.values.avro.columns import AvroColumns
from kafka_log_lake.udfs.values.avro.schema import AvroType
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE
from kafka_log_lake.udfs.values.schemas.registry import AVRO, Schema
from kafka_log_lake.udfs.values.schemas.wire_formats import framing_of
from tests.support import typed_corpus as corpus


def payloads_by_schema() -> dict[Schema, list[tuple[bytes, int]]]:
    """The payloads of the corpus that a schema of Avro may describe, each with the byte where it begins."""
    found: dict[Schema, list[tuple[bytes, int]]] = defaultdict(list)
    for topic in corpus.TOPICS:
        for row in corpus.records(topic).values():
            for side in (KEY, VALUE):
                try:
                    framing = framing_of(side, row[side], row["headers"])
                except PayloadError:
                    continue
                for schema in corpus.reader().candidates(topic, side, framing)[:1]:
                    if schema.type == AVRO and row[side]:
                        found[schema].append((row[side], framing.start))
    return found


PAYLOADS = payloads_by_schema()


def type_of(schema: Schema) -> AvroType:
    return avro_schema.parse(schema.text, [text for _, text in corpus.reader().references(schema)])


def check_same(type_: AvroType, payloads: list[tuple[bytes, int]]) -> int:
    """Fails where the compiled program differs; returns the number of payloads that are refused."""
    data = pa.array([payload for payload, _ in payloads], pa.binary())
    columns = AvroColumns(type_)
    found, failed = columns.decode(data, np.array([start for _, start in payloads], np.int64))
    found.validate(full=True)
    reader, expected = avro.reader_of(type_), []
    for payload, start in payloads:
        try:
            value = avro.read(type_, reader, payload, start)
            expected.append((None if value is None else plain_value(type_, value), False))
        except PayloadError:
            expected.append((None, True))
    assert failed.tolist() == [is_wrong for _, is_wrong in expected]
    wanted = pa.array([value for value, _ in expected], columns.arrow_type)
    for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert str(one) == str(other), (row, payloads[row])  # texts, because NaN does not equal itself
    return int(failed.sum())


@pytest.mark.parametrize("schema", PAYLOADS, ids=lambda one: f"{one.subject}-{one.version}")
def test_columns_are_what_the_exact_reader_reads(schema: Schema) -> None:
    check_same(type_of(schema), PAYLOADS[schema])


@pytest.mark.parametrize("schema", list(PAYLOADS)[::4], ids=lambda one: f"{one.subject}-{one.version}")
def test_changed_payloads_are_refused_by_both_or_by_none(schema: Schema) -> None:
    chance, changed = random.Random(schema.id), []
    for payload, start in PAYLOADS[schema][:100]:
        data = bytearray(payload)
        for _ in range(chance.randint(1, 3)):
            if len(data) > start:
                data[chance.randrange(start, len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        changed.append(
            (bytes(data[: chance.randint(start, len(data))] if chance.random() < 0.3 else data), start)
        )
    check_same(type_of(schema), changed)


def test_rows_grow_past_the_first_room_and_nulls_stay_null() -> None:
    type_ = avro_schema.parse('{"type": "array", "items": {"type": "map", "values": ["null", "string"]}}')
    one = b"\6" + b"\4\2k\2\4hi\2l\0\0" * 3 + b"\0"
    values, failed = AvroColumns(type_).decode(
        pa.array([one, None, b"\0", one[:-1]] * 3000, pa.binary()), np.zeros(12000, np.int64)
    )
    assert values[0].as_py() == values[8].as_py() == [[("k", "hi"), ("l", None)]] * 3
    assert [values[at].as_py() for at in (1, 2, 3)] == [None, [], None]
    assert failed[:4].tolist() == [False, False, False, True]


@pytest.mark.parametrize("count", [1 << 40, (1 << 63) - 1, -(1 << 62)])
def test_a_huge_count_takes_no_memory(count: int) -> None:
    type_ = avro_schema.parse(json.dumps({"type": "array", "items": "null"}))
    raw, payload = (count << 1) ^ (count >> 63), bytearray()
    while raw >= 0x80:
        payload.append(raw & 0x7F | 0x80)
        raw >>= 7
    data = bytes([*payload, raw, 0, 0])
    assert check_same(type_, [(data, 0)]) == 1
