"""Keys and values by the registry that lies in ``_schemas``: against what the serializers were given."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.values.schemas import payload
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.plain_payloads import plain_of
from kafka_log_lake.udfs.values.schemas.registry import (
    HARD,
    REPLACED,
    SOFT,
    UNKNOWN_ID,
    Registry,
    Schema,
    guid_of,
)
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from tests.support import typed_corpus as corpus

# The corpus has no value for a surrogate without its other half
_UNDEFINED = {("plain-json-odd", 0, 19)}


def same(one: object, other: object) -> bool:
    """Whether two canonical values are equal; 1 and 1.0 differ, the order of members does not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize("topic", corpus.TOPICS)
def test_payloads_are_what_was_sent(topic: str) -> None:
    rows, plain = corpus.records(topic), corpus.plain(topic)
    lines = corpus.oracle(topic)
    assert {(line["partition"], line["offset"]) for line in lines} == rows.keys()
    for line in lines:
        row = rows[line["partition"], line["offset"]]
        for side in (KEY, VALUE):
            found = corpus.reader().read(topic, side, row[side], row["headers"], plain[side])
            if side == VALUE and (topic, line["partition"], line["offset"]) not in _UNDEFINED:
                check_value(line, found)
            elif side == KEY:
                check(line, KEY, found)


def check_value(line: dict[str, Any], found: DecodedPayload) -> None:
    if line.get("ambiguous"):  # bytes that have no single right answer; none may be lost
        assert found.value is not None
    elif "error" in line:
        assert found.reason == line["error"] or (line.get("any_error") and found.reason), (line, found)
    else:
        check(line, VALUE, found)


def check(line: dict[str, Any], side: str, found: DecodedPayload) -> None:
    assert found.reason is None, (line, found)
    assert found.format == line[f"{side}_format"], (line, found)
    assert same(found.value, line[side]), (line, found)
    schema = line.get(f"{side}_schema")
    if schema is not None:
        assert found.schema is not None
        assert (found.schema.id, found.schema.subject) == (schema["id"], schema["subject"])


def test_the_registry_is_what_its_rest_interface_listed() -> None:
    """``hard`` ones are not in the listing, and of those that compaction dropped nothing is known."""
    expected = {(line["subject"], line["version"]): line for line in corpus.oracle("_schemas")}
    found = {(one.subject, one.version): one for one in corpus.registry().schemas if one.deleted != REPLACED}
    assert expected.keys() <= found.keys()
    assert {found[place].deleted for place in found.keys() - expected.keys()} == {HARD}
    for place, line in expected.items():
        one, deleted = found[place], {False: "", True: SOFT}.get(line["deleted"], line["deleted"])
        assert (one.id, one.type, one.deleted) == (line["id"], line["type"], deleted), place
        if deleted != HARD:
            assert (one.guid, one.text) == (line["guid"], line["schema"]), place


@pytest.mark.parametrize("value", [rb'{"a":["\ud800"]}', rb'{"\udc00x":1}', rb'{"a":"\ude00\ud83d"}'])
def test_half_a_character_is_an_error_and_is_not_replaced(value: bytes) -> None:
    reader = PayloadReader(Registry())
    found = reader.read("t", VALUE, value, (), "json")
    assert (found.reason, found.value) == ("invalid_json", value.decode())
    assert "one half of a character" in str(found.detail)
    assert reader.read("t", VALUE, value, (), "").value == value.decode()
    assert reader.read("t", VALUE, rb'{"a":"\ud83d\ude00"}', (), "json").value == {"a": "\U0001f600"}


def test_a_record_of_schemas_that_is_no_json_is_a_problem_and_no_other_is_touched() -> None:
    assert corpus.registry().problems.keys() == {174}
    kinds = Counter(one.keytype for one in corpus.registry().entries)
    assert kinds["FUTURE_KIND"] == kinds["ASSOC"] == kinds["CONTEXT"] == 1


@pytest.mark.parametrize(
    ("cleared", "gone"),
    [("a-value", {"a-value"}), (":.c:", {":.c:b-value"}), (None, {"a-value", ":.c:b-value"}), ("x", set())],
)
def test_clearing_a_subject_a_context_or_all_takes_softly_deleted_versions_alone(
    cleared: str | None, gone: set[str]
) -> None:
    """As ``InMemoryCache.clearSubjects`` of Confluent's registry."""
    records: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for id_, subject in enumerate(("a-value", ":.c:b-value"), 1):
        for version, text in ((1, '"int"'), (2, '"long"')):
            key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
            value = {"subject": subject, "version": version, "id": 2 * id_ + version, "schema": text}
            records.append((key, {**value, "deleted": version == 1}))
    records.append(({"keytype": "CLEAR_SUBJECT", "subject": cleared, "magic": 0}, {"subject": cleared}))
    texts = [(json.dumps(key).encode(), json.dumps(value).encode()) for key, value in records]
    registry = Registry.from_records((offset, *pair) for offset, pair in enumerate(texts))
    found = {(s.subject, s.version): s.deleted for s in registry.schemas}
    firsts = {subject: "cleared" if subject in gone else "soft" for subject in ("a-value", ":.c:b-value")}
    assert found == {(s, 1): how for s, how in firsts.items()} | {(s, 2): "" for s in firsts}


def test_one_id_with_two_schemas_is_the_one_that_consumes_every_byte() -> None:
    def schema(subject: str, text: str) -> Schema:
        return Schema(subject, 1, 7, guid_of(text), "AVRO", text)

    both = Registry([schema("a-value", '"string"'), schema("b-value", '["null", "long"]')])
    framed = b"\0\0\0\0\7"
    assert PayloadReader(both).read("other", VALUE, framed + b"\4hi").value == "hi"
    assert PayloadReader(both).read("other", VALUE, framed + b"\2\x96\1").value == 75
    # \0 is a text without a character, and null
    assert PayloadReader(both).read("other", VALUE, framed + b"\0").reason == "ambiguous_id"
    assert PayloadReader(both).read("a", VALUE, framed + b"\0").value == ""
    assert PayloadReader(both).read("b", VALUE, framed + b"\0").value is None


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("{", ()),
        ('{"type": "record"}', ()),
        ('"com.shop.Missing"', ()),
        ('{"type": "fixed", "name": "F"}', ()),
    ],
)
def test_a_schema_that_can_not_be_parsed_is_an_error_of_each_payload(
    text: str, references: tuple[()]
) -> None:
    broken = Registry([Schema("t-value", 1, 7, guid_of(text), "AVRO", text, references)])
    found = PayloadReader(broken).read("t", VALUE, b"\0\0\0\0\7x")
    assert found.reason == "unreadable_schema"
    assert found.value == payload.canonical_bytes(b"\0\0\0\0\7x")


def test_payloads_with_changed_bytes_give_a_value_or_a_known_reason() -> None:
    chance = random.Random(7)
    for topic in ("avro-nested", "avro-unions", "avro-recursive", "pb-kinds", "pb-proto2", "json-schema"):
        for row in list(corpus.records(topic).values())[:60]:
            data = bytearray(row["value"] or b"\0")
            for _ in range(chance.randint(1, 3)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            cut = bytes(data[: chance.randint(1, len(data))])
            for changed in (bytes(data), cut):
                found = corpus.reader().read(topic, VALUE, changed, row["headers"])
                assert found.reason is None or found.reason in payload.ERROR_CLASSES


@pytest.mark.parametrize(
    ("body", "plain", "reason"),
    [
        (b"\0\0\0\0\x07abc", "text", "unknown_id"),
        (b"\0\0\0\0\x07abc", "bytes", None),
        (b"\0a\0b\0c", "text", None),  # no registry counts up to such an id
        (b"abc\0\0\0\x07", "text", None),
    ],
)
def test_an_id_that_no_schema_has_is_an_error_among_texts(
    body: bytes, plain: str, reason: str | None
) -> None:
    found = PayloadReader(Registry([])).read("t", VALUE, body, (), plain)
    assert found.reason == reason
    column = SideDecoder(PayloadReader(Registry([])), "t", VALUE, plain)
    assert [one.decoded.reason for one in column.decode(pa.array([body, b"abc"])).wrong] == (
        [reason] if reason else []
    )


def test_a_topic_of_text_is_text_though_some_of_it_looks_like_json_or_has_a_schema_id() -> None:
    assert corpus.plain("plain-text")[VALUE] == "text"
    assert corpus.plain("plain-json-odd")[VALUE] == "json"
    assert plain_of([]) == ""


def test_the_keys_of_a_long_serializer_are_no_schema_ids() -> None:
    keys = [number.to_bytes(8, "big") for number in (0, 1, 70_000, (1 << 24) - 1)]
    reader = PayloadReader(Registry([]))
    looks = [reader.read("t", KEY, one) for one in keys]
    assert {(one.format, one.reason) for one in looks} == {("bytes", None)}
    assert plain_of(looks) == "bytes"
    mixed = [*keys, (1 << 24).to_bytes(8, "big"), b"\xff" * 8]
    found = SideDecoder(reader, "t", KEY, plain_of(looks)).decode(pa.array(mixed))
    assert found.wrong == []
    assert found.column({"bytes": pa.binary()}).to_pylist() == mixed
    functions = TypedFunctions(Registry([]))
    n = len(keys)
    payloads = functions.kafka_payload(
        pa.array(["t"] * n), pa.array([KEY] * n), pa.array(keys), pa.nulls(n, HEADER_TYPE)
    )
    assert {(one["format"], one["reason"]) for one in payloads.to_pylist()} == {("number", None)}


def test_a_key_of_8_bytes_that_no_schema_consumes_is_a_long() -> None:
    text = '"string"'
    registry = Registry(
        [
            Schema("other-value", 1, 2, guid_of(text), "AVRO", text),
            Schema("own-key", 1, 3, guid_of(text), "AVRO", text),
        ]
    )
    reader = PayloadReader(registry)
    longs = [number.to_bytes(8, "big") for number in (1 << 24, 50_000_000, 1_700_000_000_000, (1 << 56) - 1)]
    assert {(one.format, one.reason) for one in (reader.read("t", KEY, each) for each in longs)} == {
        ("bytes", None)
    }
    column = SideDecoder(reader, "t", KEY).decode(pa.array(longs))
    assert column.wrong == []
    assert column.column({"bytes": pa.binary()}).to_pylist() == longs
    by_schema = reader.read("t", KEY, b"\0\0\0\0\2\4ab")  # its schema consumes every byte
    assert (by_schema.format, by_schema.content) == ("avro", "ab")
    for topic, side, body, reason in (
        ("t", VALUE, longs[2], "unknown_id"),
        ("own", KEY, b"\0\0\0\0\3\6ab", "truncated"),
        ("t", KEY, longs[2] + b"\0", "unknown_id"),
    ):
        assert reader.read(topic, side, body).reason == reason


def test_only_a_schema_or_its_framing_gives_a_schema_id() -> None:
    text = '"string"'
    file = Schema("f", 1, UNKNOWN_ID, guid_of(text), "AVRO", text)  # a file without an id: f.avsc
    functions = TypedFunctions(Registry([file]))
    azure = b"\0\0\0\0" + b"0123456789abcdef" * 2
    in_header = [{"key": "__value_schema_id", "value": b"\0\0\0\0\x09"}]
    rows: list[tuple[str, bytes, Any, tuple[Any, ...]]] = [
        ("t", azure + b"x", None, ("azure", None, "no_registry")),
        ("t", (5).to_bytes(9, "big") + b"x", None, ("apicurio8", None, "no_registry")),
        ("t", b"\0\0\0\0\7x", None, ("bytes", 7, "unknown_id")),
        ("t", b"\0\0\0\0\7x", in_header, ("bytes", 9, "unknown_id")),
        ("f", b"\0\0\0\0\7\2", None, ("avro", None, "truncated")),
        ("f", b"\0\0\0\0\7\2x", None, ("avro", None, None)),
    ]
    topics, bodies, headers, expected = (list(column) for column in zip(*rows, strict=True))
    sides = [VALUE] * len(rows)
    found = functions.kafka_payload(
        pa.array(topics), pa.array(sides), pa.array(bodies), pa.array(headers, HEADER_TYPE)
    )
    assert [(one["format"], one["schema_id"], one["reason"]) for one in found.to_pylist()] == expected


def test_framed_bytes_that_would_do_without_framing_too_are_framed() -> None:
    fields = [{"name": f"s{at}", "type": "string"} for at in range(5)]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    functions = TypedFunctions(Registry([Schema("t-value", 1, 10, guid_of(schema), "AVRO", schema)]))
    framed = pa.array([b"\0\0\0\0\x0a" + bytes(5)])
    (found,) = functions.avro_to_json(framed, pa.array([10])).to_pylist()
    assert set(json.loads(found).values()) == {""}
