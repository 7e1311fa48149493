"""The account of a log: what files of a disk name, and what of it was not read soundly."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.listing.witnesses import has_grown
from kafka_log_lake.pipelines.scan.command import main, scan
from kafka_log_lake.pipelines.scan.findings import ScannedLog
from kafka_log_lake.pipelines.scan.losses import verdict
from kafka_log_lake.udfs.batches.account import (
    ASIDE,
    END,
    MISSING,
    REMOTE,
    START,
    TORN,
    TORN_TAIL,
    ZERO_TAIL,
    ZEROS,
    Leftover,
    RemoteRange,
    Unseen,
    Witnesses,
    account_of,
)
from kafka_log_lake.udfs.format.encode import PlainRecord
from kafka_log_lake.udfs.values.internal.encode import metadata_record, record_batch
from tests.support.logs import batch, batches, put
from tests.support.metadata_disks import IDS

TIERED, REMOTE_DEFINITIONS = "__remote_log_metadata", "remote_log_metadata"


def log_of(folder: Path) -> ScannedLog:
    (log,) = scan(Settings(source=(str(folder),), cores=1)).logs
    return log


def epochs(folder: Path, *entries: tuple[int, int]) -> None:
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    (folder / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")


def remote_metadata(*segments: tuple[str, int, int, int]) -> bytes:
    """A batch of ``__remote_log_metadata``: segment ids, first and last offset, and the state at the end."""
    values = []
    for name, first, last, state in segments:
        place = {"name": "t", "id": IDS["t"], "partition": 0}
        segment = {"remoteLogSegmentId": {"topicIdPartition": place, "id": f"{name:A<21}A"}}
        offsets = {"startOffset": first, "endOffset": last, "remoteLogSegmentState": 0}
        values += [
            metadata_record("RemoteLogSegmentMetadataRecord", 0, {**segment, **offsets}, REMOTE_DEFINITIONS),
            metadata_record(
                "RemoteLogSegmentMetadataUpdateRecord",
                0,
                {**segment, "remoteLogSegmentState": state},
                REMOTE_DEFINITIONS,
            ),
        ]
    rows = [PlainRecord(offset, 1, None, value) for offset, value in enumerate(values)]
    return bytes(record_batch(rows, 0, 0, crc32c))


def ranges(start: int, end: int, witnesses: Witnesses, *args: object) -> list[tuple[int, int | None, str]]:
    account = account_of(start, end, witnesses, *args)  # type: ignore[arg-type]
    return [(one.first, one.last, one.state) for one in account.unseen]


@pytest.mark.parametrize(
    ("witnesses", "expected"),
    [
        (Witnesses(), []),
        (Witnesses(epochs=((0, 0),)), [(0, 43, MISSING)]),
        (Witnesses(epochs=((0, 0),), log_start=44), []),  # DeleteRecords, or retention
        (Witnesses(epochs=((3, 44),)), []),  # retention
        (Witnesses(epochs=((3, 44),), log_start=12), []),  # that file is older
        (Witnesses(epochs=((3, 50),)), []),  # epochs since 50: batches of older formats before
        (Witnesses(epochs=((0, 12), (1, 80)), log_start=12), [(12, 43, MISSING)]),
        (Witnesses(log_start=12), [(12, 43, MISSING)]),
        (Witnesses(orphans=(30,)), [(30, 43, MISSING)]),
        (Witnesses(epochs=((0, 0),), log_start=0), [(0, 43, REMOTE)]),  # noted of tiered topics alone
        (Witnesses(epochs=((0, 0),), remote=(RemoteRange(0, 20), RemoteRange(18, 43))), [(0, 43, REMOTE)]),
        (
            Witnesses(epochs=((0, 5),), remote=(RemoteRange(0, 20), RemoteRange(30, 43)), is_tiered=True),
            [(5, 20, REMOTE), (21, 29, MISSING), (30, 43, REMOTE)],
        ),
        (
            Witnesses(epochs=((0, 0),), aside=(Leftover("0.log.deleted", "deleted", 0, 10),)),
            [(0, 43, ASIDE)],
        ),
    ],
)
def test_what_lies_before_the_first_segment(
    witnesses: Witnesses, expected: list[tuple[int, int, str]]
) -> None:
    assert ranges(44, 100, witnesses) == expected
    assert all(one.cause == START for one in account_of(44, 100, witnesses).unseen)


def test_what_nobody_explains_is_told_apart_from_what_is_lost() -> None:
    assert account_of(44, 100).unexplained == (0, 43)
    assert account_of(0, 100).unexplained is None
    assert account_of(44, 100, Witnesses(epochs=((0, 44),))).unexplained is None
    account = account_of(44, 100, Witnesses(epochs=((0, 0),)))
    assert account.unexplained is None
    assert not account.is_sound
    (one,) = account.unseen
    assert one.why.startswith("offsets 0 to 43 are gone; no retention explains it")


@pytest.mark.parametrize(
    ("witnesses", "end"),
    [
        (Witnesses(high_watermark=100), 100),
        (Witnesses(high_watermark=101), 101),
        (Witnesses(epochs=((0, 44), (1, 120))), 120),
        (Witnesses(epochs=((0, 44), (1, 100))), 100),  # an epoch that begins where the log ends
        (Witnesses(snapshots=(60, 110)), 110),
        (Witnesses(indexed=105), 105),
        (Witnesses(orphans=(130,)), 130),
        (Witnesses(recovery_point=140, high_watermark=120), 140),
    ],
)
def test_what_lies_after_the_last_batch(witnesses: Witnesses, end: int) -> None:
    account = account_of(44, 100, witnesses)
    assert account.end == end
    assert account.is_sound == (end == 100)
    assert sum(one.count for one in account.unseen if one.cause == END) == end - 100


def test_a_tail_is_lost_as_far_as_a_witness_names_it() -> None:
    torn = Unseen(100, 119, cause=TORN_TAIL, state=TORN, detail="the last batch is incomplete")
    zeros = Unseen(100, None, cause=ZERO_TAIL, state=ZEROS, detail="it ends in zeros")
    assert ranges(44, 100, Witnesses(), (), torn) == [(100, 119, TORN)]
    assert account_of(44, 100, Witnesses(high_watermark=100), (), torn).is_sound
    assert ranges(44, 100, Witnesses(high_watermark=110), (), torn) == [
        (100, 109, MISSING),
        (110, 119, TORN),
    ]
    assert ranges(44, 100, Witnesses(high_watermark=120), (), torn) == [(100, 119, MISSING)]
    assert ranges(44, 100, Witnesses(), (), zeros) == []
    assert ranges(44, 100, Witnesses(high_watermark=110), (), zeros) == [(100, 109, MISSING)]


def test_a_range_is_asked_for() -> None:
    account = account_of(44, 100, Witnesses(epochs=((0, 0),), high_watermark=110))
    assert [one.cause for one in account.among()] == [START, END]
    assert [one.cause for one in account.among(50, 99)] == []
    assert [one.cause for one in account.among(40, 50)] == [START]
    assert [one.cause for one in account.among(105)] == [END]


# Disks


def test_a_lost_first_segment_is_not_sound(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 44, *batches(44, 3))
    epochs(tmp_path / "a-0", (0, 0))
    findings = scan(Settings(source=(str(tmp_path),), cores=1))
    assert [(one.first, one.last, one.cause) for _, one in findings.missing] == [(0, 43, START)]
    assert verdict(findings).sentence.startswith("not sound: ")
    assert verdict(findings).sentence.endswith("lost: 44 offsets in no segment")
    epochs(tmp_path / "a-0", (0, 44))  # as retention leaves it
    assert verdict(scan(Settings(source=(str(tmp_path),), cores=1))).is_sound


def test_names_and_indexes_tell_what_the_last_segment_lost(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    put(folder, 0, *batches(0, 3))
    end = log_of(folder).end
    assert log_of(folder).account.is_whole
    (folder / f"{end + 7:020d}.snapshot").write_bytes(b"")
    assert [one.why.split(":")[0] for one in log_of(folder).account.unseen] == [
        f"a producer snapshot is of offset {end + 7}"
    ]
    (folder / f"{end + 7:020d}.snapshot").unlink()
    entries = [struct.pack(">ii", end - 1, 70), struct.pack(">ii", end + 3, 200)]
    (folder / f"{0:020d}.index").write_bytes(b"".join(entries) + bytes(8 * 1000))
    (one,) = log_of(folder).account.unseen
    assert (one.first, one.last, one.cause) == (end, end + 3, END)
    (folder / f"{0:020d}.index").write_bytes(entries[0] + bytes(8 * 1000))
    assert log_of(folder).account.is_whole


def test_an_index_whose_segment_is_gone_names_offsets(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    put(folder, 20, batch(20))
    (folder / f"{0:020d}.index").write_bytes(b"")
    (folder / f"{50:020d}.timeindex").write_bytes(b"")
    account = log_of(folder).account
    assert [(one.first, one.last, one.cause) for one in account.unseen] == [(0, 19, START), (23, 49, END)]


@pytest.mark.parametrize("content", [b"", b"0\n1\n0 x\n", b"\xff", b"1\n1\n0 0\n"])
def test_a_checkpoint_that_cannot_be_read_says_nothing(tmp_path: Path, content: bytes) -> None:
    put(tmp_path / "a-0", 44, batch(44))
    (tmp_path / "a-0" / "leader-epoch-checkpoint").write_bytes(content)
    account = log_of(tmp_path).account
    assert account.unseen == ()
    assert account.unexplained == (0, 43)


def test_what_is_not_sound_exits_with_3_where_that_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "whole" / "a-0", 0, batch(0))
    put(tmp_path / "zeros" / "a-0", 0, bytes(100))
    put(tmp_path / "torn" / "a-0", 0, batch(0), batch(3)[:-5])
    put(tmp_path / "lost" / "a-0", 44, batch(44))
    epochs(tmp_path / "lost" / "a-0", (0, 0))
    codes = {one.name: main([str(one), "--fail-on-damage"]) for one in sorted(tmp_path.iterdir())}
    assert codes == {"whole": 0, "zeros": 3, "torn": 0, "lost": 3}


def test_a_log_that_grows_is_not_called_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker writes the rest of a batch between the listing and the verdict."""
    whole = batch(3, 40)
    path = put(tmp_path / "a-0", 0, batch(0), whole[:-5])

    def grows(segment: str, length: int) -> bool:
        path.write_bytes(batch(0) + whole)
        return has_grown(segment, length)

    monkeypatch.setattr("kafka_log_lake.pipelines.scan.findings.has_grown", grows)
    said = verdict(scan(Settings(source=(str(tmp_path),), cores=1)))
    assert said.is_sound
    assert said.sentence.endswith("1 log grew meanwhile, with an incomplete batch at the end")


def test_copies_that_were_not_compared_are_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put(tmp_path / name / "a-0", 0, batch(0))
    said = verdict(scan(Settings(source=(str(tmp_path),), cores=1))).sentence
    assert "1 partition in several folders, which were not compared" in said


def test_what_remote_storage_has_is_not_lost(tmp_path: Path) -> None:
    """The metadata name 0 to 19 in a finished copy; a later copy of 20 to 39 was not finished."""
    folder = put(tmp_path / "t-0", 40, batch(40)).parent
    epochs(folder, (0, 0))
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {IDS['t']}")
    put(tmp_path / f"{TIERED}-0", 0, remote_metadata(("A", 0, 19, 1), ("B", 20, 39, 0)))
    findings = scan(Settings(source=(str(tmp_path),), cores=1))
    assert [(one.first, one.last, one.state) for _, one in findings.missing] == [
        (0, 19, REMOTE),
        (20, 39, MISSING),
    ]
    assert "not checked: 20 offsets in remote storage alone" in verdict(findings).sentence
