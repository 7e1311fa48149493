"""JSON objects as structs: types that all values of a first look have, and nothing is lost later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.udfs.values.json.arrays import structs, texts
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.json.structs import REST, column, inferred, text
from kafka_log_lake.udfs.values.schemas.plain_payloads import plain_payload
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from tests.support import logs
from tests.support.drawn import examples
from tests.support.segment_maker import Batch, Record

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False), st.text()
)
NAMES = st.sampled_from(["a", "A", "b", "c", REST, "ä"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=5)


def joined(held: Any, rest: Any) -> Any:
    """A value of the columns and what was left of it, without nulls of objects."""
    if isinstance(held, dict):
        left = rest if isinstance(rest, dict) else {}
        names = [*held, *(name for name in left if name not in held)]
        return {
            name: joined(held.get(name), left.get(name))
            for name in names
            if name in left or held[name] is not None
        }
    return rest if held is None else held


def texts_of(payloads: Any) -> list[str | None]:
    found: list[str | None] = texts(pa.array(payloads, pa.binary()), False).to_pylist()
    return found


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@given(OBJECTS, st.lists(VALUES, max_size=4))
def test_columns_and_rest_together_hold_each_value(first: list[Any], later: list[Any]) -> None:
    type_ = inferred(first)
    if type_ is None:
        return
    rest = type_[type_.num_fields - 1].name
    for sent, row in zip([*first, *later], column([*first, *later], type_).to_pylist(), strict=True):
        left = json.loads(row.pop(rest) or "{}")
        if not isinstance(sent, dict):
            assert left == sent
            continue
        assert without_nulls(joined(row, left)) == without_nulls(sent)


NUMBERS = (
    "0",
    "-0",
    "-0.0",
    "1",
    "0.1",
    "1e2",
    "1e400",
    "1e-400",
    "9007199254740993",
    "9223372036854775808",
    "01",
)
TEXTS = (
    '"x"',
    r'"\u0041"',
    r'"\ud83d\ude00"',
    r'"\ud800"',
    r'"\udc00"',
    r'"\u0000"',
    '"\x01"',
    '"\x7f"',
    r'"\q"',
)
OTHERS = (
    "null",
    "true",
    "NaN",
    "[]",
    "[0.5, null]",
    "{}",
    '{"b":1}',
    '{"b":1,"b":2}',
    '{"b":{"c":[1]}}',
    "",
    '"',
)
ODD = (
    *(
        b"null",
        b"{",
        b"}",
        b"{}",
        b"",
        b'{"a":1}{"a":2}',
        b'{"a":1',
        b',"a":2}',
        b'{"a":1,"a":2}',
        b'{"A":1}',
    ),
    *(
        b'{"a":1}\n',
        b' {"a":1}',
        b'{"a":1}\r',
        b'{"a":\n1}',
        b'{"a":1}\0',
        b'{"a":1}\0{}',
        b'{"\xff":1}',
        b'{"a":"\xff"}',
    ),
    *(
        b'\xef\xbb\xbf{"a":1}',
        b'{"schema":1,"payload":2}',
        b'{"_rest":1}',
        b'{"\\u0061":1}',
        b'{"a":"\xed\xa0\x80"}',
    ),
)


@pytest.mark.parametrize("first", [0.5, 1, "x", True, [0.5], {"b": 1}, {"b": {"c": [1]}}])
def test_what_is_taken_at_once_is_what_the_exact_way_makes_of_it(first: Any) -> None:
    type_ = inferred([{"a": first}])
    assert type_ is not None
    values = [f'{{"a":{one}}}'.encode() for one in (*NUMBERS, *TEXTS, *OTHERS)]
    alone = [[one] for one in (*ODD, *values)]
    for sent in (*alone, *([one, b"{}"] for one in ODD), [b'{"a":1}{"a":2}', b"{}{}"], [*ODD, *values]):
        made, rows = structs(pa.array(sent, pa.binary()), type_)
        exact = column([parse_json(sent[row]) for row in rows], type_)
        assert repr(made.to_pylist()) == repr(exact.to_pylist())  # -0.0 is not 0.0
        for payload, taken in zip(sent, texts_of(sent), strict=True):
            one = plain_payload(payload, "json")
            assert taken is None or (one.format, one.reason, text(one.value)) == ("json", None, taken)


NUMBERS_AS_WRITTEN = st.from_regex(
    r"-?[0-9]{0,18}(\.[0-9]{0,18})?([eE][0-9])?", fullmatch=True, alphabet="-0159.eE"
)
BROKEN = st.tuples(
    st.integers(0), st.sampled_from([b"", b'"', b"\\", b"\0", b",", b"]", b"\xed\xa0\x80", b"0", b"\n"])
)


@examples(500)
@given(
    VALUES,
    st.lists(NUMBERS_AS_WRITTEN, max_size=3),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", "\t:")]),
    st.lists(BROKEN, max_size=1),
)
def test_texts_are_what_the_exact_way_makes_of_them(
    value: Any, numbers: list[str], is_ascii: bool, blanks: tuple[str, str], broken: list[tuple[int, bytes]]
) -> None:
    sent = json.dumps(value, ensure_ascii=is_ascii, separators=blanks)
    payload = f"[{blanks[0].join([sent, *numbers])}]".encode()
    for place, piece in broken:
        at = place % len(payload)
        payload = payload[:at] + piece + payload[at + 1 :]
    one = plain_payload(payload, "json")
    is_text = one.format == "json" and one.reason is None and one.value is not None
    assert texts_of([payload]) == [text(one.value) if is_text else None]
    looked = plain_payload(payload, "")
    found = TypedFunctions(Registry([])).kafka_value(pa.array([payload], pa.binary()), pa.array(["t"]))
    assert payload[:1] != b"[" or found.to_pylist() == [text(looked.value)]  # else it may be framed


def test_ordinary_objects_are_taken_at_once_and_an_odd_one_leaves_few_others() -> None:
    sent = [b'{"id":%d,"name":"n","price":0.5,"tags":["a"],"at":{\n"x":null}}' % at for at in range(5000)]
    type_ = inferred([json.loads(one) for one in sent[:2]])
    assert type_ is not None
    sent[700] = b'{"id":1,"id":2}'
    _, rows = structs(pa.array(sent, pa.binary()), type_)
    assert rows.tolist() == [*range(512), *range(1024, 5000)]
    assert [one is None for one in texts_of([*sent, b"{", None])][-3:] == [0, 1, 1]


def test_an_envelope_of_kafka_connect_is_left() -> None:
    type_ = inferred([{"schema": 1, "payload": 2, "id": 3}])
    assert type_ is not None
    sent = pa.array([b'{"schema":1,"payload":2}'], pa.binary())
    assert not len(structs(sent, type_)[1])
    assert texts_of(sent) == [None]


def test_a_member_with_the_name_of_the_rest_is_in_the_rest() -> None:
    type_ = inferred([{"a": 1}])
    assert column([{"a": 1, REST: "x"}], type_).to_pylist() == [{"a": 1, REST: '{"_rest":"x"}'}]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"a": 1}, {"a": None}, {}], pa.int64()),
        ([{"a": 1}, {"a": 2.5}], pa.float64()),
        ([{"a": 1}, {"a": True}], pa.string()),
        ([{"a": [1]}, {"a": []}], pa.list_(pa.int64())),
        ([{"a": {"b": "x"}}], pa.struct([pa.field("b", pa.string())])),
        ([{"a": {"b": 1}}, {"a": 5}], pa.string()),
    ],
    ids=str,
)
def test_a_member_has_the_type_that_all_its_values_have(values: list[Any], expected: pa.DataType) -> None:
    type_ = inferred(values)
    assert type_ is not None
    assert type_["a"].type == expected


def test_objects_with_endless_names_stay_text() -> None:
    assert inferred([{f"key-{at}": 1} for at in range(2000)]) is None
    assert inferred([{"a": 1}, [1]]) is None


def put(folder: Path, base: int, values: list[bytes]) -> None:
    records = [Record(value=one, offset_delta=at) for at, one in enumerate(values)]
    logs.put(folder, base, Batch(records=records, base_offset=base).encode())


def test_typed_tables_have_structs_and_keep_what_does_not_fit_later(tmp_path: Path) -> None:
    folder, lake = tmp_path / "logs" / "events-0", str(tmp_path / "lake")
    put(
        folder,
        0,
        [b'{"id": 1, "user": {"city": "Oslo"}}', b'{"id": 2, "user": {"city": "Lagos"}, "ok": true}'],
    )
    job = ["--source", str(tmp_path / "logs"), "--lake", lake]
    assert decode_batches.main(job) == 0
    assert decode_values.main(["--lake", lake, "--json-values", "infer"]) == 0
    put(folder, 2, [b'{"id": "three", "user": {"city": "Rome", "zip": 5}}', b"[1]", b'{"id": 9}'])
    assert decode_batches.main(job) == 0
    assert decode_values.main(["--lake", lake, "--json-values", "infer"]) == 0
    table = DeltaTable(f"{lake}/typed/events").to_pyarrow_table().sort_by("offset")
    assert table["value"].to_pylist() == [
        {"id": 1, "user": {"city": "Oslo"}, "ok": None, REST: None},
        {"id": 2, "user": {"city": "Lagos"}, "ok": True, REST: None},
        {"id": None, "user": {"city": "Rome"}, "ok": None, REST: '{"id":"three","user":{"zip":5}}'},
        {"id": None, "user": None, "ok": None, REST: "[1]"},
        {"id": 9, "user": None, "ok": None, REST: None},
    ]


def test_names_with_dots_are_columns_beside_nested_ones(tmp_path: Path) -> None:
    sent = {"a.b": "text", "a": {"b": 1, "c": {"d": 2}, "c.d": "text"}, "e f": 3}
    put(tmp_path / "logs" / "events-0", 0, [json.dumps(sent).encode()])
    job = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--typed"]
    assert decode_batches.main([*job, "--json-values", "infer"]) == 0
    table = DeltaTable(str(tmp_path / "lake" / "typed" / "events")).to_pyarrow_table()
    assert table["value"].to_pylist() == [{**sent, REST: None}]


def test_another_choice_makes_the_whole_table_again(tmp_path: Path) -> None:
    """Text becomes structs, and back with another value: never both in one column."""
    folder, lake = tmp_path / "logs" / "events-0", str(tmp_path / "lake")
    sent = [{"id": 1}, {"id": 2}]
    put(folder, 0, [json.dumps(one).encode() for one in sent])
    job, values = ["--source", str(tmp_path / "logs"), "--lake", lake], ["--lake", lake, "--json-values"]
    assert decode_batches.main(job) == 0
    for kind in ("text", "infer"):
        assert decode_values.main([*values, kind]) == 0
    table = DeltaTable(f"{lake}/typed/events")
    assert table.to_pyarrow_table()["value"].to_pylist() == [{**one, REST: None} for one in sent]
    put(folder, 2, [b'{"id":3}'])
    assert decode_batches.main(job) == 0
    assert decode_values.main([*values, "text"]) == 0
    rows = DeltaTable(f"{lake}/typed/events").to_pyarrow_table().sort_by("offset")
    assert rows["value"].to_pylist() == ['{"id":1}', '{"id":2}', '{"id":3}']
    assert decode_values.main([*values, "text"]) == 0
    assert DeltaTable(f"{lake}/typed/events").version() == table.version() + 1
