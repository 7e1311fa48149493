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
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.errors import LakeBusy
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.pipelines.quality_report.metrics import measure, opened
from kafka_log_lake.pipelines.sql.database import open_database
from tests.support import typed_corpus as corpus
from tests.support.answers import asked
from tests.support.logs import put
from tests.support.segment_maker import Batch, Record
from tests.support.typed_lake import decode, rows, typed, versions
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
    assert f"{len(payloads) - 15} more formats: all are in" in page


def test_a_long_run_says_how_far_it_is(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_log_lake.pipelines.cli.status._FIRST_AFTER", 0.0)
    monkeypatch.setattr("kafka_log_lake.pipelines.cli.status._EVERY", 0.01)
    shutil.copytree(lake / "lake", tmp_path / "lake")
    assert typed(tmp_path, "--value-columns", "flat") == 0
    assert f"decoding values: topic 1 of {len(TOPICS)}, {min(TOPICS)}" in capsys.readouterr().err


def test_a_second_run_writes_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = versions(lake, TOPICS)
    assert typed(lake) == 0
    assert "nothing new" in capsys.readouterr().out
    assert versions(lake, TOPICS) == before


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
