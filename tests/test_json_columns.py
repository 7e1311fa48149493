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

from pipelines import decode_batches, decode_values
from tests.support import logs
from tests.support.segment_maker import Batch, Record
from udfs.values.json_columns import REST, column, inferred

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
