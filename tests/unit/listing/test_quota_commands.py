"""Quotas of a metadata log as commands of Kafka's tools: each entity is one that the broker had."""

from __future__ import annotations

import shlex

import pytest

from kafka_log_lake.pipelines.listing.cluster_state import ClusterState
from kafka_log_lake.pipelines.recover.state_files import commands

USER, CLIENT, IP = ("--entity-type", "users"), ("--entity-type", "clients"), ("--entity-type", "ips")


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ([("user", "bob")], [*USER, "--entity-name", "bob"]),
        ([("user", None)], [*USER, "--entity-default"]),
        ([("ip", "10.0.0.1")], [*IP, "--entity-name", "10.0.0.1"]),
        (
            [("user", "it's, me"), ("client-id", None)],
            [*USER, "--entity-name", "it's, me", *CLIENT, "--entity-default"],
        ),
        ([("client-id", "a,user=b")], [*CLIENT, "--entity-name", "a,user=b"]),
    ],
)
def test_a_quota_is_a_command(entity: list[tuple[str, str | None]], words: list[str]) -> None:
    (line,) = commands(state(entity))
    assert line.startswith("kafka-configs.sh ")
    assert shlex.split(line)[4:] == [*words, "--add-config", "consumer_byte_rate=2048.0"]


def state(entity: list[tuple[str, str | None]]) -> ClusterState:
    made = ClusterState()
    parts = ",".join(f'{{"entityType":"{kind}","entityName":{quoted(name)}}}' for kind, name in entity)
    record = f'{{"entity":[{parts}],"key":"consumer_byte_rate","value":2048.0,"remove":false}}'
    made.apply("ClientQuotaRecord", record)
    return made


def quoted(name: str | None) -> str:
    return "null" if name is None else f'"{name}"'
