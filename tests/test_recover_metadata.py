"""``recover --metadata``: controllers' logs compared, and the state of the cluster out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from crc32c import crc32c

from kafka_log_lake import connect
from pipelines import recover
from pipelines.recovery.broker_disk import bootstrap
from pipelines.recovery.placement import placements
from pipelines.recovery.sources import find_copies
from tests.support import replicas
from udfs.format.encode import PlainRecord
from udfs.replicas.cluster_state import ClusterState, metadata_records
from udfs.values.encode import metadata_record, new_uuid, record_batch

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


def test_records_behind_a_snapshot_count_though_it_has_more_records_than_the_log_before(
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
