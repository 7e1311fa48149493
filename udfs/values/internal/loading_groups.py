"""Replays ``__consumer_offsets`` as a group coordinator does, and finds the record that stops it.

A coordinator that meets such a record gives up its partition: no group there can join or commit. The log was
right when it was written. Compaction keeps the last record of each key, in the old order, so that a
coordinator which loads it sees states that never were: a tombstone before the one that it needs, or an old
group of another protocol. Source: ``GroupMetadataManager.replay``, ``ConsumerGroup`` and
``OffsetMetadataManager`` of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_log_lake.udfs.values.internal.releases import LOADERS, NEWEST
from kafka_log_lake.udfs.values.internal.topics import Fields, InternalRecord

_CLASSIC, _CONSUMER, _SHARE, _STREAMS = "classic", "consumer", "share", "streams"
_GONE = -1  # epoch of a member that left
_PROTOCOLS = {"ConsumerGroup": _CONSUMER, "ShareGroup": _SHARE, "StreamsGroup": _STREAMS}


@dataclass
class _Member:
    """A member. owned: (topic id, partition) that it has or gives up, by the epoch of the member then."""

    epoch: int = 0
    owned: frozenset[tuple[str, int]] = frozenset()


@dataclass
class _Group:
    """A group as far as it was replayed.

    is_simple: it has offsets alone. target: members with a target assignment. owners: by topic id and
    partition, the epoch at which a member has it.
    """

    kind: str
    is_simple: bool = False
    members: dict[str, _Member] = field(default_factory=dict)
    target: set[str] = field(default_factory=set)
    assignment_epoch: int = 0
    owners: dict[tuple[str, int], int] = field(default_factory=dict)


def _is_up_to(loader: str, last: str) -> bool:
    return LOADERS.index(loader) <= LOADERS.index(last)


class _Stop(Exception):
    """What the coordinator throws."""


@dataclass
class GroupReplay:
    """Replays the records of one partition of ``__consumer_offsets``, in the order of the log.

    loader: of LOADERS. Up to 4.1.1 KAFKA-19862 stops it where an assignment was taken over, up to 4.2.0
    KAFKA-20254 where a streams group follows offsets of a group that had no members.
    """

    loader: str = NEWEST
    groups: dict[str, _Group] = field(default_factory=dict)

    def add(self, record: InternalRecord) -> str | None:
        """Replays a record; returns why the coordinator stops at it, None if it goes on."""
        if record.name is None or not record.is_read:
            return record.stops_coordinator
        try:
            self._replay(record.name, record.key or {}, record.value)
        except _Stop as why:
            return str(why)
        return None

    def _replay(self, name: str, key: Fields, value: Fields | None) -> None:
        group_id = key.get("groupId") or key.get("group") or ""
        if name in ("OffsetCommit", "LegacyOffsetCommit"):
            if value is not None:
                self.groups.setdefault(group_id, _Group(_CLASSIC, is_simple=True))
        elif name == "GroupMetadata":
            if value is None:
                self.groups.pop(group_id, None)
            else:
                is_simple = not value["protocolType"] and not value["members"]
                self.groups[group_id] = _Group(_CLASSIC, is_simple)
        else:
            protocol = next((prefix for prefix in _PROTOCOLS if name.startswith(prefix)), None)
            if protocol is not None:
                self._modern(group_id, _PROTOCOLS[protocol], name.removeprefix(protocol), key, value)

    def _modern(self, group_id: str, kind: str, part: str, key: Fields, value: Fields | None) -> None:
        group = self.groups.get(group_id)
        if group is None and value is None:
            return
        is_refused = kind == _STREAMS and _is_up_to(self.loader, "4.2.0")
        if group is None or (group.kind == _CLASSIC and group.is_simple and not is_refused):
            group = self.groups[group_id] = _Group(kind)
        elif group.kind != kind:
            raise _Stop(f"group {group_id} is not a {kind} group")
        member_id = key.get("memberId", "")
        if part == "MemberMetadata":
            self._member(group, member_id, value)
        elif part == "Metadata":
            self._metadata(group_id, group, value)
        elif part == "TargetAssignmentMember":
            (group.target.discard if value is None else group.target.add)(member_id)
        elif part == "TargetAssignmentMetadata":
            if value is None and group.target:
                count = len(group.target)
                raise _Stop(f"the target assignment of group {group_id} is deleted before {count} members'")
            group.assignment_epoch = -1 if value is None else value["assignmentEpoch"]
        elif part == "CurrentMemberAssignment":
            self._assignment(group, member_id, value)

    def _member(self, group: _Group, member_id: str, value: Fields | None) -> None:
        if value is not None:
            group.members.setdefault(member_id, _Member())
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if member.epoch != _GONE:
            raise _Stop(f"member {member_id} is deleted before its current assignment")
        if member_id in group.target:
            raise _Stop(f"member {member_id} is deleted before its target assignment")
        self._own(group, member, frozenset(), _GONE)
        del group.members[member_id]

    def _metadata(self, group_id: str, group: _Group, value: Fields | None) -> None:
        if value is not None:
            return
        if group.members:
            raise _Stop(f"group {group_id} is deleted, and it has {len(group.members)} members")
        if group.target and group.kind != _STREAMS:
            raise _Stop(f"group {group_id} is deleted before {len(group.target)} target assignments")
        if group.assignment_epoch != -1:
            raise _Stop(f"group {group_id} is deleted before its target assignment")
        del self.groups[group_id]

    def _assignment(self, group: _Group, member_id: str, value: Fields | None) -> None:
        if value is None:
            member = group.members.get(member_id)
            if member is not None:
                self._own(group, member, frozenset(), _GONE)
            return
        member = group.members.setdefault(member_id, _Member())
        lists = (value.get("assignedPartitions"), value.get("partitionsPendingRevocation"))
        owned = frozenset(
            (topic["topicId"], number)
            for listed in (lists if group.kind == _CONSUMER else ())
            for topic in listed or ()
            for number in topic["partitions"]
        )
        self._own(group, member, owned, value["memberEpoch"])

    def _own(self, group: _Group, member: _Member, owned: frozenset[tuple[str, int]], epoch: int) -> None:
        """Notes at which epoch each partition is owned; a later epoch that is there already is refused."""
        is_strict = _is_up_to(self.loader, "4.1.1")
        for place in member.owned:
            if group.owners.get(place) == member.epoch:
                del group.owners[place]
            elif is_strict:
                raise _Stop(f"partition {place[1]} of topic {place[0]} is owned at another epoch")
        for place in sorted(owned):
            before = group.owners.get(place)
            if before is not None and (is_strict or before >= epoch):
                raise _Stop(f"partition {place[1]} of topic {place[0]} is owned at epoch {before} already")
            group.owners[place] = epoch
        member.owned, member.epoch = owned, epoch
