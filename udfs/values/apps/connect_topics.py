"""Reads the records in which Kafka Connect's workers keep configurations, states and source offsets.

By ``KafkaConfigBackingStore``, ``KafkaStatusBackingStore`` and ``OffsetStorageWriter`` of Kafka 4.2. Keys say
what a record is; values are JSON, with Connect's schema or without. Session keys are secret: nothing of their
values is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_log_lake.udfs.values.apps.connect import ENVELOPE
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.json.structs import text
from kafka_log_lake.udfs.values.schemas.payload import PayloadError, text_of

CONFIG, STATUS, OFFSET = "config", "status", "offset"
SESSION_KEY = "session-key"
_MOST_INT = (1 << 31) - 1
_KEYS = (
    (CONFIG, "session-key", re.compile("session-key")),
    (CONFIG, "task", re.compile(r"task-(?P<connector>.+)-(?P<task>\d{1,9})")),
    *(
        (CONFIG, kind, re.compile(rf"{kind}-(?P<connector>.+)", re.DOTALL))
        for kind in ("connector", "target-state", "commit", "tasks-fencing", "restart-connector")
    ),
    (CONFIG, "logger-cluster", re.compile("logger-cluster-(?P<other>.+)", re.DOTALL)),
    (STATUS, "task", re.compile(r"status-task-(?P<connector>.+)-(?P<task>\d{1,9})", re.DOTALL)),
    (STATUS, "topic", re.compile("status-topic-(?P<other>[^:]+):connector-(?P<connector>.+)", re.DOTALL)),
    (STATUS, "connector", re.compile("status-connector-(?P<connector>.+)", re.DOTALL)),
)


@dataclass
class ConnectRecord:
    """A record of one of Connect's topics.

    store: CONFIG, STATUS or OFFSET; None for what no worker writes. type: how its key begins, or offset.
    other: the topic of an active topic, the logger of a level. state: a target state, or the state of a
    connector or task; of a logger its level. count: tasks of a commit, or of a fencing. config: properties as
    JSON. source_partition, source_offset: JSON. error: why key or value can't be read.
    """

    store: str | None = None
    type: str | None = None
    connector: str | None = None
    task: int | None = None
    other: str | None = None
    config: str | None = None
    count: int | None = None
    state: str | None = None
    worker: str | None = None
    generation: int | None = None
    version: str | None = None
    trace: str | None = None
    source_partition: str | None = None
    source_offset: str | None = None
    error: str | None = None


def read_record(key: bytes | None, value: bytes | None) -> ConnectRecord:
    """Reads a record of Connect's topics; never raises.

    Returns one without a store for what no worker writes; error: what can't be read.
    """
    record = ConnectRecord()
    try:
        record = _of_key(key)
        if value is not None and record.store is not None:
            _READERS[record.store, record.type](record, _payload(value))
    except PayloadError as error:
        record.error = f"{'key' if record.store is None else 'value'}: {error}"
    return record


def _of_key(key: bytes | None) -> ConnectRecord:
    if key is None:
        raise PayloadError("unexpected_value", "null")
    if key[:1] in (b"[", b"{"):
        return _of_offset(_payload(key))
    named = text_of(key, 0, len(key)).strip('"')  # in quotes by the first releases
    for store, kind, pattern in _KEYS:
        match = pattern.fullmatch(named)
        if match is not None:
            parts = match.groupdict()
            task = parts.get("task")
            number = None if task is None else int(task)
            return ConnectRecord(store, kind, parts.get("connector"), number, parts.get("other"))
    raise PayloadError("unexpected_value", "no key of Kafka Connect")


def _of_offset(held: object) -> ConnectRecord:
    if not isinstance(held, list) or len(held) != 2 or not isinstance(held[0], str):
        raise PayloadError("unexpected_value", "no connector with a partition of its source")
    return ConnectRecord(OFFSET, "offset", held[0], source_partition=text(_object(held[1])))


def _payload(data: bytes) -> object:
    held = parse_json(data)
    return held["payload"] if isinstance(held, dict) and held.keys() == ENVELOPE else held


def _object(held: object) -> dict[str, object]:
    if not isinstance(held, dict):
        raise PayloadError("unexpected_value", f"{type(held).__name__}, and no object")
    return held


def _member(held: Mapping[str, Any], name: str, kind: type, is_needed: bool = True) -> Any:
    member = held.get(name)
    if member is None and not is_needed:
        return None
    if type(member) is not kind or (isinstance(member, int) and not -1 <= member <= _MOST_INT):
        raise PayloadError("unexpected_value", f"{name} is no {'number' if kind is int else kind.__name__}")
    return member


def _config(record: ConnectRecord, held: object) -> None:
    record.config = text(_member(_object(held), "properties", dict))


def _count(name: str) -> Callable[[ConnectRecord, Any], None]:
    def read(record: ConnectRecord, held: Any) -> None:
        record.count = _member(_object(held), name, int)

    return read


def _target_state(record: ConnectRecord, held: Any) -> None:
    """Reads ``state.v2``, which knows STOPPED, before ``state`` of earlier releases."""
    record.state = _member(_object(held), "state.v2", str, False) or _member(held, "state", str)


def _level(record: ConnectRecord, held: Any) -> None:
    record.state = _member(_object(held), "level", str)


def _state(record: ConnectRecord, held: Any) -> None:
    record.state = _member(_object(held), "state", str)
    record.worker = _member(held, "worker_id", str)
    record.generation = _member(held, "generation", int)
    record.version = _member(held, "version", str, False)
    record.trace = _member(held, "trace", str, False)


def _topic(record: ConnectRecord, held: Any) -> None:
    named = _member(_object(held), "topic", dict)
    record.task = _member(named, "task", int)


def _source_offset(record: ConnectRecord, held: object) -> None:
    record.source_offset = text(_object(held))


def _nothing(_: ConnectRecord, __: object) -> None:
    """Keeps nothing of a value: a session key is secret, a request to restart says no more than its key."""


_READERS: dict[tuple[str | None, str | None], Callable[[ConnectRecord, object], None]] = {
    (CONFIG, "session-key"): _nothing,
    (CONFIG, "restart-connector"): _nothing,
    (CONFIG, "task"): _config,
    (CONFIG, "connector"): _config,
    (CONFIG, "target-state"): _target_state,
    (CONFIG, "commit"): _count("tasks"),
    (CONFIG, "tasks-fencing"): _count("task-count"),
    (CONFIG, "logger-cluster"): _level,
    (STATUS, "connector"): _state,
    (STATUS, "task"): _state,
    (STATUS, "topic"): _topic,
    (OFFSET, "offset"): _source_offset,
}
