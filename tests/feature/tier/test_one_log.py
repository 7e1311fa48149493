"""Disk and tier as one log: what consumers read through the broker, tier and all, before it was shut down."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.find import command as find

DATA = Path(__file__).resolve().parents[2] / "data" / "tiered"
Record = tuple[str, int, int, int, str | None, str | None]
# Of the case local: objects by the first offset in their name
MISSING, ON_DISK_TOO = 200, 609


def truth(case: str) -> set[Record]:
    """Topic, partition, offset, timestamp, key and value of each record that a Java consumer got."""
    with gzip.open(DATA / case / "read_committed.jsonl.gz", "rt") as lines:
        return {tuple(json.loads(line)) for line in lines}


def found(
    disk: Path, capsysbinary: pytest.CaptureFixture[bytes], *arguments: str, code: int = 0
) -> tuple[set[Record], str]:
    """The records that find prints, and what it says on standard error."""
    capsysbinary.readouterr()
    argv = [
        "--exclude-topics",
        "__.*",
        str(disk / "log-dir"),
        "--tier",
        str(disk / "tier"),
        "--committed",
        *arguments,
    ]
    assert find.main([*argv, "--format", "json"]) == code
    out, said = capsysbinary.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    names = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
    records = [tuple(row[name] for name in names) for row in rows]
    assert len(records) == len(set(records)), "a record twice"
    return set(records), said.decode()


def keys(case: Path) -> list[str]:
    """The options that name the private keys of a case."""
    files = sorted((case / "keys").glob("*.private.pem"))
    return [text for file in files for text in ("--tier-key", f"{file.name.split('.')[0]}={file}")]


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """Copies a case, so that a test may damage it."""

    def copy(case: str) -> Path:
        return Path(shutil.copytree(DATA / case, tmp_path / case))

    return copy


def objects(case: Path, base: int, suffix: str = ".log") -> list[Path]:
    """The objects of the topic small whose segment begins at an offset."""
    return sorted(path for path in (case / "tier").rglob(f"{base:020d}-*{suffix}") if "/small-" in str(path))


@pytest.mark.parametrize("case", ["local", "zstd", "encrypted"])
def test_the_union_is_what_consumers_read(case: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    other = ["--tier-key", f"other={DATA / 'encrypted' / 'keys' / 'key-1.private.pem'}"]
    records, said = found(DATA / case, capsysbinary, *keys(DATA / case), *other)
    assert records == truth(case)
    assert "warning" not in said


def test_a_missing_object_is_served_by_the_disk_or_named(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    gone = [*objects(case, MISSING), *objects(case, ON_DISK_TOO)]
    for path in gone:
        path.unlink()
    records, said = found(case, capsysbinary)
    lost = {record for record in truth("local") if MISSING <= record[2] <= 263}
    assert truth("local") - records == lost
    assert f"offsets {MISSING} to 263 are in file://{gone[0]}, which can't be read" in said
    assert gone[1].name not in said


def test_of_damage_on_the_disk_and_in_the_tier_each_serves_the_other(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    assert {record[2] for record in truth("local")} >= {ON_DISK_TOO, 676}
    (of_tier,), of_disk = objects(case, ON_DISK_TOO), case / "log-dir" / "small-0" / f"{676:020d}.log"
    for path in (of_tier, of_disk):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    records, said = found(case, capsysbinary)
    assert records == truth("local")
    assert "warning" not in said


def test_without_the_local_log_the_tier_serves_what_it_has(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    shutil.rmtree(case / "log-dir" / "small-0")
    records, _ = found(case, capsysbinary)
    assert truth("local") - records == {record for record in truth("local") if record[2] > 738}
    assert records < truth("local")


def test_without_metadata_names_are_the_index_and_it_says_so(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    for folder in (case / "log-dir").glob("__remote_log_metadata-*"):
        shutil.rmtree(folder)
    records, said = found(case, capsysbinary)
    assert records == truth("local")
    assert "no __remote_log_metadata is on the disks" in said


def test_a_log_whose_metadata_lie_on_another_broker_is_read_by_names_and_it_says_so(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    shutil.rmtree(case / "log-dir" / "__remote_log_metadata-1")  # the others name nothing of the topic
    records, said = found(case, capsysbinary)
    assert records == truth("local")
    assert "no metadata on the disks name the objects that are used for small" in said


def test_objects_newer_than_the_metadata_are_not_passed_over_in_silence(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    newest = objects(case, 676)[0]
    newest.with_name(f"{739:020d}-AAAAAAAAAAAAAAAAAAAAAA.log").write_bytes(newest.read_bytes())
    records, said = found(case, capsysbinary)
    assert records == truth("local")
    assert "not read, as no metadata name them: 1 segment of small in the tier, newer than the" in said


def test_objects_that_no_metadata_name_are_not_read(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    (own,) = objects(case, 0)
    other = own.with_name(f"{0:020d}-AAAAAAAAAAAAAAAAAAAAAA.log")
    other.write_bytes(objects(case, 59)[0].read_bytes())
    assert found(case, capsysbinary)[0] == truth("local")


def test_objects_with_exchanged_contents_are_read_by_their_contents(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("local")
    (one,), (other,) = objects(case, 137), objects(case, 547)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert found(case, capsysbinary)[0] == truth("local")


def test_a_flipped_bit_in_a_chunk_costs_its_batches_alone(
    copied: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = copied("encrypted")
    path = objects(case, 303)[0]
    content = bytearray(path.read_bytes())
    content[3070] ^= 1  # in chunk 2 of 1,228 stored and 1,200 plain bytes
    path.write_bytes(content)
    records, said = found(case, capsysbinary, *keys(case))
    lost = sorted(record[2] for record in truth("encrypted") - records)
    assert lost
    assert set(lost) <= set(range(303, 459))
    assert len(lost) < 60
    assert records < truth("encrypted")
    assert f"of {path.name} could not be searched (unreadable)" in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "it is encrypted by key key-1: --tier-key key-1=FILE.pem"),
        (["--tier-key", "key-1={other}"], "its data key can't be decrypted by key key-1"),
    ],
)
def test_a_lacking_or_wrong_key_is_one_line_for_each_object(
    options: list[str], why: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    from Crypto.PublicKey import RSA

    (tmp_path / "other.pem").write_bytes(RSA.generate(2048).export_key())
    named = [one.format(other=tmp_path / "other.pem") for one in options]
    case = DATA / "encrypted"
    records, said = found(case, capsysbinary, *named)
    assert records == {record for record in truth("encrypted") if record in records}
    (first,) = objects(case, 0)
    assert f"{first.name}: {why}" in said
    secret = (case / "keys" / "key-1.private.pem").read_text().splitlines()[1]
    assert secret not in said


@pytest.mark.parametrize(
    "content", ["no key at all", "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"]
)
def test_a_file_that_is_no_key_is_one_line(
    content: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "bad.pem"
    path.write_text(content)
    records, said = found(DATA / "encrypted", capsysbinary, "--tier-key", f"key-1={path}", code=2)
    assert not records
    assert said.strip().splitlines() == [
        f"error: --tier-key key-1: {path} is no PEM file of an RSA key without a password"
    ]


def test_find_in_python_takes_a_tier() -> None:
    case = DATA / "encrypted"
    key = f"key-1={case / 'keys' / 'key-1.private.pem'}"
    found = kafka_log_lake.find(
        case / "log-dir", tier=str(case / "tier"), tier_key=key, topics="small", committed=True
    )
    records = [row for batch in found for row in batch.select(["topic", "partition", "offset"]).to_pylist()]
    expected = sorted(row[:3] for row in truth("encrypted") if row[0] == "small")
    assert sorted(tuple(row.values()) for row in records) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition": ""}}},
        {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition": {"topic": "../small"}}}},
        {"endOffset": "x", "segmentLeaderEpochs": {"x": None}},
        {"endOffset": 1 << 80},
        [],
    ],
)
def test_a_manifest_whose_metadata_are_no_metadata_is_read_by_its_chunks(
    change: dict[str, object] | list[object],
    copied: Callable[[str], Path],
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    case = copied("zstd")
    shutil.rmtree(case / "log-dir" / "__remote_log_metadata-2")  # manifests are the index
    path = next((case / "tier").rglob("small-*/0/*0147-*.rsm-manifest"))
    manifest = json.loads(path.read_bytes())
    manifest["remoteLogSegmentMetadata"] = (
        {} if isinstance(change, list) else manifest["remoteLogSegmentMetadata"] | change
    )
    path.write_text(json.dumps(manifest if change else manifest | {"remoteLogSegmentMetadata": change}))
    assert found(case, capsysbinary)[0] == truth("zstd")
