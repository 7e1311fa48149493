"""A real broker starts from the log directory that ``recover --write`` makes, and serves every record."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.listing.metadata_log import metadata_records
from kafka_log_lake.pipelines.recover import command as recover
from tests.kafka.broker import (
    CLUSTER,
    NEWEST,
    OLDEST,
    PROPERTIES,
    broker,
    client,
    format_storage,
    free_port,
    start_node,
    with_tools,
)
from tests.kafka.cluster import Cluster
from tests.support import replicas
from tests.support.docs import ROOT, blocks
from tests.support.logs import batch, put
from tests.support.segment_maker import Batch, Record

SCENARIO = "s04b-unclean-twice"
QUIET = {"log.cleaner.enable": "false", "log.retention.ms": "-1"}


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_a_broker_that_starts_from_it_serves_the_truth(release: str, tmp_path: Path) -> None:
    corpus = replicas.unpack(tmp_path / "corpus")
    named = [word for one in replicas.sources(corpus, SCENARIO) for word in ("--source", one)]
    disk = tmp_path / "disk"
    assert recover.main([*named, "--cores", "1", "--write", str(disk)]) == 0
    folders = {path.name for path in disk.iterdir() if path.is_dir()}
    with broker(tmp_path / "broker", QUIET, disk=disk, release=release) as running:
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


def test_a_group_consumes_from_a_broker_that_follows_the_runbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands and the settings of docs/recovery.md; the places and the ports alone are others."""
    corpus = replicas.unpack(tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "recovery.md"
    (command,) = (one for one in blocks(page, "sh") if "--write disk" in one)
    words = shlex.split(command.replace("/mnt/broker", f"{corpus / SCENARIO}/broker-"))
    assert main(words[1:]) == 0
    (settings,) = blocks(page, "properties")
    port, controller = free_port(), free_port()
    for text, own in (
        ("localhost:9092", f"localhost:{port}"),
        ("localhost:9093", f"localhost:{controller}"),
        ("/path/of/disk", str(tmp_path / "disk")),
    ):
        settings = settings.replace(text, own)
    properties = tmp_path / "disk.properties"
    properties.write_text(settings)
    (start, consume) = (one.replace("localhost:9092", f"localhost:{port}") for one in _lines(page))
    assert start == "kafka-server-start.sh disk.properties"
    running = start_node(properties, port, tmp_path / "disk", "1g")
    try:
        shell = with_tools(tmp_path / "bin")
        done = subprocess.run(consume, shell=True, env=shell, capture_output=True, check=False)
    finally:
        running.stop()
    expected = set()
    for number in (0, 1):
        truth = replicas.truth(corpus, SCENARIO, f"payments.all-{number}")
        assert truth is not None
        expected |= {replicas.comparable(line)[3] for line in truth.records if line.get("control") is None}
    found = done.stdout.splitlines()
    assert len(found) == 10, done.stderr.decode()[-3000:]
    assert set(found) <= expected


def _lines(page: Path) -> list[str]:
    (block,) = blocks(page, "bash")
    return block.splitlines()


def len_of(corpus: Path, name: str) -> int:
    truth = replicas.truth(corpus, SCENARIO, name)
    assert truth is not None
    return int(truth.summary["logEndOffset"])


def test_three_brokers_diverge_are_damaged_and_serve_the_truth_again(tmp_path: Path) -> None:
    """The leader dies with records that it alone has, an old follower is elected, one disk is lost."""
    cluster = Cluster(tmp_path / "cluster", {"default.replication.factor": "3", "log.retention.ms": "-1"})
    try:
        first = cluster.start(1)
        for node in (2, 3):
            cluster.start(node)
        with client(first.address) as writer:
            writer.create("t", 1, unclean_leader_election_enable="true", min_insync_replicas="1")
            for i in range(20):  # a batch each
                writer.send("t", 0, [(f"k{i}", "all")])
            leader = writer.leader("t", 0)
            others = [node for node in (1, 2, 3) if node != leader]
            for node in others:
                cluster.kill(node)
            assert writer.send("t", 0, [(f"k{i}", "alone") for i in range(20)])[-1] == 39
        cluster.kill(leader)
        second = cluster.start(others[0])
        with client(second.address) as writer:
            writer.send("t", 0, [(f"k{i}", "elected") for i in range(5)])
            truth = writer.read("t", 0, committed=False)
        cluster.kill(others[0])
    finally:
        cluster.close()
    assert [value for _, _, value in truth] == [b"all"] * 20 + [b"elected"] * 5
    for node, at in ((leader, 0.2), (others[0], 0.5)):  # both are damaged, in different batches
        (segment,) = (cluster.disk(node) / "t-0").glob("*.log")
        data = bytearray(segment.read_bytes())
        data[int(len(data) * at)] ^= 1
        segment.write_bytes(data)
    sources = [f"--source=broker{node}={cluster.disk(node)}" for node in (leader, others[0])]
    lake, disk = tmp_path / "lake", tmp_path / "disk"
    assert recover.main([*sources, "--cores", "1", "--lake", str(lake), "--write", str(disk)]) == 0
    with broker(tmp_path / "broker", QUIET, disk=disk) as running, client(running.address) as reader:
        assert reader.read("t", 0, committed=False) == truth
    lost = connect(str(lake)).execute("SELECT DISTINCT copy, value FROM lost_records").fetchall()
    assert lost == [(f"broker{leader}", b"alone")]


# What kafka-console-producer.sh can write, and from the first one on that it can't what restore.py writes
LOST = [
    Record(b"n1", b"a\tb", ((b"h", b"1"), (b"h", None), (b"empty", b""))),
    Record(None, b"no key"),
    Record(b"n2", None),
    Record(b"", b""),
    Record("ü".encode(), "quotes ' \" $HOME \\ `x` <null> \0 \u2028".encode()),
    Record(b"n3", b"two\nlines"),
    Record(b"n4", b"\xff\x00"),
    Record(b"tab\t", b"v", ((b"h,", b"\n"), (b"<null>", b"v"))),
    Record(b"<null>", b"<null>"),
    Record(None, None),
    Record(b"n1", b"newer"),
]


def test_restore_writes_each_lost_record_again_in_its_order(tmp_path: Path) -> None:
    """The last topic takes no batch as large as its record: the script ends with an error there."""
    losing = {"t": LOST, "z": [Record(b"n1", b"v" * 2000)]}
    for topic, records in losing.items():
        put(tmp_path / "one" / f"{topic}-0", 0, batch(0), Batch(records, base_offset=3).encode())
        put(tmp_path / "two" / f"{topic}-0", 0, batch(0), batch(3, leader_epoch=1))
    named = [f"--source={name}={tmp_path / name}" for name in ("one", "two")]
    assert recover.main([*named, "--cores", "1", "--report", str(tmp_path / "bill")]) == 0
    shell = with_tools(tmp_path / "bin")
    with broker(tmp_path / "broker", QUIET) as running, client(running.address) as reader:
        reader.create("t", 1)
        reader.create("z", 1, max_message_bytes="1000")
        words = ["sh", str(tmp_path / "bill" / "restore.sh"), running.address]
        done = subprocess.run(words, env=shell, capture_output=True, text=True, check=False)
        found = reader.read_whole("t", 0, committed=False)
    assert found == [(at, one.key, one.value, list(one.headers)) for at, one in enumerate(LOST)], done.stderr
    assert done.returncode
    assert "RecordTooLargeException" in done.stderr


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_a_controller_starts_from_what_metadata_write_makes(release: str, tmp_path: Path) -> None:
    """It goes on after the true metadata log, and hands out the topics with their ids."""
    corpus = replicas.unpack(tmp_path / "corpus")
    named = [f"--source=c{n}={corpus / 's11-controllers' / f'controller-{n}'}" for n in (1, 2, 3)]
    disk = tmp_path / "controller"
    assert recover.main([*named, "--cores", "1", "--metadata", "--write", str(disk), "--node-id", "1"]) == 0
    before = _metadata(disk)
    node = broker(tmp_path / "node", QUIET, disk=disk, release=release)
    with node as running, client(running.address) as admin:
        admin.create("made-after", 1)
        assert admin.send("made-after", 0, [("k", "v")]) == [0]
    after = _metadata(disk)
    assert after[: len(before)] == before
    assert any(name == "TopicRecord" and '"made-after"' in str(value) for *_, name, value in after)


def test_a_controller_starts_from_a_directory_that_was_formatted_and_never_started(tmp_path: Path) -> None:
    """Release 4.4 writes 0-0.checkpoint alone (KIP-1170)."""
    properties, formatted, disk = tmp_path / "node.properties", tmp_path / "formatted", tmp_path / "disk"
    properties.write_text(PROPERTIES.format(port=free_port(), controller=free_port(), logs=formatted))
    format_storage(properties, CLUSTER, release=NEWEST)
    made = [path.name for path in (formatted / "__cluster_metadata-0").iterdir()]
    assert made == [f"{0:020d}-{0:010d}.checkpoint"]
    words = [f"--source=n1={formatted}", "--cores", "1", "--metadata", "--write", str(disk)]
    assert recover.main([*words, "--node-id", "1"]) == 0
    node = broker(tmp_path / "node", QUIET, disk=disk, release=NEWEST)
    with node as running, client(running.address) as admin:
        admin.create("made-after", 1)
        assert admin.send("made-after", 0, [("k", "v")]) == [0]
        assert admin.read("made-after", 0, committed=False) == [(0, b"k", b"v")]


def _metadata(disk: Path) -> list[tuple[int, int, str | None, str | None]]:
    """(offset, epoch, name, value) of the records in a controller's log."""
    files = sorted((disk / "__cluster_metadata-0").glob("*.log"))
    return [
        (one.offset, one.epoch, one.name, one.value) for path in files for one in metadata_records(str(path))
    ]
