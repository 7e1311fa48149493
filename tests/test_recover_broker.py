"""A real broker starts from the log directory that ``recover --write`` makes, and serves every record."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import recover
from tests.kafka.broker import broker, client
from tests.support import replicas

pytestmark = [pytest.mark.kafka, pytest.mark.full("pipelines/recovery/", "udfs/replicas/", "tests/kafka/")]

SCENARIO = "s04b-unclean-twice"


def test_a_broker_that_starts_from_it_serves_the_truth(tmp_path: Path) -> None:
    corpus = replicas.unpack(tmp_path / "corpus")
    named = [word for one in replicas.sources(corpus, SCENARIO) for word in ("--source", one)]
    disk = tmp_path / "disk"
    assert recover.main([*named, "--cores", "1", "--write", str(disk)]) == 0
    folders = {path.name for path in disk.iterdir() if path.is_dir()}
    quiet = {"log.cleaner.enable": "false", "log.retention.ms": "-1"}
    with broker(tmp_path / "broker", quiet, disk=disk) as running:
        with client(running.address) as reader:
            for name in sorted(folders):
                truth = replicas.truth(corpus, SCENARIO, name)
                assert truth is not None, name
                topic, partition = name.rsplit("-", 1)
                if topic == "profiles":  # cleaned by each copy for itself
                    continue
                lines = [replicas.comparable(line) for line in truth.records]
                data = [(line[0], line[2], line[3]) for line in lines if line[5] is None]
                assert reader.read(topic, int(partition), committed=False) == data, name
                committed = {line["offset"] for line in truth.records if line.get("committed")}
                delivered = reader.read(topic, int(partition), committed=True)
                assert [row[0] for row in delivered] == sorted(committed), name
            assert reader.send("orders-idem", 0, [("k", "v")]) == [len_of(corpus, "orders-idem-0")]
        log = (tmp_path / "broker" / "broker.log").read_text()
    left = {path.name for path in disk.iterdir() if path.is_dir()}
    assert left == folders | {"__cluster_metadata-0"}, "nothing is stray, nothing is deleted"
    assert "stray" not in log.lower().replace("no stray", "")


def len_of(corpus: Path, name: str) -> int:
    truth = replicas.truth(corpus, SCENARIO, name)
    assert truth is not None
    return int(truth.summary["logEndOffset"])
