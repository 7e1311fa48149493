"""Kept tables: the source tables of Debezium's events at every moment, and the newest row of each key."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pytest
from deltalake import DeltaTable

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import cdc
from kafka_log_lake.pipelines.decode_values import command as decode_values
from tests.support import logs
from tests.support import typed_corpus as corpus
from tests.support.drawn import first
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


@pytest.mark.parametrize("topic", first(3, TABLES))
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


def prepared(events: Sequence[tuple[int, int, int, str | None, str | None]]) -> duckdb.DuckDBPyConnection:
    """A database with the states of events: partition, offset, seconds, key, value."""
    database = duckdb.connect()
    database.execute("""CREATE TABLE events(partition INT, "offset" BIGINT, timestamp TIMESTAMPTZ,
        key VARCHAR, value VARCHAR, is_tombstone BOOLEAN, raw_key BLOB, key_schema_id INT)""")
    for partition, offset, seconds, key, value in events:
        database.execute(
            "INSERT INTO events VALUES ($1, $2, to_timestamp($3), $4, $5, $5 IS NULL, encode($4), NULL)",
            [partition, offset, seconds, key, value],
        )
    assert cdc.prepare(database)
    return database


def states(
    events: Sequence[tuple[int, int, int, str | None, str | None]], columns: str = "from_offset, to_offset"
) -> set[tuple[Any, ...]]:
    """(key, partition, and columns) of events: partition, offset, seconds, key, value."""
    database = prepared(events)
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


def test_a_key_whose_partition_changed_has_one_row_of_its_newest_event() -> None:
    events = [
        (0, 0, 10, '{"id":1}', event("c", 1)),
        (0, 1, 20, '{"id":2}', event("c", 2)),
        (0, 2, 50, '{"id":3}', event("c", 3)),
        (1, 0, 30, '{"id":1}', event("u", 1)),
        (1, 1, 40, '{"id":2}', event("d", 2)),
    ]
    assert states(events) == {(1, 0, 0, 1), (2, 0, 1, 1), (3, 0, 2, None), (1, 1, 0, None)}
    assert states(events, "epoch(valid_to)::INT") == {(1, 0, 30), (2, 0, 40), (3, 0, None), (1, 1, None)}


def test_at_the_moment_of_a_truncation_rows_after_it_in_its_partition_stay() -> None:
    events = [
        (0, 0, 10, '{"id":1}', event("c", 1)),
        (0, 1, 10, None, '{"op":"t"}'),
        (0, 2, 10, '{"id":2}', event("c", 2)),
        (1, 0, 10, '{"id":3}', event("c", 3)),
        (1, 1, 11, '{"id":2}', event("m", 2)),
    ]
    assert states(events) == {(1, 0, 0, 1), (2, 0, 2, None), (3, 1, 0, 0)}


def test_a_key_may_be_a_text_that_is_no_json() -> None:
    events = [(0, at, at, key, event("c", at)) for at, key in enumerate(("Struct{id=0}", "b", "b"))]
    assert prepared(events).sql(cdc.CURRENT).fetchall() == [(0,), (2,)]


def columns_of(*rows: str) -> list[dict[str, Any]]:
    """The rows of a table of JSON events."""
    events = [(0, at, at, f'{{"id":{at}}}', f'{{"op":"c","after":{row}}}') for at, row in enumerate(rows)]
    database = prepared(events)
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


def test_decode_prints_which_tables_of_its_mode_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.put(tmp_path / "plain" / "p-0", 0, Batch([Record(b"k", b"v")]).encode())
    options = ["--lake", str(tmp_path / "lake"), "--typed", "--mode", "cdc"]
    assert decode_batches.main(["--source", str(tmp_path / "plain"), *options]) == 0
    assert "\nno table of --mode cdc was written: " in capsys.readouterr().out
    decoded(tmp_path, {"t": [Record(b'{"id":1}', event("c", 1).encode())]})
    printed = capsys.readouterr().out
    assert f"\nwritten: {tmp_path}/lake/cdc/t\nwritten: {tmp_path}/lake/history/t\n" in printed


def decoded(root: Path, topics: Mapping[str, Sequence[Record]], *options: str) -> list[dict[str, Any]]:
    """The rows of ``cdc/t``."""
    for topic, records in topics.items():
        logs.put(root / "logs" / f"{topic}-0", 0, Batch(records).encode())
    arguments = ["--source", str(root / "logs"), "--lake", str(root / "lake"), "--typed", "--mode", "cdc"]
    assert decode_batches.main([*arguments, *options]) == 0
    rows: list[dict[str, Any]] = DeltaTable(root / "lake/cdc/t").to_pyarrow_table().to_pylist()
    return rows


def test_values_that_do_not_fit_inferred_types_are_in_the_source_table_too(tmp_path: Path) -> None:
    afters = ('{"id":1,"a":"x","b":-0.0}', '{"id":2,"a":5}', '{"id":3,"c":[1,{"d":null}]}')
    made = [Record(b"%d" % at, b'{"op":"c","after":%b}' % one.encode()) for at, one in enumerate(afters)]
    rows = decoded(tmp_path, {"t": made}, "--json-values", "infer")
    assert [(row["id"], row["a"], row["c"]) for row in rows] == [
        (1, "x", None),
        (2, "5", None),
        (3, None, ["1", '{"d":null}']),
    ]
    assert str(rows[0]["b"]) == "-0.0"


def schema_of(name: str, fields: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """An envelope of Avro."""
    row = {"type": "record", "name": "Value", "fields": fields}
    after = {"name": "after", "type": ["null", row], "default": None}
    named = {"type": "record", "name": "Envelope", "namespace": name}
    return {**named, "fields": [after, {"name": "op", "type": "string"}]}


def registered(subject: str, id_: int, schema: Mapping[str, Any], version: int = 1) -> Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": id_, "schema": json.dumps(schema)}
    return Record(json.dumps(key).encode(), json.dumps(value).encode())


def of_schema(id_: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bi", 0, id_) + out.getvalue()


def test_several_source_tables_in_a_topic_are_columns_by_their_types(tmp_path: Path) -> None:
    a = schema_of("db.a", [{"name": "id", "type": "int"}])
    b = schema_of("db.b", [{"name": "of", "type": "string"}])
    registry = [registered("db.a.Envelope", 1, a), registered("db.b.Envelope", 2, b)]
    made = [
        Record(b"a1", of_schema(1, a, {"op": "c", "after": {"id": 1}})),
        Record(b"b1", of_schema(2, b, {"op": "r", "after": {"of": "x"}})),
        Record(b"a2", of_schema(1, a, {"op": "c", "after": {"id": 2}})),
        Record(b"a1", of_schema(1, a, {"op": "d", "after": None})),
    ]
    assert decoded(tmp_path, {"_schemas": registry, "t": made}) == [
        {"db_a_Envelope": None, "db_b_Envelope": {"of": "x"}},
        {"db_a_Envelope": {"id": 2}, "db_b_Envelope": None},
    ]


def test_a_row_is_of_the_bytes_of_its_key_under_whatever_id_its_schema_has(tmp_path: Path) -> None:
    """A key schema that is registered again has another id; 0.0 and -0.0 are two keys to Kafka."""
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "double"}]}
    again = {**key, "doc": "the connector was set up anew"}
    registry = [registered("t-key", 1, key), registered("t-key", 2, again, 2)]
    events = [
        (1, 0.0, event("c", 1)),
        (1, -0.0, event("c", 2)),
        (1, 7.0, event("c", 3)),
        (2, 7.0, event("u", 4)),
        (2, 0.0, event("d", 1).replace('{"id":1}', "null")),
    ]
    made = [Record(of_schema(id_, key, {"id": at}), value.encode()) for id_, at, value in events]
    assert decoded(tmp_path, {"_schemas": registry, "t": made}) == [{"id": 2}, {"id": 4}]


def test_rows_without_columns_and_rows_of_keys_that_no_schema_reads_are_rows(tmp_path: Path) -> None:
    schema = schema_of("db", [])
    events = [of_schema(1, schema, {"op": op, "after": after}) for op, after in (("c", {}), ("d", None))]
    keys = (b"\0\0\0\0\7a", b"\0\0\0\0\7b")  # of an id that no schema has
    made = [Record(keys[0], events[0]), Record(keys[1], events[0]), Record(keys[0], events[1])]
    rows = decoded(tmp_path, {"_schemas": [registered("t-value", 1, schema)], "t": made})
    assert rows == [{"after": True}]
