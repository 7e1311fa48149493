"""Groups go on at the right record after a restore, as real brokers and clients have it."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_log_lake.pipelines.cli.program import main
from tests.kafka.broker import NEWEST, OLDEST, Broker, broker
from tests.support.logs import batch, data, marker, put
from tests.support.restored import TEXT, commit
from tests.support.segment_maker import Batch

BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
}
NOW = int(time.time() * 1000)
# group -> the offset that it had committed, and the value that it must read next; None: it has read all
GROUPS = {
    "exact": (8, b"v8"),
    "in-aborted": (4, b"v7"),  # a transaction that was aborted: no consumer gets its records
    "at-marker": (6, b"v7"),
    "lost": (11, b"v13"),  # offsets 10 to 12 are damaged
    "all-read": (16, None),
    "timed": (14, b"v14"),
    "busy": (8, b"v8"),
}
# group and text of commits that no client of librdkafka makes
NOT_TAKEN = (("", TEXT), ("\n", TEXT), (" elsewhere", TEXT), ("elsewhere\0", TEXT), ("elsewhere too", "a\0"))


def source(disk: Path) -> Path:
    """The disk of a dead broker, with an empty partition, an aborted transaction and lost offsets."""
    damaged = bytearray(batch(10, base_timestamp=NOW))
    damaged[-1] ^= 1
    put(
        disk / "t-0",
        0,
        batch(0, base_timestamp=NOW),
        data(3, 9, 3, base_timestamp=NOW),
        marker(6, 9, commit=False),
        batch(7, base_timestamp=NOW),
        bytes(damaged),
        batch(13, base_timestamp=NOW),
    )
    put(disk / "t-1", 5)
    commits = [commit("timed", "t", 0, 2, NOW - 60_000)]
    commits += [commit(group, "t", 0, offset, NOW) for group, (offset, _) in GROUPS.items()]
    commits += [commit("empty", "t", 1, 5, NOW), commit("elsewhere", "gone", 0, 3, NOW)]
    commits += [commit(group, "t", 0, 8, NOW, text) for group, text in NOT_TAKEN]
    made = [
        Batch((record,), base_offset=number, base_timestamp=at).encode()
        for number, (record, at) in enumerate(commits)
    ]
    put(disk / "__consumer_offsets-0", 0, *made)
    return disk


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("target") / "b"
    with broker(folder, BROKER, heap="512m", release=request.param) as running:
        yield running


def restore(disk: Path, target: Broker, folder: Path, *options: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code, and the rows of the page's groups.csv."""
    own = ["--bootstrap-server", target.address, "--create", "yes", "--cores", "1", *options]
    code = main(["restore", str(disk), *own, "--state", f"{folder}/state", "--report", f"{folder}/report"])
    with (folder / "report" / "groups.csv").open(encoding="utf-8", newline="") as file:
        return code, list(csv.DictReader(file))


def next_value(target: Broker, group: str, topic: str, partition: int = 0) -> bytes | None:
    """The next value that a consumer of the group gets; None at the end of the partition."""
    reader = Consumer(
        {
            "bootstrap.servers": target.address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    try:
        reader.assign([TopicPartition(topic, partition)])
        found = reader.poll(60)
        assert found is not None, f"{group} waits in vain"
        if found.error():
            assert found.error().name() == "_PARTITION_EOF", found.error()
            return None
        return found.value()
    finally:
        reader.close()


def test_groups_go_on_with_the_right_record(target: Broker, tmp_path: Path) -> None:
    disk = source(tmp_path / "disk")
    member = Consumer({"bootstrap.servers": target.address, "group.id": "busy"})
    member.subscribe(["t"], on_assign=lambda *_: None)
    joined = time.monotonic() + 60
    while not member.memberid() and time.monotonic() < joined:
        member.poll(0.2)
    code, rows = restore(disk, target, tmp_path)
    assert code == 3
    by_group = {row["group"]: row for row in rows}
    assert "in use in the target (1 member" in by_group["busy"]["held back"]
    assert by_group["elsewhere"]["held back"] == "its topic was not restored"
    not_taken = [row for row in rows if row["held back"].startswith("confluent-kafka takes no group with")]
    assert len(not_taken) == len(NOT_TAKEN)
    member.close()
    code, rows = restore(disk, target, tmp_path, "--groups", "(?!elsewhere)\\w.+")
    assert code == 3, "offsets are lost in the sources"
    assert {row["group"] for row in rows if row["held back"]} == set()
    moved = {row["group"] for row in rows if row["note"] == "its own record was not restored: the next one"}
    assert moved == {"in-aborted", "at-marker", "lost"}
    for group, (_, value) in GROUPS.items():
        assert next_value(target, group, "t") == value, group
    assert next_value(target, "empty", "t", 1) is None
    kept = committed(target, "exact", "t")
    assert (kept.metadata, kept.leader_epoch) == (TEXT, None)


def test_other_positions_are_replaced_only_when_that_is_asked(target: Broker, tmp_path: Path) -> None:
    disk = source(tmp_path / "disk")
    options = ("--rename", "t=u", "--groups", "timed|exact")
    early = str(NOW - 30_000)
    _, rows = restore(disk, target, tmp_path, *options, "--groups-at", early)
    assert [(row["group"], row["committed"]) for row in rows] == [("timed", "2")]
    assert next_value(target, "timed", "u") == b"v2"
    _, rows = restore(disk, target, tmp_path, *options)
    held = {row["group"]: row["held back"] for row in rows}
    assert held == {
        "exact": "",
        "timed": "it has committed 2 there: --overwrite-groups replaces it",
    }
    assert next_value(target, "timed", "u") == b"v2"
    _, rows = restore(disk, target, tmp_path, *options, "--overwrite-groups")
    assert [(row["group"], row["before"], row["held back"]) for row in rows][1] == ("timed", "2", "")
    assert next_value(target, "timed", "u") == b"v14"
    _, rows = restore(disk, target, tmp_path, *options, "--no-groups")
    assert rows == []


def test_the_page_says_where_groups_were_and_are(target: Broker, tmp_path: Path) -> None:
    """Also of a group whose name is made to be taken for markup and for a formula."""
    disk = tmp_path / "disk"
    put(disk / "p-0", 0, batch(0, base_timestamp=NOW))
    name = "=<script>alert(1)</script>"
    record, at = commit(name, "p", 0, 1, NOW)
    put(disk / "__consumer_offsets-0", 0, Batch((record,), base_offset=0, base_timestamp=at).encode())
    code, rows = restore(disk, target, tmp_path)
    assert code == 0
    assert [(row["group"], row["committed"], row["before"], row["after"]) for row in rows] == [
        (f"'{name}", "1", "", "1")
    ]
    page = (tmp_path / "report" / "restore.html").read_text()
    assert "All is there: 3 records restored and read back equal." in page
    assert "&lt;script&gt;" in page
    assert not re.search("<script|javascript:|https?://", page)


def committed(target: Broker, group: str, topic: str) -> TopicPartition:
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    admin = AdminClient({"bootstrap.servers": target.address})
    (answer,) = admin.list_consumer_group_offsets(asked).values()
    (found,) = answer.result().topic_partitions
    return found
