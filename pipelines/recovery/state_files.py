"""The state of a cluster as tables, as commands of Kafka's tools, and as Strimzi's KafkaTopic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.recovery.quorum import safe_name
from udfs.replicas.cluster_state import ClusterState

_SERVER = "--bootstrap-server localhost:9092"
_OPTIONS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}
_LISTS = pa.list_(pa.int32())


def write_state(state: ClusterState, folder: Path) -> None:
    """Writes Parquet files with the state, ``commands.sh`` and ``topics.yaml`` into a folder."""
    for name, table in tables(state).items():
        pq.write_table(table, folder / f"{name}.parquet")
    text = "".join(f"{line}\n" for line in ("#!/bin/sh", "set -e", *commands(state)))
    (folder / "commands.sh").write_text(text, encoding="utf-8")
    (folder / "topics.yaml").write_text(strimzi(state), encoding="utf-8")


def tables(state: ClusterState) -> dict[str, pa.Table]:
    """The state as tables. Secrets of users are in none."""
    partitions = [
        {
            "topic": state.topics.get(one.topic_id),
            "topic_id": one.topic_id,
            "partition": one.partition,
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "replicas": one.replicas,
            "isr": one.isr,
            "elr": one.elr,
            "last_known_elr": one.last_known_elr,
        }
        for one in state.partitions.values()
    ]
    schema = pa.schema(
        [
            *(("topic", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32())),
            *(("leader", pa.int32()), ("leader_epoch", pa.int32()), ("replicas", _LISTS), ("isr", _LISTS)),
            *(("elr", _LISTS), ("last_known_elr", _LISTS)),
        ]
    )
    configs = [
        (kind, name, key, value)
        for (kind, name), values in state.configs.items()
        for key, value in values.items()
    ]
    brokers = [
        (number, one.get("rack"), bool(one.get("fenced")), _addresses(one))
        for number, one in state.brokers.items()
    ]
    quotas = [
        (entity, key, value) for entity, values in state.quotas.items() for key, value in values.items()
    ]
    acl = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    return {
        "partitions": pa.Table.from_pylist(partitions, schema),
        "settings": _table(configs, resource_type="string", resource="string", name="string", value="string"),
        "acls": _table(
            [tuple(one[name] for name in acl) for one in state.acls.values()], **dict.fromkeys(acl, "string")
        ),
        "users": _table(
            [(*key, count) for key, count in state.users.items()],
            name="string",
            mechanism="string",
            iterations="int32",
        ),
        "features": _table(list(state.features.items()), name="string", level="int32"),
        "brokers": _table(brokers, broker_id="int32", rack="string", fenced="bool", listeners="string"),
        "quotas": _table(quotas, entity="string", name="string", value="double"),
    }


def _addresses(broker: dict[str, Any]) -> str:
    ends = broker.get("endPoints") or ()
    return ",".join(f"{one.get('name')}://{one.get('host')}:{one.get('port')}" for one in ends)


def _table(rows: list[tuple[Any, ...]], **types: str) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    return pa.table(arrays, names=list(types))


def commands(state: ClusterState) -> Iterator[str]:
    """Commands that make the topics, settings and ACLs in another cluster. Topics get new ids there."""
    for name, (count, factor) in sorted(_topics(state).items()):
        if name.startswith("__"):
            continue
        text = f"kafka-topics.sh {_SERVER} --create --if-not-exists --topic {safe_name(name)}"
        values = state.configs.get(("topic", name), {})
        given = "".join(f" --config {safe_name(f'{key}={value}')}" for key, value in sorted(values.items()))
        yield f"{text} --partitions {count} --replication-factor {factor}{given}"
    for (kind, name), values in sorted(state.configs.items()):
        if kind in ("broker", "client-metrics", "group") and values:
            entity = f"--entity-name {safe_name(name)}" if name else "--entity-default"
            pairs = ",".join(f"{key}=[{value}]" for key, value in sorted(values.items()))
            yield (
                f"kafka-configs.sh {_SERVER} --alter --entity-type {kind}s {entity} "
                f"--add-config {safe_name(pairs)}"
            )
    for _, one in sorted(state.acls.items()):
        yield _acl(one)
    for name, mechanism in sorted(state.users):
        yield f"# user {safe_name(name)} ({mechanism}): its password is not in the metadata, set a new one"


def _acl(one: dict[str, str]) -> str:
    kind = one["resource_type"]
    place = f"{_OPTIONS[kind]} {safe_name(one['resource_name'])}" if kind in _OPTIONS else f"--{kind}"
    if kind in ("delegation-token", "user"):
        place += f" {safe_name(one['resource_name'])}"
    side = "--allow" if one["permission"] == "allow" else "--deny"
    operation = "".join(part.title() for part in one["operation"].split("-"))
    return (
        f"kafka-acls.sh {_SERVER} --add {side}-principal {safe_name(one['principal'])} "
        f"{side}-host {safe_name(one['host'])} --operation {operation} {place} "
        f"--resource-pattern-type {one['pattern_type']}"
    )


def _topics(state: ClusterState) -> dict[str, tuple[int, int]]:
    """Name of a topic -> (partitions, replication factor)."""
    found: dict[str, tuple[int, int]] = {}
    for one in state.partitions.values():
        name = state.topics.get(one.topic_id)
        if name is not None:
            count, factor = found.get(name, (0, 0))
            found[name] = (max(count, one.partition + 1), max(factor, len(one.replicas)))
    return found


def strimzi(state: ClusterState) -> str:
    """A KafkaTopic of Strimzi for each topic, as YAML."""
    found = []
    for name, (count, factor) in sorted(_topics(state).items()):
        if name.startswith("__"):
            continue
        spec: dict[str, Any] = {"topicName": name, "partitions": count, "replicas": factor}
        values = state.configs.get(("topic", name), {})
        if values:
            spec["config"] = dict(sorted(values.items()))
        metadata = {"name": _resource_name(name), "labels": {"strimzi.io/cluster": "my-cluster"}}
        found.append(
            {
                "apiVersion": "kafka.strimzi.io/v1beta2",
                "kind": "KafkaTopic",
                "metadata": metadata,
                "spec": spec,
            }
        )
    return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True)


def _resource_name(topic: str) -> str:
    """A name that Kubernetes takes; different topics keep different names."""
    name = re.sub(r"[^a-z0-9.-]", "-", topic.lower()).strip("-.") or "topic"
    return name if name == topic else f"{name}.{topic.encode().hex()[:16]}"
