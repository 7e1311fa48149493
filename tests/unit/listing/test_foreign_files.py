"""Files that are not Kafka's are named, with what to do, and are no damage. Renamed segments are read."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.scan.command import main, scan
from kafka_log_lake.pipelines.scan.losses import verdict
from kafka_log_lake.udfs.storage import foreign
from tests.support.logs import batch, batches, put

UUID = "1MgppfSzScuHhhM52NEAkA"


def redpanda(base: int) -> bytes:
    """A batch of Redpanda: its packed header, all little-endian, and a body."""
    rest = struct.pack("<iqbihiqqqhii", 61 + 40, base, 1, 5, 0, 0, 1, 1, -1, -1, -1, 1)
    return struct.pack("<I", crc32c(rest)) + rest + b"x" * 40


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("orders/0_12/0-1-v1.log", foreign.REDPANDA),
        ("orders-0/00000000000000000000.log.gz", foreign.COMPRESSED),
        ("orders-0/00000000000000000000.log.zst", foreign.COMPRESSED),
        ("disk.tar", foreign.ARCHIVE),
        ("disk.tar.gz", foreign.ARCHIVE),
        ("b/topics/orders/0/segment-00000000.kbs", foreign.OSO_BACKUP),
        (f"kafka-tiered-storage/o-0-{UUID}/{5:020d}-{UUID}.log", foreign.LOCAL_TIER),
        (f"o-{UUID}/0/{5:020d}-{UUID}.log", foreign.PLUGIN_TIER),
        (f"o-{UUID}/0/{5:020d}-{UUID}.rsm-manifest", foreign.PLUGIN_TIER),
        (f"0/{UUID}/{UUID}/0/{5:020d}_0_v0.segment", foreign.CONFLUENT),
        (f"0f/_kafka_{UUID}/12.log", foreign.AUTOMQ),
    ],
)
def test_a_file_is_named_by_its_name(tmp_path: Path, place: str, kind: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    with pytest.raises(UserError) as error:
        scan(tmp_path)
    assert kind in str(error.value)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (redpanda(0) + redpanda(1), "Redpanda segment"),
        (gzip.compress(batch(0), mtime=0), "compressed file"),
        (b"\x28\xb5\x2f\xfd" + bytes(range(1, 200)), "compressed file"),
        (b"KBAK" + bytes(range(1, 200)), "file of an OSO backup (KBAK)"),
        (b"a" * 257 + b"ustar" + b"b" * 400, "archive"),
    ],
)
def test_a_file_with_a_segment_s_name_is_named_by_its_content(
    tmp_path: Path, content: bytes, kind: str
) -> None:
    put(tmp_path / "a-0", 0, content)
    put(tmp_path / "b-0", 0, batch(0))
    findings = scan(Settings(source=(str(tmp_path),), cores=1))
    assert not findings.damages
    assert not findings.is_damaged
    said = verdict(findings).sentence
    assert said.startswith("incomplete: ")
    assert f"1 file of another kind ({kind})" in said
    assert main([str(tmp_path), "--fail-on-damage"]) == 0


def test_random_bytes_and_damaged_segments_stay_damage(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, b"\x1f\x8b" + bytes(20) + batch(0)[22:], batch(3))
    put(tmp_path / "b-0", 0, random.Random(1).randbytes(5000))
    findings = scan(Settings(source=(str(tmp_path),), cores=1))
    assert [log.topic for log, _ in findings.damages] == ["a", "b"]
    assert not any(log.foreign for log in findings.logs)


def test_a_segment_with_another_name_begins_where_its_first_batch_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path / "a-0", 30, *batches(30, 4)).rename(tmp_path / "a-0" / "sent.log")
    (log,) = scan(Settings(source=(str(path),), cores=1)).logs
    assert (log.first_offset, log.last_offset, log.records, log.account.start) == (30, 41, 12, 30)
    assert find.main([str(tmp_path / "a-0"), "--offset", "35", "--count", "--cores", "1"]) == 0
    assert capsys.readouterr().out.split() == ["1"]
    (tmp_path / "a-0" / "server.log").write_text("no segment\n")
    findings = scan(Settings(source=(str(tmp_path / "a-0"),), cores=1))
    assert (len(findings.logs), findings.skipped) == (1, {"file is not a segment": 1})
