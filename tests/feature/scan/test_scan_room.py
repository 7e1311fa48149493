"""What a scan says of the room on a disk: what takes it, what retention frees, and what holds the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.scan.command import main, scan
from kafka_log_lake.pipelines.scan.space import space_by_topic
from kafka_log_lake.udfs.batches import retention
from kafka_log_lake.udfs.batches.retention import Limits, Retained, SegmentTime, limits_of, retained
from kafka_log_lake.udfs.values.internal.encode import metadata_record
from tests.support.logs import batch, put
from tests.support.metadata_disks import IDS, identify, metadata_log, partition, topic

DAY = 24 * 3_600_000
NOW = 100 * DAY
OLD, YOUNG, FUTURE = NOW - 30 * DAY, NOW - DAY, NOW + 30 * DAY


def log(*times: int, length: int = 10) -> list[SegmentTime]:
    return [SegmentTime(10 * at, length, time) for at, time in enumerate(times)]


@pytest.mark.parametrize(
    ("segments", "start", "limits", "expected"),
    [
        (log(OLD, OLD, YOUNG), 0, Limits(), Retained(20, retention.TOO_YOUNG, YOUNG)),
        (log(OLD, YOUNG, OLD), 0, Limits(), Retained(10, retention.TOO_YOUNG, YOUNG)),
        (log(FUTURE, OLD, OLD), 0, Limits(), Retained(0, retention.FUTURE, FUTURE)),
        (log(OLD, OLD), 0, Limits(), Retained(20, retention.NOTHING)),
        (log(OLD, OLD), 0, Limits(retention_ms=-1), Retained(0, retention.NO_LIMITS)),
        (log(OLD, OLD), 0, Limits(deletes=False), Retained(0, retention.POLICY)),
        (log(OLD, OLD), 10, Limits(deletes=False), Retained(10, retention.POLICY)),  # below the log start
        (log(YOUNG, YOUNG, YOUNG), 0, Limits(-1, 15), Retained(10, retention.SIZE)),
        (log(YOUNG, YOUNG, YOUNG), 0, Limits(-1, 0), Retained(30, retention.NOTHING)),  # a new one is rolled
        ([*log(OLD), SegmentTime(10, 0, OLD)], 0, Limits(), Retained(10, retention.EMPTY)),
    ],
)
def test_what_retention_frees(
    segments: list[SegmentTime], start: int, limits: Limits, expected: Retained
) -> None:
    assert retained(segments, start, limits, NOW) == expected


def test_the_limits_of_a_topic() -> None:
    assert limits_of("t", {}) == Limits(7 * DAY, -1, True)
    assert limits_of("t", {"retention.ms": "5", "retention.bytes": "6"}) == Limits(5, 6, True)
    assert limits_of("t", {"cleanup.policy": "compact"}).deletes is False
    assert limits_of("__consumer_offsets", {}).deletes is False
    assert limits_of("__cluster_metadata", {}).retention_ms == -1


def test_a_scan_adds_up_what_takes_the_room(tmp_path: Path) -> None:
    identify(tmp_path, 1)
    folder = partition(tmp_path, "t", batch(0, base_timestamp=OLD))
    size = put(folder, 3, batch(3, base_timestamp=YOUNG)).stat().st_size
    (folder / f"{0:020d}.index").write_bytes(b"x" * 9000)
    (folder / f"{9:020d}.log.deleted").write_bytes(b"x" * 500)
    put(tmp_path / "t-1.0123-stray", 0, batch(0))
    put(tmp_path / "u-0", 0, batch(0, base_timestamp=OLD))
    config = {"resourceType": 2, "resourceName": "u", "name": "retention.ms", "value": str(60 * DAY)}
    metadata_log(tmp_path, [*topic("t", 1, [1]), metadata_record("ConfigRecord", 0, config)])
    found = {
        one.topic: one for one in space_by_topic(scan(Settings(source=(str(tmp_path),), cores=1)), now_ms=NOW)
    }
    t, u = found["t"], found["u"]
    assert (t.segments, t.deleted, t.leftovers, t.can_go) == (2 * size, 500, size, size)
    assert 9000 <= t.indexes < 9000 + (1 << 16)
    assert t.held_by == Retained(size, retention.TOO_YOUNG, YOUNG)
    assert (u.can_go, u.held_by) == (0, Retained(0, retention.TOO_YOUNG, OLD))
    assert IDS["t"]


def test_the_limits_are_of_the_cluster_of_the_log(tmp_path: Path) -> None:
    """Its default of all brokers too, as it was set at run time; the topic's own setting goes before it."""
    days = {"one": (60, None), "two": (1, 60), "three": (None, None)}
    for cluster, (of_brokers, of_topic) in days.items():
        root = tmp_path / cluster
        partition(root, "t", batch(0, base_timestamp=OLD))
        identify(root, 1)
        properties = root / "meta.properties"
        properties.write_text(re.sub("cluster.id=.*", f"cluster.id={cluster}", properties.read_text()))
        settings = [(4, "", "log.retention.ms", of_brokers), (2, "t", "retention.ms", of_topic)]
        names = ("resourceType", "resourceName", "name", "value")
        configs = [
            dict(zip(names, (*place, str(number * DAY)), strict=True))
            for *place, number in settings
            if number is not None
        ]
        records = [metadata_record("ConfigRecord", 0, config) for config in configs]
        metadata_log(root, [*topic("t", 1, [1]), *records])
    for cluster, goes in {"one": False, "two": False, "three": True}.items():
        (found,) = (
            one
            for one in space_by_topic(scan(Settings(source=(str(tmp_path / cluster),), cores=1)), NOW)
            if one.topic == "t"
        )
        assert (found.can_go > 0) is goes, cluster
    both = Settings(source=(str(tmp_path / "one"), str(tmp_path / "three")), cores=1)
    (found,) = (one for one in space_by_topic(scan(both), NOW) if one.topic == "t")
    assert found.can_go == found.segments // 2


def test_topics_come_in_the_order_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    put(tmp_path / "b-0", 0, batch(0, 40))
    put(tmp_path / "c-0", 0, batch(0)[:70] + b"\xff" + batch(0)[71:], batch(3))

    def order(*argv: str) -> list[str]:
        assert main([str(tmp_path), "--json", "--cores", "1", *argv]) == 0
        return [one["topic"] for one in json.loads(capsys.readouterr().out)["topics"]]

    assert order() == ["b", "c", "a"]
    assert order("--sort", "name") == ["a", "b", "c"]
    assert order("--sort", "damage") == ["c", "a", "b"]
    assert main([str(tmp_path), "--sort", "age"]) == 2
