"""Members and states of groups, against what Kafka's Admin answered at moments when nothing changed."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.app_views import DATA
from tests.support.made_views import Rows, asking

GROUPS = DATA.parent / "groups"
FOLDERS = {"groups": GROUPS, "streams": DATA / "streams"}
MOMENTS = [*map(json.loads, (GROUPS / "members.jsonl").read_text().splitlines())]
LAST = json.loads((GROUPS / "moment.json").read_text())


def cut(log: bytes, end: int) -> bytes:
    """The batches of a segment below an offset."""
    at = 0
    while at < len(log):
        base, length = struct.unpack_from(">qi", log, at)
        if base >= end:
            break
        at += 12 + length
    return log[:at]


def members(logs: Path, lake: Path) -> Rows:
    as_command.decode(None, Settings(source=(str(logs),), lake=str(lake), typed=False))
    return asking(str(lake))("SELECT * FROM group_members")


def check(rows: Rows, groups: list[dict[str, Any]]) -> None:
    """Holds rows to Admin's descriptions of all groups but those that only commit."""
    assert {row["group"] for row in rows} == {group["group"] for group in groups}
    for group in groups:
        own = [row for row in rows if row["group"] == group["group"]]
        for row in own:
            assert (row["type"], row["state"]) == (group["type"], group["state"])
            assert row["assignment_epoch"] == group["targetAssignmentEpoch"]
            assert group["groupEpoch"] in (None, row["group_epoch"])  # Admin has none of classic groups
            # where no member asks for an assignor, the broker takes its first one
            assert group.get("partitionAssignor", "") in ("", row["assignor"] or "uniform")
        found = {row["member_id"]: row for row in own if row["member_id"] is not None}
        assert found.keys() == {member["memberId"] for member in group["members"]}
        for member in group["members"]:
            check_member(found[member["memberId"]], member)


def check_member(row: dict[str, Any], member: dict[str, Any]) -> None:
    host = member.get("host") or member.get("clientHost")
    assert (row["client_id"], row["client_host"]) == (member["clientId"], host)
    assert row["instance_id"] == (member.get("groupInstanceId") or member.get("instanceId"))
    assert row["member_epoch"] == member["memberEpoch"]
    assigned, target = (json.loads(row[name] or "null") for name in ("assigned", "target"))
    if "assignment" in member:
        assert (assigned, target) == (member["assignment"], member["targetAssignment"])
        assert row["is_classic"] != member["upgraded"]
    else:
        assert assigned == {role: member[role] for role in ("active", "standby", "warmup")}
        assert target["active"] == member["targetActive"]


def test_groups_when_the_broker_stopped(tmp_path: Path) -> None:
    described = [
        {**group["describe"], **group}
        for group in LAST["groups"]
        if group["type"] != "Classic" or group["protocol"]
    ]
    check(members(GROUPS, tmp_path / "lake"), described)


@pytest.mark.parametrize("moment", MOMENTS, ids=[one["cluster"] for one in MOMENTS])
def test_groups_at_a_moment(moment: dict[str, Any], tmp_path: Path) -> None:
    """A static member is away and another has a regular expression; two members of a streams group."""
    logs = tmp_path / "logs"
    shutil.copytree(FOLDERS[moment["cluster"]], logs)
    for partition, end in moment["ends"].items():
        log = logs / f"__consumer_offsets-{partition}" / f"{0:020d}.log"
        log.write_bytes(cut(log.read_bytes(), end))
    rows = members(logs, tmp_path / "lake")
    check(rows, moment["groups"])
    matched = {row["regular_expression"]: row["matched_topics"] for row in rows if row["regular_expression"]}
    assert matched == ({r"events\..*": ["events.x", "events.y"]} if moment["cluster"] == "groups" else {})
    states = {row["member_id"]: row["member_state"] for row in rows if row["type"] in ("Consumer", "Streams")}
    assert {*states.values()} - {None} == {"STABLE"}
