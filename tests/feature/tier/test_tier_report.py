"""``tier_report``: what the objects, the metadata and the disk do not agree on, and what it costs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.dump_log import command as dump
from kafka_log_lake.pipelines.inspect_batch import command as inspect
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.remote_metadata import RemoteMetadata, RemoteSegment
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.pipelines.tier.index import index_of
from kafka_log_lake.pipelines.tier.objects import Tier, TierSegment
from kafka_log_lake.pipelines.tier.report import report_rows
from tests.support.answers import asked

DATA = Path(__file__).resolve().parents[2] / "data" / "tiered"
LONG_BEFORE = 1_000_000_000  # seconds since 1970: years before the metadata of the test's data
KEY = f"key-1={DATA / 'encrypted' / 'keys' / 'key-1.private.pem'}"


def scanned(
    case: Path, capsys: pytest.CaptureFixture[str] | pytest.CaptureFixture[bytes], *options: str
) -> list[dict[str, Any]]:
    capsys.readouterr()
    argv = [str(case / "log-dir"), "--tier", str(case / "tier"), "--json", *options]
    assert scan.main(argv) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out.splitlines()[-1])["tier_report"]
    return found


def of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A tier with an orphan, a lost object and one that has more bytes than the metadata say."""
    case = Path(shutil.copytree(DATA / "local", tmp_path / "case"))
    (first,) = (case / "tier").rglob("*0000-*.log")
    orphan = first.with_name(f"{7:020d}-AAAAAAAAAAAAAAAAAAAAAA.log")
    orphan.write_bytes(first.read_bytes())
    os.utime(orphan, (0, LONG_BEFORE))
    (lost,) = (case / "tier").rglob("*0200-*.log")
    lost.unlink()
    (longer,) = (case / "tier").rglob("*0409-*.log")
    longer.write_bytes(longer.read_bytes() + bytes(100))
    return case


def test_each_disagreement_is_a_row(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = scanned(odd, capsys, "--price-per-gb-month", "1000000000")
    (orphan,) = of(rows, "orphan")
    assert (orphan["bytes"], orphan["per_month"]) == (3676, 3676)
    assert orphan["delete_command"] == f"rm -- {orphan['object'].removeprefix('file://')}"
    (lost,) = of(rows, "lost")
    assert (lost["first_offset"], lost["last_offset"], lost["state"]) == (200, 263, "COPY_SEGMENT_FINISHED")
    (differs,) = of(rows, "size_differs")
    assert differs["detail"] == "3989 bytes by the object, 3889 by the metadata"
    assert {row["first_offset"] for row in of(rows, "on_disk_too")} == {609, 676}
    assert len(rows) == 5


def orphan_of(case: Path) -> Path:
    (path,) = (case / "tier").rglob("*-AAAAAAAAAAAAAAAAAAAAAA.log")
    return path


def newer_object(case: Path) -> None:
    os.utime(orphan_of(case))


def newer_index(case: Path) -> None:
    orphan_of(case).with_suffix(".index").write_bytes(b"")


def metadata_damaged(case: Path) -> None:
    path = case / "log-dir" / "__remote_log_metadata-1" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


def metadata_without_beginning(case: Path) -> None:
    """As retention leaves it: the record of some copy may be gone."""
    path = case / "log-dir" / "__remote_log_metadata-1" / f"{0:020d}.log"
    content = path.read_bytes()
    second = 12 + int.from_bytes(content[8:12], "big")
    base = int.from_bytes(content[second : second + 8], "big")
    path.with_name(f"{base:020d}.log").write_bytes(content[second:])
    path.unlink()


def without_high_watermark(case: Path) -> None:
    (case / "log-dir" / "replication-offset-checkpoint").unlink()


def shorter_than_high_watermark(case: Path) -> None:
    """As a crash of the machine leaves it: the last record was seen by others, and is not here."""
    (case / "log-dir" / "replication-offset-checkpoint").write_text("0\n1\n__remote_log_metadata 1 23\n")


def of_another_history(case: Path) -> None:
    """Adds a disk whose copy of the metadata is of leaders that the first one did not have."""
    copy = case / "log-dir" / "other-disk"
    shutil.copytree(case / "log-dir" / "__remote_log_metadata-1", copy / "__remote_log_metadata-1")
    shutil.copy(case / "log-dir" / "replication-offset-checkpoint", copy)
    path = copy / "__remote_log_metadata-1" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[15] += 1  # the leader epoch of the first batch, which no checksum covers
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_high_watermark, "no committed record that is a day newer"),
        (shorter_than_high_watermark, "not all of them could be read"),
        (of_another_history, "not all of them could be read"),
        (newer_object, "a day newer"),
        (newer_index, "a day newer"),
        (metadata_damaged, "not all of them could be read"),
        (metadata_without_beginning, "not all of them could be read"),
    ],
)
def test_what_unread_metadata_may_name_has_no_command(
    change: Callable[[Path], None], why: str, odd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(odd)
    rows = scanned(odd, capsys)
    assert not [row for row in rows if row["delete_command"]]
    assert why in {row["object"]: row["detail"] for row in of(rows, "orphan")}[orphan_of(odd).as_uri()]


def test_objects_whose_metadata_lie_on_another_broker_are_no_orphans(
    odd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(odd / "log-dir" / "__remote_log_metadata-1")  # the others name nothing of the topic
    assert {row["kind"] for row in scanned(odd, capsys)} <= {"unreadable"}


def test_objects_without_ids_are_no_orphans(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = odd / "tier" / "small-0" / f"{5000:020d}.log"
    path.parent.mkdir()
    path.write_bytes(b"x")
    os.utime(path, (0, LONG_BEFORE))
    assert path.as_uri() not in {row["object"] for row in of(scanned(odd, capsys), "orphan")}


DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_700_000_000_000


def rows_of_states(
    states: list[int], since: list[int], scheme: str = "s3", deleted: tuple[tuple[str, int], ...] = ()
) -> list[dict[str, Any]]:
    """The rows of a tier with one object for each segment of one log."""
    ids = [str(at) for at in range(len(states))]
    metadata = RemoteMetadata(deleted=set(deleted))
    for one, state, at in zip(ids, states, since, strict=True):
        metadata.segments[one] = RemoteSegment("t", "T", 0, one, state, at, start=0, end=9, size=1)
    files = [{".log": (f"{scheme}://b/t/{one} x.log", 1)} for one in ids]
    objects = [TierSegment("other", "t", 0, "T", one, 0, held) for one, held in zip(ids, files, strict=True)]
    return report_rows(Listing(), index_of(Tier(("s3://b",), objects), [metadata]), [])


@pytest.mark.parametrize(
    ("later", "has_command"), [(0, False), (DAY_MS // 2, False), (2 * DAY_MS, True), (1 << 60, False)]
)
def test_a_copy_may_be_in_progress_until_its_log_has_a_record_a_day_newer(
    later: int, has_command: bool
) -> None:
    rows = rows_of_states([0, 1], [NOW_MS, NOW_MS + later])
    (copy,) = of(rows, "unfinished_copy")
    assert copy["delete_command"] == ("aws s3 rm 's3://b/t/0 x.log'" if has_command else None)
    assert ("more than a day later" in copy["detail"]) is has_command
    assert "never" not in copy["detail"]


def test_a_deletion_that_began_and_a_deleted_partition_have_a_command_where_it_is_known() -> None:
    states = [2, 3], [NOW_MS, NOW_MS]
    rows = rows_of_states(*states)
    assert [row["kind"] for row in rows] == ["undeleted", "unfinished_delete"]
    commands = [row["delete_command"] for row in rows[::-1]]
    assert commands == ["aws s3 rm 's3://b/t/0 x.log'", "aws s3 rm 's3://b/t/1 x.log'"]
    assert not any(row["delete_command"] for row in rows_of_states(*states, scheme="gs"))
    (gone,) = rows_of_states([1], [NOW_MS], deleted=(("T", 0),))
    assert (gone["kind"], gone["delete_command"]) == ("deleted_topic", "aws s3 rm 's3://b/t/0 x.log'")


def test_a_deletion_that_a_new_leader_may_not_have_has_no_command() -> None:
    value = {
        "remoteLogSegmentId": {"topicIdPartition": {"name": "t", "id": "T", "partition": 0}, "id": "0"},
        "remoteLogSegmentState": 2,
        "eventTimestampMs": NOW_MS,
        "brokerId": 1,
    }
    mark = {
        "topicIdPartition": {"name": "u", "id": "U", "partition": 0},
        "remotePartitionDeleteState": 0,
    }
    objects = [TierSegment("other", "t", 0, "T", "0", 0, {".log": ("s3://b/t/0.log", 1)})]
    objects.append(TierSegment("other", "u", 0, "U", "1", 0, {".log": ("s3://b/u/1.log", 1)}))
    commands = []
    for is_committed in (True, False):
        metadata = RemoteMetadata()
        metadata.note(value, is_committed)
        metadata.note(mark, is_committed)
        rows = report_rows(Listing(), index_of(Tier(("s3://b",), objects), [metadata]), [])
        assert [row["kind"] for row in rows] == ["deleted_topic", "unfinished_delete"]
        commands.append([row["delete_command"] for row in rows])
    assert commands == [["aws s3 rm s3://b/u/1.log", "aws s3 rm s3://b/t/0.log"], [None, None]]


def test_a_state_that_kafka_does_not_have_changes_nothing_and_takes_the_commands_away() -> None:
    place = {"name": "t", "id": "T", "partition": 0}
    metadata, of_segment = RemoteMetadata(), {"topicIdPartition": place, "id": "0"}
    metadata.note(
        {"remoteLogSegmentId": of_segment, "remoteLogSegmentState": 9, "eventTimestampMs": 1, "brokerId": 1}
    )
    assert not metadata.segments
    assert not metadata.is_whole


def test_the_table_has_the_same_rows(odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cut,) = (odd / "tier").rglob("*0484-*.log")
    cut.write_bytes(cut.read_bytes()[:2121])
    rows = scanned(odd, capsys)
    argv = ["--source", str(odd / "log-dir"), "--tier", str(odd / "tier"), "--lake", str(tmp_path / "lake")]
    assert decode_batches.main([*argv, "--cores", "1"]) == 0
    stored = asked(tmp_path / "lake", "SELECT kind, object, bytes, detail FROM tier_report ORDER BY ALL")
    assert stored == sorted((row["kind"], row["object"], row["bytes"], row["detail"]) for row in rows)
    gone = "SELECT first_lost, last_lost FROM lost_offsets WHERE topic = 'small' ORDER BY ALL"
    assert asked(tmp_path / "lake", gone) == [(200, 263), (510, 546)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "0/AAAAAAAAAAAAAAAAAAAAAA/AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000007_0_v0.segment",
            "Confluent's",
        ),
        ("06160a32/kafka/small/0_12/1052-1099-4212-1-v1.log.2", "Redpanda"),
        ("0f000000/_kafka_AAAAAAAAAAAAAAAAAAAAAA/12", "AutoMQ"),
        ("backup/topics/small/0/segment-00000000.kbs", "OSO backup"),
        ("warehouse/small/data/00000-0.parquet", "Parquet"),
    ],
)
def test_objects_of_others_are_named_with_what_can_be_done(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tier" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    shutil.copytree(DATA / "local" / "log-dir", tmp_path / "log-dir")
    argv = [str(tmp_path / "log-dir"), "--tier", str(tmp_path / "tier"), "--json"]
    assert scan.main(argv) == 0
    out, said = capsys.readouterr()
    (foreign,) = of(json.loads(out.splitlines()[-1])["tier_report"], "foreign")
    assert (foreign["object"], foreign["bytes"]) == (path.as_uri(), 1)
    assert kind in foreign["detail"]
    assert "; " in foreign["detail"] or ": " in foreign["detail"]
    assert f"has no object of a segment: 1 x {foreign['detail']}" in said


def test_what_agrees_gives_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = scanned(DATA / "encrypted", capsys, "--tier-key", KEY)
    assert {row["kind"] for row in rows} == {"on_disk_too"}


def test_a_cut_object_and_a_lacking_key_are_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Path(shutil.copytree(DATA / "encrypted", tmp_path / "case"))
    for suffix, base in ((".log", 0), (".indexes", 303)):
        (path,) = (case / "tier").glob(f"small-*/0/{base:020d}-*{suffix}")
        path.write_bytes(path.read_bytes()[:-7])
    rows = scanned(case, capsys, "--tier-key", KEY)
    cut = [(row["first_offset"], row["detail"].split()[0]) for row in of(rows, "size_differs")]
    assert cut == [(0, ".log"), (303, ".indexes")]
    assert not of(rows, "unreadable")
    lacking = of(scanned(case, capsys), "unreadable")
    assert {row["first_offset"] for row in lacking} >= {0, 303}
    assert {row["detail"] for row in lacking} == {"it is encrypted by key key-1: --tier-key key-1=FILE.pem"}


def test_an_object_is_dumped_and_inspected_as_its_segment(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    (path,) = (DATA / "encrypted" / "tier").glob("small-*/0/*0303-*.log")
    assert dump.main([str(path), "--deep-iteration", "--tier-key", KEY]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "Log starting offset: 303\n" in text
    assert text.count("| offset: ") == 156
    assert inspect.main([str(path), "--offset", "458", "--json", "--tier-key", KEY]) == 0
    assert dump.main([str(path.with_suffix(".indexes")), "--tier-key", KEY]) == 0
    indexes = capsysbinary.readouterr().out.decode()
    assert "offset: 454 position: 8545\n" in indexes
    assert "timestamp: 1740787296849 offset: 458\n" in indexes
    assert "lastOffset: 458" in indexes
    assert "epoch: 0 startOffset: 0\n" in indexes
