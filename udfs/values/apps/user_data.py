"""Reads what Kafka Streams puts into groups and commits: its assignor's user data, metadata of commits.

By ``SubscriptionInfoData`` and ``AssignmentInfo`` (versions 1 to 11) and ``TopicPartitionMetadata`` (1 and 2)
of Kafka 2.8 to 4.4, package ``org.apache.kafka.streams.processor.internals``. All bytes must be consumed.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_log_lake.udfs.values.apps.cursor import Cursor
from kafka_log_lake.udfs.values.apps.recognise import is_time
from kafka_log_lake.udfs.values.schemas.payload import PayloadError, text_of

PROTOCOL = "stream"  # the assignor's name in a group
_LATEST = 11
_ACTIVE = -2  # the offset sum of a task that was active
_UNKNOWN_TIME = -1


def subscription(data: bytes) -> dict[str, Any]:
    """Reads what a member tells the leader (``SubscriptionInfo``). Raises a PayloadError."""
    cursor = Cursor(data)
    version = _version(cursor)
    fields: dict[str, Any] = {
        "class": "SubscriptionInfo",
        "version": version,
        "latestSupportedVersion": cursor.number(4) if version > 1 else -1,
        "processId": str(uuid.UUID(bytes=cursor.take(16))),
    }
    sums: dict[str, int] = {}
    if version < 7:
        fields |= {"prevTasks": _tasks(cursor, 1), "standbyTasks": _tasks(cursor, 1)}
    if version > 1:
        fields["userEndPoint"] = _text(cursor.sized() or b"") or None
    if version >= 7:
        sums = _offset_sums(cursor, version)
        fields["prevTasks"] = sorted(task for task, offset in sums.items() if offset == _ACTIVE)
        fields["standbyTasks"] = sorted(task for task, offset in sums.items() if offset != _ACTIVE)
    if version >= 8:
        cursor.number(1)  # makes the bytes of two subscriptions of a member differ
    fields["taskOffsetSums"] = sums
    fields["errorCode"] = cursor.number(4) if version >= 9 else 0
    fields["clientTags"] = None
    if version >= 11:
        tags = [(_text(cursor.sized() or b""), _text(cursor.sized() or b"")) for _ in _items(cursor, 8)]
        fields["clientTags"] = dict(tags)
    cursor.ends()
    return fields


def _offset_sums(cursor: Cursor, version: int) -> dict[str, int]:
    """Reads how far a member has restored each task; in versions 7 to 9 by subtopology."""
    sums = {}
    for _ in _items(cursor, 8):
        subtopology = cursor.number(4)
        for _ in _items(cursor, 12) if version < 10 else (0,):
            task, offset = f"{subtopology}_{cursor.number(4)}", cursor.number(8)
            if version >= 10:
                size = cursor.number(2)  # of the name of a topology; null for the only one
                task = _named(_text(cursor.take(max(size, 0))), task)
            sums[task] = offset
    return sums


def assignment(data: bytes) -> dict[str, Any]:
    """Reads what the leader tells a member (``AssignmentInfo``). Raises a PayloadError."""
    cursor = Cursor(data)
    version = _version(cursor)
    common = cursor.number(4) if version >= 3 else -1
    active = _tasks(cursor, version)
    standby = {_task(cursor, version): _partitions(cursor) for _ in _items(cursor, 8)}
    of_hosts, standby_of_hosts = _hosts(cursor, version)
    fields = {
        "class": "AssignmentInfo",
        "version": version,
        "commonlySupportedVersion": common,
        "activeTasks": active,
        "standbyTasks": standby,
        "partitionsByHost": of_hosts,
        "standbyPartitionsByHost": standby_of_hosts,
        "errCode": cursor.number(4) if version >= 4 else 0,
        "nextRebalanceMs": cursor.number(8) if version >= 7 else (1 << 63) - 1,
    }
    cursor.ends()
    return fields


def _hosts(cursor: Cursor, version: int) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Reads the partitions of each host: topics have numbers from version 5 on, standbys are there from 6."""
    if version < 2:
        return {}, {}
    if version < 5:
        return {_host(cursor): _partitions(cursor) for _ in _items(cursor, 10)}, {}
    topics: dict[int, str] = {}
    for _ in _items(cursor, 6):
        number = cursor.number(4)
        topics[number] = cursor.text16()
    active = _hosts_by_number(cursor, topics)
    return active, _hosts_by_number(cursor, topics) if version >= 6 else {}


def _hosts_by_number(cursor: Cursor, topics: dict[int, str]) -> dict[str, list[str]]:
    hosts = {}
    for _ in _items(cursor, 10):
        host = _host(cursor)
        places = [(cursor.number(4), cursor.number(4)) for _ in _items(cursor, 8)]
        if not {topic for topic, _ in places} <= topics.keys():
            raise PayloadError("unexpected_value", "the number of no topic", cursor.at)
        hosts[host] = sorted(f"{topics[topic]}-{partition}" for topic, partition in places)
    return hosts


def _host(cursor: Cursor) -> str:
    return f"HostInfo{{host='{cursor.text16()}', port={cursor.number(4)}}}"


def _partitions(cursor: Cursor) -> list[str]:
    return sorted(f"{cursor.text16()}-{cursor.number(4)}" for _ in _items(cursor, 6))


def _tasks(cursor: Cursor, version: int) -> list[str]:
    return [_task(cursor, version) for _ in _items(cursor, 8)]


def _task(cursor: Cursor, version: int) -> str:
    task = f"{cursor.number(4)}_{cursor.number(4)}"
    if version >= 10:  # the name of a topology in UTF-16; nothing for the only one
        task = _named(cursor.take(2 * max(cursor.number(4), 0)).decode("utf-16-be", "replace"), task)
    return task


def _named(topology: str, task: str) -> str:
    """Returns the id of a task as ``TaskId`` writes it, with the name of its topology where it has one."""
    return f"{topology}__{task}" if topology else task


def _version(cursor: Cursor) -> int:
    at, version = cursor.at, cursor.number(4)
    if not 1 <= version <= _LATEST:
        raise PayloadError("unexpected_value", f"version {version}", at)
    return version


def _items(cursor: Cursor, least: int) -> range:
    """Reads a count of items of at least so many bytes."""
    at, count = cursor.at, cursor.number(4)
    if not 0 <= count * least <= cursor.left:
        raise PayloadError("huge_count", f"{count} items, and {cursor.left} bytes left", at)
    return range(count)


def _text(data: bytes) -> str:
    return text_of(data, 0, len(data))


def with_user_data(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns members of a group of Streams with their user data decoded; what it is not stays Base64."""
    readers = {"subscription": subscription, "assignment": assignment}
    with_data = []
    for member in members:
        sides = {side: member[side] for side in readers if isinstance(member[side], dict)}
        read = {
            side: held | {"userData": _read(readers[side], held.get("userData"))}
            for side, held in sides.items()
        }
        with_data.append(member | read)
    return with_data


def _read(read: Any, encoded: str | None) -> Any:
    try:
        return encoded and read(base64.b64decode(encoded))
    except PayloadError:
        return encoded


def commit_metadata(encoded: str) -> dict[str, Any] | None:
    """Returns the text of an offset commit that Streams wrote (``TopicPartitionMetadata``) as an object.

    None for other texts: its bytes begin with 1 or 2, have a plausible time, or -1, and no byte too many.
    """
    try:
        cursor = Cursor(base64.b64decode(encoded, validate=True))
        version, time = cursor.flag(1, 2), cursor.number(8)
        if time != _UNKNOWN_TIME and not is_time(time):
            return None
        times = {}
        for _ in _items(cursor, 12) if version > 1 and cursor.left else ():
            name = _text(cursor.sized() or b"")
            times[name] = cursor.number(8)
        cursor.ends()
        return {"partitionTime": time, "processorMetadata": times}
    except (PayloadError, binascii.Error, ValueError):
        return None


@dataclass(frozen=True)
class StreamsTask:
    """A task of Streams that a member of a group has, or a store of a subtopology.

    task: such as 1_0; of a store its subtopology. role: active, standby, warmup or store; None for a member
    without tasks. partition: that the member reads for an active task. store: topic of a changelog.
    """

    member: str | None = None
    client: str | None = None
    host: str | None = None
    process: str | None = None
    endpoint: str | None = None
    version: int | None = None
    task: str | None = None
    role: str | None = None
    partitions: str | None = None
    store: str | None = None


def tasks_of(kind: str | None, value: Mapping[str, Any]) -> list[StreamsTask]:
    """Returns the tasks that a record of a group's state has, by the value in Kafka's JSON.

    kind: GroupMetadata, whose members have ``with_user_data``; StreamsGroupCurrentMemberAssignment;
    StreamsGroupTopology, of which the stores. [] for others.
    """
    if kind == "StreamsGroupTopology":
        return [
            StreamsTask(task=subtopology["subtopologyId"], role="store", store=changelog["name"])
            for subtopology in value["subtopologies"]
            for changelog in subtopology["stateChangelogTopics"]
        ]
    if kind == "StreamsGroupCurrentMemberAssignment":
        names = {"active": "activeTasks", "standby": "standbyTasks", "warmup": "warmupTasks"}
        tasks = [
            StreamsTask(task=f"{subtopology['subtopologyId']}_{partition}", role=role)
            for role, name in names.items()
            for subtopology in value[name]
            for partition in subtopology["partitions"]
        ]
        return tasks or [StreamsTask()]
    if kind != "GroupMetadata" or value.get("protocol") != PROTOCOL:
        return []
    return [task for member in value["members"] for task in _tasks_of_member(member)]


def _tasks_of_member(member: Mapping[str, Any]) -> Iterator[StreamsTask]:
    """Yields the tasks of a member; partitions and active tasks of an assignment stand in the same order."""
    said, given = (
        member[side] if isinstance(member[side], dict) else {} for side in ("subscription", "assignment")
    )
    about, tasks = (
        holder.get("userData") if isinstance(holder.get("userData"), dict) else {} for holder in (said, given)
    )
    task_of_member = StreamsTask(
        member["memberId"],
        member["clientId"],
        member["clientHost"],
        about.get("processId"),
        about.get("userEndPoint"),
        about.get("version"),
    )
    places = [
        f"{assigned['topic']}-{partition}"
        for assigned in given.get("assignedPartitions", ())
        for partition in assigned["partitions"]
    ]
    active = tasks.get("activeTasks", ())
    of_task: dict[str, list[str]] = {task: [] for task in active}
    if len(places) == len(active):
        for task, place in zip(active, sorted(places, key=_by_partition), strict=True):
            of_task[task].append(place)
    for task, read in of_task.items():
        yield replace(task_of_member, task=task, role="active", partitions=",".join(sorted(read)) or None)
    for task in tasks.get("standbyTasks", ()):
        yield replace(task_of_member, task=task, role="standby")
    if not of_task and not tasks.get("standbyTasks"):
        yield task_of_member


def _by_partition(place: str) -> tuple[str, int]:
    topic, _, partition = place.rpartition("-")
    return topic, int(partition)
