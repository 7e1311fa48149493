"""What ``__cluster_metadata`` on the disks says of copies: which are missing, who led last, and how sure."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.recover.compare import compare
from kafka_log_lake.pipelines.recover.placement import Placements, placements
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.udfs.values.internal.encode import metadata_record
from tests.support.logs import batch
from tests.support.metadata_disks import IDS, identify, metadata_log, partition, topic


def disk(folder: Path, node: int, records: list[bytes] | None = None, number: int = 0) -> str:
    """A disk with a copy of t, and the metadata log with these records."""
    identify(folder, node)
    partition(folder, "t", batch(0), number=number)
    if records is not None:
        metadata_log(folder, records)
    return f"{folder.name}={folder}"


def judged(*sources: str, topics: tuple[str, ...] = ("t",)) -> tuple[Placements, dict[str, str], list[str]]:
    """What the metadata says, how sure the history of each partition is, and all doubts."""
    inventory = find_copies(sources, topics.__contains__)
    found = placements(inventory)
    partitions = list(compare(inventory, Settings(cores=1), found))
    sure = {f"{one.topic}-{one.partition}": str(one.history.sure) for one in partitions}
    return found, sure, [doubt for one in partitions for doubt in one.history.doubts]


def test_it_is_certain_with_every_replica_alone(tmp_path: Path) -> None:
    records = topic("t", 1, [1, 2, 3])
    one, two, three = (disk(tmp_path / f"b{node}", node, records) for node in (1, 2, 3))
    found, sure, doubts = judged(one, two, three)
    assert sure == {"t-0": "certain"}
    assert not doubts
    assert not found.missing_text
    found, sure, doubts = judged(one, two)
    assert sure == {"t-0": "likely"}
    assert found.missing_text == "copies missing: node 3 of 1 partition"
    assert "node 3, which no source has" in doubts[0]
    assert "t-0: led by node 1, epoch 0; ISR 1, 2, 3; replicas 1, 2, 3; copy of node 3 is missing" in list(
        found.lines()
    )


def test_without_a_metadata_log_it_is_not_certain(tmp_path: Path) -> None:
    found, sure, doubts = judged(disk(tmp_path / "b1", 1))
    assert sure == {"t-0": "likely"}
    assert "no __cluster_metadata is among the sources" in doubts[0]
    assert "no __cluster_metadata is on these disks" in next(found.lines())


def test_the_metadata_log_counts_though_its_topic_is_not_asked_for(tmp_path: Path) -> None:
    found, *_ = judged(disk(tmp_path / "b1", 1, [*topic("t", 1, [1]), *topic("u", 1, [9])]))
    assert [one.topic for one in found.rows.values()] == ["t"]


def test_a_partition_that_no_disk_has_is_named(tmp_path: Path) -> None:
    found, *_ = judged(disk(tmp_path / "b1", 1, topic("t", 3, [1])))
    assert found.absent == ["t-1", "t-2"]
    assert found.missing_text == "copies missing: node 1 of 2 partitions"


@pytest.mark.parametrize(
    ("directories", "isr", "expected"),
    [(["d2"], [1], "certain"), (["d2"], [1, 2], "likely"), (["d2", "other"], [1], "likely")],
)
def test_a_replica_that_was_never_made_is_not_missing(
    tmp_path: Path, directories: list[str], isr: list[int], expected: str
) -> None:
    """The node's disks are all there, it never led, and it was not in sync."""
    dirs = [f"{one:A<21}A" for one in directories]
    broker = metadata_record("RegisterBrokerRecord", 3, {"brokerId": 2, "logDirs": dirs})
    one = disk(tmp_path / "b1", 1, [broker, *topic("t", 1, [1, 2], isr=isr)])
    identify(tmp_path / "b2", 2, f"{'d2':A<21}A")
    (tmp_path / "b2" / "u-0").mkdir()
    (tmp_path / "b2" / "u-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {IDS['u']}")
    found, sure, _ = judged(one, f"b2={tmp_path / 'b2'}")
    assert sure == {"t-0": expected}
    assert found.rows["t", 0].empty == ([2] if expected == "certain" else [])  # type: ignore[index]


def test_a_disk_that_does_not_say_whose_it_is_may_be_any_replica(tmp_path: Path) -> None:
    one, two = (disk(tmp_path / name, 1, topic("t", 1, [1, 2])) for name in ("b1", "b2"))
    (tmp_path / "b2" / "meta.properties").unlink()
    _, sure, doubts = judged(one, two)
    assert sure == {"t-0": "likely"}
    assert doubts == [
        "b2: no meta.properties says of which node it is, so another replica that __cluster_metadata names "
        "may be missing"
    ]


@pytest.mark.parametrize(("is_there", "expected"), [(True, "likely"), (False, "certain")])
def test_a_folder_to_be_deleted_counts_while_the_metadata_has_its_topic(
    tmp_path: Path, is_there: bool, expected: str
) -> None:
    """Its log was moved to another disk, which is not here; or the topic is gone."""
    one = disk(tmp_path / "b1", 1, topic("t" if is_there else "u", 1, [1, 2]))
    (tmp_path / "b1" / "t-0").rename(tmp_path / "b1" / f"t-0.{'ab' * 16}-delete")
    inventory = find_copies([one], {"t"}.__contains__)
    (found,) = compare(inventory, Settings(cores=1))
    assert len(found.healed.batches) == is_there
    assert found.history.sure == expected


def test_a_leader_that_the_metadata_alone_knows_is_a_doubt(tmp_path: Path) -> None:
    elected = metadata_record(
        "PartitionChangeRecord", 0, {"partitionId": 0, "topicId": IDS["t"], "leader": 2, "isr": [2]}
    )
    records = [*topic("t", 1, [1, 2]), elected]
    disks = [disk(tmp_path / f"b{node}", node, records if node == 1 else None) for node in (1, 2)]
    found, sure, doubts = judged(*disks)
    assert found.rows["t", 0].leader_epoch == 1  # type: ignore[index]
    assert sure == {"t-0": "likely"}
    assert "node 2 led last, in epoch 1, which no copy knows" in doubts[0]


def test_the_log_of_the_highest_epoch_is_believed(tmp_path: Path) -> None:
    """A controller that lost an election may have more records than any other."""
    long = disk(tmp_path / "b1", 1, [*topic("gone", 1, [1]), *topic("t", 1, [1, 7])])
    short = disk(tmp_path / "b2", 2, topic("t", 1, [1, 2]))
    (path,) = (tmp_path / "b2" / "__cluster_metadata-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[12:16] = (5).to_bytes(4, "big")  # leader epoch, outside of the checksum
    path.write_bytes(data)
    found, sure, _ = judged(long, short)
    assert found.disk == "b2"
    assert sure == {"t-0": "certain"}
