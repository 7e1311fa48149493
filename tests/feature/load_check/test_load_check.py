"""``load-check`` and ``scan`` say what a broker or a worker of Connect could not load."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.load_check import check
from kafka_log_lake.pipelines.load_check import command as load_check
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.udfs.values.internal.encode import metadata_record, new_uuid
from tests.support.logs import batch, put
from tests.support.segment_maker import GZIP, Batch, Record
from tests.unit.views.test_clusters_in_views import commit, text

GROUPS = Path(__file__).resolve().parents[2] / "data" / "groups"


def unloadable(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert scan.main([str(folder), "--cores", "1", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["unloadable"]
    return found


def classic_group(group: bytes) -> Record:
    """GroupMetadata, version 0: a group of consumers without members."""
    value = struct.pack(">h", 0) + text(b"consumer") + struct.pack(">ihhi", 4, -1, -1, 0)
    return Record(key=struct.pack(">h", 2) + text(group), value=value)


def consumer_group(group: bytes) -> Record:
    """ConsumerGroupMetadata, version 0."""
    return Record(key=struct.pack(">h", 3) + text(group), value=struct.pack(">hib", 0, 1, 0))


def test_a_group_whose_tombstone_between_two_protocols_was_cleaned_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = (commit(1), classic_group(b"g"), consumer_group(b"g"))
    put(tmp_path / "__consumer_offsets-3", 0, Batch(records).encode())
    (found,) = unloadable(tmp_path, capsys)
    assert (found["topic"], found["partition"], found["offset"]) == ("__consumer_offsets", 3, 2)
    assert (found["why"], found["issue"]) == ("group g is not a consumer group", "KAFKA-21117")
    assert not found["after_cleaning"]
    assert scan.main([str(tmp_path), "--cores", "1"]) == 0
    assert "will not load" in capsys.readouterr().out


def test_a_log_that_loads_now_and_not_after_the_log_cleaner(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = unloadable(GROUPS, capsys)
    assert (found["partition"], found["after_cleaning"]) == (1, True)
    assert "is deleted before its current assignment" in found["why"]


def config(key: str, value: bytes | None) -> Record:
    return Record(key=key.encode(), value=value)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_tasks_of_a_connector_whose_configuration_was_written_again(
    is_cleaned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = config("connector-files", b'{"properties": {}}')
    tasks = [config("task-files-0", b'{"properties": {}}'), config("commit-files", b'{"tasks": 1}')]
    records = [*tasks, config("connector-files", b'{"properties": {"tasks.max": "1"}}')]
    put(
        tmp_path / "connect-configs-0", 0, Batch(tuple(records if is_cleaned else [first, *records])).encode()
    )
    put(tmp_path / "t-0", 0, batch(0))
    found = unloadable(tmp_path, capsys)
    ((offset, issue, is_later),) = [(one["offset"], one["issue"], one["after_cleaning"]) for one in found]
    assert (offset, issue, is_later) == (1 if is_cleaned else 2, "KAFKA-17719", not is_cleaned)


def test_numbers_of_tasks_that_no_connector_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        config("connector-files", b'{"properties": {}}'),
        *(config(f"task-files-{number}", b'{"properties": {}}') for number in ("0", "\u00b2", "9" * 5000)),
        config("commit-files", b'{"tasks": 1000000000000}'),
    ]
    put(tmp_path / "connect-configs-0", 0, Batch(tuple(records)).encode())
    (found,) = checked(capsys, str(tmp_path))
    assert (found["offset"], found["after_cleaning"]) == (4, False)
    assert found["why"].startswith("999999999999 of the 1000000000000 tasks of connector files are not there")


def test_a_log_of_which_one_file_is_named_is_replayed_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, topic = tmp_path / "__cluster_metadata-0", new_uuid()
    put(folder, 0, Batch((metadata("TopicRecord", name="t", topicId=topic),)).encode())
    put(folder, 1, Batch((metadata("RemoveTopicRecord", topicId=topic),), base_offset=1).encode())
    assert checked(capsys, str(folder / f"{1:020d}.log")) == []


def test_damage_is_named_in_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = Batch((transaction(b"a", 0),)).encode()
    put(tmp_path / "__transaction_state-0", 0, sound + b"\x07" * 100)
    assert load_check.main([str(tmp_path)]) == 0
    assert "1 internal log replayed: all load, as far as they were read" in capsys.readouterr().out
    assert load_check.main([str(tmp_path), "--fail-on-damage"]) == 3


def checked(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    load_check.main([*argv, "--json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["unloadable"]
    return found


def transaction(name: bytes, state: int, version: int = 0) -> Record:
    """TransactionLog: of a transactional id."""
    value = struct.pack(">hqhibiqq", version, 1, 0, 60_000, state, -1 if state == 0 else 0, 5, 5)
    return Record(key=struct.pack(">h", 0) + text(name), value=value)


def test_a_transaction_in_a_state_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = (transaction(b"a", 0), transaction(b"b", 9), transaction(b"c", 0))
    put(tmp_path / "__transaction_state-1", 0, Batch(records).encode())
    (found,) = checked(capsys, str(tmp_path))
    assert (found["offset"], found["releases"]) == (1, "4.1 to 4.4")
    assert found["why"] == "a transaction has the state 9, which is none"
    assert load_check.main([str(tmp_path), "--fail-on-damage"]) == 3
    assert "1 internal log replayed: 1 do not load" in capsys.readouterr().out


def test_a_value_of_a_later_release_stops_older_coordinators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = (transaction(b"a", 0, version=7), transaction(b"b", 0))
    put(tmp_path / "__transaction_state-0", 0, Batch(records).encode())
    (found,) = checked(capsys, str(tmp_path))
    assert (found["offset"], found["releases"]) == (0, "4.1 to 4.2")
    assert found["remedy"] == "start it with 4.3 or later"
    assert checked(capsys, str(tmp_path), "--as", "4.4") == []
    assert unloadable(tmp_path, capsys) == []  # scan says what stops the newest release


def streams_group(group: bytes) -> Record:
    """StreamsGroupMetadata, version 0."""
    return Record(key=struct.pack(">h", 17) + text(group), value=struct.pack(">hiqb", 0, 1, 7, 0))


def test_a_streams_group_after_offsets_of_a_classic_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "__consumer_offsets-0", 0, Batch((commit(1), streams_group(b"g"))).encode())
    (found,) = checked(capsys, str(tmp_path))
    assert (found["offset"], found["releases"], found["issue"]) == (1, "4.1 to 4.2.0", "KAFKA-20254")
    assert found["remedy"] == "start it with 4.2.1 or later"
    assert checked(capsys, str(tmp_path), "--as", "4.2") == []


def metadata(kind: str, **fields: object) -> Record:
    return Record(value=metadata_record(kind, 0, fields))


def test_a_metadata_log_whose_topic_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, lost = new_uuid(), new_uuid()
    records = (
        metadata("TopicRecord", name="t", topicId=known),
        metadata("RemoveTopicRecord", topicId=known),
        metadata("RemoveTopicRecord", topicId=lost),
    )
    folder = tmp_path / "__cluster_metadata-0"
    put(folder, 0, Batch(records).encode())
    (found,) = checked(capsys, str(tmp_path))
    assert (found["offset"], found["why"]) == (2, f"topic {lost} is not there")
    (folder / f"{0:020d}.log").rename(folder / f"{9:020d}.log")
    (found,) = checked(capsys, str(tmp_path))
    assert found["why"] == "the log begins at 9, and no snapshot reaches that offset"


def test_a_metadata_version_names_each_release_that_does_not_know_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = metadata("FeatureLevelRecord", name="metadata.version", featureLevel=33)  # 4.4-IV2
    put(tmp_path / "__cluster_metadata-0", 0, Batch((level,)).encode())
    assert [found["releases"] for found in checked(capsys, str(tmp_path))] == ["4.1", "4.2", "4.3"]


@pytest.mark.parametrize(("end", "stops_at"), [("EndTransactionRecord", 5), ("AbortTransactionRecord", 6)])
def test_an_aborted_metadata_transaction_takes_its_changes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str, stops_at: int
) -> None:
    before, within = new_uuid(), new_uuid()
    records = (
        metadata("TopicRecord", name="t", topicId=before),
        metadata("BeginTransactionRecord"),
        metadata("RemoveTopicRecord", topicId=before),
        metadata("TopicRecord", name="u", topicId=within),
        metadata(end),
        metadata("RemoveTopicRecord", topicId=before),
        metadata("RemoveTopicRecord", topicId=within),
    )
    put(tmp_path / "__cluster_metadata-0", 0, Batch(records).encode())
    (found,) = checked(capsys, str(tmp_path))
    assert found["offset"] == stops_at


def test_a_log_that_expands_to_more_than_memory_should_hold_is_not_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_MOST_BYTES", 8192)
    offset = commit(1)
    compressed = Batch((offset,) * 100, codec=GZIP).encode()
    assert len(compressed) < 1024
    put(tmp_path / "__consumer_offsets-0", 0, compressed)
    put(tmp_path / "__consumer_offsets-1", 0, Batch((offset,)).encode())
    assert load_check.main([str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "1 internal log replayed" in printed.out
    assert (
        "__consumer_offsets-0 expands to more than 8.2 kB and was not replayed" in printed.err + printed.out
    )
    assert load_check.main([str(tmp_path), "--fail-on-damage"]) == 3


def test_a_batch_that_is_cut_at_the_end_of_a_log_is_no_damage(tmp_path: Path) -> None:
    """As a broker that is killed leaves it, which truncates it at its start."""
    sound = Batch((transaction(b"a", 0),)).encode()
    put(tmp_path / "__transaction_state-0", 0, sound + sound[:-5])
    assert load_check.main([str(tmp_path), "--fail-on-damage"]) == 0


def test_without_internal_topics_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "t-0", 0, batch(0))
    assert load_check.main([str(tmp_path)]) == 0
    assert "no internal topic was replayed" in capsys.readouterr().out
    assert load_check.main([]) == 2
