"""What a scan says of the disks: of which cluster they are, who led last, which copies are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.scan import report
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.pipelines.scan.findings import Findings
from kafka_log_lake.pipelines.scan.losses import next_steps, verdict
from kafka_log_lake.pipelines.scan.report_json import to_json
from tests.support.logs import batch, put
from tests.support.metadata_disks import identify, metadata_log, partition, topic


def found(*paths: Path) -> Findings:
    return scan(Settings(source=tuple(map(str, paths)), cores=1))


def section(findings: Findings, title: str) -> list[tuple[str, ...]]:
    return [row for one in report.sections(findings) if one.title.startswith(title) for row in one.rows]


def test_a_scan_says_who_led_last_and_which_copies_are_missing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    identify(disk, 1)
    partition(disk, "t", batch(0))
    metadata_log(disk, topic("t", 1, [2, 1], isr=[2], leader=2, leaderEpoch=4))
    findings = found(disk)
    assert section(findings, "leaders") == [("t-0", "2", "4", "leads", "2", "2, 1", "2")]
    (leaders,) = to_json(findings)["leaders"]
    assert leaders["partitions"][0]["missing"] == [2]
    assert verdict(findings).is_sound
    assert section(found(disk / "t-0"), "leaders")  # next to the folder


def test_a_folder_that_the_metadata_log_names_and_that_is_gone_is_not_sound(tmp_path: Path) -> None:
    identify(tmp_path, 1)
    partition(tmp_path, "t", batch(0))
    metadata_log(tmp_path, topic("t", 2, [1]))
    findings = found(tmp_path)
    assert findings.is_damaged
    assert "1 partition folder that __cluster_metadata places on these disks is not there (t-1)" in (
        verdict(findings).sentence
    )
    assert verdict(found(tmp_path / "t-0")).is_sound  # of what was not named nothing is said


def test_disks_of_two_clusters_are_told_apart(tmp_path: Path) -> None:
    for name in ("east", "west"):
        put(tmp_path / name / "t-0", 0, batch(0))
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id={name}\nnode.id=1\n")
    findings = found(tmp_path / "east", tmp_path / "west")
    assert [row[0] for row in section(findings, "clusters")] == ["east", "west"]
    steps = "\n".join(next_steps(findings))
    assert f"--source {tmp_path}/east --lake lake-east" in steps
    assert f"--source {tmp_path}/west --lake lake-west" in steps
    assert f"{tmp_path}/east --source {tmp_path}/west" not in steps
    assert "compare the copies" not in steps
    assert sorted(row[:2] for row in section(findings, "topics")) == [("t", "east"), ("t", "west")]
    assert {one["cluster_id"]: one["partitions"] for one in to_json(findings)["topics"]} == {
        "east": 1,
        "west": 1,
    }
    assert not findings.copies
    assert "in several folders" not in verdict(findings).sentence


def test_no_id_of_a_cluster_runs_in_a_shell(tmp_path: Path) -> None:
    for name, cluster in (("east", "$(reboot)"), ("west", "w")):
        put(tmp_path / name / "t-0", 0, batch(0))
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")
    steps = next_steps(found(tmp_path / "east", tmp_path / "west"))
    named = [line for line in steps if "$(" in line]
    assert len(named) == 2
    assert all("'$(reboot)'" in line or "'lake-$(reboot)'" in line for line in named)  # zsh runs comments


def test_decode_stops_where_the_sources_are_of_two_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("east", "west"):
        put(tmp_path / name / "t-0", 0, batch(0))
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id={name}\nnode.id=1\n")
    sources = ["--source", str(tmp_path / "east"), "--source", str(tmp_path / "west")]
    assert main(["decode", *sources, "--lake", str(tmp_path / "lake")]) == 2
    assert capsys.readouterr().err == (
        f"error: the sources are of 2 clusters, by meta.properties ({tmp_path}/east is of east, "
        f"{tmp_path}/west is of west): name those of one cluster, and decode each cluster into a "
        "--lake of its own\n"
    )
    assert not (tmp_path / "lake").exists()
    assert main(["decode", *sources[2:], "--lake", str(tmp_path / "lake")]) == 0
    # And in a second run, by what the first one kept: its disk may be elsewhere then
    (tmp_path / "west").rename(tmp_path / "unplugged")
    capsys.readouterr()
    for command in ("decode", "ingest"):
        assert main([command, *sources[:2], "--lake", str(tmp_path / "lake")]) == 2
        assert capsys.readouterr().err == (
            "error: the lake has topics of cluster west, and the sources are of cluster east, by "
            "meta.properties: decode each cluster into a --lake of its own\n"
        )
    (tmp_path / "unplugged").rename(tmp_path / "west")
    assert main(["decode", *sources[2:], "--lake", str(tmp_path / "lake")]) == 0
    # Of one folder with both, where only one has the topics that are asked for
    put(tmp_path / "east/u-0", 0, batch(0))
    arguments = ["decode", "--source", str(tmp_path / "*st"), "--lake", str(tmp_path / "lake-2")]
    assert main(arguments) == 2
    assert main([*arguments, "--topics", "u"]) == 0
