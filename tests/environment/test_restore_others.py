"""``restore`` into a target that others use meanwhile, that throttles, and of applications' topics."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.restore.offset_map import Translator, read
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.pipelines.restore.state import State
from tests.kafka.broker import NEWEST, Broker, Client, broker_classpath
from tests.support.cluster import ROOT
from tests.support.java import quick_java
from tests.support.logs import batch, put
from tests.support.object_store import Store, uri
from tests.support.restored import Made, made_lake, made_log, wait_for_first_transaction
from tests.support.segment_maker import Batch, Record

APPS = Path(__file__).resolve().parents[1] / "data" / "apps"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    folder, rows = made_lake(tmp_path_factory.mktemp("made"), "made", count=4_000)
    return folder, rows["made"]


def restore(running: Broker, state: Path, *argv: object) -> int:
    own = ("--bootstrap-server", running.address, "--state", state, "--cores", 1, "--create", "yes")
    return main(["restore", *map(str, (*argv, *own))])


def test_records_of_others_between_them_and_a_new_run_of_the_lake_change_nothing(
    running: Broker, judge: Client, lake: tuple[Path, Made], tmp_path: Path
) -> None:
    folder, rows = lake
    state, done = tmp_path / "state", Event()

    def others() -> None:
        wait_for_first_transaction(state)
        own = Producer({"bootstrap.servers": running.address, "linger.ms": 0})
        while not done.wait(0.005):
            own.produce("made", b"of others", b"others")
            own.poll(0)
        own.flush()

    made_log(tmp_path / "more", "later", 20)
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(others)
        try:
            # The lake gets another topic between two attempts of the restore
            assert restore(running, state, "--lake", folder, "--max-bytes-per-second", 100_000) == 0
            decoded = ["decode", "--source", str(tmp_path / "more"), "--lake", str(folder)]
            assert main(decoded) == 0
            assert restore(running, state, "--lake", folder) == 0
        finally:
            done.set()
        writing.result()
    there = judge.read_timed("made", 0, committed=True)
    own = [row for row in there if row[2] != b"others"]
    assert [row[1:4] for row in own] == rows
    assert len(own) < len(there)
    translator = Translator(read(str(state)))
    found = [translator.translate("made", 0, offset) for offset in range(len(rows))]
    assert [one and one.offset for one in found] == [row[0] for row in own]
    assert "later" not in AdminClient({"bootstrap.servers": running.address}).list_topics().topics


def test_a_quota_that_lets_less_through_than_a_transaction_holds_is_waited_for(
    running: Broker, judge: Client, lake: tuple[Path, Made], tmp_path: Path
) -> None:
    folder, rows = lake
    java = [*quick_java(), "-cp", broker_classpath(NEWEST), "org.apache.kafka.tools.ConfigCommand"]
    java += ["--bootstrap-server", running.address, "--alter", "--entity-type", "clients"]
    java += ["--entity-name", "kafka-log-lake-restore"]
    subprocess.run([*java, "--add-config", "producer_byte_rate=20000"], check=True)
    (tmp_path / "config").write_text("transaction.timeout.ms=5000\nbatch.size=16384\n")
    try:
        own = ("--topics", "made", "--rename", "made=throttled", "--config", tmp_path / "config")
        assert restore(running, tmp_path / "state", "--lake", folder, *own) == 0
    finally:
        subprocess.run([*java, "--delete-config", "producer_byte_rate"], check=True)
    assert [row[1:4] for row in judge.read_timed("throttled", 0, committed=True)] == rows
    assert len(list((tmp_path / "state" / "journal" / "made-0").iterdir())) > 2, "in several transactions"


def test_records_without_keys_and_topics_without_records(
    running: Broker, judge: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (2, 3):
        records = (Record(None, b"null-%d" % number), Record(b"", b"empty"), Record(b"k", None))
        put(tmp_path / "logs" / f"n-{number}", 0, Batch(records, base_timestamp=1_790_000_000_000).encode())
    put(tmp_path / "logs" / "none-0", 7)
    put(tmp_path / "logs" / "held-0", 0, batch(0, base_timestamp=0))
    logs, state = tmp_path / "logs", tmp_path / "state"
    assert restore(running, state, logs, "--topics", "n", "--partitions", 2) == 0
    # By their partition modulo 2
    values = [{row[3] for row in judge.read_timed("n", place, committed=True)} for place in range(2)]
    assert (b"null-2" in values[0], b"null-3" in values[1]) == (True, True)
    capsys.readouterr()
    assert restore(running, tmp_path / "state2", logs, "--topics", "none") == 0
    assert "no record of the sources meets the arguments" in capsys.readouterr().err
    assert judge.read_timed("none", 0, committed=True) == []
    assert restore(running, tmp_path / "state3", logs, "--topics", "held", "--json") == 3
    (said,) = json.loads(capsys.readouterr().out.splitlines()[-1])["topics"]
    assert (said["asked"], said["restored"]) == (3, 0)
    assert said["held_back"] == {"its timestamp is 0, for which the client writes the present time": 3}


def test_connect_loads_what_is_restored(
    running: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = APPS / "connect"
    assert restore(running, tmp_path / "state", disk, "--topics", "connect-.*", "--no-groups") == 0
    capsys.readouterr()
    assert main(["load-check", str(running.logs / "connect-configs-0")]) == 0
    assert capsys.readouterr().out == "1 internal log replayed: all load\n"


def test_a_topic_that_is_deleted_meanwhile_ends_it_and_is_not_continued(
    running: Broker, lake: tuple[Path, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    argv = ["restore", "--lake", str(lake[0]), "--topics", "made", "--rename", "made=deleted"]
    argv += ["--create", "yes", "--bootstrap-server", running.address, "--state", str(state), "--cores", "1"]
    command = [sys.executable, "-m", "kafka_log_lake", *argv, "--max-bytes-per-second", "30000"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_first_transaction(state, 1)
        admin = AdminClient({"bootstrap.servers": running.address})
        (deleted,) = admin.delete_topics(["deleted"]).values()
        deleted.result()
        said = process.communicate(timeout=180)[1]
    finally:
        process.kill()
    assert process.returncode == 2, said
    assert "(UNKNOWN_TOPIC_OR_PART): was it deleted? Then start anew" in said.splitlines()[-1]
    assert main(argv) == 2
    assert "deleted-0 lost records that were restored: it was made anew" in capsys.readouterr().err


def test_a_state_of_another_cluster_is_refused_before_a_topic_is_made(
    running: Broker, lake: tuple[Path, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rename = (("made", "elsewhere"),)
    asked = Request(str(lake[0]), None, "", str(tmp_path), topics="made", rename=rename)
    begun = State(str(tmp_path), asked)
    begun.pin()
    begun.keep("another")
    own = ("--lake", lake[0], "--topics", "made", "--rename", "made=elsewhere")
    assert restore(running, tmp_path, *own) == 2
    assert "the restore of this --state began into the cluster another" in capsys.readouterr().err
    assert "elsewhere" not in AdminClient({"bootstrap.servers": running.address}).list_topics().topics


def test_a_state_in_an_object_store_continues_after_a_kill(
    running: Broker, judge: Client, lake: tuple[Path, Made], tmp_path: Path, store: Store
) -> None:
    folder, rows = lake
    argv = [
        "restore",
        "--lake",
        str(folder),
        "--topics",
        "made",
        "--rename",
        "made=stored",
        "--create",
        "yes",
    ]
    argv += [
        "--create",
        "yes",
        "--bootstrap-server",
        running.address,
        "--state",
        uri("state"),
        "--cores",
        "1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "kafka_log_lake", *argv, "--max-bytes-per-second", "60000"], cwd=ROOT
    )
    wait_for_first_transaction(store.folder / "state")
    process.kill()
    process.wait()
    assert main(argv) == 0
    assert [row[1:4] for row in judge.read_timed("stored", 0, committed=True)] == rows
    assert read(uri("state")).num_rows >= 1
