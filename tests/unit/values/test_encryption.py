"""Client-side field level encryption: the registry's keys as views, encrypted fields and payloads marked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.udfs.values.schemas.encryption import described
from kafka_log_lake.udfs.values.schemas.registry import JSON_SCHEMA, Registry, Schema
from tests.support import logs
from tests.support.docs import ROOT, blocks
from tests.support.segment_maker import Batch, Record

KEK = {"type": "KEK", "tenant": "default", "name": "aws1"}
DEK = {"type": "DEK", "tenant": "default", "kekName": "aws1", "subject": "orders-value"}
CARD = base64.b64encode(b"\0\0\0\0\7abc")  # a version of its DEK, and what is encrypted
KEYS: list[tuple[Any, Any]] = [
    (
        KEK,
        {
            "type": "KEK",
            "name": "aws1",
            "kmsType": "aws-kms",
            "kmsKeyId": "arn:aws:kms:eu-1:1:key/a",
            "kmsProps": {"role": "r"},
            "doc": "of orders",
            "shared": True,
            "deleted": False,
        },
    ),
    (
        {**DEK, "algorithm": "AES256_GCM", "version": 1},
        {**DEK, "algorithm": "AES256_GCM", "version": 1, "encryptedKeyMaterial": "AAEC", "deleted": False},
    ),
    (
        {**DEK, "algorithm": "AES256_GCM", "version": 2},
        {**DEK, "algorithm": "AES256_GCM", "version": 2, "encryptedKeyMaterial": "AwQF", "deleted": False},
    ),
    (
        dict(
            reversed({**DEK, "algorithm": "AES256_GCM", "version": 1}.items())
        ),  # the same key, another order
        {**DEK, "algorithm": "AES256_GCM", "version": 1, "encryptedKeyMaterial": "AAEC", "deleted": True},
    ),
    ({**KEK, "name": "gone"}, None),
    ({"type": "OTHER"}, {"type": "OTHER"}),
]
RULE = {
    "name": "r",
    "kind": "TRANSFORM",
    "mode": "WRITEREAD",
    "type": "ENCRYPT",
    "tags": ["PII"],
    "params": {"encrypt.kek.name": "aws1", "encrypt.dek.expiry.days": "30"},
}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "card", "type": "string", "confluent:tags": ["PII"]},
        {
            "name": "buyer",
            "type": [
                "null",
                {"type": "record", "name": "Buyer", "fields": [{"name": "mail", "type": "string"}]},
            ],
        },
    ],
}
PROTO = """syntax = "proto3";
import "confluent/meta.proto";
message Order { int32 id = 1; string card = 2 [(confluent.field_meta).tags = "PII"]; }
"""


def schema(subject: str, id_: int, **value: Any) -> tuple[bytes, bytes]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
    held = {"subject": subject, "version": 1, "id": id_, "deleted": False, **value}
    return json.dumps(key).encode(), json.dumps(held).encode()


SCHEMAS = [
    schema(
        "orders-value",
        1,
        schema=json.dumps(AVRO),
        ruleSet={"domainRules": [RULE]},
        metadata={"tags": {"shop.Buyer.*": ["PII"]}},
    ),
    schema("proto-value", 2, schemaType="PROTOBUF", schema=PROTO, ruleSet={"domainRules": [RULE]}),
    schema(
        "sealed-value", 3, schema='"string"', ruleSet={"encodingRules": [{**RULE, "type": "ENCRYPT_PAYLOAD"}]}
    ),
]


def put(folder: Path, records: list[tuple[bytes | None, bytes | None]]) -> None:
    found = [Record(key=key, value=value, offset_delta=at) for at, (key, value) in enumerate(records)]
    logs.put(folder, 0, Batch(records=found).encode())


def text(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("encryption")
    source = root / "logs"
    put(source / "_dek_registry_keys-0", [(text(k), text(v)) for k, v in KEYS] + [(b"\xff", b"no JSON")])
    put(source / "_schema_encoders-0", [(b"default", b"\x01\x02"), (b"default", b"\x03"), (b"t2", None)])
    put(source / "_schemas-0", list(SCHEMAS))
    put(source / "orders-0", [(None, b"\0\0\0\0\1\x02\x18" + CARD + b"\0")])
    put(source / "proto-0", [(None, b"\0\0\0\0\2\0\x08\x05\x12\x0c" + CARD)])
    put(source / "sealed-0", [(None, b"\0\0\0\0\3" + b"\0\0\0\0\x07" + b"ciphertext")])
    lake = str(root / "lake")
    assert decode_batches.main(["--source", str(source), "--lake", lake]) == 0
    assert decode_values.main(["--lake", lake]) == 0
    return connect(lake)


def rows(database: Any, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = database.sql(sql).to_arrow_table().to_pylist()
    return found


def test_keys_of_the_registry_are_a_view(database: Any) -> None:
    found = rows(database, "SELECT * FROM encryption_keys ORDER BY record_offset")
    assert [(one["kind"], one["kek_name"], one["subject"], one["dek_version"]) for one in found] == [
        ("KEK", "aws1", None, None),
        ("DEK", "aws1", "orders-value", 1),
        ("DEK", "aws1", "orders-value", 2),
        ("DEK", "aws1", "orders-value", 1),
        ("KEK", "gone", None, None),
        (None, None, None, None),
        (None, None, None, None),
    ]
    assert [one["is_current"] for one in found] == [True, False, True, True, True, True, True]
    assert [one["is_deleted"] for one in found] == [False, False, False, True, False, False, False]
    assert [one["is_tombstone"] for one in found] == [False] * 4 + [True, False, False]
    kek, dek = found[0], found[2]
    assert (kek["kms_type"], kek["kms_key_id"]) == ("aws-kms", "arn:aws:kms:eu-1:1:key/a")
    assert (json.loads(kek["kms_properties"]), kek["doc"], kek["is_shared"]) == (
        {"role": "r"},
        "of orders",
        True,
    )
    assert (dek["algorithm"], dek["encrypted_key_material"]) == ("AES256_GCM", "AwQF")
    assert [one["error"] is None for one in found] == [True] * 5 + [False] * 2
    assert (found[6]["raw_key"], found[6]["raw_value"]) == (b"\xff", b"no JSON")


def test_keysets_of_encrypted_metadata_are_a_view(database: Any) -> None:
    found = rows(database, "SELECT tenant, keyset, is_current FROM schema_encoders ORDER BY record_offset")
    assert [tuple(one.values()) for one in found] == [
        ("default", b"\1\2", False),
        ("default", b"\3", True),
        ("t2", None, True),
    ]


def test_encrypted_fields_stay_as_stored_and_are_named(database: Any) -> None:
    assert rows(database, "SELECT value.card FROM typed.orders") == [{"card": CARD.decode()}]
    assert rows(database, "SELECT value.card FROM typed.proto") == [{"card": CARD.decode()}]
    found = {
        one["subject"]: json.loads(one["encrypted"])
        for one in rows(database, "SELECT subject, encrypted FROM schemas")
    }
    expected = {
        "type": "ENCRYPT",
        "tags": ["PII"],
        "kek": "aws1",
        "algorithm": "AES256_GCM",
        "dek_expires": True,
    }
    assert found["orders-value"] == [{**expected, "fields": ["buyer.mail", "card"]}]
    assert found["proto-value"] == [{**expected, "fields": ["Order.card"]}]
    assert found["sealed-value"] == [{**expected, "type": "ENCRYPT_PAYLOAD", "fields": []}]


def test_the_page_shows_how_the_version_of_a_key_is_read(database: Any) -> None:
    shown = [one for one in blocks(ROOT / "docs" / "typed_values.md", "sql") if "dek_version" in one]
    assert rows(database, shown[0]) == [{"dek_version": 7}]


def test_encrypted_payloads_name_their_key(database: Any) -> None:
    (found,) = rows(database, "SELECT topic, reason, detail FROM value_errors")
    assert (found["topic"], found["reason"]) == ("sealed", "encrypted")
    assert found["detail"].endswith("encrypts payloads with KEK aws1, DEK version 7")


def test_topics_of_the_registry_have_no_typed_tables(database: Any) -> None:
    found = rows(database, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'typed'")
    assert sorted(one["table_name"] for one in found) == ["orders", "proto", "sealed"]


def test_a_rule_with_mad_content_takes_no_schema_away() -> None:
    mad = {"type": "ENCRYPT", "tags": "PII", "params": 5}
    key, value = schema("mad-value", 9, schema="{", ruleSet={"domainRules": [mad, 7]})
    registry = Registry.from_records([(0, key, value)])
    assert [one.subject for one in registry.schemas] == ["mad-value"]
    assert described(registry.schemas[0], mad, ())["fields"] == []


TAGGED = {"confluent:tags": ["PII"]}
STREET = {"name": "street", "type": "string", **TAGGED}
NEXT = {"name": "next", "type": ["null", "Place"]}
PLACE = {"type": "record", "name": "Place", "namespace": "x", "fields": [STREET, NEXT]}
TEXT = {"type": "object", "properties": {"text": {"type": "string", **TAGGED}}}


@pytest.mark.parametrize(
    ("type_", "declared", "expected"),
    [
        (
            "AVRO",
            {
                "type": "record",
                "name": "Person",
                "namespace": "x",
                "fields": [
                    {"name": "home", "type": PLACE},
                    {"name": "work", "type": ["null", "Place"]},
                    {"name": "others", "type": {"type": "array", "items": "x.Place"}},
                    {"name": "note", "type": "y.Note"},
                ],
            },
            ["home.street", "note.text", "others.street", "work.street"],
        ),
        (
            JSON_SCHEMA,
            {
                "properties": {
                    "a": {"$ref": "#/$defs/Text"},
                    "b": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/Text"}}]},
                    "c": {"$ref": "note.json"},
                    "d": {"$ref": "#"},
                },
                "$defs": {"Text": TEXT},
            },
            ["a.text", "b.text", "c.text"],
        ),
    ],
)
def test_encrypted_fields_of_a_type_are_found_wherever_it_is_named(
    type_: str, declared: dict[str, Any], expected: list[str]
) -> None:
    text = {"name": "text", "type": "string", **TAGGED}
    note = {"type": "record", "name": "Note", "namespace": "y", "fields": [text]}
    others = [("y.Note", json.dumps(note)), ("note.json", json.dumps(TEXT))]
    schema = Schema("a-value", 1, 1, "g", type_, json.dumps(declared))
    assert described(schema, {"type": "ENCRYPT", "tags": ["PII"]}, others)["fields"] == expected


def test_types_that_lie_in_each_other_without_end_end_the_search_of_fields() -> None:
    levels = {f"L{at}": {"allOf": 2 * [{"$ref": f"#/$defs/L{at + 1}"}]} for at in range(60)}
    text = json.dumps({"properties": {"a": {"type": "string", **TAGGED}}, "allOf": [{"$ref": "#/$defs/L0"}]})
    schema = Schema("a-value", 1, 1, "g", JSON_SCHEMA, text[:-1] + f', "$defs": {json.dumps(levels)}}}')
    assert described(schema, {"type": "ENCRYPT", "tags": ["PII"]}, ())["fields"] == ["a"]
