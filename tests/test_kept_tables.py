"""Kept tables: the source tables of Debezium's events at every moment, and the newest row of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from kafka_log_lake import connect
from pipelines import decode_batches, decode_values
from pipelines.kept import cdc
from tests.support import logs
from tests.support import typed_corpus as corpus
from tests.support.segment_maker import Batch, Record

TABLES = [topic for topic in corpus.TOPICS if topic.startswith("cdc-") and topic != "cdc-transaction"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kept")
    corpus.copy((*TABLES, "avro-txn", "_schemas"), root / "logs")
    options = ["--lake", str(root / "lake"), "--typed", "--mode"]
    assert decode_batches.main(["--source", str(root / "logs"), *options, "cdc"]) == 0
    assert decode_values.main(["--lake", str(root / "lake"), "--mode", "latest"]) == 0
    return root / "lake"


def plain(rows: list[dict[str, Any]], key: list[str]) -> list[dict[str, Any]]:
    """Rows in the order of their key, decimals as texts, as the oracle has them."""
    made = [{n: str(v) if isinstance(v, Decimal) else v for n, v in row.items()} for row in rows]
    return sorted(made, key=lambda row: [row[name] for name in key])


@pytest.mark.parametrize("topic", TABLES)
def test_the_source_table_is_right_at_every_moment(lake: Path, topic: str) -> None:
    database = connect(str(lake))
    moments = corpus.oracle(f"{topic}.table")
    assert len(moments) == 4
    for moment in moments:
        is_there = " OR ".join(
            f"(partition = {p} AND from_offset < {end} AND (to_offset IS NULL OR to_offset >= {end}))"
            for p, end in enumerate(moment["offsets"])
        )
        found = database.sql(f'SELECT after.* FROM history."{topic}" WHERE {is_there}').to_arrow_table()
        assert plain(found.to_pylist(), moment["key"]) == plain(moment["rows"], moment["key"])
    table = DeltaTable(lake / "cdc" / topic).to_pyarrow_table().to_pylist()
    assert plain(table, moment["key"]) == plain(moment["rows"], moment["key"])


def test_latest_has_a_row_a_key_of_what_was_committed(lake: Path) -> None:
    newest: dict[str, Mapping[str, Any]] = {}
    for line in sorted(corpus.oracle("avro-txn"), key=lambda line: (line["partition"], line["offset"])):
        if line.get("txn", "committed") == "committed" and line["key"] is not None:
            newest[line["key"]] = line
    expected = {key: line["offset"] for key, line in newest.items() if line["value_format"] != "null"}
    rows = connect(str(lake)).sql('SELECT key, "offset" FROM latest."avro-txn"').fetchall()
    assert len(rows) == len(expected)
    assert dict(rows) == expected


def test_a_run_with_nothing_new_writes_no_version(lake: Path) -> None:
    paths = [lake / "cdc" / TABLES[0], lake / "history" / TABLES[0], lake / "latest" / "avro-txn"]
    before = [DeltaTable(path).version() for path in paths]
    for mode in ("cdc", "latest"):
        assert decode_values.main(["--lake", str(lake), "--mode", mode]) == 0
    assert [DeltaTable(path).version() for path in paths] == before


def states(
    events: Sequence[tuple[int, int, int, str | None, str | None]], columns: str = "from_offset, to_offset"
) -> set[tuple[Any, ...]]:
    """(key, partition, and columns) of events: partition, offset, seconds, key, value."""
    database = duckdb.connect()
    database.execute("""CREATE TABLE events(partition INT, "offset" BIGINT, timestamp TIMESTAMPTZ,
        key VARCHAR, value VARCHAR, is_tombstone BOOLEAN)""")
    for partition, offset, seconds, key, value in events:
        database.execute(
            "INSERT INTO events VALUES (?, ?, to_timestamp(?), ?, ?, ?)",
            [partition, offset, seconds, key, value, value is None],
        )
    assert cdc.prepare(database)
    found = database.execute(f"SELECT key->>'$.id', partition, {columns} FROM states")
    return {(int(key), *rest) for key, *rest in found.fetchall()}


def event(op: str, id_: int) -> str:
    return f'{{"op":"{op}","before":null,"after":{{"id":{id_}}},"source":{{"ts_ms":1}}}}'


def test_a_truncation_ends_all_rows_of_its_table_in_other_partitions_by_its_time() -> None:
    events = [
        (0, 0, 10, '{"id":1}', event("c", 1)),
        (0, 1, 30, None, '{"op":"t","before":null,"after":null}'),
        (0, 2, 40, '{"id":2}', event("c", 2)),
        (1, 0, 20, '{"id":3}', event("c", 3)),
        (1, 1, 35, '{"id":4}', event("c", 4)),
        (1, 2, 50, '{"id":4}', None),
    ]
    assert states(events) == {(1, 0, 0, 1), (2, 0, 2, None), (3, 1, 0, 0), (4, 1, 1, 2)}


def test_of_several_truncations_in_other_partitions_the_first_ends_a_row() -> None:
    events = [
        (0, 0, 1, '{"id":1}', event("c", 1)),
        (0, 1, 20, None, '{"op":"t"}'),
        (1, 0, 2, '{"id":2}', event("c", 2)),
        (1, 1, 30, None, '{"op":"t"}'),
        (2, 0, 40, None, '{"op":"t"}'),
    ]
    assert states(events, "epoch(valid_to)::INT") == {(1, 0, 20), (2, 1, 20)}


def test_a_row_comes_back_after_a_truncation_and_a_deletion_is_no_row() -> None:
    events = [
        (0, 0, 1, '{"id":1}', event("r", 1)),
        (0, 1, 2, '{"id":1}', event("d", 1)),
        (0, 2, 2, '{"id":1}', None),
        (0, 3, 3, None, '{"op":"t"}'),
        (0, 4, 4, '{"id":1}', event("u", 1)),
        (0, 5, 5, '{"id":9}', event("m", 9)),
    ]
    assert states(events) == {(1, 0, 0, 1), (1, 0, 4, None)}


def columns_of(*rows: str) -> list[dict[str, Any]]:
    """The rows of a table of JSON events."""
    database = duckdb.connect()
    database.execute("""CREATE TABLE events(partition INT, "offset" BIGINT, timestamp TIMESTAMPTZ,
        key VARCHAR, value VARCHAR, is_tombstone BOOLEAN)""")
    for at, row in enumerate(rows):
        value = f'{{"op":"c","after":{row}}}'
        database.execute(
            "INSERT INTO events VALUES (0, ?, to_timestamp(?), ?, ?, false)",
            [at, at, f'{{"id":{at}}}', value],
        )
    assert cdc.prepare(database)
    return database.sql(cdc.CURRENT).to_arrow_table().to_pylist()


def test_integers_of_both_signs_are_integers_and_such_as_a_bigint_does_not_hold_are_texts() -> None:
    rows = columns_of('{"a":-1,"b":[18446744073709551615]}', '{"a":9223372036854775807,"b":[-1]}')
    assert rows == [{"a": -1, "b": ["18446744073709551615"]}, {"a": 2**63 - 1, "b": ["-1"]}]
    assert columns_of('{"c":18446744073709551615}') == [{"c": "18446744073709551615"}]


def test_integers_that_would_lose_digits_next_to_fractions_are_texts() -> None:
    most, past = "9007199254740992", "-9007199254740993"
    assert columns_of(f'{{"a":{most},"b":{past}}}', '{"a":1.5,"b":1.5}') == [
        {"a": 2.0**53, "b": past},
        {"a": 1.5, "b": "1.5"},
    ]
    huge = "123456789012345678901234567890"
    assert columns_of(f'{{"a":{huge}}}') == [{"a": huge}]
    rows = columns_of(f'{{"a":{{"b":[0.5,1],"c":"1,{huge},\\",{huge}"}}}}')
    assert rows == [{"a": {"b": [0.5, 1.0], "c": f'1,{huge},",{huge}'}}]


def test_columns_whose_names_differ_in_case_alone_or_are_odd_are_columns() -> None:
    rows = columns_of('{"id":1,"ID":"x","a/b~\'\\"":2,"in":{"n":1,"N":2}}')
    assert rows == [{"id": 1, "ID_2": "x", "a/b~'\"": 2, "in": '{"n":1,"N":2}'}]


def test_a_table_of_which_compaction_left_no_event_is_empty(tmp_path: Path) -> None:
    key, made = b'{"id":1}', Record(key=b'{"id":1}', value=event("c", 1).encode())
    whole = Batch((made, Record(key=key, value=event("d", 1).replace('{"id":1}', "null").encode())))
    for batch in (Batch((made,)), whole, Batch((Record(key=key, offset_delta=1),), last_offset_delta=1)):
        logs.put(tmp_path / "logs" / "t-0", 0, batch.encode())
        options = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--typed"]
        assert decode_batches.main([*options, "--mode", "cdc"]) == 0
        found = [DeltaTable(tmp_path / f"lake/{one}/t").to_pyarrow_table() for one in ("cdc", "history")]
        counts = [one.num_rows for one in found]
        assert counts == ([1, 1] if batch.records == (made,) else [0, 1] if batch is whole else [0, 0])
        assert found[0].schema.names == ["id"]
