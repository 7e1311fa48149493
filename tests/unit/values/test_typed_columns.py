"""The typed column of a topic's side: each payload in its row, by its schema, or refused with its reason."""

from __future__ import annotations

import cProfile
import json
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.schemas.merged_types import conformed, merged, storable
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, PROTOBUF, Registry, Schema
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from kafka_log_lake.udfs.values.typed.texts_and_looks import TextDecoder
from tests.support import typed_corpus as corpus

SIDES = [(topic, side) for topic in corpus.TOPICS for side in (KEY, VALUE)]


@pytest.mark.parametrize(("topic", "side"), SIDES, ids=lambda one: one)
def test_each_row_has_its_value_its_schema_or_its_reason(topic: str, side: str) -> None:
    rows = list(corpus.records(topic).values())
    headers = [[{"key": key, "value": value} for key, value in row["headers"]] or None for row in rows]
    decoder = SideDecoder(corpus.reader(), topic, side, corpus.plain(topic)[side])
    # in two parts, as the batches of a table come: types grow, and what was decoded before still fits
    half = len(rows) // 2
    parts = [
        decoder.decode(pa.array([row[side] for row in some], pa.binary()), pa.array(of, HEADER_TYPE))
        for some, of in ((rows[:half], headers[:half]), (rows[half:], headers[half:]))
    ]
    columns = [part.column(decoder.types) for part in parts]
    for column in columns:
        column.validate(full=True)
    column = pa.chunked_array(columns)
    ids = [one for part in parts for one in part.ids().to_pylist()]
    wrong = {w.row + base: w.decoded for part, base in zip(parts, (0, half), strict=True) for w in part.wrong}
    for at, row in enumerate(rows):
        expected = corpus.reader().read(topic, side, row[side], row["headers"], corpus.plain(topic)[side])
        if expected.reason is not None:
            assert wrong[at].reason == expected.reason
            assert not column[at].is_valid
            continue
        assert at not in wrong
        assert ids[at] == (None if expected.schema is None else expected.schema.id)
        is_text = expected.format.startswith("json")  # JSON's null is the text null, no tombstone
        assert column[at].is_valid == (expected.value is not None or is_text)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.null(), pa.string(), pa.string()),
        (pa.decimal128(4, 2), pa.decimal128(6, 0), pa.decimal128(8, 2)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), None),
        (pa.string(), pa.int32(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_types_merge_both_ways(one: pa.DataType, other: pa.DataType, both: pa.DataType | None) -> None:
    assert merged(one, other) == both
    assert merged(other, one) == both


def test_versions_of_a_record_are_one_struct() -> None:
    first = pa.array([{"id": 1, "name": "a", "tags": ["x"]}, None], pa.struct(
        [("id", pa.int32()), ("name", pa.string()), ("tags", pa.list_(pa.string()))]
    ))  # fmt: skip
    second = pa.array([{"ID": 1 << 40, "name": 7, "more": None}], pa.struct(
        [("ID", pa.int64()), ("name", pa.int32()), ("more", pa.null())]
    ))  # fmt: skip
    both = merged(first.type, second.type)
    assert both is not None
    target = storable(both)
    assert [one.name for one in target] == ["id", "name", "tags", "name_int32", "more"]
    assert conformed(first, target).to_pylist() == [
        {"id": 1, "name": "a", "tags": ["x"], "name_int32": None, "more": None},
        None,
    ]
    assert conformed(second, target).to_pylist() == [
        {"id": 1 << 40, "name": None, "tags": None, "name_int32": 7, "more": None}
    ]


def test_a_record_without_fields_inside_another_is_true_where_it_is_there() -> None:
    both = merged(pa.struct([("a", pa.struct([])), ("b", pa.int32())]), pa.struct([("b", pa.int64())]))
    assert both is not None
    rows = pa.array(
        [{"a": {}, "b": 1}, {"a": None, "b": 2}], pa.struct([("a", pa.struct([])), ("b", pa.int32())])
    )
    assert conformed(rows, storable(both)).to_pylist() == [{"a": True, "b": 1}, {"a": None, "b": 2}]


def test_types_whose_names_differ_in_their_namespace_alone_are_fields_of_their_own() -> None:
    records = [
        {"type": "record", "name": "A", "namespace": space, "fields": [{"name": "x", "type": "int"}]}
        for space in ("com.a", "com.b")
    ]
    nested = "message M { message In { int32 x = 1; } } message N { message In { string y = 1; } }"
    registry = Registry(
        [
            *(
                Schema(f"com.{n}.A", 1, i, "", AVRO, json.dumps(one))
                for i, (n, one) in enumerate(zip("ab", records, strict=True))
            ),
            Schema("t-value", 1, 2, "", PROTOBUF, f'syntax = "proto3"; package p; {nested}'),
        ]
    )
    payloads = [b"\0\0\0\0\0\2", b"\0\0\0\0\1\4", b"\0\0\0\0\2\4\0\0\x08\5", b"\0\0\0\0\2\4\2\0\x0a\1z"]
    decoder = SideDecoder(PayloadReader(registry), "t", VALUE)
    found = decoder.decode(pa.array(payloads, pa.binary()))
    assert not found.wrong
    rows = found.column(decoder.types).to_pylist()
    held = [{name: one for name, one in row.items() if one is not None} for row in rows]
    assert held == [
        {"com_a_A": {"x": 1}},
        {"com_b_A": {"x": 2}},
        {"p_M_In": {"x": 5}},
        {"p_N_In": {"y": "z"}},
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("message Order { int32 x = 1; } // message Order had more", "Order"),
        ('message Order { int32 x = 1 [json_name = "message Order"]; }', "Order"),
        ("message Order { int32 x = 1; } message Other { message /* nested */ Order { } }", "p_Order"),
    ],
)
def test_a_comment_or_text_is_no_message_of_the_same_name(text: str, label: str) -> None:
    registry = Registry([Schema("t-value", 1, 2, "", PROTOBUF, f'syntax = "proto3"; package p; {text}')])
    decoder = SideDecoder(PayloadReader(registry), "t", VALUE)
    found = decoder.decode(pa.array([b"\0\0\0\0\2\0\x08\5"], pa.binary()))
    assert not found.wrong
    assert list(decoder.types) == [label]


def test_a_field_that_a_later_version_renamed_has_the_later_name() -> None:
    inner = [
        {"type": "record", "name": "In", "fields": [{"name": one, "type": "int", **more}]}
        for one, more in (("old", {}), ("new", {"aliases": ["old"]}))
    ]
    first = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "city", "type": "string"},
            {"name": "list", "type": {"type": "array", "items": inner[0]}},
            {"name": "maybe", "type": ["null", "In"]},
        ],
    }
    second = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "place", "type": "string", "aliases": ["city", "town"]},
            {"name": "list", "type": {"type": "array", "items": inner[1]}},
            {"name": "maybe", "type": ["null", "In"]},
        ],
    }
    texts = [json.dumps(one) for one in (first, second)]
    registry = Registry([Schema("t-value", n, n, "", AVRO, text) for n, text in enumerate(texts, 1)])
    values = b"\x08Oslo\x02\x0a\0\x02\x0c"
    guid = str(uuid.UUID(int=5))
    registry = Registry([replace(one, guid=guid if one.id == 1 else "") for one in registry.schemas])
    payloads = [b"\0\0\0\0\1" + values, b"\0\0\0\0\2" + values, b"\1" + uuid.UUID(guid).bytes + values]
    decoder = SideDecoder(PayloadReader(registry), "t", "value")
    found = decoder.decode(pa.array(payloads, pa.binary()))
    column = found.column(decoder.types)
    column.validate(full=True)
    assert column.to_pylist() == [{"place": "Oslo", "list": [{"new": 5}], "maybe": {"new": 6}}] * 3
    assert found.ids().to_pylist() == [1, 2, 1]


def test_many_versions_are_merged_with_work_for_each_of_their_fields_once() -> None:
    """Work is counted as calls: for twice the fields it is twice as much."""

    def calls(versions: int) -> float:
        structs = [
            pa.struct([pa.field(f"f{i}", pa.int32()) for i in range(1 + count)]) for count in range(versions)
        ]
        both: pa.DataType = structs[0]
        profile = cProfile.Profile()
        profile.enable()
        for one in structs[1:]:
            both = merged(both, one) or both
        profile.disable()
        assert both.equals(structs[-1])
        fields = sum(one.num_fields for one in structs)
        return sum(entry.callcount for entry in profile.getstats()) / fields

    assert calls(120) < 1.3 * calls(40)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (["null", "string", "string"], "a union with string twice"),
        (["int", {"type": "int", "logicalType": "date"}], "a union with int twice"),
        ({"type": "array", "items": [{"type": "map", "values": "int"}] * 2}, "a union with map twice"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "null"]}]}, "null twice"),
        (["null"] + [{"type": "fixed", "name": f"F{i}", "size": 1} for i in range(60)], "more than 50 types"),
    ],
)
def test_a_schema_that_can_t_be_read_gives_an_error_and_no_null(
    declared: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_schema, "MOST_TYPES", 50)
    schema = Schema("t-value", 1, 1, "g", AVRO, json.dumps(declared))
    payloads = pa.array([b"\0\0\0\0\1\2\2a", None, b"\0\0\0\0\1\0"], pa.binary())
    for kind in (SideDecoder, TextDecoder):
        found = kind(PayloadReader(Registry([schema])), "t", VALUE).decode(payloads)
        assert [(row, one.reason) for row, one in found.wrong] == [
            (0, "unreadable_schema"),
            (2, "unreadable_schema"),
        ]
        assert words in str(found.wrong[0].decoded.detail)
