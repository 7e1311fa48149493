"""User data of Kafka Streams in groups and commits, against Streams' own classes (4.2.0 and 2.8.2)."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.values.apps.user_data import (
    StreamsTask,
    assignment,
    commit_metadata,
    subscription,
    tasks_of,
    with_user_data,
)
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from tests.support.app_views import DATA

LINES: list[dict[str, Any]] = [*map(json.loads, (DATA / "userdata.jsonl").read_text().splitlines())]
READERS = {"subscription": subscription, "assignment": assignment}


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['side']}-{line['encoded'][:8]}")
def test_it_reads_what_the_classes_of_streams_read(line: dict[str, Any]) -> None:
    if line["side"] == "commit":
        assert commit_metadata(line["encoded"]) == line["decoded"]
    else:
        assert READERS[line["side"]](base64.b64decode(line["encoded"])) == line["decoded"]


@given(line=st.sampled_from(LINES), at=st.integers(0, 3000), more=st.binary(max_size=20))
def test_cut_and_foreign_bytes_are_not_taken_for_it(line: dict[str, Any], at: int, more: bytes) -> None:
    """Bytes that fit by chance are read, and all others are left as they are."""
    raw = base64.b64decode(line["encoded"])
    if at < len(raw):
        text = base64.b64encode(raw[:at] + more).decode()
        if not more and at != 9:  # version 2 without processors
            assert commit_metadata(text) is None or line["side"] != "commit"
        member = {"subscription": {"userData": text}, "assignment": "other"}
        (found,) = with_user_data([member])
        assert found["assignment"] == "other"
        assert found["subscription"]["userData"] == text or isinstance(
            found["subscription"]["userData"], dict
        )
        with pytest.raises(PayloadError):
            assignment(raw[:at])
    assert commit_metadata(more.decode("latin-1")) is None


@pytest.mark.parametrize("given", ["AAAA", None])
def test_a_member_whose_user_data_cannot_be_read_has_no_task(given: str | None) -> None:
    sides = {
        "subscription": {"userData": "AAAA"},
        "assignment": {"assignedPartitions": [], "userData": given},
    }
    member = {"memberId": "m", "clientId": "c", "clientHost": "/h", **sides}
    group = {"protocol": "stream", "members": with_user_data([member])}
    assert tasks_of("GroupMetadata", group) == [StreamsTask("m", "c", "/h")]


def test_a_task_has_the_name_of_its_topology() -> None:
    """``TaskId``: of an application of several topologies, topology__subtopology_partition."""
    head = struct.pack(">ii16xi", 10, 10, 0)
    sums = [(1, 2, -2, struct.pack(">h", 3) + b"top"), (1, 3, 7, struct.pack(">h", -1))]
    listed = b"".join(struct.pack(">iiq", *numbers) + name for *numbers, name in sums)
    fields = subscription(head + struct.pack(">i", len(sums)) + listed + struct.pack(">bi", 0, 0))
    assert (fields["prevTasks"], fields["standbyTasks"]) == (["top__1_2"], ["1_3"])
    tasks = struct.pack(">iii", 1, 1, 2) + struct.pack(">i", 3) + "top".encode("utf-16-be")
    given = struct.pack(">ii", 10, 10) + tasks + bytes(4 * 4) + struct.pack(">iq", 0, 5)
    assert assignment(given)["activeTasks"] == ["top__1_2"]
