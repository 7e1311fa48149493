"""``recover --metadata``: controllers' logs compared, and the state of the cluster out of them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from crc32c import crc32c

from kafka_log_lake import connect
from kafka_log_lake.pipelines.listing.cluster_state import VOTERS, ClusterState, Partition
from kafka_log_lake.pipelines.listing.metadata_log import metadata_records
from kafka_log_lake.pipelines.recover import command as recover
from kafka_log_lake.pipelines.recover.broker_disk import bootstrap
from kafka_log_lake.pipelines.recover.placement import placements
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.pipelines.recover.state_files import commands, strimzi
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.udfs.format.encode import PlainRecord
from kafka_log_lake.udfs.values.internal import topics
from kafka_log_lake.udfs.values.internal.definitions import messages
from kafka_log_lake.udfs.values.internal.encode import metadata_record, new_uuid, record_batch
from tests.support import replicas
from tests.support.logs import batch
from tests.support.metadata_disks import IDS, identify, metadata_log, partition, topic

SCENARIO = "s11-controllers"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replicas.unpack(tmp_path_factory.mktemp("replicas"))


def run(corpus: Path, *options: str, names: str = "123") -> int:
    disks = [f"c{name}={corpus / SCENARIO / f'controller-{name}'}" for name in names]
    named = [word for one in disks for word in ("--source", one)]
    return recover.main([*named, "--cores", "1", "--metadata", *options])


def test_the_log_that_a_majority_has_is_written_record_by_record(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk, state, lake = tmp_path / "disk", tmp_path / "state", str(tmp_path / "lake")
    assert run(corpus, "--write", str(disk), "--report", str(state), "--lake", lake) == 0
    printed = capsys.readouterr().out
    assert "c2           voter, true history up to 46" in printed
    assert "uncommitted" not in printed
    truth = (corpus / "_oracle" / SCENARIO / "__cluster_metadata-0.truth.jsonl").read_text().splitlines()
    (segment,) = (disk / "__cluster_metadata-0").glob("*.log")
    found = [(record.offset, record.epoch) for record in metadata_records(str(segment))]
    expected = [(line["offset"], line["leaderEpoch"]) for line in map(json.loads, truth)]
    assert found == expected[: len(found)]
    assert len(found) == 61
    partitions = pq.read_table(state / "partitions.parquet").to_pylist()
    lines = (corpus / "_oracle" / SCENARIO / "leaders-after.tsv").read_text().splitlines()
    agreed = {(line.split("\t")[0], int(line.split("\t")[1]), line.split("\t")[4]) for line in lines}
    assert {(row["topic"], row["partition"], row["topic_id"]) for row in partitions} <= agreed
    in_lake = connect(lake).sql("SELECT * FROM cluster_partitions").to_arrow_table()
    assert in_lake.to_pylist() == partitions
    topics = list(yaml.safe_load_all((state / "topics.yaml").read_text()))
    assert {one["spec"]["topicName"] for one in topics} == {row["topic"] for row in partitions}
    assert "--topic meta-0 --partitions 2 " in (state / "commands.sh").read_text()


def test_what_a_majority_lacks_is_uncommitted(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(corpus, names="12") == 0
    printed = capsys.readouterr().out
    assert "committed    up to offset 46: a majority of the voters has it" in printed
    assert "uncommitted  offsets 46 to 60" in printed


def test_without_the_disks_of_a_majority_it_is_not_known_what_is_committed(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(corpus, names="1") == 0
    printed = capsys.readouterr().out
    assert "committed    not known: the disks of 1 of 3 voters are here" in printed
    assert "uncommitted" not in printed


def test_an_earlier_state_has_fewer_topics(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []
    for at in ("20", "61"):
        assert run(corpus, "--at", at, "--report", str(tmp_path / at)) == 0
        counts.append(pq.read_table(tmp_path / at / "partitions.parquet").num_rows)
    assert counts[0] < counts[1]
    assert run(corpus, "--at", "62") == 2
    assert "have offsets from 0 to 61" in capsys.readouterr().err


def test_records_after_a_snapshot_count_though_it_has_more_records_than_the_log_before(
    tmp_path: Path,
) -> None:
    """A snapshot numbers its own records, and has two besides those of topics."""
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    topics = [
        metadata_record("TopicRecord", 0, {"name": name, "topicId": new_uuid()}) for name in ("a", "b", "c")
    ]
    (folder / f"{2:020d}-{1:010d}.checkpoint").write_bytes(bootstrap(topics[:2]))
    records = [PlainRecord(offset, 1, None, value) for offset, value in enumerate(topics)]
    (folder / f"{0:020d}.log").write_bytes(record_batch(records, 1, 0, crc32c))
    state = placements(find_copies([f"c1={tmp_path}"], lambda topic: True)).state
    assert state is not None
    assert sorted(state.topics.values()) == ["a", "b", "c"]


KINDS: dict[str, dict[str, Any]] = {
    "RegisterBrokerRecord": {"brokerId": 1, "endPoints": [], "features": []},
    "TopicRecord": {"name": "t", "topicId": IDS["t"]},
    "PartitionRecord": {
        "partitionId": 0,
        "topicId": IDS["t"],
        "replicas": [1],
        "leader": 1,
        "leaderEpoch": 0,
    },
    "PartitionChangeRecord": {"partitionId": 0, "topicId": IDS["t"], "isr": [1]},
    "ConfigRecord": {"resourceType": 2, "resourceName": "t", "name": "a", "value": "b"},
    "NoOpRecord": {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_version", [True, False])
def test_a_record_that_no_definition_knows_is_a_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, is_version: bool
) -> None:
    """Of an unknown version, as RegisterBrokerRecord has one in Kafka 4.4, or of an unknown type."""
    made = {name: bytearray(metadata_record(name, 0, fields)) for name, fields in KINDS.items()}
    made[kind][2 if is_version else 1] = 99
    unread = f"{kind} version 99" if is_version else "record type 99 version 0"
    disk = tmp_path / "c1"
    identify(disk, 1)
    metadata_log(disk, [bytes(record) for record in made.values()])
    (disk / "__cluster_metadata-0" / "quorum-state").write_text('{"currentVoters": [{"voterId": 1}]}')
    state = tmp_path / "state"
    words = [f"--source=c1={disk}", "--cores", "1", "--metadata"]
    assert recover.main([*words, "--report", str(state)]) == 0
    printed = capsys.readouterr().out
    assert f"1 x {unread}" in printed.splitlines()[-1]
    assert "may not be whole" in printed.splitlines()[-1]
    for name in ("commands.sh", "topics.yaml"):
        assert f"1 x {unread}" in (state / name).read_text()
    assert recover.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unread"][unread] == 1
    partition(disk, "t", batch(0))  # and as what other logs are judged by
    assert recover.main([*words[:-1], "--lake", str(tmp_path / "lake"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any(f"1 x {unread}" in doubt for doubt in found["doubts"])
    is_about_partitions = not is_version or kind in (
        "TopicRecord",
        "PartitionRecord",
        "PartitionChangeRecord",
    )
    assert found["certainty"] == {"likely" if is_about_partitions else "certain": 1}
    assert not found["is_whole"]


def test_the_end_of_a_transaction_that_no_definition_knows_is_a_doubt() -> None:
    state = ClusterState()
    state.apply("BeginTransactionRecord", "{}")
    state.apply("TopicRecord", '{"name": "a", "topicId": "x"}')
    state.apply("EndTransactionRecord version 9", None)
    assert not state.topics
    assert state.unread_text.endswith("1 x EndTransactionRecord version 9")
    assert state.may_lack_partitions


def test_metadata_that_is_damaged_or_begins_late_is_a_doubt(tmp_path: Path) -> None:
    records = [*topic("t", 1, [1]), *topic("u", 1, [1])]
    metadata_log(tmp_path, records)
    identify(tmp_path, 1)
    path = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = placements(find_copies([f"c1={tmp_path}"], lambda name: True))
    assert found.state is not None
    assert found.state.unread_text.endswith("1 x damaged range")
    rows = [PlainRecord(offset, 1, None, value) for offset, value in enumerate(records[2:], 7)]
    path.with_name(f"{7:020d}.log").write_bytes(record_batch(rows, 1, 0, crc32c))
    path.unlink()
    found = placements(find_copies([f"c1={tmp_path}"], lambda name: True))
    assert found.state is not None
    assert found.state.unread_text.endswith("7 x missing record")


def test_topics_keep_different_names_and_only_kafkas_own_are_left_out() -> None:
    names = ["Orders-2026-eu", "orders-2026-EU", "orders_2026_eu", "a..b", "a.-b", "__debezium-heartbeat.x"]
    names += ["_schemas", "plain", "x" * 249, "x" * 248 + "Y", f"orders.{'0' * 24}"]
    state = ClusterState()
    for at, name in enumerate([*names, "__consumer_offsets", "__transaction_state"]):
        state.topics[str(at)] = name
        state.partitions[str(at), 0] = Partition(str(at), 0, [1])
    found = list(yaml.safe_load_all(strimzi(state)))
    assert sorted(one["spec"]["topicName"] for one in found) == sorted(names)
    resources = [one["metadata"]["name"] for one in found]
    assert len(set(resources)) == len(names)
    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert all(re.fullmatch(rf"{label}(\.{label})*", one) and len(one) <= 253 for one in resources)
    assert "plain" in resources
    assert sum("--topic __debezium" in line for line in commands(state)) == 1


def test_an_aborted_transaction_changes_nothing_and_a_mad_record_is_counted() -> None:
    state = ClusterState()
    state.apply("BeginTransactionRecord", "{}")
    state.apply("TopicRecord", '{"name": "a", "topicId": "x"}')
    state.apply("AbortTransactionRecord", "{}")
    state.apply("TopicRecord", '{"name": "b"}')
    state.apply("RemoveTopicRecord", "no JSON")
    state.apply("TopicRecord", '{"name": "c", "topicId": "z"}')
    assert state.topics == {"z": "c"}
    assert +state.unread == {"TopicRecord": 1, "RemoveTopicRecord": 1}


KRAFT = Path(__file__).resolve().parents[2] / "data" / "kraft"


def test_the_voters_in_the_log_decide_what_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    """Node 2 was a voter for a while and node 3 never: what they lack is committed all the same."""
    disks = [word for n in "123" for word in ("--source", f"n{n}={KRAFT / f'node-{n}'}")]
    assert recover.main([*disks, "--cores", "1", "--metadata"]) == 0
    printed = capsys.readouterr().out
    assert "committed    up to offset 166: a majority of the voters has it" in printed
    assert "n1           voter, true history up to 166" in printed
    assert "n2           observer, true history up to 157" in printed
    assert "uncommitted" not in printed


def test_a_disk_under_the_node_id_of_a_voter_is_none_if_its_directory_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "node-1"
    shutil.copytree(KRAFT / "node-1", disk)
    (disk / "meta.properties").write_text(f"version=1\nnode.id=1\ndirectory.id={new_uuid()}\n")
    assert recover.main(["--source", f"n1={disk}", "--cores", "1", "--metadata"]) == 0
    printed = capsys.readouterr().out
    assert "committed    not known" in printed
    assert "doubt        copies missing: controller 1" in printed


def test_a_directory_that_was_formatted_and_never_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "node-1" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    name = f"{0:020d}-{0:010d}.checkpoint"
    shutil.copy(KRAFT / "node-1" / "__cluster_metadata-0" / name, folder / name)
    assert recover.main(["--source", f"n1={folder.parent}", "--cores", "1", "--metadata"]) == 0
    assert "voters       1\n" in capsys.readouterr().out
    assert scan.main([str(folder.parent)]) == 2
    assert "snapshots alone" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(4))
def test_a_record_that_is_not_known_is_a_doubt(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a release that has one message more, whichever it is."""
    log = KRAFT / "node-1" / "__cluster_metadata-0" / f"{0:020d}.log"
    kinds = sorted({record.name for record in metadata_records(str(log)) if record.name} - {VOTERS})
    gone = Random(seed).choice(kinds)
    monkeypatch.setattr(topics, "messages", lambda *a: tuple(m for m in messages(*a) if m.name != gone))
    topics.record_reader.cache_clear()
    try:
        run_one = ["--source", f"n1={KRAFT / 'node-1'}", "--cores", "1", "--metadata"]
        assert recover.main(run_one) == 0
    finally:
        topics.record_reader.cache_clear()
    assert "may not be whole: records that can't be read" in capsys.readouterr().out
