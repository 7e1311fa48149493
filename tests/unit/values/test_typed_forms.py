"""Typed tables in other forms: with the defaults of the latest version, with fields as columns."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.udfs.values.schemas.payloads import VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, PROTOBUF, Reference, Registry, Schema
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from tests.support import typed_corpus as corpus
from tests.unit.values.test_payloads import same

OLD_ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
NEW_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [*OLD_ITEM["fields"], {"name": "count", "type": "int", "default": 7}],
}


def record(item: Mapping[str, Any], *more: Mapping[str, Any]) -> dict[str, Any]:
    """A record with an item within a list, a map and a union. The type is declared at its first place."""
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "item", "type": item},
        {"name": "items", "type": {"type": "array", "items": "Item"}},
        {"name": "by_name", "type": {"type": "map", "values": "Item"}},
        {"name": "maybe", "type": ["null", "Item"], "default": None},
    ]
    return {"type": "record", "name": "Order", "fields": [*fields, *map(dict, more)]}


ADDED: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"name": "city", "type": "string", "default": "Oslo"}, "Oslo"),
    ({"name": "share", "type": ["double", "null"], "default": 0.5}, 0.5),
    ({"name": "raw", "type": "bytes", "default": "\u00ff\u0001"}, b"\xff\x01"),
    (
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            "default": "\u0001",
        },
        Decimal("0.01"),
    ),
    ({"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "B"}, "B"),
    ({"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]}, ["x"]),
    ({"name": "extra", "type": {"type": "map", "values": "int"}, "default": {"a": 1}}, [("a", 1)]),
    ({"name": "gift", "type": NEW_ITEM["name"], "default": {"sku": "s"}}, {"sku": "s", "count": 7}),
    ({"name": "none", "type": ["null", "string"], "default": None}, None),
    ({"name": "any", "type": ["string", "int"], "default": "t"}, {"string": "t", "int": None}),
    ({"name": "wrong", "type": "int", "default": "no number"}, None),
    ({"name": "past_a_long", "type": "long", "default": 1 << 70}, None),
    ({"name": "past_a_double", "type": "double", "default": 10**400}, None),
)


def encoded(schema: dict[str, Any], value: dict[str, Any], id_: int) -> bytes:
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bi", 0, id_) + out.getvalue()


def test_fields_that_a_version_does_not_have_get_the_latest_one_s_defaults() -> None:
    old, new = record(OLD_ITEM), record(NEW_ITEM, *(one for one, _ in ADDED))
    versions = [
        Schema("t-value", at, at, f"g{at}", AVRO, json.dumps(one)) for at, one in enumerate((old, new), 1)
    ]
    value = {"id": 1, "item": {"sku": "a"}, "items": [{"sku": "b"}, {"sku": "c"}]}
    value |= {"by_name": {"k": {"sku": "d"}}, "maybe": {"sku": "e"}}
    rows = [encoded(old, value, 1), None, encoded(old, value | {"maybe": None, "items": []}, 1)]
    reader = PayloadReader(Registry(versions))
    for fills in (True, False):
        decoder = SideDecoder(reader, "t", VALUE, fills=fills)
        side = decoder.decode(pa.array(rows, pa.binary()))
        column = side.column(decoder.types)
        column.validate(full=True)
        first, null, second = column.to_pylist()
        assert null is None
        assert first["id"] == 1
        if not fills:
            assert first["item"] == {"sku": "a"}
            assert "city" not in first
            continue
        assert first["item"] == {"sku": "a", "count": 7}
        assert first["items"] == [{"sku": "b", "count": 7}, {"sku": "c", "count": 7}]
        assert first["by_name"] == [("k", {"sku": "d", "count": 7})]
        assert first["maybe"] == {"sku": "e", "count": 7}
        assert (second["items"], second["maybe"]) == ([], None)
        for declared, expected in ADDED:
            assert first.get(declared["name"]) == expected, declared


def test_what_changed_in_a_schema_that_versions_refer_to_is_filled_and_renamed_too() -> None:
    old = {"type": "record", "name": "In", "fields": [{"name": "a", "type": "int"}]}
    empty = {"type": "record", "name": "None", "fields": []}
    new = {
        **old,
        "fields": [
            {"name": "b", "type": "int", "aliases": ["a"]},
            {"name": "c", "type": "int", "default": 5},
            {"name": "d", "type": empty, "default": {}},
        ],
    }
    outer = {"type": "record", "name": "Out", "fields": [{"name": "in", "type": "In"}]}
    schemas = [
        schema
        for at, inner in enumerate((old, new), 1)
        for schema in (
            Schema("in", at, 10 + at, f"i{at}", AVRO, json.dumps(inner)),
            Schema("t-value", at, at, f"g{at}", AVRO, json.dumps(outer), (Reference("In", "in", at),)),
        )
    ]
    decoder = SideDecoder(PayloadReader(Registry(schemas)), "t", VALUE, fills=True)
    side = decoder.decode(pa.array([b"\0\0\0\0\1\2", b"\0\0\0\0\2\4\6"]))
    assert side.column(decoder.types).to_pylist() == [
        {"in": {"b": 1, "c": 5, "d": True}},
        {"in": {"b": 2, "c": 3, "d": True}},
    ]


def test_payloads_that_are_read_one_by_one_get_the_same_defaults() -> None:
    old, new = record(OLD_ITEM), record(NEW_ITEM, *(one for one, _ in ADDED))
    # a second subject has the id: then no schema is decoded by column
    versions = [
        Schema("t-value", 1, 1, "g1", AVRO, json.dumps(old)),
        Schema("t-value", 2, 2, "g2", AVRO, json.dumps(new)),
        Schema("u-value", 1, 1, "g3", AVRO, json.dumps({"type": "fixed", "name": "F", "size": 3})),
    ]
    value = {"id": 1, "item": {"sku": "a"}, "items": [{"sku": "b"}], "by_name": {}, "maybe": None}
    rows = pa.array([encoded(old, value, 1)], pa.binary())
    found = []
    for registry in (versions, versions[:2]):
        decoder = SideDecoder(PayloadReader(Registry(registry)), "t", VALUE, fills=True)
        found.append(decoder.decode(rows).column(decoder.types).to_pylist())
    assert found[0] == found[1]
    assert found[0][0]["gift"] == {"sku": "s", "count": 7}


def test_the_corpus_is_resolved_to_its_latest_version() -> None:
    rows = corpus.records("avro-evolution")
    decoder = SideDecoder(corpus.reader(), "avro-evolution", VALUE, fills=True)
    side = decoder.decode(pa.array([row["value"] for row in rows.values()], pa.binary()))
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle("avro-evolution")}
    for place, found in zip(rows, side.column(decoder.types).to_pylist(), strict=True):
        latest = dict(sent[place]["value_as_latest"])
        latest["model_e"] = float(latest["model_e"])  # NaN and infinities are texts in the oracle
        assert same({name: found[name] for name in latest}, latest)


def test_protobuf_fields_without_presence_get_what_a_reader_gets() -> None:
    text = """syntax = "proto3"; message M { int64 a = 1; In in = 2; %s }
        message In { string x = 1; %s }"""
    more = "string city = 3; optional int32 maybe = 4; repeated int32 list = 5; map<string, int32> by = 6;"
    texts = (text % ("", ""), text % (more, "uint32 n = 2;"))
    versions = [Schema("t-value", at, at, f"g{at}", PROTOBUF, one) for at, one in enumerate(texts, 1)]
    rows = [b"\0\0\0\0\1\0" + bytes.fromhex("0803" + "1203" + "0a0178"), b"\0\0\0\0\1\0\x08\x04"]
    decoder = SideDecoder(PayloadReader(Registry(versions)), "t", VALUE, fills=True)
    first, second = decoder.decode(pa.array(rows, pa.binary())).column(decoder.types).to_pylist()
    assert first["in"] == {"x": "x", "n": 0}
    assert second["in"] is None
    for row in (first, second):
        assert (row["city"], row.get("maybe"), row["list"], row["by"]) == ("", None, [], [])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with fields as columns, kept tables too."""
    root = tmp_path_factory.mktemp("flat")
    corpus.copy(("avro-key-record", "cdc-avro-orders", "plain-text", "_schemas"), root / "logs")
    lake = str(root / "lake")
    assert decode_batches.main(["--source", str(root / "logs"), "--lake", lake]) == 0
    for mode in ("latest", "cdc"):
        assert decode_values.main(["--lake", lake, "--value-columns", "flat", "--mode", mode]) == 0
    return root / "lake"


def rows_of(lake: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(lake / table).to_pyarrow_table().to_pylist()
    return found


def as_sent(value: Any) -> Any:
    """A value of a table as the oracle has it: maps as objects, NaN and infinities as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):  # of these topics all are maps
        return as_sent(dict(value))
    if isinstance(value, dict):
        return {name: as_sent(one) for name, one in value.items()}
    return value


def test_fields_are_columns(lake: Path) -> None:
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle("avro-key-record")}
    found = rows_of(lake, "typed/avro-key-record")
    assert len(found) == len(sent)
    for row in found:
        line = sent[row["partition"], row["offset"]]
        for side in ("key", "value"):
            names = [n for n in row if n.startswith(f"{side}_") and n != f"{side}_schema_id"]
            fields = {name.removeprefix(f"{side}_"): row[name] for name in names}
            if line[side] is None:
                assert set(fields.values()) == {None}
            else:
                assert same(as_sent(fields), line[side])
    assert not {"key", "value"} & found[0].keys()
    assert {"key", "value"} <= rows_of(lake, "typed/plain-text")[0].keys()


def test_kept_tables_are_the_same(lake: Path) -> None:
    end = corpus.oracle("cdc-avro-orders.table")[-1]
    found = rows_of(lake, "cdc/cdc-avro-orders")
    held = [{n: str(v) if isinstance(v, Decimal) else v for n, v in row.items()} for row in found]
    by_key = {tuple(row[name] for name in end["key"]): row for row in held}
    assert by_key == {tuple(row[name] for name in end["key"]): row for row in end["rows"]}
    newest = {}
    for line in sorted(corpus.oracle("avro-key-record"), key=lambda one: (one["partition"], one["offset"])):
        newest[json.dumps(line["key"])] = line
    expected = {(one["partition"], one["offset"]) for one in newest.values() if one["value_format"] != "null"}
    latest = connect(str(lake)).sql('SELECT partition, "offset" FROM latest."avro-key-record"').fetchall()
    assert set(latest) == expected
    assert len(latest) == len(expected)


def test_another_form_is_another_version_of_the_same_rows(lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "lake"
    shutil.copytree(lake, copy)
    before = len(rows_of(copy, "typed/avro-key-record"))
    options = ["--lake", str(copy), "--topics", "avro-key-record", "--fill-defaults"]
    for _ in range(2):
        assert decode_values.main(options) == 0
    found = rows_of(copy, "typed/avro-key-record")
    assert len(found) == before
    assert {"key", "value"} <= found[0].keys()
    versions = DeltaTable(copy / "typed/avro-key-record").version()
    assert versions == DeltaTable(lake / "typed/avro-key-record").version() + 1
