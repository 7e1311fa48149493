"""Builds the state of a cluster from the records of ``__cluster_metadata``: what its controllers agreed on.

Records are applied as Kafka's ``MetadataDelta`` does: in their order, each onto what the ones before left.
Those of a metadata transaction count once it has ended, and never if it was aborted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]
UNCHANGED_LEADER, NO_LEADER = -2, -1  # of a PartitionChangeRecord
VOTERS = "VotersRecord"  # the control record KRAFT_VOTERS
_RESOURCES = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
_ACL_RESOURCES = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional-id",
    6: "delegation-token",
    7: "user",
}
_PATTERNS = {3: "literal", 4: "prefixed"}
_OPERATIONS = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster-action",
    10: "describe-configs",
    11: "alter-configs",
    12: "idempotent-write",
    13: "create-tokens",
    14: "describe-tokens",
    15: "two-phase-commit",
}
_PERMISSIONS = {2: "deny", 3: "allow"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass
class Partition:
    """A partition by its metadata.

    leader: -1 for none. isr, elr: broker ids. led: broker id -> the last epoch that it led the partition in.
    """

    topic_id: str
    partition: int
    replicas: list[int] = field(default_factory=list)
    isr: list[int] = field(default_factory=list)
    elr: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)
    leader: int = NO_LEADER
    leader_epoch: int = 0
    led: dict[int, int] = field(default_factory=dict)

    def lead(self, leader: int, epoch: int) -> None:
        """Notes a leader, or that there is none."""
        self.leader, self.leader_epoch = leader, epoch
        if leader != NO_LEADER:
            self.led[leader] = epoch


@dataclass
class ClusterState:
    """What the metadata says at one offset.

    topics: id -> name. partitions: (topic id, number). configs: (resource type, name) -> name -> value.
    features: name -> level. acls: id -> its fields. users: (name, mechanism) -> iterations, no secret.
    quotas: entity -> name -> value; entities: that entity -> its types and names, None for the default.
    voters: node id -> directory id of the controllers that elect the leader and decide what is committed,
    where they can change (KIP-853); empty where their settings name them.
    reached: the offset after the last record; epoch: that record's, -1
    without one. unread: what could not be read or applied, by record type and version, with how often: the
    state may lack what these say.
    """

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Partition] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, Fields] = field(default_factory=dict)
    acls: dict[str, Fields] = field(default_factory=dict)
    users: dict[tuple[str, str], int] = field(default_factory=dict)
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    entities: dict[str, tuple[tuple[str, str | None], ...]] = field(default_factory=dict)
    voters: dict[int, str] = field(default_factory=dict)
    reached: int = 0
    epoch: int = -1
    unread: Counter[str] = field(default_factory=Counter)
    _open: list[tuple[str, str | None]] | None = None

    def setting(self, topic: str, name: str) -> tuple[str, str] | None:
        """Returns a setting of a topic: the name under which it was set, and its value; None where none was.

        Its own, else the default of all brokers that was set at run time. name: cleanup.policy, or one of
        retention: brokers call these the same with ``log.`` before (``ServerTopicConfigSynonyms``).
        """
        for place, key in ((("topic", topic), name), (("broker", ""), f"log.{name}")):
            value = self.configs.get(place, {}).get(key)
            if value is not None:
                return key, value
        return None

    def apply(self, name: str, value: str | None) -> None:
        """Applies a record: its name, and its value as JSON, None where it can't be read.

        One that can't be applied is counted in ``unread``, in an open transaction at once: it may be its end.
        """
        if name == "BeginTransactionRecord":
            self._open = []
        elif name == "AbortTransactionRecord":
            self._open = None
        elif name == "EndTransactionRecord":
            done, self._open = self._open or [], None
            for change in done:
                self._apply(*change)
        elif name == VOTERS:  # control records are in no transaction
            self._apply(name, value)
        elif self._open is not None and value is not None:
            self._open.append((name, value))
        else:
            self._apply(name, value)

    def _apply(self, name: str, value: str | None) -> None:
        handler = _HANDLERS.get(name)
        if handler is None:
            self.unread[name] += name not in _WITHOUT_STATE
            return
        try:
            handler(self, json.loads(value or ""))
        except (AttributeError, KeyError, TypeError, ValueError):
            self.unread[name] += 1

    @property
    def may_lack_partitions(self) -> bool:
        """Says whether a record is unread that may have told topics, partitions or where they are."""
        kinds = {kind.partition(" ")[0] for kind, count in self.unread.items() if count}
        return bool(kinds - _WITHOUT_PARTITIONS)

    @property
    def unread_text(self) -> str:
        """Describes in words what could not be read; "" where all could."""
        counts = [f"{count:,} x {kind}" for kind, count in sorted(self.unread.items()) if count]
        return f"records that can't be read, what they say is missing: {', '.join(counts)}" if counts else ""

    def topic_id(self, topic: str) -> str | None:
        """Returns the id of the topic that has this name now; None if there is none."""
        return next((id_ for id_, name in self.topics.items() if name == topic), None)


def _topic(state: ClusterState, fields: Fields) -> None:
    state.topics[fields["topicId"]] = fields["name"]


def _remove_topic(state: ClusterState, fields: Fields) -> None:
    topic_id = fields["topicId"]
    name = state.topics.pop(topic_id, None)
    for key in [key for key in state.partitions if key[0] == topic_id]:
        del state.partitions[key]
    if name is not None:
        state.configs.pop(("topic", name), None)


def _partition(state: ClusterState, fields: Fields) -> None:
    partition = Partition(fields["topicId"], fields["partitionId"])
    _set_lists(partition, fields)
    partition.lead(fields["leader"], fields["leaderEpoch"])
    state.partitions[partition.topic_id, partition.partition] = partition


def _set_lists(partition: Partition, fields: Fields) -> None:
    for field_, name in (
        *(("replicas", "replicas"), ("isr", "isr"), ("elr", "eligibleLeaderReplicas")),
        ("last_known_elr", "lastKnownElr"),
    ):
        if fields.get(name) is not None:
            setattr(partition, field_, list(fields[name]))


def _partition_change(state: ClusterState, fields: Fields) -> None:
    """Applies a change of a partition as ``PartitionRegistration.merge`` does.

    A leader that is named begins an epoch.
    """
    partition = state.partitions[fields["topicId"], fields["partitionId"]]
    _set_lists(partition, fields)
    leader = fields.get("leader", UNCHANGED_LEADER)
    if leader != UNCHANGED_LEADER:
        partition.lead(leader, partition.leader_epoch + 1)


def _clear_elr(state: ClusterState, fields: Fields) -> None:
    """Clears the ELR of the partitions of one topic; of all partitions where the name is empty."""
    for partition in state.partitions.values():
        if not fields["topicName"] or state.topics.get(partition.topic_id) == fields["topicName"]:
            partition.elr, partition.last_known_elr = [], []


def _config(state: ClusterState, fields: Fields) -> None:
    kind = _RESOURCES.get(fields["resourceType"], str(fields["resourceType"]))
    values = state.configs.setdefault((kind, fields["resourceName"]), {})
    if fields.get("value") is None:
        values.pop(fields["name"], None)
    else:
        values[fields["name"]] = fields["value"]


def _feature(state: ClusterState, fields: Fields) -> None:
    state.features[fields["name"]] = fields["featureLevel"]
    if not fields["featureLevel"]:
        del state.features[fields["name"]]


def _broker(state: ClusterState, fields: Fields) -> None:
    state.brokers[fields["brokerId"]] = fields


def _broker_change(state: ClusterState, fields: Fields) -> None:
    broker = state.brokers[fields["brokerId"]]
    for name in ("fenced", "inControlledShutdown"):
        if fields.get(name):
            broker[name] = fields[name] > 0
    if fields.get("logDirs"):
        broker["logDirs"] = fields["logDirs"]


def _acl(state: ClusterState, fields: Fields) -> None:
    state.acls[fields["id"]] = {
        "resource_type": _word(_ACL_RESOURCES, fields["resourceType"]),
        "resource_name": fields["resourceName"],
        "pattern_type": _word(_PATTERNS, fields["patternType"]),
        "principal": fields["principal"],
        "host": fields["host"],
        "operation": _word(_OPERATIONS, fields["operation"]),
        "permission": _word(_PERMISSIONS, fields["permissionType"]),
    }


def _word(words: Mapping[int, str], code: int) -> str:
    return words.get(code, str(code))


def _user(state: ClusterState, fields: Fields) -> None:
    mechanism = _word(_MECHANISMS, fields["mechanism"])
    state.users[fields["name"], mechanism] = fields["iterations"]


def _remove_user(state: ClusterState, fields: Fields) -> None:
    state.users.pop((fields["name"], _word(_MECHANISMS, fields["mechanism"])), None)


def _quota(state: ClusterState, fields: Fields) -> None:
    parts = [
        f"{entity['entityType']}={'<default>' if entity.get('entityName') is None else entity['entityName']}"
        for entity in fields["entity"]
    ]
    entity = ",".join(sorted(parts))
    state.entities[entity] = tuple((part["entityType"], part.get("entityName")) for part in fields["entity"])
    values = state.quotas.setdefault(entity, {})
    if fields.get("remove"):
        values.pop(fields["key"], None)
    else:
        values[fields["key"]] = fields["value"]


def _voters(state: ClusterState, fields: Fields) -> None:
    state.voters = {voter["voterId"]: voter["voterDirectoryId"] for voter in fields["voters"]}


_HANDLERS: dict[str, Callable[[ClusterState, Fields], object]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _partition_change,
    "ConfigRecord": _config,
    "FeatureLevelRecord": _feature,
    "ClearElrRecord": _clear_elr,
    "RegisterBrokerRecord": _broker,
    "UnregisterBrokerRecord": lambda state, fields: state.brokers.pop(fields["brokerId"], None),
    "BrokerRegistrationChangeRecord": _broker_change,
    "FenceBrokerRecord": lambda state, fields: state.brokers[fields["id"]].update(fenced=True),
    "UnfenceBrokerRecord": lambda state, fields: state.brokers[fields["id"]].update(fenced=False),
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": lambda state, fields: state.acls.pop(fields["id"], None),
    "UserScramCredentialRecord": _user,
    "RemoveUserScramCredentialRecord": _remove_user,
    "ClientQuotaRecord": _quota,
    VOTERS: _voters,
}
_WITHOUT_STATE = {
    *("NoOpRecord", "ZkMigrationStateRecord", "DelegationTokenRecord", "RemoveDelegationTokenRecord"),
    *("ProducerIdsRecord", "RegisterControllerRecord", "UnregisterControllerRecord"),
}
# No record of these kinds says where partitions are; of a kind that is not known, and of damage, any may
_WITHOUT_PARTITIONS = {*_HANDLERS, *_WITHOUT_STATE} - {
    *("TopicRecord", "RemoveTopicRecord", "PartitionRecord", "PartitionChangeRecord"),
}
# Of a metadata log, among the kinds that ``ClusterState.unread`` counts
DAMAGED, MISSING = "damaged range", "missing record"
