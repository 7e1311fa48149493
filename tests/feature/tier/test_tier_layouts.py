"""One log in each layout that a tier may have: the records are the same, and nothing is reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.feature.tier.test_one_log import DATA, found, truth
from tests.feature.tier.test_tier_report import scanned
from tests.support.tier_maker import Layout, write_tier

PLUGIN = Layout.folder
LAYOUTS = {
    "a prefix of folders": Layout(folder=f"eu.west/prod/{PLUGIN}"),
    "a prefix without a slash": Layout(folder=f"prod-{PLUGIN}", has_metadata=False),
    "a topic with dots and dashes": Layout(topic="a.b-c_1.0-7", has_metadata=False),
    "a topic that looks like an id": Layout(topic="x-0-AAAAAAAAAAAAAAAAAAAAAA", has_metadata=False),
    "neither compressed nor encrypted": Layout(is_compressed=False),
    "encrypted alone, with two keys": Layout(is_compressed=False, keys=("old", "new")),
    "compressed, and encrypted with two keys": Layout(keys=("old", "new"), chunk=61, has_metadata=False),
    "one chunk a segment": Layout(chunk=1 << 22, keys=("new",)),
    "a manifest of the needed fields alone": Layout(
        without=("version", "segmentIndexes", "remoteLogSegmentMetadata")
    ),
    "a manifest without its segment, no metadata": Layout(
        without=("remoteLogSegmentMetadata",), has_metadata=False
    ),
    "an object for each index": Layout(is_split=True),
    "folders as of a disk": Layout(folder="{topic}-{partition}"),
    "folders as of LocalTieredStorage": Layout(folder="{topic}-{partition}-{topic_id}", has_metadata=False),
    "folders of topics and partitions": Layout(folder="{topic}/{partition}", has_metadata=False),
    "one folder for all": Layout(folder="copied", topic="a.b", keys=("old",), has_metadata=False),
}


@pytest.fixture(scope="module")
def keys() -> dict[str, bytes]:
    from Crypto.PublicKey import RSA

    own = (DATA / "encrypted" / "keys" / "key-1.private.pem").read_bytes()
    return {"old": own, "new": RSA.generate(2048).export_key(pkcs=8)}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_gives_the_same_records(
    name: str, keys: dict[str, bytes], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    layout, case = LAYOUTS[name], tmp_path / "case"
    shutil.copytree(DATA / "local" / "log-dir", case / "log-dir")
    (case / "log-dir" / "small-0").rename(case / "log-dir" / f"{layout.topic}-0")
    for checkpoint in (case / "log-dir").glob("*-checkpoint"):
        checkpoint.write_text(checkpoint.read_text().replace("small 0", f"{layout.topic} 0"))
    if not layout.has_metadata:
        for folder in (case / "log-dir").glob("__remote_log_metadata-*"):
            shutil.rmtree(folder)
    write_tier(DATA / "local" / "tier", case / "tier", layout, keys)
    options = []
    for key_id in layout.keys:
        (tmp_path / f"{key_id}.pem").write_bytes(keys[key_id])
        options += ["--tier-key", f"{key_id}={tmp_path / key_id}.pem"]
    records, said = found(case, capsysbinary, *options)
    assert records == {(layout.topic, *record[1:]) for record in truth("local")}
    warnings = [line for line in said.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == (0 if layout.has_metadata else 1)
    assert all("no __remote_log_metadata is on the disks" in line for line in warnings)
    assert {row["kind"] for row in scanned(case, capsysbinary, *options)} <= {"on_disk_too"}


def test_a_segment_that_nothing_assigns_to_a_topic_is_named(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = tmp_path / "case"
    shutil.copytree(DATA / "local" / "log-dir", case / "log-dir")
    for folder in (case / "log-dir").glob("__remote_log_metadata-*"):
        shutil.rmtree(folder)
    write_tier(DATA / "local" / "tier", case / "tier", Layout(folder="copied"), {})
    manifest = next((case / "tier" / "copied").glob(f"{0:020d}-*.rsm-manifest"))
    manifest.write_text(manifest.read_text()[:-9])
    log = manifest.with_suffix(".log")
    records, said = found(case, capsysbinary)
    assert records == {record for record in truth("local") if record[2] >= 59}
    assert f"not read: 1 segment of unknown topics in the tier, {log.as_uri()}: its manifest can't be" in said
    rows = scanned(case, capsysbinary)
    assert {row["object"] for row in rows if row["kind"] == "foreign"} >= {log.as_uri(), manifest.as_uri()}
