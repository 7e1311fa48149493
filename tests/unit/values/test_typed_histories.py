"""Histories of schemas in any order: no value is lost, whatever came first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.udfs.values.schemas.merged_types import conformed, merged, storable
from kafka_log_lake.udfs.values.schemas.payloads import PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, Registry, Schema
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from tests.support import logs
from tests.support.segment_maker import Batch, Record
from tests.unit.values.test_typed_forms import encoded


def inner(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "In", "fields": [{"name": n, "type": t} for n, t in fields]}


def outer(type_: Any, name: str = "in", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Out", "fields": [{"name": name, "type": type_, **more}]}


def decoded(*versions: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """A value of each version, as rows of one column."""
    schemas = [
        Schema("t-value", at, at, f"g{at}", AVRO, json.dumps(one)) for at, (one, _) in enumerate(versions, 1)
    ]
    decoder = SideDecoder(PayloadReader(Registry(schemas)), "t", "value")
    rows = [encoded(schema, value, at) for at, (schema, value) in enumerate(versions, 1)]
    side = decoder.decode(pa.array(rows, pa.binary()))
    assert side.wrong == []
    column = side.column(decoder.types)
    column.validate(full=True)
    found: list[dict[str, Any]] = column.to_pylist()
    return found


def test_a_record_whose_field_changed_its_type_inside_another_keeps_all_its_values() -> None:
    rows = decoded(
        (outer(inner(("a", "bytes"), ("b", "int"))), {"in": {"a": b"x", "b": 1}}),
        (outer(inner(("a", "string"), ("b", "int"))), {"in": {"a": "y", "b": 2}}),
    )
    assert [row["in"] for row in rows] == [
        {"a": b"x", "b": 1, "a_string": None},
        {"a": None, "b": 2, "a_string": "y"},
    ]


def test_a_field_that_had_three_types_of_one_kind_has_three_columns() -> None:
    lists = [{"type": "array", "items": kind} for kind in ("int", "string", "boolean")]
    values: list[list[Any]] = [[1], ["x"], [True]]
    rows = decoded(*((outer(one), {"in": value}) for one, value in zip(lists, values, strict=True)))
    assert [set(filter(None, map(str, row.values()))) - {"None"} for row in rows] == [
        {"[1]"},
        {"['x']"},
        {"[True]"},
    ]


def test_a_name_with_its_type_that_another_field_has_is_not_taken() -> None:
    structs = [
        pa.struct([("a", pa.int32()), ("a_string", pa.bool_())]),
        pa.struct([("a", pa.string()), ("a_string", pa.bool_())]),
    ]
    both = merged(*structs)
    assert both is not None
    second = pa.array([{"a": "x", "a_string": True}], structs[1])
    (row,) = conformed(second, storable(both)).to_pylist()
    assert row == {"a": None, "a_string": True, "a_string_2": "x"}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ({"type": "array", "items": inner(("gone", "null"), ("x", "int"))}, [{"gone": None, "x": 1}] * 2),
        ({"type": "map", "values": "null"}, {"k": None}),
        (inner(("gone", "null")), {"gone": None}),
    ],
    ids=["list", "map", "record"],
)
def test_a_field_of_nothing_but_nulls_can_be_renamed(type_: Any, value: Any) -> None:
    new = outer(type_, "later", aliases=["in"])
    first, second = decoded((outer(type_), {"in": value}), (new, {"later": value}))
    assert first == second
    assert first["later"] == (list(value.items()) if type_["type"] == "map" else value)


def registered(*texts: str | None) -> list[tuple[int, bytes, bytes | None]]:
    """Records of ``_schemas``: the schemas that a version had, each with an id; None where it was deleted."""
    key = json.dumps({"keytype": "SCHEMA", "subject": "t-value", "version": 1, "magic": 1}).encode()
    value = {"subject": "t-value", "version": 1, "deleted": False}
    return [
        (at, key, None if one is None else json.dumps(value | {"id": len(one), "schema": one}).encode())
        for at, one in enumerate(texts)
    ]


@pytest.mark.parametrize("ends", [(1, 3), (2, 3), (3, 1), (3, 3), (3,)])
@pytest.mark.parametrize("between", [None, '"int"'], ids=["deleted", "replaced"])
def test_a_schema_that_was_registered_again_holds_in_copies_of_the_log(
    between: str | None, ends: tuple[int, ...]
) -> None:
    """Also where a copy ends before that."""
    log = registered('"string"', between, '"string"')
    registry = Registry.joined(Registry.from_records(log[:end]) for end in ends)
    found = PayloadReader(registry).read("t", "value", b"\0\0\0\0\x08\x04hi")
    assert (found.value, found.reason) == ("hi", None)


def test_the_schemas_that_one_version_had_are_told_apart() -> None:
    text = '{"subject":"t-value","version":1,"id":8,"schema":"\\"string\\"","deleted":true}'
    (first, deleted, second) = registered('"string"', None, '"long"')
    log = [first, (1, deleted[1], text.encode()), second]
    reader = PayloadReader(Registry.from_records(log))
    found = [
        reader.read("t", "value", bytes([0, 0, 0, 0, id_, 2, 65])[: 7 if id_ == 8 else 6]) for id_ in (8, 6)
    ]
    assert [one.value for one in found] == ["A", 1]


def test_values_of_a_schema_that_comes_later_are_decoded_in_a_topic_of_json_too(tmp_path: Path) -> None:
    schema = outer("double")
    values = [b'{"x": 1}', b'{"x": 2}', encoded(schema, {"in": 0.5}, 7)]
    records = [Record(value=one) for one in values]
    logs.put(tmp_path / "logs" / "t-0", 0, Batch(records=records).encode())
    options = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--typed"]
    assert decode_batches.main(options) == 0
    errors = DeltaTable(tmp_path / "lake/value_errors").to_pyarrow_table(columns=["offset", "reason"])
    assert errors.to_pylist() == [{"offset": 2, "reason": "unknown_id"}]
    key = {"keytype": "SCHEMA", "subject": "t-value", "version": 1, "magic": 1}
    value = {"subject": "t-value", "version": 1, "id": 7, "schema": json.dumps(schema), "deleted": False}
    record = Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())
    logs.put(tmp_path / "logs" / "_schemas-0", 0, Batch(records=[record]).encode())
    assert decode_batches.main(options) == 0
    assert DeltaTable(tmp_path / "lake/value_errors").to_pyarrow_table().num_rows == 0
    rows = DeltaTable(tmp_path / "lake/typed/t").to_pyarrow_table().to_pylist()
    assert {"in": 0.5} in rows[2]["value"].values()


def test_names_that_differ_in_case_alone_keep_their_columns_in_whatever_order_a_version_has_them() -> None:
    one = {"type": "record", "name": "R", "fields": [{"name": n, "type": "long"} for n in ("ID", "id", "Id")]}
    other = {**one, "fields": one["fields"][::-1]}
    fewer = {**one, "fields": one["fields"][1:2]}
    rows = decoded(
        (one, {"ID": 1, "id": 2, "Id": 3}), (other, {"ID": 1, "id": 2, "Id": 3}), (fewer, {"id": 2})
    )
    assert rows[0] == rows[1] == {"ID": 1, "id_2": 2, "Id_3": 3}
    assert rows[2] == {"ID": None, "id_2": 2, "Id_3": None}


def test_branches_of_a_union_whose_names_differ_in_their_namespace_alone_keep_their_columns() -> None:
    def branch(namespace: str) -> dict[str, Any]:
        return {"type": "enum", "name": "K", "namespace": namespace, "symbols": [namespace]}

    branches = [branch("a"), branch("b")]
    rows = decoded(
        (outer(branches), {"in": ("a.K", "a")}),
        (outer(branches[::-1]), {"in": ("a.K", "a")}),
        (outer(branches[::-1]), {"in": ("b.K", "b")}),
    )
    assert [row["in"] for row in rows] == [*2 * [{"K": "a", "K_2": None}], {"K": None, "K_2": "b"}]


def test_errors_of_records_that_are_gone_are_gone_whatever_the_topic_is_called(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    words = ["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1", "--typed"]
    for values, errors in (((b"text", b"\0\0\0\0\7?"), 1), ((b"texts", b"written", b"anew"), 0)):
        made = Batch(tuple(Record(value=value) for value in values)).encode()
        for topic in ("t", "é è"):
            logs.put(tmp_path / "logs" / f"{topic}-0", 0, made)
        logs.put(tmp_path / "logs" / "markers-0", 0, logs.marker(0, 7), *logs.batches(1, errors ^ 1))
        assert decode_batches.main(words) == 0
        markers = DeltaTable(f"{lake}/typed/markers").to_pyarrow_table()  # of a topic without data no row yet
        assert markers.column("offset").to_pylist() == [1, 2, 3][: 3 * (errors ^ 1)]
        found = DeltaTable(f"{lake}/value_errors").to_pyarrow_table().column("topic").to_pylist()
        assert sorted(found) == ["t", "é è"] * errors
