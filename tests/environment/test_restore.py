"""``restore`` into real brokers: every topic comes back as Kafka's own consumer reads it, kills or not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.restore.offset_map import Translator, read
from tests.kafka.broker import NEWEST, OLDEST, Broker, Client, broker, client, free_port, start_node
from tests.support import corpus
from tests.support.cluster import ROOT
from tests.support.restored import (
    BROKER,
    Made,
    kill_at_random,
    made_lake,
    wait_for_first_transaction,
)
from tests.support.secured import log_in, secured

RELEASE = OLDEST
INTERNAL = corpus.ROOT / "internal-2.8"  # of topics that restore leaves out
# Their transactional batches were in no broker, of which a consumer could tell the outcome
NO_CONSUMER = ("lib-empty-batches", "lib-sequence-wrap")


def restore(*argv: object) -> int:
    return main(["restore", *map(str, argv)])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    folder, rows = made_lake(tmp_path_factory.mktemp("made"), "made")
    return folder, rows["made"]


def expected_of_corpus() -> dict[tuple[str, int], list[Any]]:
    """By topic and partition: (timestamp, key, value, headers) of what a READ_COMMITTED consumer got."""
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for path in corpus.segments():
        topic, partition = corpus.topic_partition(path)
        if topic.startswith("__") or corpus.case(path) in (INTERNAL.name, *NO_CONSUMER):
            continue
        file = corpus.ORACLE / path.parent.relative_to(corpus.ROOT) / "read_committed.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        delivered = {json.loads(line)["offset"] for line in lines} if file.exists() else None
        for row in corpus.expected_records(path):
            is_there = delivered is None or row["offset"] in delivered
            # librdkafka writes the present time for 0: held back
            if is_there and not row["is_control"] and row["timestamp_ms"] != 0:
                headers = [(key.encode(), value) for key, value in row["headers"] or ()]
                found[topic, partition].append((row["timestamp_ms"], row["key"], row["value"], headers))
    return found


def shortened(data: bytes | None, like: Any) -> Any:
    """Data as the oracle has it: long ones by length and hash."""
    return corpus.shortened(data, {"xSha256": like[1]} if isinstance(like, tuple) else {}, "x")


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_every_topic_of_the_corpus_comes_back(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {corpus.case(path) for path in corpus.segments()} - {INTERNAL.name, *NO_CONSUMER}
    folders = [corpus.ROOT / case for case in sorted(cases)]
    expected = expected_of_corpus()
    # Records of years ago, some with keys that come again: they stay until all are compared
    keeps = {"log.retention.ms": "-1", "log.cleaner.enable": "false"}
    settings = BROKER | keeps
    with broker(tmp_path / "b", settings, heap="512m", release=release) as one, client(one.address) as judge:
        more = ("--bootstrap-server", one.address, "--create", "yes", "--state", tmp_path / "state", "--json")
        assert restore(*folders, *more) == 3  # of records with the timestamp 0
        summary = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert not summary["wrong"]
        held = {reason for topic in summary["topics"] for reason in topic["held_back"]}
        assert held == {"its timestamp is 0, for which the client writes the present time"}
        for (topic, partition), rows in expected.items():
            there = [row[1:] for row in judge.read_timed(topic, partition, committed=True)]
            alike = [
                (time, shortened(key, like[1]), shortened(value, like[2]), headers)
                for (time, key, value, headers), like in zip(there, rows, strict=True)
            ]
            assert alike == rows, (topic, partition)
        assert sum(topic["verified"] for topic in summary["topics"]) == sum(map(len, expected.values()))


def test_no_record_is_there_twice_or_missing_after_kills(
    running: Broker, judge: Client, lake: tuple[Path, Made], tmp_path: Path
) -> None:
    folder, rows = lake
    state = tmp_path / "state"
    argv = ["restore", "--lake", str(folder), "--bootstrap-server", running.address, "--create", "yes"]
    argv += [
        "--rename",
        "made=killed",
        "--state",
        str(state),
        "--max-bytes-per-second",
        "60000",
        "--cores",
        "1",
    ]
    assert kill_at_random(argv, 3, 12, seed=7) == 0
    there = judge.read_timed("killed", 0, committed=True)
    assert [row[1:4] for row in there] == rows
    # The map leads from each old offset to the new one
    translator = Translator(read(str(state)))
    found = [translator.translate("made", 0, offset) for offset in range(len(rows))]
    assert [one and (one.offset, one.is_exact) for one in found] == [(row[0], True) for row in there]
    end = translator.translate("made", 0, len(rows))
    assert end is not None
    assert end.offset == there[-1][0] + 1


def test_keys_choose_among_another_number_of_partitions_as_kafkas_producer_does(
    running: Broker,
    judge: Client,
    lake: tuple[Path, Made],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, rows = lake
    more = ("--create", "yes", "--state", tmp_path / "state", "--partitions", 3, "--with-origin")
    chosen = ("--offsets", "100:400", "--rename", "m(.*)=spread-\\1", "--bootstrap-server", running.address)
    assert restore("--lake", folder, *more, *chosen, "--create", "only") == 0
    assert judge.read_timed("spread-ade", 0, committed=True) == []
    # The topics are there now: with which settings, and how they are set back, is still said at the end
    capsys.readouterr()
    assert restore("--lake", folder, *more, *chosen) == 0
    assert "made with retention.ms=-1" in capsys.readouterr().err
    found = [judge.read_timed("spread-ade", partition, committed=True) for partition in range(3)]
    assert sorted(row[1:4] for there in found for row in there) == sorted(rows[100:400])
    origins = [(b"origin.topic", b"made"), (b"origin.partition", b"0"), (b"origin.offset", b"100")]
    assert origins in [row[4] for there in found for row in there]
    judge.create("by-kafka", 3)
    from confluent_kafka import Producer  # its own choice of partitions, by Kafka's hash

    own = Producer({"bootstrap.servers": running.address, "partitioner": "murmur2"})
    for _, key, value in rows[100:400]:
        own.produce("by-kafka", value, key)
    own.flush()
    for partition, there in enumerate(found):
        by_kafka = judge.read_timed("by-kafka", partition, committed=True)
        assert [row[2:4] for row in there] == [row[2:4] for row in by_kafka]


def test_a_topic_with_records_is_refused_unless_append_and_settings_are_said(
    running: Broker,
    judge: Client,
    lake: tuple[Path, Made],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, rows = lake
    judge.create("full", 1, retention_ms="1000", max_message_bytes="150", cleanup_policy="delete")
    judge.send("full", 0, [("a", "b")])
    more = ["--lake", folder, "--rename", "made=full", "--bootstrap-server", running.address]
    more += ["--offsets", ":20", "--state", tmp_path / "state"]
    assert restore(*more) == 2
    assert "full has records in the target: add --append" in capsys.readouterr().err
    assert restore(*more, "--append") == 3
    said = capsys.readouterr()
    assert "retention.ms=1000 deletes restored records" in said.err
    assert "--add-config max.message.bytes=" in said.err
    assert "held back: 20 records: it is larger than max.message.bytes or segment.bytes of the" in said.out
    # The setting changed: what was held back is not written again by the same state, but by a new one
    judge.create("timed", 1, message_timestamp_before_max_ms="1000", message_timestamp_type="LogAppendTime")
    more[3], more[-1] = "made=timed", tmp_path / "state2"
    assert restore(*more) == 0
    assert "message.timestamp.type=LogAppendTime replaces the timestamps" in capsys.readouterr().err
    assert [row[2:4] for row in judge.read_timed("timed", 0, committed=True)] == [
        row[1:] for row in rows[:20]
    ]


def test_a_broker_that_goes_away_is_waited_for(lake: tuple[Path, Made], tmp_path: Path) -> None:
    folder, rows = lake
    with broker(tmp_path / "b", BROKER, heap="512m") as one:
        argv = ["restore", "--lake", str(folder), "--bootstrap-server", one.address, "--create", "yes"]
        argv += ["--state", str(tmp_path / "state"), "--max-bytes-per-second", "60000", "--cores", "1"]
        process = subprocess.Popen([sys.executable, "-m", "kafka_log_lake", *argv], cwd=ROOT)
        wait_for_first_transaction(tmp_path / "state")
        one.kill()
        time.sleep(5)
        port = int(one.address.rpartition(":")[2])
        again = start_node(tmp_path / "b" / "server.properties", port, one.logs, "512m")
        try:
            assert process.wait(300) == 0
            with client(again.address) as judge:
                assert [row[1:4] for row in judge.read_timed("made", 0, committed=True)] == rows
        finally:
            again.stop()


def test_a_target_with_tls_sasl_and_acls(
    lake: tuple[Path, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, rows = lake
    port = free_port()
    more = [
        "--lake",
        folder,
        "--bootstrap-server",
        f"127.0.0.1:{port}",
        "--create",
        "yes",
        "--offsets",
        ":50",
    ]
    more += ["--state", tmp_path / "state", "--config", tmp_path / "client.properties"]

    def said(user: str, password: str) -> tuple[int, str]:
        log_in(tmp_path, user, password)
        code, printed = restore(*more), capsys.readouterr()
        assert password not in printed.err + printed.out
        return code, printed.err

    with broker(tmp_path / "b", secured(tmp_path), heap="512m", secure_port=port) as one:
        code, line = said("me", "wr0ng-word")
        assert code == 2
        assert "correct the user and the password in --config" in line
        code, line = said("guest", "other")
        assert code == 2
        assert "allow the user of --config" in line
        assert said("me", "s3cret;word")[0] == 0
        with client(one.address) as judge:
            assert [row[1:4] for row in judge.read_timed("made", 0, committed=True)] == rows[:50]
        for file in (tmp_path / "state").rglob("*"):
            assert file.is_dir() or b"s3cret" not in file.read_bytes()
