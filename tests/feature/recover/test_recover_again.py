"""``recover`` and ``decode`` of named sources again: the lake follows the sources, kills change nothing."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import crc32c
import duckdb
import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.maintain import command as maintain
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.recover import command as recover
from kafka_log_lake.pipelines.recover.restore import Policy, count_losses, register_topics, write_restore
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.pipelines.sql.types import duckdb_type
from kafka_log_lake.udfs.format.recovery_tables import LOST_RECORDS
from tests.support.answers import asked
from tests.support.docs import ROOT
from tests.support.logs import batch, data, marker, put
from tests.support.metadata_disks import metadata_log, policy, topic
from tests.support.replica_disks import write
from tests.support.replica_sets import replica_set
from tests.support.replicas import fingerprint
from tests.support.segment_maker import GZIP, Batch, Message, Record, wrap


def disk(folder: Path, **logs: list[bytes]) -> str:
    """A broker's disk: topic -> batches of its partition 0, which begin with the first one's offset."""
    for name, made in logs.items():
        put(folder / f"{name}-0", int.from_bytes(made[0][:8], "big"), *made)
    return f"--source={folder.name}={folder}"


def offsets(lake: Path) -> list[tuple[str, int]]:
    found = asked(lake, 'SELECT topic, "offset" FROM records ORDER BY ALL')
    return [(topic, offset) for topic, offset in found]


def test_what_the_true_log_lost_leaves_the_lake(tmp_path: Path) -> None:
    """A disk more has a later history, and a partition that no source has any more goes."""
    lake = ["--lake", str(tmp_path / "lake"), "--cores", "1"]
    one = disk(tmp_path / "one", kept=[batch(0), batch(3), batch(6)], gone=[batch(0)])
    assert recover.main([one, *lake]) == 0
    assert offsets(tmp_path / "lake") == [("gone", i) for i in range(3)] + [("kept", i) for i in range(9)]
    shutil.rmtree(tmp_path / "one" / "gone-0")
    two = disk(tmp_path / "two", kept=[batch(3), batch(6, leader_epoch=1)])
    (tmp_path / "two" / "kept-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 3\n1 6\n")
    assert recover.main([one, two, *lake]) == 0
    assert offsets(tmp_path / "lake") == [("kept", i) for i in range(3, 9)]
    for name in ("batches", "segments", "transactions", "healed_batches", "replica_report"):
        topics = asked(tmp_path / "lake", f"SELECT DISTINCT topic FROM {name}")
        assert topics in ([("kept",)], []), name


def test_named_decode_fails_on_damage_of_a_copy_that_another_healed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hurt = bytearray(batch(3))
    hurt[-1] ^= 1
    one = disk(tmp_path / "one", t=[batch(0), bytes(hurt), batch(6)])
    two = disk(tmp_path / "two", t=[batch(0), batch(3), batch(6)])
    words = [one, two, "--lake", str(tmp_path / "lake"), "--cores", "1", "--fail-on-damage"]
    assert decode_batches.main(words) == 3
    assert "1 damaged range in copies: replica_report.damage" in capsys.readouterr().err
    assert len(offsets(tmp_path / "lake")) == 9
    torn = disk(tmp_path / "torn", t=[batch(0), batch(3), batch(6)[:-1]])
    assert decode_batches.main([torn, two, *words[2:3], str(tmp_path / "other"), *words[4:]]) == 0, (
        "a torn tail is no damage"
    )


def test_named_decode_writes_typed_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = disk(tmp_path / "one", t=[batch(0, text='{"n": 1} ')])
    (tmp_path / "one" / "t-0" / "00000000000000000000.log").write_bytes(batch(0))
    words = [one, "--lake", str(tmp_path / "lake"), "--cores", "1", "--typed", "--json"]
    assert decode_batches.main(words) == 0
    assert [one["topic"] for one in json.loads(capsys.readouterr().out)["typed"]] == ["t"]


def test_questions_are_about_the_healed_log_or_a_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = disk(tmp_path / "one", t=[batch(0), batch(3), batch(6), batch(9)])
    two = disk(tmp_path / "two", t=[batch(0), batch(3, text="w", leader_epoch=1)])
    lake = str(tmp_path / "lake")
    assert recover.main([one, two, "--lake", lake, "--cores", "1", "--with-copies"]) == 0
    capsys.readouterr()
    for log, count in (("healed", 6), ("one", 12), ("two", 6)):
        words = ["--lake", lake, "--format", "csv", "--log", log]
        assert query.main([*words, "SELECT count(*) FROM committed_records"]) == 0
        assert capsys.readouterr().out.split()[-1] == str(count), log
        assert connect(lake, log=log).execute("SELECT count(*) FROM records").fetchone() == (count,)
    assert connect(lake).execute("SELECT count(*) FROM records").fetchone() == (6,)
    for log in ("three", "../lake"):
        assert query.main(["--lake", lake, "--log", log, "SELECT 1"]) == 2
        assert f"--log {log}" in capsys.readouterr().err


def test_the_healed_log_takes_no_room_and_stays(tmp_path: Path) -> None:
    """Its bytes are those of the copies, where they are; upkeep does not take its rows for old ones."""
    old = [batch(3 * i, text="v" * 20_000, base_timestamp=1_500_000_000_000) for i in range(20)]
    one = disk(tmp_path / "one", t=old[:10])
    two = disk(tmp_path / "two", t=old)
    for name, time in (("one", 1_500_000_700), ("two", 1_500_000_600)):
        os.utime(tmp_path / name / "t-0" / f"{0:020d}.log", (time, time))
    lake = tmp_path / "lake"
    assert recover.main([one, two, "--lake", str(lake), "--cores", "1"]) == 0
    size = sum(path.stat().st_size for path in (lake / "_healed").rglob("*") if path.is_file())
    assert size < sum(map(len, old)) / 100
    segments = asked(lake, "SELECT epoch(modified), length FROM segments")
    assert segments == [(1_500_000_600, sum(map(len, old)))], "the file that it was taken from"
    assert maintain.main(["--lake", str(lake), "--keep-days", "30"]) == 0
    assert len(offsets(lake)) == 60


def test_copies_of_older_formats_that_differ_are_two_histories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No leader epoch tells them apart; the one that reaches further is taken, and the other is billed."""

    def log(first: int, texts: str) -> list[bytes]:
        return [
            Message(magic=1, offset=first + i, value=text.encode()).encode() for i, text in enumerate(texts)
        ]

    one = disk(tmp_path / "one", t=log(0, "abxyz"))
    two = disk(tmp_path / "two", t=log(0, "abcdefg"))
    three = disk(tmp_path / "three", t=log(0, "abcd"))
    lake = tmp_path / "lake"
    assert recover.main([one, two, three, "--lake", str(lake), "--cores", "1"]) == 0
    assert "those of two are taken" in capsys.readouterr().out
    taken = "SELECT string_agg(CAST(value AS VARCHAR), '' ORDER BY \"offset\") FROM records"
    assert asked(lake, taken) == [("abcdefg",)]
    lost = asked(lake, 'SELECT copy, "offset", why, CAST(value AS VARCHAR) FROM lost_records ORDER BY 2')
    assert lost == [("one", 2 + i, "diverged", text) for i, text in enumerate("xyz")]


def test_offsets_inside_of_wrappers_are_not_lost(tmp_path: Path) -> None:
    """The header of a wrapper has its last offset alone."""
    for magic in (0, 1):
        inner = [[Message(magic=magic, offset=first + i) for i in range(3)] for first in (0, 3)]
        made = [wrap(one, codec=GZIP, magic=magic).encode() for one in inner]
        put(tmp_path / "disk" / f"t-{magic}", 0, *made)
    lake = tmp_path / "lake"
    source = f"--source={tmp_path / 'disk'}"
    assert recover.main([source, "--lake", str(lake), "--cores", "1"]) == 0
    assert offsets(lake) == sorted([("t", i) for i in range(6)] * 2)
    bases = asked(lake, "SELECT partition, base_offset, last_offset FROM healed_batches ORDER BY ALL")
    assert bases == [(0, 0, 2), (0, 3, 5), (1, 0, 2), (1, 3, 5)]
    assert asked(lake, "FROM lost_ranges") == []


def test_a_wrong_offset_of_an_older_format_is_corrected_and_its_checksum_kept(tmp_path: Path) -> None:
    for magic in (0, 1):
        stored = (0, 1, 2 + 2**20, 3, 4)
        made = [Message(magic=magic, offset=offset, value=b"%d" % i) for i, offset in enumerate(stored)]
        put(tmp_path / "disk" / f"t-{magic}", 0, *(one.encode() for one in made))
    inner = [[Message(offset=first + i, value=b"%d" % (first + i)) for i in range(3)] for first in (0, 3, 6)]
    made = [wrap(inner[0], codec=GZIP), wrap(inner[1], codec=GZIP, outer_offset=5 + 2**20)]
    put(tmp_path / "disk" / "t-2", 0, *(one.encode() for one in (*made, wrap(inner[2], codec=GZIP))))
    lake = tmp_path / "lake"
    assert recover.main([f"--source={tmp_path / 'disk'}", "--lake", str(lake), "--cores", "1"]) == 0
    found = asked(lake, 'SELECT partition, "offset", CAST(value AS VARCHAR) FROM records ORDER BY ALL')
    assert found == [(at, i, str(i)) for at, count in enumerate((5, 5, 9)) for i in range(count)]


def test_a_lake_of_other_logs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = disk(tmp_path / "one", t=[batch(0)])
    lake = ["--lake", str(tmp_path / "lake"), "--cores", "1"]
    assert decode_batches.main(["--source", str(tmp_path / "one"), *lake]) == 0
    capsys.readouterr()
    assert recover.main([one, *lake]) == 2
    assert "not a healed log: choose another lake" in capsys.readouterr().err
    assert len(offsets(tmp_path / "lake")) == 3


def test_kills_leave_the_sources_alone_and_the_next_run_completes(tmp_path: Path) -> None:
    """One lake after kills at random steps, and another one of a run that was left alone, are the same."""
    made = replica_set(seed := random.randrange(1 << 30), moves_start=True)
    sources = [f"--source={one}" for one in write(made, tmp_path / "disks", seed, damage=0.1)]
    before = fingerprint(tmp_path / "disks")

    def words(lake: str) -> list[str]:
        return [*sources, "--lake", str(tmp_path / lake), "--cores", "1", "--report", str(tmp_path / "bill")]

    def killed(lake: str, *counts: int) -> list[int]:
        numbers = [str(count) for count in counts]
        argv = [
            sys.executable,
            "-m",
            "tests.support.killed",
            *numbers,
            "--",
            "kafka_log_lake.pipelines.recover.command",
            *words(lake),
        ]
        return [int(line) for line in subprocess.run(argv, stdout=PIPE, check=True, cwd=ROOT).stdout.split()]

    (steps,) = killed("whole", 0)
    counts = sorted(random.sample(range(1, steps), 2))
    assert killed("killed", *counts) == counts, "each died where it should"
    assert recover.main(words("killed")) == 0
    assert fingerprint(tmp_path / "disks") == before
    tables = ("records", "transactions", "replica_report", "divergence", "lost_ranges", "lost_records")
    found, expected = (rows_of(tmp_path / lake, tables) for lake in ("killed", "whole"))
    assert found == expected, f"seed {seed}, killed before steps {counts} of {steps}"
    assert {path.name for path in (tmp_path / "killed" / "_healed").iterdir()} == {"t-0"}


def rows_of(lake: Path, tables: Sequence[str]) -> dict[str, list[str]]:
    """The rows of each table as text, without the name of the lake."""
    rows = {table: asked(lake, f"FROM {table}") for table in tables}
    return {table: sorted(str(row).replace(str(lake), "") for row in found) for table, found in rows.items()}


def test_a_scan_of_named_disks_compares_the_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = disk(tmp_path / "one", t=[batch(0), batch(3), batch(6)])
    two = disk(tmp_path / "two", t=[batch(0), batch(3, text="w", leader_epoch=1)])
    assert scan.main([one, two, "--cores", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    columns = ("copy", "role", "log_end_offset", "behind", "diverged_from")
    assert [tuple(row[name] for name in columns) for row in found["replicas"]] == [
        ("one", "other", 9, 3, 3),
        ("two", "primary", 6, 0, None),
    ]
    assert found["records"] == 15
    assert scan.main([one, two, "--cores", "1"]) == 0
    shown = capsys.readouterr().out
    assert "copies compared" in shown
    assert "lost: what 1 of 2 copies has of another history than the true one" in shown
    (command,) = [line for line in shown.splitlines() if " recover " in line]
    assert f" recover {one.replace('=', ' ', 1)} {two.replace('=', ' ', 1)} --lake " in command


def test_a_scan_of_copies_says_which_is_damaged_and_gives_up_no_offset_that_another_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = disk(tmp_path / "one", t=[batch(0), batch(3)[:-1] + b"?", batch(6)])
    two = disk(tmp_path / "two", t=[batch(0), batch(3), batch(6)[:-1]])
    assert scan.main([one, two, "--cores", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^  (\S+) .* (?:crc_mismatch|torn) ", shown, re.MULTILINE) == ["one/t-0", "two/t-0"]
    assert "--to-offset" not in shown
    assert "REPLICA" not in shown


def test_a_producer_snapshot_says_what_was_cut_off(tmp_path: Path) -> None:
    """It is made of the log up to the offset of its name, and not believed where a batch contradicts it."""
    log = [data(0, 7, 3), data(3, 8, 3)]
    for name, last_offset in (("one", 2), ("two", 5)):
        disk(tmp_path / name, t=log)
        put_snapshot(tmp_path / name / "t-0" / f"{9:020d}.snapshot", 7, last_offset)
    lake = str(tmp_path / "lake")
    for name, lost in (("one", [(6, 8, "cut off")]), ("two", [])):
        source = f"--source={name}={tmp_path / name}"
        assert recover.main([source, "--lake", f"{lake}-{name}", "--cores", "1"]) == 0
        found = asked(f"{lake}-{name}", "SELECT first_offset, last_offset, reason FROM lost_ranges")
        assert found == lost
    contradicted = asked(f"{lake}-two", "SELECT contradicted FROM replica_report")
    assert contradicted == [([f"{9:020d}.snapshot: producer 7 wrote offset 5 last"],)]


def put_snapshot(path: Path, producer: int, last_offset: int) -> None:
    """A snapshot with one producer."""
    row = struct.pack(">iqhiqiqiq", 1, producer, 0, 2, last_offset, 2, 0, -1, -1)
    path.write_bytes(struct.pack(">hI", 1, crc32c.crc32c(row)) + row)


def test_lost_records_are_restored_as_kafkas_console_producer_reads_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        Record(b"n1", b"a\tb", ((b"h", b"1"), (b"h", None))),
        Record(None, b"no key"),
        Record(b"n2", None),
        Record(b"n3", b"two\nlines"),
        Record(b"old", b"older than the truth"),
        Record(b"n4", b"\xff"),
    ]
    lost = [batch(0), Batch(records, base_offset=3).encode()]
    one = disk(tmp_path / "one", t=lost, __consumer_offsets=lost)
    truth = [batch(0), Batch([Record(b"old", b"new")], base_offset=3, leader_epoch=1).encode()]
    two = disk(tmp_path / "two", t=truth, __consumer_offsets=truth)
    metadata_log(tmp_path / "two", [*topic("t", 1, [1]), policy("t", "compact")])
    bill = tmp_path / "bill"
    assert recover.main([one, two, "--cores", "1", "--report", str(bill)]) == 0
    assert f"report       {bill}: recovery.html, lost_records.csv, restore.sh\n" in capsys.readouterr().out
    written = read_lines(bill / "restore" / "t-0.txt")
    assert written == [
        (b"n1", b"a\tb", [("h", b"1"), ("h", None)]),
        (None, b"no key", []),
        (b"n2", None, []),
    ]
    assert read_lines(bill / "restore" / "t-0.held.txt") == [(b"old", b"older than the truth", [])]
    listed = [json.loads(line) for line in (bill / "restore" / "t-0.jsonl").read_text().splitlines()]
    assert [base64.b64decode(row["value"]) for row in listed] == [b"two\nlines", b"\xff"]
    script = (bill / "restore.sh").read_text()
    commands = [line for line in script.splitlines() if line.startswith("kafka-console-producer.sh")]
    assert len(commands) == 1
    assert commands[0].endswith("< restore/t-0.txt")
    assert subprocess.run(["sh", "-n", str(bill / "restore.sh")], check=False).returncode == 0


def read_lines(path: Path) -> list[tuple[Any, ...]]:
    """(key, value, headers) of each line, by the rules of Kafka's ``LineMessageReader``."""

    def data(text: str) -> bytes | None:
        return None if text == "<null>" else text.encode()

    found = []
    for line in path.read_text().split("\n")[:-1]:
        headers, key, value = line.split("\t", 2)
        pairs = [] if headers == "<null>" else [one.split(":", 1) for one in headers.split(",")]
        found.append((data(key), data(value), [(name, data(text)) for name, text in pairs]))
    return found


def test_a_transaction_before_the_logs_start_ends_where_its_marker_is(tmp_path: Path) -> None:
    """Its records were deleted, its marker is in the true log."""
    one = disk(tmp_path / "one", t=[marker(3, 7), batch(4)])
    two = disk(tmp_path / "two", t=[data(0, 7, 3), marker(3, 7), batch(4)])
    lake = str(tmp_path / "lake")
    assert recover.main([one, two, "--lake", lake, "--cores", "1"]) == 0
    rows = asked(lake, 'SELECT "offset", why, transaction FROM lost_records ORDER BY ALL')
    assert rows == [(offset, "before-log-start", "committed") for offset in range(3)]


def test_what_both_histories_have_neither_replaces_nor_is_a_lost_record(tmp_path: Path) -> None:
    """A key's value before the histories part is no newer one, and an equal record there is another one."""
    shared = Batch([Record(b"state", b"on"), Record(b"state", b"off")], base_offset=0).encode()
    lost = [Record(b"state", b"on"), Record(b"again", b"sent"), Record(b"new", b"lost")]
    true = [Record(b"again", b"sent"), Record(b"new", b"newer")]
    one = disk(tmp_path / "one", t=[shared, Batch(lost, base_offset=2).encode()])
    two = disk(tmp_path / "two", t=[shared, Batch(true, base_offset=2, leader_epoch=1).encode()])
    bill, lake = tmp_path / "bill", tmp_path / "lake"
    metadata_log(tmp_path / "two", [*topic("t", 1, [1]), policy("t", "delete, compact")])
    assert recover.main([one, two, "--cores", "1", "--report", str(bill), "--lake", str(lake)]) == 0
    assert read_lines(bill / "restore" / "t-0.txt") == [(b"state", b"on", [])]
    assert read_lines(bill / "restore" / "t-0.held.txt") == [(b"new", b"lost", [])]
    also = asked(lake, 'SELECT also_in_truth FROM lost_records ORDER BY "offset"')
    assert also == [(None,), (2,), (None,)]


def test_copies_without_leader_epochs_lose_different_records_at_one_offset(tmp_path: Path) -> None:
    lost = {"one": Message(offset=1, key=b"a", value=None), "two": Message(offset=1, key=b"b", value=b"2")}
    sources = [disk(tmp_path / name, t=[batch(0, 1), message.encode()]) for name, message in lost.items()]
    sources.append(disk(tmp_path / "three", t=[batch(0, 1), batch(1, leader_epoch=1)]))
    bill = tmp_path / "bill"
    assert recover.main([*sources, "--cores", "1", "--report", str(bill)]) == 0
    assert sorted(read_lines(bill / "restore" / "t-0.txt")) == [(b"a", None, []), (b"b", b"2", [])]


def test_more_partitions_have_lost_records_than_files_may_be_open(tmp_path: Path) -> None:
    columns = ", ".join(f'"{c.name}" {duckdb_type(c.sql_type)}' for c in LOST_RECORDS.columns)
    database = duckdb.connect()
    database.execute(f"CREATE TABLE lost_records ({columns})")
    database.execute(
        "INSERT INTO lost_records BY NAME SELECT 't' AS topic, i AS partition, 0 AS \"offset\", "
        "0 AS leader_epoch, 'one' AS copy, 'diverged' AS why, 'v'::BLOB AS value FROM range(300) r(i)"
    )
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = max(map(int, os.listdir("/proc/self/fd")))  # a run of many tests has many
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 100, limits[1]))
    try:
        topics = {"t": Policy(False, "")}
        register_topics(database, topics)
        write_restore(database, tmp_path, count_losses(database), topics)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(list((tmp_path / "restore").iterdir())) == 300
