"""Writes the state of a cluster as tables, as commands of Kafka's tools, and as Strimzi's KafkaTopics."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from kafka_log_lake.pipelines.cli.generated import command_line, comment, shell_word
from kafka_log_lake.pipelines.cli.values import is_topic_name
from kafka_log_lake.pipelines.listing.cluster_state import ClusterState
from kafka_log_lake.udfs.format.cluster_tables import (
    CLUSTER_ACLS,
    CLUSTER_BROKERS,
    CLUSTER_FEATURES,
    CLUSTER_PARTITIONS,
    CLUSTER_QUOTAS,
    CLUSTER_SETTINGS,
    CLUSTER_TOPICS,
    CLUSTER_USERS,
)
from kafka_log_lake.udfs.format.schema import Table
from kafka_log_lake.udfs.values.internal.topics import TOPICS

_KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DIGITS, _LONGEST_NAME = 24, 200  # of a hash; of the rest of a name, which has 253 characters at most
_HASHED = re.compile(rf"\.[0-9a-f]{{{_DIGITS}}}$")
_SERVER = "localhost:9092"
_ENTITIES = {"user": "users", "client-id": "clients", "ip": "ips"}
_OPTIONS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}


def write_state(state: ClusterState, folder: Path) -> None:
    """Writes Parquet files with the state, ``commands.sh`` and ``topics.yaml`` into a folder."""
    for table, rows in tables(state):
        pq.write_table(rows, folder / f"{table.name.removeprefix('cluster_')}.parquet")
    text = "".join(f"{line}\n" for line in ("#!/bin/sh", "set -e", *commands(state)))
    (folder / "commands.sh").write_text(text, encoding="utf-8")
    (folder / "topics.yaml").write_text(strimzi(state), encoding="utf-8")


def tables(state: ClusterState) -> Iterator[tuple[Table, pa.Table]]:
    """Yields the state as the tables of ``cluster_tables``, without the secrets of users."""
    sizes = topic_sizes(state)
    rows: dict[Table, list[tuple[Any, ...]]] = {
        CLUSTER_TOPICS: [
            (name, topic_id, *sizes.get(name, (0, 0))) for topic_id, name in state.topics.items()
        ],
        CLUSTER_PARTITIONS: [
            (
                *(
                    state.topics.get(partition.topic_id),
                    partition.topic_id,
                    partition.partition,
                    partition.leader,
                    partition.leader_epoch,
                ),
                *(partition.replicas, partition.isr, partition.elr, partition.last_known_elr),
            )
            for partition in state.partitions.values()
        ],
        CLUSTER_SETTINGS: [
            (kind, name, key, value)
            for (kind, name), values in state.configs.items()
            for key, value in values.items()
        ],
        CLUSTER_ACLS: [
            tuple(acl[column.name] for column in CLUSTER_ACLS.columns) for acl in state.acls.values()
        ],
        CLUSTER_USERS: [(*key, count) for key, count in state.users.items()],
        CLUSTER_FEATURES: list(state.features.items()),
        CLUSTER_BROKERS: [
            (number, broker.get("rack"), bool(broker.get("fenced")), _addresses(broker))
            for number, broker in state.brokers.items()
        ],
        CLUSTER_QUOTAS: [
            (entity, key, value) for entity, values in state.quotas.items() for key, value in values.items()
        ],
    }
    for table, listed in rows.items():
        schema = table.arrow_schema()
        yield (
            table,
            pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in listed], schema),
        )


def _addresses(broker: dict[str, Any]) -> str:
    ends = broker.get("endPoints") or ()
    return ",".join(f"{end.get('name')}://{end.get('host')}:{end.get('port')}" for end in ends)


def commands(state: ClusterState) -> Iterator[str]:
    """Yields commands that make topics, settings and ACLs in another cluster; topics get new ids there."""
    if state.unread_text:
        yield comment(f"not all of the state: {state.unread_text}")
    for name, (count, factor) in sorted(topic_sizes(state).items()):
        if name in TOPICS:  # brokers make them
            continue
        if not is_topic_name(name):
            yield _refused(name)
            continue
        values = state.configs.get(("topic", name), {})
        yield command_line(
            f"kafka-topics.sh --bootstrap-server {_SERVER} --create --if-not-exists",
            *(("--topic", name), ("--partitions", str(count)), ("--replication-factor", str(factor))),
            *(("--config", f"{key}={value}") for key, value in sorted(values.items())),
        )
    for (kind, name), values in sorted(state.configs.items()):
        if kind in ("broker", "client-metrics", "group") and values:
            pairs = ",".join(f"{key}=[{value}]" for key, value in sorted(values.items()))
            yield command_line(
                f"kafka-configs.sh --bootstrap-server {_SERVER} --alter --entity-type {kind}s",
                *((("--entity-name", name) if name else "--entity-default"), ("--add-config", pairs)),
            )
    for _, acl in sorted(state.acls.items()):
        yield acl_command(acl)
    yield from (quota_command(state, entity) for entity, quotas in sorted(state.quotas.items()) if quotas)
    for name, mechanism in sorted(state.users):
        words = f"user {shell_word(name)} ({mechanism}): its password is not in the metadata, set a new one"
        yield comment(words)


def _refused(topic: str) -> str:
    return comment(f"left out: Kafka takes no topic of the name {shell_word(topic)}")


def acl_command(acl: dict[str, str], server: str = _SERVER) -> str:
    """Returns the command that adds an ACL. server: HOST:PORT of a broker."""
    kind, name = acl["resource_type"], acl["resource_name"]
    place: list[str | tuple[str, str]] = [(_OPTIONS[kind], name) if kind in _OPTIONS else f"--{kind}"]
    if kind in ("delegation-token", "user"):
        place.append(name)
    side = "--allow" if acl["permission"] == "allow" else "--deny"
    operation = "".join(part.title() for part in acl["operation"].split("-"))
    return command_line(
        f"kafka-acls.sh --bootstrap-server {shlex.quote(server)} --add",
        *((f"{side}-principal", acl["principal"]), (f"{side}-host", acl["host"]), ("--operation", operation)),
        *(*place, ("--resource-pattern-type", acl["pattern_type"])),
    )


def quota_command(state: ClusterState, entity: str, server: str = _SERVER) -> str:
    """Returns the command that sets the quotas of an entity. server: HOST:PORT of a broker."""
    words: list[str | tuple[str, str]] = []
    for kind, name in sorted(state.entities[entity], reverse=True):  # users before their clients
        words.append(("--entity-type", _ENTITIES.get(kind, kind)))
        words.append("--entity-default" if name is None else ("--entity-name", name))
    values = ",".join(f"{name}={value}" for name, value in sorted(state.quotas[entity].items()))
    head = f"kafka-configs.sh --bootstrap-server {shlex.quote(server)} --alter"
    return command_line(head, *words, ("--add-config", values))


def topic_sizes(state: ClusterState) -> dict[str, tuple[int, int]]:
    """Returns topic name -> (partitions, replication factor)."""
    sizes: dict[str, tuple[int, int]] = {}
    for partition in state.partitions.values():
        name = state.topics.get(partition.topic_id)
        if name is not None:
            count, factor = sizes.get(name, (0, 0))
            sizes[name] = (max(count, partition.partition + 1), max(factor, len(partition.replicas)))
    return sizes


def strimzi(state: ClusterState) -> str:
    """Returns YAML with a Strimzi KafkaTopic for each topic."""
    documents, refused = [], []
    for name, (count, factor) in sorted(topic_sizes(state).items()):
        if name in TOPICS:
            continue
        if not is_topic_name(name):
            refused.append(f"{_refused(name)}\n")
            continue
        spec: dict[str, object] = {"topicName": name, "partitions": count, "replicas": factor}
        values = state.configs.get(("topic", name), {})
        if values:
            spec["config"] = dict(sorted(values.items()))
        metadata = {"name": _resource_name(name), "labels": {"strimzi.io/cluster": "my-cluster"}}
        documents.append(
            {
                "apiVersion": "kafka.strimzi.io/v1beta2",
                "kind": "KafkaTopic",
                "metadata": metadata,
                "spec": spec,
            }
        )
    if state.unread_text:
        refused.append(f"{comment(f'not all of the state: {state.unread_text}')}\n")
    return "".join(refused) + yaml.safe_dump_all(documents, sort_keys=False)


def _resource_name(topic: str) -> str:
    """Returns a name that Kubernetes takes (RFC 1123 subdomain), a different one for each topic.

    A topic's own name is kept if it is valid; other names end with a part of the SHA-256 of the topic's name.
    A valid name with such an end is not kept, so no two are equal.
    """
    if _KUBERNETES_NAME.fullmatch(topic) and not _HASHED.search(topic):
        return topic
    plain = re.sub(r"[^a-z0-9]+", "-", topic.lower())[:_LONGEST_NAME].strip("-") or "topic"
    return f"{plain}.{hashlib.sha256(topic.encode()).hexdigest()[:_DIGITS]}"
