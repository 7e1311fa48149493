"""``restore --dry-run`` and wrong arguments: what would be done, one line for what can not; no broker."""

from __future__ import annotations

import gc
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.restore import producing, targets, verify
from kafka_log_lake.pipelines.restore.clients import ClientLog, admin, consumer, producer
from kafka_log_lake.pipelines.restore.journal import Entry, open_journal
from kafka_log_lake.pipelines.restore.plan import PartitionPlan, TopicPlan
from kafka_log_lake.pipelines.restore.producing import Task, is_committed
from kafka_log_lake.pipelines.restore.reading import Limits, open_reader
from kafka_log_lake.pipelines.restore.request import Request, read_properties
from kafka_log_lake.pipelines.restore.state import State, alone, check_sources
from tests.kafka.broker import free_port
from tests.support import logs
from tests.support.segment_maker import Batch, Record, flip
from tools import json_schemas

DATA = Path(__file__).resolve().parents[2] / "data"
KEYS = (b"a", b"b", None, b"")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources") / "logs"
    records = tuple(Record(KEYS[n % 4], b"v%d" % n, timestamp_delta=n) for n in range(8))
    logs.put(folder / "orders-0", 0, Batch(records).encode(), logs.batch(8, 4))
    logs.put(folder / "orders-1", 0, flip(logs.batch(0, 4), 70), logs.batch(4, 4))
    logs.put(folder / "txn-0", 0, logs.data(0, 7, 2), logs.marker(2, 7, commit=False), logs.batch(3, 5))
    logs.put(folder / "__consumer_offsets-0", 0, logs.batch(0, 2))
    return folder


@pytest.fixture(scope="module")
def lake(sources: Path) -> Path:
    made = sources.parent / "lake"
    assert main(["decode", "--source", str(sources), "--lake", str(made)]) == 0
    return made


def planned(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, tuple[str, int, int, int]]:
    """What a dry run says of each topic: its name in the target, records, left out, lost ranges."""
    assert main(["restore", "--dry-run", "--json", *map(str, argv)]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    Draft202012Validator(json_schemas.OUTPUTS["restore"][1]).validate(said)
    topics = said["topics"]
    return {t["topic"]: (t["target"], t["asked"], t["left_out"], t["lost"]) for t in topics}


def test_a_dry_run_says_what_would_be_restored_and_what_can_not(
    lake: Path, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"orders": ("orders", 16, 0, 1), "txn": ("txn", 5, 2, 0)}
    assert planned(capsys, "--lake", lake) == whole
    # Segments are decoded into the state first, and give the same
    assert planned(capsys, sources, "--state", tmp_path / "state") == whole
    written = planned(capsys, "--lake", lake, "--as-written", "--rename", "(.*)=new.\\1")
    assert written == {"orders": ("new.orders", 16, 0, 1), "txn": ("new.txn", 7, 0, 0)}
    assert planned(capsys, "--lake", lake, "--topics", "orders", "--partition", 0, "--offsets", "2:9") == {
        "orders": ("orders", 7, 0, 0)
    }
    times = ("--since", "1700000000002", "--until", "1700000000005", "--topics", "orders")
    assert planned(capsys, "--lake", lake, *times)["orders"][1] == 3
    keys = tmp_path / "keys"
    keys.write_bytes(b"a\r\n0x62\n\n")
    assert planned(capsys, "--lake", lake, "--topics", "orders", "--keys", keys)["orders"][1] == 4
    assert not (tmp_path / "state" / "restore.json").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "name what to restore: SOURCE... (log directories or segments) or --lake LAKE"),
        (("--lake", "LAKE"), "--bootstrap-server is missing"),
        (("--lake", "LAKE", "LOGS"), "name SOURCES or --lake, not both"),
        (("LOGS", "--at", "x", "--dry-run"), "--at is a state of a lake"),
        (("--lake", "LAKE", "--bootstrap-server", "new"), "--bootstrap-server must be HOST:PORT"),
        (("--lake", "LAKE", "--bootstrap-server", "new:65536"), "--bootstrap-server must be HOST:PORT"),
        (("--lake", "LAKE", "--dry-run", "--state", "a\nb"), "/a\\nb' contains '\\n'"),
        (("--lake", "LAKE", "--dry-run", "--partitions", "0"), "--partitions must be keep, or a number"),
        (("--lake", "LAKE", "--dry-run", "--partition", "x"), "--partition must be a whole number"),
        (("--lake", "LAKE", "--dry-run", "--topics", "nothing"), "no topic to restore"),
        (("--lake", "LAKE", "--dry-run", "--rename", "orders"), "--rename orders: write REGEX=NEW"),
        (("--lake", "LAKE", "--dry-run", "--rename", "(=x"), "--rename (=x is no regular expression"),
        (("--lake", "LAKE", "--dry-run", "--rename", ".*=all"), "the same name all"),
        (("--lake", "LAKE", "--dry-run", "--rename", "txn=a/b"), "has no name that Kafka takes"),
        (("--lake", "LAKE", "--dry-run", "--rename", "txn=__consumer_offsets"), "of a topic of Kafka's own"),
        (("--lake", "LAKE", "--dry-run", "--state", "s3://"), "--state: s3:// names no bucket"),
        (("--lake", "LAKE", "--dry-run", "--rename", "txn=\\2"), "invalid group reference"),
        (("--lake", "LAKE", "--dry-run", "--keys", "none"), "--keys: cannot read none"),
        (("--lake", "LAKE", "--dry-run", "--config", "BAD"), "line 2: write name=value"),
        (("--lake", "LAKE", "--dry-run", "--max-bytes-per-second", "0"), "--max-bytes-per-second must be"),
        (("--lake", "LAKE", "--dry-run", "--committed", "--as-written"), "exclude each other"),
        (("--lake", "LAKE", "--dry-run", "--registry", "http://[::1"), "is not a URL"),
        (("--lake", "LAKE", "--dry-run", "--registry", "http://registry:99999"), "is not a URL"),
        (("LOGS", "--state", "LOGS/state", "--dry-run"), "lies in --source"),
        (("--lake", "LAKE", "--bootstrap-server", "FREE", "--config", "WRONG"), "--config: the property"),
        (
            ("--lake", "LAKE", "--bootstrap-server", "FREE", "--config", "NO_CA"),
            "the property ssl.ca.location",
        ),
        (
            ("--lake", "LAKE", "--bootstrap-server", "FREE", "--config", "PLAIN"),
            "the property sasl.mechanism",
        ),
    ],
)
def test_a_wrong_argument_is_one_line(
    argv: tuple[str, ...],
    said: str,
    lake: Path,
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("a=b\nsecret-word\n")
    Path("wrong").write_text("sasl.mechanismus=PLAIN\nsasl.password=secret-word\n")
    Path("no-ca").write_text("security.protocol=SSL\nssl.ca.location=none.pem\n")
    Path("plain").write_text("security.protocol=SASL_PLAINTEXT\nsasl.password=secret-word\n")
    places = {
        "NO_CA": "no-ca",
        "PLAIN": "plain",
        "LAKE": str(lake),
        "LOGS": str(sources),
        "LOGS/state": f"{sources}/state",
    }
    places |= {"BAD": "bad", "WRONG": "wrong", "FREE": f"127.0.0.1:{free_port()}"}
    assert main(["restore", *(places.get(word, word) for word in argv)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert "secret-word" not in line


def test_a_name_that_a_terminal_acts_on_is_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.put(tmp_path / "logs" / "or\x1b[31mders\n-0", 0, flip(logs.batch(0, 3), 70), logs.batch(3, 3))
    own = ("--rename", "(?s)or.*=orders", "--state", str(tmp_path / "state"))
    assert main(["restore", "--dry-run", str(tmp_path / "logs"), *own]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert r"or\x1b[31mders\n: lost in the sources: 1 range of offsets" in said


def test_a_target_that_does_not_answer_is_one_line(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert main(["restore", "--lake", str(lake), "--bootstrap-server", nobody, "--state", str(tmp_path)]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("error: ")]
    assert f"no answer from {nobody}" in line
    assert "start the brokers, or correct --bootstrap-server" in line
    assert not (tmp_path / "restore.json").exists()


def test_a_setting_of_several_words_is_quoted_for_a_shell() -> None:
    """zsh ends a command with [...] that names no file."""
    kept = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    (line,) = targets.warnings_of(TopicPlan("t", "t", 1, ()), kept, Limits(1 << 20))
    assert "--topic t --add-config cleanup.policy=delete, then back:" in line
    assert line.endswith("--add-config 'cleanup.policy=[compact,delete]'")


def test_several_copies_of_a_partition_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for disk in ("a", "b"):
        logs.put(tmp_path / disk / "orders-0", 0, logs.batch(0, 3))
    made = str(tmp_path / "lake")
    sources = [word for disk in ("a", "b") for word in ("--source", str(tmp_path / disk))]
    assert main(["decode", *sources, "--lake", made]) == 0
    capsys.readouterr()
    assert main(["restore", "--lake", made, "--dry-run"]) == 2
    assert "the lake has several copies of partitions of orders" in capsys.readouterr().err


def test_a_state_is_of_one_restore_at_a_time(
    lake: Path, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*argv: object) -> str:
        nobody = f"127.0.0.1:{free_port()}"
        own = ("--state", tmp_path, "--bootstrap-server", nobody)
        assert main(["restore", *map(str, (*argv, *own))]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    with alone(str(tmp_path)):
        assert f"another restore with --state {tmp_path} runs" in said("--lake", lake)
    check_sources(str(tmp_path), ["/disk-1"])
    assert "is of other sources" in said(sources)
    other = Request(str(lake), None, "", str(tmp_path))
    State(str(tmp_path), other).keep("cluster")
    assert "is of a restore with other arguments" in said("--lake", lake, "--at", "2020-01-01")


def test_a_dry_run_goes_by_its_own_arguments_where_the_state_is_of_others(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "restore-state"
    logs.put(tmp_path / "logs" / "others-0", 0, logs.batch(0, 3))
    assert main(["decode", "--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake")]) == 0
    begun = State(str(state), Request(str(tmp_path / "lake"), None, "", str(state)))
    begun.pin()
    begun.keep("cluster")
    capsys.readouterr()
    assert planned(capsys, "--lake", lake, "--state", state).keys() == {"orders", "txn"}


def test_what_a_person_should_know_is_said_before_the_first_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Batch((Record(b"a", b"b"), Record(b"a", b"c", timestamp_delta=1)), base_timestamp=0).encode()
    logs.put(tmp_path / "logs" / "t-0", 0, old)
    keys = tmp_path / "keys"
    keys.write_bytes(b"\xef\xbb\xbfa\n")
    own = ("--state", tmp_path / "state", "--keys", keys)
    assert planned(capsys, tmp_path / "logs", *own) == {"t": ("t", 2, 0, 0)}
    main(["restore", "--dry-run", str(tmp_path / "logs"), *map(str, own)])
    assert "t: 1 record with the timestamp 0: held back" in capsys.readouterr().err
    keys.write_bytes(b"0x7a\n")
    main(["restore", "--dry-run", str(tmp_path / "logs"), *map(str, own)])
    assert "no record of the sources meets the arguments" in capsys.readouterr().err


def test_groups_stand_where_kafkas_admin_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--dry-run", "--json", str(DATA / "groups"), "--state", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["groups"]
    found = {(row["group"], f"{row['topic']}-{row['partition']}"): row["committed"] for row in rows}
    moment = json.loads((DATA / "groups" / "moment.json").read_text())
    assert found == {
        (group["group"], place): one["startOffset" if group["type"] == "Share" else "offset"]
        for group in moment["groups"]
        for place, one in (group["offsets"] or {}).items()
        if one is not None
    }
    kinds = {row["group"]: row["kind"] for row in rows}
    assert kinds == {
        group["group"]: group["type"].lower() for group in moment["groups"] if group["group"] in kinds
    }


@pytest.mark.parametrize("cluster", ["connect", "mirror-backup", "mirror-primary"])
def test_offsets_of_applications_are_left_out_if_that_is_asked(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    shutil.copytree(DATA / "apps" / cluster, disk)
    own = (disk, "--state", tmp_path / "state")
    left_out = planned(capsys, *own).keys() - planned(capsys, *own, "--app-offsets", "skip").keys()
    lines = (DATA / "apps" / "kinds.jsonl").read_text().splitlines()
    kinds = {one["topic"]: one["kind"] for one in map(json.loads, lines) if one["cluster"] == cluster}
    offsets = ("connect-offset", "mm2-checkpoint", "mm2-offset-sync")
    assert left_out == {topic for topic, kind in kinds.items() if kind in offsets}


def test_a_target_that_is_gone_is_not_taken_for_one_without_the_records(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where the last transaction is asked for, nor where all is read back."""
    for module, name in (
        (producing, "WAIT"),
        (producing, "REQUEST"),
        (verify, "SILENCE"),
        (verify, "REQUEST"),
    ):
        own = f"_{name}_SECONDS" if name == "SILENCE" else f"{name}_SECONDS"
        monkeypatch.setattr(module, own, 0.5)
    request = Request(str(lake), None, f"127.0.0.1:{free_port()}", str(tmp_path))
    task = Task(request, PartitionPlan("orders", 0, "orders", 12), "1", Limits(1 << 20))
    whole = Entry(0, 12, 12, 9, 1, ((0, 12, 0, 0),), ())
    with pytest.raises(UserError, match="start the brokers, or correct --bootstrap-server"):
        is_committed(task, whole)
    journal = open_journal(str(tmp_path), "orders", 0)
    journal.intend(whole)
    journal.settle(True)
    journal.close()
    with pytest.raises(UserError, match=r"orders can't be read back: .* start the brokers"):
        verify.verify_partition(task)


def test_a_client_ends_with_its_last_user() -> None:
    """Else a process has no thread storage for more, after some 1,000 groups or partitions."""
    request = Request("", None, f"127.0.0.1:{free_port()}", "")
    for opened in (admin, consumer, partial(producer, transactional_id="one", max_bytes=1 << 20)):
        before = len(os.listdir("/proc/self/task"))
        gc.disable()
        try:
            client = opened(request, ClientLog())
            assert len(os.listdir("/proc/self/task")) > before
            del client
            assert len(os.listdir("/proc/self/task")) == before
        finally:
            gc.enable()


def test_properties_of_java_clients_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of a Java client\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        "ssl.truststore.location=/ca.pem\nsasl.jaas.config=org.apache.kafka.common.security.plain."
        'PlainLoginModule required \\\n  username="me" \\\n  password="a\\"=b;c";\n'
    )
    assert read_properties(str(file)) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/ca.pem",
        "sasl.username": "me",
        "sasl.password": 'a"=b;c',
    }


def test_disks_with_names_are_healed_and_what_no_disk_has_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, damaged = logs.batch(0, 4), flip(logs.batch(4, 4), 70)
    logs.put(tmp_path / "a" / "orders-0", 0, flip(whole, 70), damaged, logs.batch(8, 2))
    logs.put(tmp_path / "b" / "orders-0", 0, whole, damaged, logs.batch(8, 2))
    disks = [word for disk in ("a", "b") for word in ("--source", f"{disk}={tmp_path / disk}")]
    assert planned(capsys, *disks, "--state", tmp_path / "state") == {"orders": ("orders", 6, 0, 1)}


def test_records_are_read_by_offset_and_what_can_not_be_written_is_held_back(tmp_path: Path) -> None:
    time, day = 1_700_000_000_000, 86_400_000
    odd = (Record(None, b"x" * 900), Record(None, b"", timestamp_delta=-9 * day), Record(b"k", b"last"))
    folder, lake = tmp_path / "logs" / "odd-0", tmp_path / "lake"
    of_lake = ("--source", str(folder.parent), "--lake", str(lake))
    logs.put(folder, 4, Batch(odd, base_offset=4, base_timestamp=time).encode(), logs.batch(5, 1))
    assert main(["decode", *of_lake]) == 0
    named = Record(b"k", b"v", headers=((b"\xff", b"h"),)), Record(b"k", None, headers=((b"name", None),))
    logs.put(folder, 0, Batch((Record(), *named, Record(None, b"v")), base_timestamp=time).encode())
    assert main(["decode", *of_lake]) == 0  # its file is the newer one
    request = Request(str(lake), None, "", str(tmp_path))
    reader = open_reader(request, PartitionPlan("odd", 0, "odd", 8, 0, 0, 6))
    (window,) = reader.windows(0, Limits(900, before=day), time)
    assert window.held == [
        (1, "the name of a header is not UTF-8"),
        (4, "it is larger than max.message.bytes or segment.bytes of the target"),
        (5, "message.timestamp.before.max.ms of the target refuses its timestamp"),
        (5, "its offset is there twice"),
    ]
    assert window.offsets == [0, 2, 3, 6]
    assert window.headers == [None, [("name", None)], None, None]
    assert (window.keys, window.values) == ([None, b"k", None, b"k"], [None, None, b"v", b"last"])
