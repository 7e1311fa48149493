"""``find --typed``: keys and values of matches by the registry next to the logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.find import command as find
from tests.support import logs
from tests.support import typed_corpus as corpus
from tests.support.segment_maker import Batch, Record
from tests.unit.values.test_payloads import same

FIELDS = ("key_typed", "value_typed", "key_schema_id", "value_schema_id", "key_error", "value_error")


def found(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert find.main([*argv, "--format", "json", "--typed"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("topic", ["avro-unions", "err-avro", "plain-json-odd", "kv-avro-pb", "hdr-errors"])
def test_matches_have_their_values_or_their_errors(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = found(capsys, str(corpus.DATA), "--topics", topic)
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle(topic)}
    assert len(lines) == len(sent)
    for line in lines:
        expected = sent[line["partition"], line["offset"]]
        if expected.get("note") == "lone surrogate escape":
            expected = {**expected, "error": "invalid_json"}
        assert line["value_error"] == expected.get("error")
        if "error" not in expected:
            assert line["value_format"] == expected["value_format"]
            assert same(line["value_typed"], expected["value"])
        assert same(line["key_typed"], expected["key"])


def test_the_registry_next_to_a_partition_folder_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    lines = found(capsys, str(corpus.DATA / "avro-unions-0"), "--limit", "1")
    assert lines[0]["value_schema_id"] is not None
    assert set(FIELDS) < lines[0].keys()


def test_typed_is_for_formats_that_can_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert find.main([str(corpus.DATA), "--typed", "--format", "csv"]) == 2
    assert "--format table or json" in capsys.readouterr().err


def test_the_table_shows_values_or_why_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("pb-kinds", "err-avro"):
        assert find.main([str(corpus.DATA), "--topics", topic, "--typed", "--partition", "0"]) == 0
        shown = capsys.readouterr().out.splitlines()[1::2]
        sent = [line for line in corpus.oracle(topic) if line["partition"] == 0]
        assert len(shown) == len(sent)
        for line, expected in zip(shown, sent, strict=True):
            error = expected.get("error")
            assert (f"({error})" in line) if error else ("protobuf {" in line or "avro " in line)


def test_where_json_and_as_topic_are_names_of_json_and_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = logs.put(tmp_path / "loose", 0, Batch((Record(value=b'{"a": 1}'), Record(value=b"x"))).encode())
    lines = []
    for where, topic in (("--json", "--topic"), ("--where-json", "--as-topic")):
        argv = [str(segment), where, "a=1", topic, "orders", "--partition", "0", "--format", "json"]
        assert find.main(argv) == 0
        lines.append(capsys.readouterr().out)
        assert find.main([*argv[:1], "--not", *argv[1:]]) == 0
        lines.append(capsys.readouterr().out)
    assert lines[:2] == lines[2:]
    assert json.loads(lines[0])["topic"] == "orders"


@pytest.mark.parametrize("topic", ["avro-evolution", "pb-kinds", "hdr-guid", "json-schema"])
def test_conditions_look_into_values_that_schemas_describe(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = [line for line in corpus.oracle(topic) if "error" not in line and isinstance(line["value"], dict)]
    values = sent[0]["value"].items()
    name, wanted = next(one for one in values if type(one[1]) in (str, int))
    expected = {(one["partition"], one["offset"]) for one in sent if one["value"].get(name) == wanted}
    argv = (str(corpus.DATA), "--topics", topic)
    lines = found(capsys, *argv, "--json", f"$['{name}']={wanted}")
    assert {(line["partition"], line["offset"]) for line in lines} == expected
    others = found(capsys, *argv, "--not", "--json", f"$['{name}']={wanted}")
    assert len(others) + len(lines) == len(corpus.oracle(topic))


def test_conditions_take_schemas_from_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "city", "type": "string"}]}
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "places@7.avsc").write_text(json.dumps(schema))
    values = [b"\0\0\0\0\7\x08Oslo", b"\0\0\0\0\7\x0aLagos", b'{"city": "Oslo"}']
    records = [Record(value=one, offset_delta=at) for at, one in enumerate(values)]
    logs.put(tmp_path / "logs" / "places-0", 0, Batch(records=records).encode())
    argv = (str(tmp_path / "logs"), "--schemas", str(tmp_path / "schemas"), "--json", "city=Oslo")
    assert [line["offset"] for line in found(capsys, *argv)] == [0, 2]


def test_a_value_that_mirror_maker_did_not_write_stands_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = b"\0\1g\0\1t\0\0\0\1"
    checkpoint = b"\0\0" + bytes(7) + b"\5" + bytes(7) + b"\6" + b"\0\0"
    values = [b'{"partition": 3}', b"text", b"[1, 2]", checkpoint, None]
    records = [Record(key=key, value=value, offset_delta=at) for at, value in enumerate(values)]
    logs.put(tmp_path / "a.checkpoints.internal-0", 0, Batch(records=records).encode())
    place = {"consumerGroupId": "g", "topic": "t", "partition": 1}
    lines = found(capsys, str(tmp_path))
    assert [line["value_typed"] for line in lines[:3]] == [{"partition": 3}, "text", [1, 2]]
    assert [line["key_typed"] for line in lines[:3]] == [place] * 3
    assert [line["record_typed"] for line in lines[:3]] == [None] * 3
    assert {line["record_typed"]["topicPartition"] for line in lines[4:]} == {"t-1"}
