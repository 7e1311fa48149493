"""``recover``: one log in a lake, and a bill with each record that a losing side alone has."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.recover import command as recover
from tests.support import replicas
from tests.support.answers import asked
from tests.support.docs import ROOT, blocks

RUNBOOK = {"broker": "s04b-unclean-twice", "controller": "s11-controllers"}
BILLED = ("s03-retention", "s04b-unclean-twice", "s06-recreated")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replicas.unpack(tmp_path_factory.mktemp("replicas"))


def run(sources: Sequence[str], *options: str) -> int:
    named = [word for one in sources for word in ("--source", one)]
    return recover.main([*named, "--cores", "1", *options])


@pytest.fixture(scope="module")
def lakes(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of each scenario of BILLED."""
    root = tmp_path_factory.mktemp("lakes")
    for scenario in BILLED:
        assert run(replicas.sources(corpus, scenario), "--lake", str(root / scenario)) == 0
    return root


@pytest.mark.parametrize("scenario", BILLED)
def test_each_record_that_a_losing_side_alone_has_is_billed_once(
    corpus: Path, lakes: Path, scenario: str
) -> None:
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    rows = asked(
        lakes / scenario,
        "SELECT topic || '-' || partition, split_part(copy, '/', 1), \"offset\", leader_epoch, why, "
        "acknowledged, also_in_truth, value FROM lost_records",
    )
    for *key, acknowledged, also, value in rows:
        assert tuple(key) not in found
        found[tuple(key)] = (acknowledged, also, value)
    expected = {
        (name, line["copy"].removesuffix("-disk2"), line["offset"], line["leaderEpoch"], line["why"]): line
        for name, line in replicas.lost_lines(corpus, scenario)
    }
    assert set(found) == set(expected)
    for place, (acknowledged, _, value) in found.items():
        line = expected[place]
        if line.get("id") and value is not None:
            assert value.startswith(line["id"].encode()), place
        if acknowledged == "yes":
            assert line.get("result") == "acked", place
        if line.get("result") == "failed":
            assert acknowledged != "yes", place


def test_records_of_the_healed_log_name_their_copy_and_its_bytes(corpus: Path, lakes: Path) -> None:
    lake = lakes / "s04b-unclean-twice"
    rows = asked(
        lake,
        "SELECT \"offset\", key, value, copy FROM healed_records WHERE topic = 'payments.all' "
        'AND partition = 0 ORDER BY "offset"',
    )
    truth = replicas.truth(corpus, "s04b-unclean-twice", "payments.all-0")
    assert truth is not None
    expected = [replicas.comparable(line) for line in truth.records]
    assert [row[:3] for row in rows] == [(line[0], line[2], line[3]) for line in expected]
    assert {row[3] for row in rows} == {"broker-2"}, "it led last"
    source, position, size, crc = asked(
        lake, "SELECT source_segment, source_position, size_bytes, crc FROM healed_batches LIMIT 1"
    )[0]
    batch = Path(source.removeprefix("file://")).read_bytes()[position : position + size]
    assert int.from_bytes(batch[17:21], "big") == crc


def test_transactions_are_those_of_the_healed_log(corpus: Path, lakes: Path) -> None:
    """A read_committed consumer gets of the lake what it got of the brokers in the end."""
    for name in ("transfers-0", "transfers-1"):
        truth = replicas.truth(corpus, "s04b-unclean-twice", name)
        assert truth is not None
        expected = [line["offset"] for line in truth.records if line.get("committed")]
        topic, partition = name.rsplit("-", 1)
        found = asked(
            lakes / "s04b-unclean-twice",
            f"SELECT \"offset\" FROM committed_records WHERE topic = '{topic}' AND partition = {partition} "
            'ORDER BY "offset"',
        )
        assert [offset for (offset,) in found] == expected


def test_copies_are_reported_with_how_they_differ(lakes: Path) -> None:
    lake = lakes / "s04b-unclean-twice"
    rows = asked(
        lake,
        "SELECT copy, role, log_end_offset, diverged_from, behind, epochs FROM replica_report "
        "WHERE topic = 'payments.all' AND partition = 0 ORDER BY copy",
    )
    assert [row[1] for row in rows] == ["other", "primary", "other"]
    assert [row[3] for row in rows] == [92, None, 74]
    assert rows[1][2] == 108
    assert rows[1][5] == ["0@0", "2@27", "5@58", "9@92"]
    diverged = asked(
        lake,
        "SELECT copy, first_offset, last_offset, leader_epoch, why, certainty FROM divergence "
        "WHERE topic = 'payments.all' AND partition = 0 ORDER BY copy",
    )
    assert {row[3:] for row in diverged if row[0] == "broker-3"} == {(7, "diverged", "certain")}
    starts = asked(
        lakes / "s03-retention",
        "SELECT DISTINCT first_offset, last_offset FROM divergence WHERE topic = 'payments.all' "
        "AND partition = 1 AND why = 'before-log-start' AND copy = 'broker-3'",
    )
    assert starts == [(0, 10)]


def test_a_second_run_changes_nothing_and_sources_stay_as_they_are(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disks = shutil.copytree(corpus / "s08d-unclean-damaged", tmp_path / "disks")
    sources = [f"{path.name}={path}" for path in sorted(disks.iterdir())]
    before = replicas.fingerprint(disks)
    options = ("--lake", str(tmp_path / "lake"), "--json", "--report", str(tmp_path / "bill"))
    assert run(sources, *options) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    records = asked(tmp_path / "lake", "FROM records ORDER BY ALL")
    assert run(sources, *options) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    for one in (first, again):
        one.pop("seconds")
    assert first == again
    assert first["lost_ranges"] == 3
    assert asked(tmp_path / "lake", "FROM records ORDER BY ALL") == records
    assert replicas.fingerprint(disks) == before
    lines = (tmp_path / "bill" / "lost_records.csv").read_text().splitlines()
    assert len(lines) == 1 + first["lost_records"]
    page = (tmp_path / "bill" / "recovery.html").read_text()
    assert "payments.all" in page
    assert "crc_mismatch" in page


def test_disks_of_two_clusters_are_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(corpus / "s02-behind" / "broker-2", tmp_path / "other")
    meta = other / "meta.properties"
    meta.chmod(0o644)
    meta.write_text(meta.read_text().replace("cluster.id=Rep", "cluster.id=Zep"))
    sources = [f"a={corpus / 's02-behind' / 'broker-1'}", f"b={other}"]
    assert run(sources, "--lake", str(tmp_path / "lake")) == 2
    error = capsys.readouterr().err
    assert "2 clusters" in error
    assert not (tmp_path / "lake").exists()


def test_a_disk_without_a_name_is_called_by_its_broker(corpus: Path, tmp_path: Path) -> None:
    disks = [str(corpus / "s02-behind" / f"broker-{number}") for number in (1, 2)]
    assert run(disks, "--lake", str(tmp_path / "lake"), "--topics", "orders-idem") == 0
    found = asked(tmp_path / "lake", "SELECT copy, broker_id FROM replica_report ORDER BY copy")
    assert found == [("broker-1", 1), ("broker-2", 2)]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("b1=/no/such/disk", "no such path"),
        ("b1=nosuch://bucket/logs", "can't be opened"),
        ("b1=", "no such path"),
        ("b1=/etc/hosts", "is not a segment"),
        ("healed=/etc", "no source can be named healed"),
    ],
)
def test_a_source_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, words: str
) -> None:
    assert run([source], "--lake", str(tmp_path / "lake")) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "Traceback" not in error


def test_a_segment_alone_is_no_copy(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment, *_) = (corpus / "s02-behind" / "broker-1" / "orders-idem-0").glob("*.log")
    assert run([f"b1={segment}"], "--lake", str(tmp_path / "lake")) == 2
    assert "is a file: name a disk, or a partition folder" in capsys.readouterr().err


def test_a_disk_without_a_partition_is_named(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Most likely its path is wrong: fewer copies are compared than the user thinks."""
    (tmp_path / "empty").mkdir()
    disks = [f"b1={corpus / 's02-behind' / 'broker-1'}", f"b2={tmp_path / 'empty'}"]
    assert run(disks, "--lake", str(tmp_path / "lake"), "--topics", "orders-idem") == 0
    assert f"no partition folder (<topic>-<partition>) in {tmp_path / 'empty'}" in caplog.text


def test_commands_of_the_runbook_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command of docs/recovery.md, on the disks of a cluster with three histories."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(ROOT / "docs" / "recovery.md", "sh"):
        for line in block.splitlines():
            for disk in ("broker", "controller"):
                line = line.replace(f"/mnt/{disk}", f"{corpus}/{RUNBOOK[disk]}/{disk}-")
            words = shlex.split(line)
            assert words[0] == ".venv/bin/kafka-log-lake"
            assert main(words[1:]) == 0, line
    assert (tmp_path / "bill" / "lost_records.csv").exists()
    shown = re.sub(r" \(\d+\.\d s\)$", "", capsys.readouterr().out, flags=re.MULTILINE)
    for block in blocks(ROOT / "docs" / "recovery.md", "text"):
        assert block.strip() in shown


@pytest.mark.parametrize("place", ["inside a source", "not empty"])
def test_a_disk_is_written_into_no_source_and_over_nothing(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    disk = shutil.copytree(corpus / "s02-behind" / "broker-1", tmp_path / "disk")
    target = disk / "new" if place == "inside a source" else tmp_path / "full"
    if place == "not empty":
        target.mkdir()
        (target / "file").write_text("mine")
    assert run([f"a={disk}"], "--write", str(target)) == 2
    assert "--write" in capsys.readouterr().err
    assert run([f"a={disk}"], "--report", str(disk / "new")) == 2
    assert "the sources are only read" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} <= {"disk", "full"}
    assert not (disk / "new").exists()


def test_decode_of_disks_with_names_has_each_partition_once(corpus: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    named = [word for one in replicas.sources(corpus, "s04a-unclean-once") for word in ("--source", one)]
    assert decode_batches.main([*named, "--lake", str(lake), "--cores", "1", "--topics", "orders-idem"]) == 0
    truth = replicas.truth(corpus, "s04a-unclean-once", "orders-idem-0")
    assert truth is not None
    offsets = asked(lake, 'SELECT "offset" FROM records ORDER BY "offset"')
    assert [offset for (offset,) in offsets] == [line["offset"] for line in truth.records]
    assert asked(lake, "SELECT count(*) FROM lost_records")[0][0] > 0
