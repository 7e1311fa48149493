"""``restore`` at the edges of a real target: nodes that go away, settings that it refuses, spread groups."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.udfs.values.internal.encode import metadata_record
from tests.kafka.broker import Broker, Client, client
from tests.kafka.cluster import Cluster
from tests.support.cluster import ROOT
from tests.support.logs import put
from tests.support.metadata_disks import metadata_log, topic
from tests.support.restored import commit, made_log, wait_for_first_transaction
from tests.support.segment_maker import Batch, Record

TIERED = Path(__file__).resolve().parents[1] / "data" / "tiered" / "local"
NOW = int(time.time() * 1000) - 60_000


def restore(running: Broker, state: Path, *argv: object) -> int:
    own = ("--bootstrap-server", running.address, "--state", state, "--cores", 1)
    return main(["restore", *map(str, (*argv, *own))])


def test_a_tier_is_restored_with_what_is_left_on_the_disk(
    running: Broker, judge: Client, tmp_path: Path
) -> None:
    sources = (TIERED / "log-dir", "--tier", TIERED / "tier", "--topics", "small", "--create", "yes")
    assert restore(running, tmp_path / "state", *sources) == 0
    with gzip.open(TIERED / "read_committed.jsonl.gz", "rt") as lines:
        rows = [row for row in map(json.loads, lines) if row[0] == "small"]
    got = [row[3:] for row in sorted(rows, key=lambda row: row[2])]
    there = [
        [at, *(None if one is None else base64.b64encode(one).decode() for one in (key, value))]
        for _, at, key, value, _ in judge.read_timed("small", 0, committed=True)
    ]
    assert there == got


def test_settings_that_the_target_refuses_are_left_out_and_a_topic_too_small_is_refused(
    running: Broker, judge: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    for number in (0, 1):
        put(disk / f"t-{number}", 0, Batch((Record(b"k", b"v"),), base_timestamp=NOW).encode())
    settings = [
        ("message.format.version", "2.8"),
        ("retention.ms", "-1"),
        ("cleanup.policy", "compact,delete"),
    ]
    settings.append(("message.timestamp.type", "LogAppendTime"))
    configs = [
        metadata_record("ConfigRecord", 0, {"resourceType": 2, "resourceName": "t", "name": n, "value": v})
        for n, v in settings
    ]
    metadata_log(disk, [*topic("t", 1, [1]), *configs])  # it ends before the second partition was added
    assert restore(running, tmp_path / "state", disk, "--create", "yes") == 0
    said = capsys.readouterr().err
    assert "t: made without message.format.version=2.8, which the target refuses" in said
    # What would delete or change records meanwhile waits, with the command that sets it back
    assert (
        "cleanup.policy=delete, message.timestamp.type=CreateTime until all is restored: t; then back:"
        in said
    )
    back = "--add-config 'cleanup.policy=[compact,delete],message.timestamp.type=LogAppendTime'"
    assert f"{back} --delete-config message.timestamp.after.max.ms" in said
    judge.create("narrow", 1)
    assert restore(running, tmp_path / "state2", disk, "--rename", "t=narrow") == 2
    assert "narrow has 1 partition in the target and 2 are needed" in capsys.readouterr().err
    # What would be refused is said without writing
    assert restore(running, tmp_path / "state2", disk, "--dry-run") == 0
    assert "t has records in the target: add --append" in capsys.readouterr().err


def test_a_group_misses_no_record_of_partitions_that_are_spread(
    running: Broker, judge: Client, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    for number in (0, 1):
        records = tuple(Record(b"k%d" % n, b"%d-%d" % (number, n), timestamp_delta=n) for n in range(20))
        put(disk / f"s-{number}", 0, Batch(records, base_timestamp=NOW).encode())
    record, at = commit("half", "s", 0, 15, NOW)  # and nothing of the other partition
    put(disk / "__consumer_offsets-0", 0, Batch((record,), base_timestamp=at).encode())
    more = ("--create", "yes", "--partitions", 3)
    assert restore(running, tmp_path / "state", disk, *more) == 0
    admin = AdminClient({"bootstrap.servers": running.address})
    places = [TopicPartition("s", number) for number in range(3)]
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("half", places)]).values()
    begins = {one.partition: one.offset for one in answer.result().topic_partitions}
    unread = {b"0-%d" % n for n in range(15, 20)} | {b"1-%d" % n for n in range(20)}
    left = {
        value
        for number in range(3)
        for offset, _, value in judge.read("s", number, committed=True)
        if offset >= max(begins[number], 0)
    }
    assert left >= unread
    assert min(begins.values()) >= 0


def test_a_node_of_three_goes_away_and_comes_back(tmp_path: Path) -> None:
    rows = made_log(tmp_path / "logs")
    lake, state = tmp_path / "lake", tmp_path / "state"
    assert main(["decode", "--source", str(tmp_path / "logs"), "--lake", str(lake)]) == 0
    three = {
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.min.isr": "2",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "2",
    }
    cluster = Cluster(tmp_path / "cluster", three)
    try:
        first, *_ = [cluster.start(node) for node in (1, 2, 3)]
        argv = ["restore", "--lake", str(lake), "--bootstrap-server", first.address, "--create", "yes"]
        argv += ["--state", str(state), "--max-bytes-per-second", "60000", "--cores", "1"]
        process = subprocess.Popen([sys.executable, "-m", "kafka_log_lake", *argv], cwd=ROOT)
        wait_for_first_transaction(state)
        with client(first.address) as judge:
            leader = judge.leader("made", 0)
            away = leader if leader != 1 else 2
            cluster.kill(away)
            time.sleep(5)
            cluster.start(away)
            assert process.wait(300) == 0
            assert [row[1:4] for row in judge.read_timed("made", 0, committed=True)] == rows
        topics = AdminClient({"bootstrap.servers": first.address}).list_topics("made").topics
        assert len(topics["made"].partitions[0].replicas) == 3
    finally:
        cluster.close()
