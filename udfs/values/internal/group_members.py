"""Says how groups and their members stand now, from the last records that a group coordinator kept of them.

A classic group has one record with all of its members. A group of another type has one for itself, one for
its target assignment, and three a member. The states are those that a coordinator computes when it has loaded
the records (``ConsumerGroup``, ``StreamsGroup``, ``ShareGroup`` and ``ClassicGroup`` of Kafka).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Fields = dict[str, Any]
_EMPTY, _STABLE = "Empty", "Stable"
_GROUPS = {
    "GroupMetadata": "Classic",
    "ConsumerGroupMetadata": "Consumer",
    "ShareGroupMetadata": "Share",
    "StreamsGroupMetadata": "Streams",
}
# Ids of MemberState of the protocols: of Streams they begin with 1
_MEMBER_STATES = ("STABLE", "UNREVOKED_{}", "UNRELEASED_{}")
_FIRST_STATE = {"Streams": 1}
_TASKS = ("active", "standby", "warmup")


@dataclass(frozen=True)
class GroupMember:
    """A member of a group now, or a group without members: ``member_id`` and what belongs to it are None.

    group_type: Classic, Consumer, Share or Streams. state: of the group, as Kafka's Admin names it; None
    where the log does not say it. group_epoch: of a classic group its generation. assignor: None where the
    broker's default is taken, too. is_classic: it speaks the classic protocol. member_state: Kafka's name.
    subscribed: topics. expression: the regular expression of a subscription; matched: topics that it matched
    last. assigned, target: JSON of topic to partitions; of Streams, of role to subtopology to partitions.
    """

    group_type: str
    state: str | None
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str | None
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    instance_id: str | None = None
    is_classic: bool | None = None
    member_epoch: int | None = None
    member_state: str | None = None
    subscribed: list[str] | None = None
    expression: str | None = None
    matched: list[str] | None = None
    assigned: str | None = None
    target: str | None = None


def group_members(records: str | None, topics: str | None) -> list[GroupMember]:
    """Returns the members of a group, or one row without a member; nothing where there is no group.

    records: a JSON array of ``{"offset", "kind", "key", "value"}``, the current records of one group. topics:
    lines of topic id, space and name; an id that is not there stays.
    """
    by_kind: dict[str, list[tuple[Fields, Fields]]] = {}
    last = ""
    for record in sorted(json.loads(records or "[]"), key=lambda record: record["offset"]):
        by_kind.setdefault(record["kind"], []).append((record["key"], record["value"]))
        last = record["kind"] if record["kind"] in _GROUPS else last
    if not last:
        return []
    if last == "GroupMetadata":
        return _classic(by_kind[last][-1][1])
    names = dict(line.split(" ", 1) for line in (topics or "").split("\n") if " " in line)
    return _modern(last.removesuffix("GroupMetadata"), by_kind, names)


def _classic(group: Fields) -> list[GroupMember]:
    members = group["members"]
    state = _STABLE if members else _EMPTY
    row = GroupMember("Classic", state, group["generation"], None, group["protocol"] or None)
    return [replace(row, **_of_classic(member)) for member in members] or [row]


def _of_classic(member: Fields) -> Fields:
    assigned, subscription = member["assignment"], member["subscription"]
    is_read = isinstance(assigned, dict)  # another protocol than that of consumers stays as it is
    return {
        "member_id": member["memberId"],
        "client_id": member["clientId"],
        "client_host": member["clientHost"],
        "instance_id": member.get("groupInstanceId"),
        "is_classic": True,
        "subscribed": subscription["topics"] if isinstance(subscription, dict) else None,
        "assigned": _by_name((part["topic"], part) for part in assigned["assignedPartitions"])
        if is_read
        else None,
    }


def _modern(
    prefix: str, by_kind: Mapping[str, list[tuple[Fields, Fields]]], names: Mapping[str, str]
) -> list[GroupMember]:
    """Returns the members of a group of a newer protocol. prefix: Consumer, Share or Streams."""

    def of_group(kind: str) -> Fields:
        return by_kind.get(f"{prefix}Group{kind}", [({}, {})])[-1][1]

    def of_members(kind: str) -> dict[str, Fields]:
        return {key["memberId"]: value for key, value in by_kind.get(f"{prefix}Group{kind}", ())}

    members, current = of_members("MemberMetadata"), of_members("CurrentMemberAssignment")
    targets = of_members("TargetAssignmentMember")
    group, epoch = of_group("Metadata"), of_group("TargetAssignmentMetadata").get("assignmentEpoch")
    matched = {
        key["regularExpression"]: value["topics"]
        for key, value in by_kind.get(f"{prefix}GroupRegularExpression", ())
    }
    state = _state(
        prefix, group, epoch or 0, of_group("Topology"), [current.get(member, {}) for member in members]
    )
    assignors = Counter(
        member["serverAssignor"] for member in members.values() if member.get("serverAssignor")
    )
    assignor = max(sorted(assignors), key=assignors.__getitem__, default=None)
    row = GroupMember(prefix, state, group["epoch"], epoch, assignor)
    read = _tasks if prefix == "Streams" else _partitions
    return [
        replace(
            row,
            member_id=member_id,
            client_id=member["clientId"],
            client_host=member["clientHost"],
            instance_id=member.get("instanceId"),
            is_classic=member.get("classicMemberMetadata") is not None,
            member_epoch=current.get(member_id, {}).get("memberEpoch", 0),
            member_state=_member_state(prefix, current.get(member_id, {})),
            subscribed=member.get("subscribedTopicNames"),
            expression=member.get("subscribedTopicRegex") or None,
            matched=matched.get(member.get("subscribedTopicRegex") or ""),
            assigned=read(current.get(member_id, {}), names),
            target=read(targets.get(member_id, {}), names),
        )
        for member_id, member in sorted(members.items())
    ] or [row]


def _state(
    prefix: str, group: Fields, assignment_epoch: int, topology: Fields, members: list[Fields]
) -> str | None:
    """Returns the state that a coordinator gives a group. members: their current assignments."""
    if not members:
        return _EMPTY
    if prefix == "Share":
        return _STABLE
    if prefix == "Streams":
        validated = group.get("validatedTopologyEpoch", -1)
        if not topology or (validated != -1 and validated != topology["epoch"]):
            return "NotReady"
        if validated == -1:  # releases before 4.2 do not write it
            return None
    if group["epoch"] > assignment_epoch:
        return "Assigning"
    reconciled = all(
        _member_state(prefix, member) == "STABLE" and member.get("memberEpoch", 0) == assignment_epoch
        for member in members
    )
    return _STABLE if reconciled else "Reconciling"


def _member_state(prefix: str, current: Fields) -> str:
    first = _FIRST_STATE.get(prefix, 0)
    number = current.get("state", first) - first
    name = _MEMBER_STATES[number] if 0 <= number < len(_MEMBER_STATES) else "UNKNOWN"
    return name.format("TASKS" if prefix == "Streams" else "PARTITIONS")


def _partitions(assignment: Fields, names: Mapping[str, str]) -> str:
    """Returns the partitions of an assignment, or target, by topic."""
    listed = assignment.get("assignedPartitions") or assignment.get("topicPartitions") or []
    return _by_name((names.get(part["topicId"], part["topicId"]), part) for part in listed)


def _by_name(listed: Iterable[tuple[str, Fields]]) -> str:
    partitions: dict[str, list[int]] = {}
    for name, part in listed:
        partitions.setdefault(name, []).extend(part["partitions"])
    return _text({name: sorted(partitions[name]) for name in sorted(partitions)})


def _tasks(assignment: Fields, names: Mapping[str, str]) -> str:
    """Returns the tasks of an assignment, or target, by role and subtopology."""
    return _text(
        {
            role: {
                part["subtopologyId"]: sorted(part["partitions"])
                for part in assignment.get(f"{role}Tasks") or []
            }
            for role in _TASKS
        }
    )


def _text(held: object) -> str:
    return json.dumps(held, separators=(",", ":"), ensure_ascii=False)
