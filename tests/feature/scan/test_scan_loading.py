"""``scan`` says what a coordinator or a worker of Connect could not load."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.scan import command as scan
from tests.support.logs import batch, put
from tests.support.segment_maker import Batch, Record
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
    first = config("connector-files", b"{}")
    records = [config("task-files-0", b"{}"), config("commit-files", b"{}"), config("connector-files", b"{}")]
    put(
        tmp_path / "connect-configs-0", 0, Batch(tuple(records if is_cleaned else [first, *records])).encode()
    )
    put(tmp_path / "t-0", 0, batch(0))
    found = unloadable(tmp_path, capsys)
    assert [(one["offset"], one["issue"]) for one in found] == ([(1, "KAFKA-17719")] if is_cleaned else [])
