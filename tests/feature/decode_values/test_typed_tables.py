"""Typed tables of a lake:

what serializers were given, kept up to date, errors apart, and no row lost or doubled.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from kafka_log_lake import read_segment
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.errors import LakeBusy
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.maintain import command as maintain
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.pipelines.quality_report.metrics import measure, opened
from kafka_log_lake.pipelines.sql.database import open_database
from tests.support import typed_corpus as corpus
from tests.support.answers import asked
from tests.support.logs import put
from tests.support.segment_maker import Batch, Record
from tests.unit.values.test_payloads import same

TOPICS = (
    "avro-evolution",
    "avro-names",
    "err-avro",
    "err-ids",
    "mix-all",
    "pb-kinds",
    "plain-text",
    "hdr-guid",
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of some topics with their registry, and its typed tables."""
    root = tmp_path_factory.mktemp("typed")
    corpus.copy((*TOPICS, "_schemas"), root / "logs")
    decode(root)
    assert typed(root) == 0
    return root


def decode(root: Path, *options: str) -> None:
    logs, lake = str(root / "logs"), str(root / "lake")
    assert decode_batches.main(["--source", logs, "--lake", lake, "--no-typed", *options]) == 0


def typed(root: Path, *options: str) -> int:
    return decode_values.main(["--lake", str(root / "lake"), *options])


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(root / "lake" / table).to_pyarrow_table().to_pylist()
    return found


def versions(root: Path) -> dict[str, int]:
    paths = [*(f"typed/{topic}" for topic in TOPICS), "value_errors", "schemas"]
    return {path: DeltaTable(root / "lake" / path).version() for path in paths}


def test_decode_makes_typed_tables_by_itself_where_the_sources_have_schemas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.copy(("err-avro", "mix-all"), tmp_path / "logs")
    arguments = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--cores", "1"]
    assert decode_batches.main(arguments) == 0
    assert not (tmp_path / "lake/typed").exists()
    said = capsys.readouterr().out
    assert "verdict: sound" in said
    assert "key_text, value_text FROM messages WHERE topic = 'mix-all' LIMIT 10" in said

    corpus.copy(("_schemas",), tmp_path / "logs")
    assert decode_batches.main(arguments) == 0
    said = capsys.readouterr().out
    errors = len(rows(tmp_path, "value_errors"))
    assert errors
    assert f"not checked: {errors} values that could not be decoded (table value_errors)" in said
    sent = {topic: len(corpus.records(topic)) for topic in ("mix-all", "err-avro")}
    line = ", ".join(f'typed."{topic}" ({count})' for topic, count in sent.items())
    assert f"2 typed tables ({sum(sent.values())} records): {line}\n" in said
    assert len(rows(tmp_path, "typed/mix-all")) == sent["mix-all"]

    assert decode_batches.main([*arguments, "--json"]) == 0  # nothing is new, and the errors are still there
    found = json.loads(capsys.readouterr().out)
    assert (found["typed"], found["value_errors"]) == ([], errors)


def test_a_query_of_the_summary_runs_as_it_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.copy(("_schemas", "pb-kinds"), tmp_path / "logs")
    arguments = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--cores", "1"]
    assert decode_batches.main(arguments) == 0
    last = [line for line in capsys.readouterr().out.splitlines() if " query --lake" in line][-1]
    # in a process of its own: beside a session of Spark the statement would be Spark's
    command = [sys.executable, "-m", "kafka_log_lake", *shlex.split(last)[1:]]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "value_schema_id" in shown


def test_typed_tables_that_can_not_be_made_do_not_stop_decode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.copy(("_schemas", "pb-kinds"), tmp_path / "logs")
    arguments = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--cores", "1"]

    def is_busy(*_: object) -> None:
        raise LakeBusy("lake")

    monkeypatch.setattr(decode_values, "update", is_busy)
    assert decode_batches.main(arguments) == 0
    assert "not all typed tables were updated: another run is writing" in capsys.readouterr().err
    assert decode_batches.main([*arguments, "--typed"]) == 2

    monkeypatch.undo()
    log = tmp_path / "lake/typed/pb-kinds/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON")
    assert decode_batches.main(arguments) == 0
    printed = capsys.readouterr()
    assert "not all typed tables were updated: " in printed.err
    assert printed.out.splitlines()[-1].startswith("verdict: sound")
    assert decode_batches.main([*arguments, "--typed"]) == 1


@pytest.mark.parametrize("topic", TOPICS)
def test_each_record_is_one_row(lake: Path, topic: str) -> None:
    found = Counter((row["partition"], row["offset"]) for row in rows(lake, f"typed/{topic}"))
    assert found == Counter(corpus.records(topic).keys())


def test_versions_of_a_schema_are_one_struct_and_new_fields_are_null_in_old_rows(lake: Path) -> None:
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle("avro-evolution")}
    for row in rows(lake, "typed/avro-evolution"):
        line = sent[row["partition"], row["offset"]]
        assert row["value_schema_id"] == line["value_schema"]["id"]
        assert row["value"]["vendor"] == line["value"].get("vendor")
        # the latest version has rank as an alias of target
        assert row["value"]["target"] == line["value_as_latest"]["target"]
        assert "rank" not in row["value"]


def test_errors_are_rows_with_their_reason_and_bytes(lake: Path) -> None:
    errors = rows(lake, "value_errors")
    found = {(row["topic"], row["partition"], row["offset"]): row["reason"] for row in errors}
    expected = {
        (topic, line["partition"], line["offset"]): line["error"]
        for topic in TOPICS
        for line in corpus.oracle(topic)
        if "error" in line and not line.get("any_error") and not line.get("ambiguous")
    }
    assert {place: found.get(place) for place in expected} == expected
    payloads = {
        (topic, *place): row["value"] for topic in TOPICS for place, row in corpus.records(topic).items()
    }
    assert all(row["content"] == payloads[row["topic"], row["partition"], row["offset"]] for row in errors)
    tables = {(t, row["partition"], row["offset"]): row for t in TOPICS for row in rows(lake, f"typed/{t}")}
    assert all(tables[place]["value"] is None and not tables[place]["is_tombstone"] for place in found)


def test_the_quality_report_counts_errors_by_partition(lake: Path) -> None:
    with opened(published_tables(str(lake / "lake"))) as database:
        found = measure(
            database, [one for one in CHECKS if one.name == "value_errors"], "r", datetime.now(UTC)
        )
    values = {(r["topic"], r["partition"]): r["value"] for r in found.to_pylist() if r["segment"] is None}
    errors = Counter((row["topic"], row["partition"]) for row in rows(lake, "value_errors"))
    assert {place: value for place, value in values.items() if value} == errors
    assert len(values) > len(errors)


def test_names_that_differ_in_case_alone_are_columns_of_their_own(lake: Path) -> None:
    fields = DeltaTable(lake / "lake/typed/avro-names").to_pyarrow_table().schema.field("value").type
    names = [field.name.casefold() for field in fields]
    assert len(names) == len(set(names))


def test_schemas_are_a_table_with_deleted_ones(lake: Path) -> None:
    found = {
        (row["subject"], row["version"]): row for row in rows(lake, "schemas") if row["deleted"] != "replaced"
    }
    for line in corpus.oracle("_schemas"):
        deleted = {False: None, True: "soft"}.get(line["deleted"], line["deleted"])
        assert found[line["subject"], line["version"]]["deleted"] == deleted


def test_typed_tables_have_their_names_in_sql(lake: Path) -> None:
    statement = """SELECT count(*), count(DISTINCT t.value.target) FROM typed."avro-evolution" t
        JOIN records r ON r.topic = 'avro-evolution'
        AND r.partition = t.partition AND r.offset = t."offset" """
    sent = corpus.oracle("avro-evolution")
    targets = {line["value_as_latest"]["target"] for line in sent}
    assert asked(lake / "lake", statement) == [(len(sent), len(targets))]
    statement = "SELECT reason, count(*) FROM value_errors WHERE topic = 'err-avro' GROUP BY ALL"
    expected = Counter(line["error"] for line in corpus.oracle("err-avro") if "error" in line)
    assert dict(asked(lake / "lake", statement)) == expected


def test_functions_of_sql_decode_by_the_lake_s_schemas(lake: Path) -> None:
    by_place = {(line["partition"], line["offset"]): line for line in corpus.oracle("avro-evolution")}
    statement = """SELECT partition, r.offset, kafka_value(value, topic),
        avro_to_json(value, confluent_schema_id(value)), avro_to_json(value[6:], confluent_schema_id(value)),
        schema_of(confluent_schema_id(value)) FROM records r WHERE topic = 'avro-evolution'"""
    found = asked(lake / "lake", statement)
    assert len(found) == len(by_place)
    for partition, offset, *decoded, schema in found:
        line = by_place[partition, offset]
        assert all(same(json.loads(one), line["value"]) for one in decoded)
        assert json.loads(schema)["type"] == "record"
    statement = """SELECT kafka_value(NULL, 'x'), kafka_value('\\x00\\x7F\\xFF\\xFF\\xFF'::BLOB, 'x'),
        avro_to_json('\\xFF'::BLOB, 1), schema_of(2147483647)"""
    assert asked(lake / "lake", statement) == [(None, None, None, None)]


def profile(lake: Path) -> list[dict[str, Any]]:
    statement = "SELECT * FROM payload_profile ORDER BY topic, side, format"
    found: pa.Table = open_database(str(lake), statement).sql(statement).to_arrow_table()
    return list(found.to_pylist())


def test_the_profile_says_what_payloads_are_and_how_many_decode(lake: Path) -> None:
    found = profile(lake / "lake")
    for topic, format_ in (("avro-evolution", "avro"), ("pb-kinds", "protobuf"), ("err-avro", "avro")):
        lines = [line for line in corpus.oracle(topic) if line["value_format"] == format_]
        (row,) = (r for r in found if (r["topic"], r["side"], r["format"]) == (topic, "value", format_))
        assert row["payloads"] == len(lines)
        assert row["decoded"] == sum("error" not in line for line in lines)
        assert row["decoded_share"] == row["decoded"] / row["payloads"]
        assert set(row["schema_ids"]) == {
            line["value_schema"]["id"] for line in lines if "value_schema" in line
        }
        assert row["certainty"] == "schema"
        places = {(line["partition"], line["offset"]): line for line in lines}
        example = places[row["example_partition"], row["example_offset"]]
        assert same(json.loads(row["example"]), example["value"])
    (row,) = (r for r in found if (r["topic"], r["side"], r["format"]) == ("plain-text", "value", "text"))
    assert row["certainty"] == "look"


def test_the_profile_names_the_certainty_of_the_surest_payload(tmp_path: Path) -> None:
    framed = b"\0\0\0\0\7abc"  # by Confluent's framing, of a schema that is not at hand
    values = (b"\xff\xfe", framed, b"\xff\xfd")
    put(tmp_path / "logs" / "mixed-0", 0, Batch([Record(value=one) for one in values]).encode())
    decode(tmp_path)
    found = profile(tmp_path / "lake")
    said = [(row["format"], row["certainty"], row["payloads"], row["schema_ids"]) for row in found]
    assert said == [("bytes", "framing", 3, [7])]


def test_the_example_of_several_copies_is_of_the_first_folder(tmp_path: Path) -> None:
    for copy, value, count in (("a", b"[1]", 5000), ("b", b"[2]", 1)):
        put(tmp_path / "logs" / copy / "t-0", 0, Batch([Record(value=value)] * count).encode())
    decode(tmp_path)
    (row,) = profile(tmp_path / "lake")
    assert (row["payloads"], row["example_offset"], row["example"]) == (5001, 0, "[1]")


def value_ids(topic: str) -> set[int]:
    return {line["value_schema"]["id"] for line in corpus.oracle(topic) if "value_schema" in line}


def test_messages_say_what_each_key_and_value_is(lake: Path) -> None:
    for topic in ("avro-evolution", "pb-kinds", "hdr-guid"):
        sent = {(line["partition"], line["offset"]): line for line in corpus.oracle(topic)}
        columns = 'partition, "offset", value_format, value_schema_id'
        found = asked(lake / "lake", f"SELECT {columns} FROM messages WHERE topic = '{topic}'")
        assert len(found) == len(sent)
        for partition, offset, format_, id_ in found:
            line = sent[partition, offset]
            assert format_ == line["value_format"]
            assert id_ == line.get("value_schema", {}).get("id")


def test_the_quality_report_names_formats_and_schemas(lake: Path, tmp_path: Path) -> None:
    assert (
        quality_report.main(["--lake", str(lake / "lake"), "--output", str(tmp_path), "--fail-on", "never"])
        == 0
    )
    payloads = json.loads((tmp_path / "quality.json").read_text())["payloads"]
    values = {(r["topic"], r["format"]): r for r in payloads if r["side"] == "value"}
    for topic, format_ in (("avro-evolution", "avro"), ("pb-kinds", "protobuf")):
        row = values[topic, format_]
        assert set(row["schema_ids"]) <= value_ids(topic)
        assert 0 < row["payloads"] == row["decoded"]
    assert "truncated" in values["err-avro", "avro"]["reasons"]
    page, text = ((tmp_path / f"quality.{suffix}").read_text() for suffix in ("html", "md"))
    assert "by schemas " + ", ".join(map(str, values["avro-evolution", "avro"]["schema_ids"])) in text
    assert "Keys and values" in page
    assert "protobuf" in page


def test_a_long_run_says_how_far_it_is(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_log_lake.pipelines.cli.status._FIRST_AFTER", 0.0)
    monkeypatch.setattr("kafka_log_lake.pipelines.cli.status._EVERY", 0.01)
    shutil.copytree(lake / "lake", tmp_path / "lake")
    assert typed(tmp_path, "--value-columns", "flat") == 0
    assert f"decoding values: topic 1 of {len(TOPICS)}, {min(TOPICS)}" in capsys.readouterr().err


def test_a_second_run_writes_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = versions(lake)
    assert typed(lake) == 0
    assert "nothing new" in capsys.readouterr().out
    assert versions(lake) == before


def test_a_log_that_grows_adds_rows_and_one_that_is_decoded_again_doubles_none(tmp_path: Path) -> None:
    folder = next(one for one in corpus.folders("pb-kinds") if one.name.endswith("-0"))
    segment, target = folder / f"{0:020d}.log", tmp_path / "logs" / folder.name / f"{0:020d}.log"
    target.parent.mkdir(parents=True)
    for copied in corpus.folders("_schemas"):
        shutil.copytree(copied, tmp_path / "logs" / copied.name)
    whole = segment.read_bytes()
    first = 12 + int.from_bytes(whole[8:12], "big")  # bytes of its first batch
    target.write_bytes(whole[:first])
    decode(tmp_path)
    assert typed(tmp_path) == 0
    expected = read_segment(segment, columns=["offset"])["offset"].to_pylist()
    assert 0 < len(rows(tmp_path, "typed/pb-kinds")) < len(expected)
    target.write_bytes(whole)
    decode(tmp_path)
    assert typed(tmp_path) == 0
    assert sorted(row["offset"] for row in rows(tmp_path, "typed/pb-kinds")) == expected
    decode(tmp_path, "--redecode", ".*pb-kinds.*")
    assert typed(tmp_path) == 0
    assert sorted(row["offset"] for row in rows(tmp_path, "typed/pb-kinds")) == expected


def test_schemas_that_come_later_mend_errors_and_no_row_is_doubled(tmp_path: Path) -> None:
    corpus.copy(("avro-evolution",), tmp_path / "logs")
    decode(tmp_path)
    assert typed(tmp_path) == 0
    payloads = len(corpus.records("avro-evolution"))
    assert {row["reason"] for row in rows(tmp_path, "value_errors")} == {"unknown_id"}
    export = tmp_path / "export.json"
    listed = listed_schemas("avro-evolution-value")
    export.write_text(json.dumps(listed))
    assert typed(tmp_path, "--schemas", str(export)) == 0
    found = rows(tmp_path, "typed/avro-evolution")
    assert len(found) == payloads
    assert all(row["value"] is not None for row in found)
    assert rows(tmp_path, "value_errors") == []


def listed_schemas(subject: str) -> list[dict[str, Any]]:
    return [
        {"subject": s.subject, "version": s.version, "id": s.id, "schemaType": s.type, "schema": s.text}
        for s in corpus.registry().schemas
        if s.subject == subject
    ]


def test_versions_stay_as_they_were_where_a_schema_comes_later(tmp_path: Path) -> None:
    """Also where the new values need no new column."""
    corpus.copy(("avro-evolution",), tmp_path / "logs")
    decode(tmp_path)
    export = tmp_path / "export.json"
    listed = listed_schemas("avro-evolution-value")
    nulls = []
    for known in (listed[1:], listed):
        export.write_text(json.dumps(known))
        assert typed(tmp_path, "--schemas", str(export)) == 0
        path = tmp_path / "lake/typed/avro-evolution"
        for version in range(1, DeltaTable(path).version() + 1):
            table = DeltaTable(path, version=version).to_pyarrow_table()
            nulls.append(table.filter(~pc.field("is_tombstone"))["value"].null_count)
    assert nulls[0] == nulls[1] > nulls[2] == 0


def test_every_version_is_right_where_columns_change(tmp_path: Path) -> None:
    """A new type of a column comes with all rows in one commit."""
    parts = sorted(corpus.folders("mix-all"))
    for folder in (*corpus.folders("_schemas"), parts[0]):
        shutil.copytree(folder, tmp_path / "logs" / folder.name)
    decode(tmp_path)
    assert typed(tmp_path) == 0
    for folder in parts[1:]:
        shutil.copytree(folder, tmp_path / "logs" / folder.name)
    decode(tmp_path)
    assert typed(tmp_path) == 0
    path = tmp_path / "lake/typed/mix-all"
    counts = [
        DeltaTable(path, version=version).to_pyarrow_table().num_rows
        for version in range(DeltaTable(path).version() + 1)
    ]
    first = sum(
        partition == int(parts[0].name.rpartition("-")[2]) for partition, _ in corpus.records("mix-all")
    )
    assert counts == [0, first, len(corpus.records("mix-all"))]


@pytest.mark.parametrize("text", ["{}", "[{}]", "no json", '[{"subject": 1}]'])
def test_a_file_that_is_no_export_is_one_line(
    lake: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    export = tmp_path / "export.json"
    export.write_text(text)
    assert typed(lake, "--schemas", str(export)) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: --schemas: ")
    assert len(error.splitlines()) == 1


def test_the_columns_of_a_typed_table_are_those_of_the_contract(lake: Path) -> None:
    schema = DeltaTable(lake / "lake/typed/hdr-guid").to_pyarrow_table().schema
    names = ["partition", "offset", "timestamp", "headers", "segment", "key", "value", "is_tombstone"]
    assert schema.names == [*names, "key_schema_id", "value_schema_id"]
    assert schema.field("key").type == pa.int64()


def test_upkeep_and_merges_by_another_tool_lose_and_double_no_row(tmp_path: Path) -> None:
    corpus.copy(("err-avro", "_schemas"), tmp_path / "logs")
    decode(tmp_path)
    assert typed(tmp_path) == 0

    def state() -> list[Counter[str]]:
        tables = (rows(tmp_path, name) for name in ("value_errors", "typed/err-avro"))
        return [Counter(f"{row['partition']}:{row['offset']}" for row in table) for table in tables]

    def files(table: str) -> int:
        return sum("_delta_log" not in one.parts for one in (tmp_path / "lake" / table).rglob("*.parquet"))

    before = state()
    assert len({row["partition"] for row in rows(tmp_path, "value_errors")}) == 2
    for merge in (
        lambda: maintain.main(["--lake", str(tmp_path / "lake"), "--vacuum-hours", "0"]),
        lambda: DeltaTable(tmp_path / "lake/value_errors").optimize.compact(),
        lambda: DeltaTable(tmp_path / "lake/typed/err-avro").optimize.compact(),
    ):
        merge()
        decode(tmp_path, "--redecode", "err-avro-0")
        assert typed(tmp_path) == 0
        assert state() == before
    assert files("typed/err-avro") > 2
    assert maintain.main(["--lake", str(tmp_path / "lake"), "--vacuum-hours", "0"]) == 0
    assert files("typed/err-avro") == 2  # the others were replaced
    assert typed(tmp_path) == 0
    assert state() == before
