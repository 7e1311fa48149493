"""Typed keys and values of segments and folders, without a lake."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake import decode_folder, read_segment
from tests.support import typed_corpus as corpus


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["partition"], row["offset"]): row for row in rows}


def test_a_folder_s_topic_has_one_type_for_all_its_versions() -> None:
    batches = list(decode_folder(corpus.DATA, topics="avro-evolution", typed=True))
    found = by_place(pa.Table.from_batches(batches).to_pylist())
    sent = by_place(corpus.oracle("avro-evolution"))
    assert found.keys() == sent.keys()
    for place, line in sent.items():
        assert found[place]["value"]["target"] == line["value_as_latest"]["target"]
        assert found[place]["value_schema_id"] == line["value_schema"]["id"]


def test_errors_are_next_to_the_values() -> None:
    columns = ["offset", "value"]
    batches = list(decode_folder(corpus.DATA, topics="err-avro", typed=True, columns=columns))
    found = by_place(pa.Table.from_batches(batches).to_pylist())
    for place, line in by_place(corpus.oracle("err-avro")).items():
        assert found[place]["value_error"] == line.get("error")
        assert (found[place]["value"] is None) == ("error" in line)
        assert not found[place]["is_tombstone"]


@pytest.mark.parametrize("topic", ["avro-txn", "empty-tombstone"])
def test_a_segment_has_its_data_records_and_tombstones(topic: str) -> None:
    path = min(corpus.DATA.glob(f"{topic}-0/*.log"))
    table = read_segment(path, typed=True, columns=["offset", "key", "value"])
    sent = by_place(corpus.oracle(topic))
    rows = table.to_pylist()
    assert rows
    for row in rows:
        assert row["is_tombstone"] == (sent[0, row["offset"]]["value_format"] == "null")
