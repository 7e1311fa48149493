"""docs/restore_runbook.md word by word: from the disks of a dead cluster to a consumer that goes on."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_log_lake.pipelines.cli.program import main
from tests.kafka.broker import NEWEST, broker, client, with_tools
from tests.kafka.cluster import Cluster
from tests.support.docs import ROOT, blocks

PAGE = ROOT / "docs" / "restore_runbook.md"
OLD = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
    "log.retention.ms": "-1",
}
NEW = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
READ = {0: 12, 1: 5}  # by partition: what billing had committed
RECORDS = 30  # of a partition


def dead_cluster(folder: Path) -> list[Path]:
    """Two brokers write, a group commits, all die at once; then one disk loses a bit. Returns the disks."""
    cluster = Cluster(folder, OLD)
    try:
        first = cluster.start(1)
        cluster.start(2)
        with client(first.address) as writer:
            writer.create("orders", 2, max_message_bytes="900000")
            for number in range(RECORDS):  # a batch each
                for partition in READ:
                    writer.send("orders", partition, [(f"k{number}", f"order-{partition}-{number}")])
        commit(first.address)
    finally:
        cluster.close()
    (segment,) = (cluster.disk(1) / "orders-0").glob("*.log")
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    return [cluster.disk(1), cluster.disk(2)]


def commit(address: str) -> None:
    """billing commits, once the new cluster has loaded its coordinator."""
    asked = [ConsumerGroupTopicPartitions("billing", [TopicPartition("orders", *at) for at in READ.items()])]
    admin = AdminClient({"bootstrap.servers": address})
    for _ in range(100):
        (answer,) = admin.alter_consumer_group_offsets(asked).values()
        errors = [one.error for one in answer.result().topic_partitions if one.error]
        if not errors:
            return
        time.sleep(0.3)
    raise AssertionError(errors)


def test_the_runbook_word_by_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The places and the port alone are others than on the page."""
    disks = dead_cluster(tmp_path / "old")
    monkeypatch.chdir(tmp_path)
    look, restore, consume = (block.strip() for block in blocks(PAGE, "sh"))
    with broker(tmp_path / "new", NEW, heap="512m", release=NEWEST) as target:

        def here(command: str) -> str:
            for number, disk in enumerate(disks, 1):
                command = command.replace(f"/mnt/broker{number}", str(disk))
            return command.replace("new:9092", target.address)

        assert main(shlex.split(here(look))[1:]) == 0
        assert "groups       1 group, 2 offsets to commit" in capsys.readouterr().out
        for _ in range(2):  # again: no record comes twice
            assert main(shlex.split(here(restore))[1:]) == 0
        page = (tmp_path / "restored" / "restore.html").read_text()
        assert f"All is there: {2 * RECORDS} records restored and read back equal." in page
        settings = AdminClient({"bootstrap.servers": target.address}).list_topics("orders")
        assert len(settings.topics["orders"].partitions) == 2
        tools = with_tools(tmp_path / "bin")
        done = subprocess.run(
            here(consume), shell=True, env=tools, capture_output=True, text=True, check=False
        )
    expected = {f"order-{partition}-{n}" for partition, at in READ.items() for n in range(at, RECORDS)}
    found = [line for line in done.stdout.splitlines() if line.startswith("order-")]
    assert len(found) == len(expected), done.stderr[-3000:]
    assert set(found) == expected
