"""Every message of the internal topics, held to Kafka's own classes: what they write, and what they read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kafka_log_lake.udfs.values.internal.definitions import MessageDefinition, as_of, definitions
from kafka_log_lake.udfs.values.internal.readers import UNKNOWN_TAGS, message_reader
from kafka_log_lake.udfs.values.internal.topics import TOPICS, InternalRecord, record_reader
from tests.kafka import broker
from tests.kafka import messages as kafka
from tests.kafka.messages import Filled
from tests.support.kafka_messages import FILES, changed, filled, versioned
from tools import message_definitions

# How many fillings of a message in one version, and changes of each record
_FILLINGS, _CHANGES = 12, 6


@pytest.mark.parametrize("release", [broker.OLDEST, broker.NEWEST])
def test_the_bundled_definitions_are_those_in_kafkas_jars(release: str) -> None:
    """If this fails: make definitions"""
    in_jars = message_definitions.definitions(broker.broker_jars(release))
    found = {name: [as_of(one, release) for one in definitions(name)] for name in in_jars}
    assert {name: [one for one in of_file if one] for name, of_file in found.items()} == in_jars


def _fillings(file: str) -> list[tuple[MessageDefinition, Filled]]:
    """Each message of a file in each version: with Kafka's defaults, then filled at random."""
    random = Random(file)
    made = []
    for message, version in versioned(file):
        made.append((message, Filled(file, message.name, version, None)))
        for _ in range(_FILLINGS):
            fields = filled(message.fields, version, random)
            made.append((message, Filled(file, message.name, version, fields)))
    return made


def known(fields: Any) -> Any:
    """Fields without the tags that no definition knows: Kafka's JSON leaves them out."""
    if isinstance(fields, dict):
        return {name: known(value) for name, value in fields.items() if name != UNKNOWN_TAGS}
    return [known(item) for item in fields] if isinstance(fields, list) else fields


@pytest.mark.parametrize("file", FILES)
def test_what_kafka_writes_is_read_field_by_field(file: str) -> None:
    fillings = _fillings(file)
    answers = kafka.written(message for _, message in fillings)
    for (message, requested), (stored, fields) in zip(fillings, answers, strict=True):
        read = message_reader(message, requested.version)(stored, 0)
        assert read == (fields, len(stored)), f"{requested.name} version {requested.version}: {stored.hex()}"


def _records(file: str) -> list[tuple[bytes | None, bytes | None]]:
    """Records of a topic: each value, with a key of its type and what precedes both."""
    fillings = _fillings(file)
    stored = [data for data, _ in kafka.written(requested for _, requested in fillings)]
    keys: dict[int, list[bytes]] = {}
    for (message, _), data in zip(fillings, stored, strict=True):
        if message.kind == "coordinator-key":
            keys.setdefault(message.api_key, []).append(message.api_key.to_bytes(2, "big") + data)
    records: list[tuple[bytes | None, bytes | None]] = []
    for index, ((message, requested), data) in enumerate(zip(fillings, stored, strict=True)):
        if message.kind == "coordinator-value":
            of_type = keys[message.api_key]
            records.append((of_type[index % len(of_type)], requested.version.to_bytes(2, "big") + data))
            records.append((of_type[index % len(of_type)], None))
        elif message.kind == "metadata":
            records.append((None, bytes([1, message.api_key, requested.version]) + data))
    return records


def _agrees(ours: InternalRecord, kafkas: dict[str, Any]) -> bool:
    problem = ours.problem or ""
    if "error" in kafkas:
        return bool(problem) and (ours.value is None)
    if problem and "the message ends at" not in problem:
        # Kafka's metadata classes read a version that they do not know as their newest, as far as it goes
        return "is not known" in problem and "version" in problem and ours.key is None
    same = known(ours.value) == kafkas.get("value") and known(ours.key) == kafkas.get("key")
    return same and ours.version == kafkas.get("version")


@pytest.mark.parametrize("topic", TOPICS)
def test_changed_records_are_read_as_kafka_reads_them_or_have_a_reason(topic: str) -> None:
    random = Random(topic)
    records = _records(topic.strip("_"))
    for key, value in list(records):
        for _ in range(_CHANGES):
            if key is not None and (value is None or random.random() < 0.3):
                records.append((changed(key, random), value))
            elif value is not None:
                records.append((key, changed(value, random)))
    answers = kafka.read((topic, key, value) for key, value in records)
    read = record_reader(topic)
    refused = 0
    for (key, value), theirs in zip(records, answers, strict=True):
        ours = read(key, value)
        assert _agrees(ours, theirs), f"{key!r} {value!r}: {ours}, Kafka: {theirs}"
        refused += "error" in theirs
    assert 0 < refused < len(records)
