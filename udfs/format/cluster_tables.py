"""Declares the tables of ``recover --metadata``: the state of a cluster, as its controllers agreed on it.

Each is replaced as a whole by every run. No table has a secret.
"""

from __future__ import annotations

from kafka_log_lake.udfs.format.schema import Table, columns

_TOPIC = (("topic", "string", "Topic"), ("topic_id", "string", "Its id, as Kafka writes it"))

CLUSTER_TOPICS = Table(
    "cluster_topics",
    "One row for each topic",
    (),
    columns(
        *_TOPIC,
        ("partitions", "int", "Number of its partitions"),
        ("replication_factor", "int", "Replicas of the partition that has most"),
    ),
)
CLUSTER_PARTITIONS = Table(
    "cluster_partitions",
    "One row for each partition: its replicas and its leader",
    (),
    columns(
        *_TOPIC,
        ("partition", "int", "Partition"),
        ("leader", "int", "Broker that leads it; -1: none"),
        ("leader_epoch", "int", "Leader epoch"),
        ("replicas", "array<int>", "Brokers that have a replica, the preferred leader first"),
        ("isr", "array<int>", "Brokers whose replica is in sync"),
        ("elr", "array<int>", "Brokers outside of the ISR that may be elected without a loss (KIP-966)"),
        ("last_known_elr", "array<int>", "Brokers that left the ELR because they were not shut down cleanly"),
    ),
)
CLUSTER_SETTINGS = Table(
    "cluster_settings",
    "One row for each dynamic setting",
    (),
    columns(
        ("resource_type", "string", "topic, broker, broker-logger, client-metrics or group"),
        ("resource", "string", "Name of the topic, id of the broker; empty: the default of all brokers"),
        ("name", "string", "Name of the setting"),
        ("value", "string", "Its value"),
    ),
)
CLUSTER_ACLS = Table(
    "cluster_acls",
    "One row for each ACL",
    (),
    columns(
        ("resource_type", "string", "topic, group, cluster, transactional-id, delegation-token or user"),
        ("resource_name", "string", "Name of the resource, or a prefix of it"),
        ("pattern_type", "string", "literal or prefixed"),
        ("principal", "string", "Who: such as User:alice"),
        ("host", "string", "From which host; *: any"),
        ("operation", "string", "Such as read, write or describe-configs"),
        ("permission", "string", "allow or deny"),
    ),
)
CLUSTER_USERS = Table(
    "cluster_users",
    "One row for each SCRAM credential of a user, without its secret",
    (),
    columns(
        ("name", "string", "Name of the user"),
        ("mechanism", "string", "SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("iterations", "int", "Iterations of the credential"),
    ),
)
CLUSTER_FEATURES = Table(
    "cluster_features",
    "One row for each feature that is on",
    (),
    columns(("name", "string", "Name, such as metadata.version"), ("level", "int", "Its finalized level")),
)
CLUSTER_BROKERS = Table(
    "cluster_brokers",
    "One row for each registered broker",
    (),
    columns(
        ("broker_id", "int", "node.id of the broker"),
        ("rack", "string", "Its rack; null without one"),
        ("fenced", "boolean", "Whether the controller keeps it from leading"),
        ("listeners", "string", "Its listeners as name://host:port, between commas"),
    ),
)
CLUSTER_QUOTAS = Table(
    "cluster_quotas",
    "One row for each quota",
    (),
    columns(
        ("entity", "string", "Whose: type=name, between commas; <default> for the others"),
        ("name", "string", "Name of the quota, such as producer_byte_rate"),
        ("value", "double", "Its value"),
    ),
)

CLUSTER_TABLES = (
    *(CLUSTER_TOPICS, CLUSTER_PARTITIONS, CLUSTER_SETTINGS, CLUSTER_ACLS),
    *(CLUSTER_USERS, CLUSTER_FEATURES, CLUSTER_BROKERS, CLUSTER_QUOTAS),
)
