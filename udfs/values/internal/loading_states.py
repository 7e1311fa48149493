"""Replays transactional ids, share groups, the metadata log and Connect's configurations as Kafka does.

Each replay takes the records of one log in their order, and says of a record why the loader stops at it.
Sources: ``TransactionStateManager``, ``ShareCoordinatorShard``, ``MetadataDelta`` and
``KafkaConfigBackingStore`` of Kafka. Whether the value of a field is one that Kafka has (a security protocol,
a principal) is not looked at.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from kafka_log_lake.udfs.values.internal.releases import NEWEST, RELEASES
from kafka_log_lake.udfs.values.internal.topics import Fields, InternalRecord

_EMPTY, _PREPARE_EPOCH_FENCE = 0, 7  # the first and the last of TransactionState
_TRANSACTION_VERSIONS = range(3)
# The first release whose transaction coordinator passes over a version of values that it does not know
_PASSES_OVER_VERSIONS = "4.3"
# The first release whose share coordinator stops where a batch of offsets ends before it begins
_SWEEPS_BATCHES = "4.4"
# Fields with the id and the epoch of a broker: of a change, and of the records on its fences
_OF_BROKER = (("brokerId", "id"), ("brokerEpoch", "epoch"))
# The lowest metadata.version that a loader knows, and the highest by release: MetadataVersion
_LOWEST_METADATA_VERSION = 7
_HIGHEST_METADATA_VERSION = {"4.1": 29, "4.2": 30, "4.3": 31, "4.4": 34}
# The number of a task: a longer one is no int
_INT = re.compile(r"\d{1,10}")


class TransactionReplay:
    """Replays ``__transaction_state``. A coordinator that stops knows no transactional id from there on."""

    def __init__(self, release: str = NEWEST) -> None:
        self._passes_over = RELEASES.index(release) >= RELEASES.index(_PASSES_OVER_VERSIONS)

    def add(self, record: InternalRecord) -> str | None:
        """Returns why the coordinator stops at a record, None if it goes on."""
        if record.name is None or not record.is_read:
            is_newer = record.version not in (None, 0, 1)
            return None if is_newer and self._passes_over else record.stops_coordinator
        value = record.value
        if value is None:
            return None
        status, version = value["transactionStatus"], value.get("clientTransactionVersion", 0)
        if not _EMPTY <= status <= _PREPARE_EPOCH_FENCE:
            return f"a transaction has the state {status}, which is none"
        if version not in _TRANSACTION_VERSIONS:
            return f"a client has transaction.version {version}, which is not known"
        if status != _EMPTY and value["transactionPartitions"] is None:
            return "a transaction has no list of partitions"
        return None


class ShareReplay:
    """Replays ``__share_group_state``."""

    def __init__(self, release: str = NEWEST) -> None:
        self._sweeps = RELEASES.index(release) >= RELEASES.index(_SWEEPS_BATCHES)
        # By share partition: its start, and where its batches end that end before they begin
        self._states: dict[tuple[object, ...], tuple[int, list[int]]] = {}

    def add(self, record: InternalRecord) -> str | None:
        """Returns why the share coordinator stops at a record, None if it goes on."""
        if record.name is None or record.key is None or not record.is_read:
            return record.stops_coordinator
        place = tuple(record.key.values())
        value, before = record.value, self._states.get(place)
        if value is None:
            if record.name == "ShareUpdate":
                return "an update of a share partition has no value"
            self._states.pop(place, None)
            return None
        start = value["startOffset"]
        ends = [
            batch["lastOffset"]
            for batch in value["stateBatches"]
            if batch["lastOffset"] < batch["firstOffset"]
        ]
        if record.name == "ShareUpdate" and before is not None:
            start = before[0] if start == -1 else start
            ends = [end for end in (*before[1], *ends) if end >= start]
            if ends and self._sweeps:
                return f"a batch of a share partition ends at {ends[0]}, before it begins"
        self._states[place] = start, ends
        return None


@dataclass
class _Image:
    """What metadata records need of those before them.

    topics: partitions by topic id. names: of topics by id. brokers: epochs by id. acls: their ids. undo: what
    an abort of the open metadata transaction puts back, the last change last; None outside of one.
    """

    topics: dict[str, dict[int, bool]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=dict)
    acls: dict[str, bool] = field(default_factory=dict)
    undo: list[tuple[dict[Any, Any], object, object]] | None = None

    def put(self, part: dict[Any, Any], key: object, value: object) -> None:
        """Sets what a part of the image has under a key. value: None removes it."""
        if self.undo is not None:
            self.undo.append((part, key, part.get(key)))
        if value is None:
            part.pop(key, None)
        else:
            part[key] = value

    def abort(self) -> None:
        """Takes back what the open transaction changed; does nothing without one."""
        changes, self.undo = self.undo or [], None
        for change in reversed(changes):
            self.put(*change)


class MetadataReplay:
    """Replays ``__cluster_metadata`` from a snapshot or the beginning on."""

    def __init__(self, release: str = NEWEST) -> None:
        self._release = release
        self._image = _Image()

    def add(self, record: InternalRecord) -> str | None:
        """Returns why the loader stops at a record, None if it goes on."""
        value = record.value
        if record.name is None or value is None:
            return record.problem
        if record.name == "BeginTransactionRecord":
            self._image.undo = []
        elif record.name == "AbortTransactionRecord":
            self._image.abort()
        elif record.name == "EndTransactionRecord":
            self._image.undo = None
        elif "topicId" in value:
            return self._topic(record.name, value)
        elif record.name == "ClearElrRecord":
            name = value["topicName"]
            is_there = not name or name in self._image.names.values()
            return None if is_there else f"topic {name} is not there"
        elif "Broker" in record.name:
            return self._broker(record.name, value)
        elif record.name == "AccessControlEntryRecord":
            self._image.put(self._image.acls, value["id"], True)
        elif record.name == "RemoveAccessControlEntryRecord":
            if value["id"] not in self._image.acls:
                return f"the ACL {value['id']} is removed and is not there"
            self._image.put(self._image.acls, value["id"], None)
        elif record.name == "FeatureLevelRecord" and value["name"] == "metadata.version":
            highest, level = _HIGHEST_METADATA_VERSION[self._release], value["featureLevel"]
            if not _LOWEST_METADATA_VERSION <= level <= highest:
                return f"metadata.version is {level}, and {_LOWEST_METADATA_VERSION} to {highest} are known"
        return None

    def _topic(self, name: str, value: Fields) -> str | None:
        topic_id, image = value["topicId"], self._image
        if name == "TopicRecord":
            image.put(image.topics, topic_id, {})
            image.put(image.names, topic_id, value["name"])
            return None
        partitions = image.topics.get(topic_id)
        if partitions is None:
            return f"topic {topic_id} is not there"
        if name == "RemoveTopicRecord":
            image.put(image.topics, topic_id, None)
            image.put(image.names, topic_id, None)
        elif name == "PartitionRecord":
            image.put(partitions, value["partitionId"], True)
        elif name == "PartitionChangeRecord" and value["partitionId"] not in partitions:
            return f"partition {value['partitionId']} of topic {topic_id} is not there"
        return None

    def _broker(self, name: str, value: Fields) -> str | None:
        brokers = self._image.brokers
        broker, epoch = (value.get(one) or value.get(other) or 0 for one, other in _OF_BROKER)
        if name == "RegisterBrokerRecord":
            self._image.put(brokers, broker, epoch)
        elif name == "UnregisterBrokerRecord":
            self._image.put(brokers, broker, None)
        elif name in ("FenceBrokerRecord", "UnfenceBrokerRecord", "BrokerRegistrationChangeRecord"):
            if broker not in brokers:
                return f"broker {broker} is not registered"
            if brokers[broker] != epoch:
                return f"broker {broker} is registered with epoch {brokers[broker]}, and not {epoch}"
        return None


@dataclass
class ConnectReplay:
    """Replays the topic of Connect's configurations.

    tasks: how many a connector has by its last commit. inconsistent: connectors of which tasks are missing.
    ignored: by connector, the offset of its last commit if it was not taken, and why.
    """

    connectors: set[str] = field(default_factory=set)
    tasks: dict[str, int] = field(default_factory=dict)
    inconsistent: set[str] = field(default_factory=set)
    ignored: dict[str, tuple[int, str]] = field(default_factory=dict)
    _waiting: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Replays a record. What the store can't read, it passes over."""
        kind, _, name = (key or b"").decode(errors="replace").partition("-")
        content = _json(value)
        if kind == "connector" and value is None:
            self.connectors.discard(name)
            self.tasks.pop(name, None)
            self._waiting.pop(name, None)
        elif kind == "connector" and isinstance(_member(content, "properties"), dict):
            self.connectors.add(name)
        elif kind == "task" and isinstance(_member(content, "properties"), dict):
            connector, _, number = name.rpartition("-")
            if connector and _INT.fullmatch(number):
                self._waiting[connector].add(int(number))
        elif kind == "commit" and type(count := _member(content, "tasks")) is int:
            self._commit(offset, name, count)

    def _commit(self, offset: int, name: str, count: int) -> None:
        numbers = self._waiting.pop(name, set())
        if name not in self.connectors:
            self.tasks.pop(name, None)
            why = f"the tasks of connector {name} lie before its configuration: a worker ignores them"
        elif (missing := count - sum(number < count for number in numbers)) > 0:
            self.inconsistent.add(name)
            self.tasks[name] = count
            why = f"{missing} of the {count} tasks of connector {name} are not there: a worker starts none"
        else:
            self.inconsistent.discard(name)
            self.tasks[name] = count
            why = ""
        self.ignored.pop(name, None)
        if why and count:
            self.ignored[name] = offset, why


def _json(value: bytes | None) -> object:
    try:
        return json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None


def _member(content: object, name: str) -> object:
    return content.get(name) if isinstance(content, dict) else None
