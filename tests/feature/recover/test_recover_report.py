"""``recover``: what is lost and what is not known, ``restore.sh``, the page, ``.log.deleted``, the folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.recover import command as recover
from tests.support.answers import asked
from tests.support.logs import batch, put
from tests.support.metadata_disks import identify, metadata_log, partition, policy, topic
from tests.support.segment_maker import Batch, Record

SHARED = batch(0, 2)
LOST = Batch([Record(b"a", b"lost"), Record(b"b", b"lost too")], base_offset=2).encode()
TRUE = Batch([Record(b"a", b"newer")], base_offset=2, leader_epoch=1).encode()


def disks(root: Path, *records: bytes, topics: tuple[str, ...] = ("t",)) -> list[str]:
    """Two disks whose copies differ from offset 2 on; the metadata names both as replicas."""
    known = [*(one for name in topics for one in topic(name, 1, [1, 2], leaderEpoch=1)), *records]
    for node, last, epochs in ((1, LOST, "0 0"), (2, TRUE, "0 0\n1 2")):
        disk = root / f"b{node}"
        identify(disk, node)
        for name in topics:
            partition(disk, name, SHARED, last, epochs=epochs)
        metadata_log(disk, known)
    return [f"--source=b{node}={root / f'b{node}'}" for node in (1, 2)]


def run(sources: list[str], *options: str) -> int:
    return recover.main([*sources, "--cores", "1", *options])


def found(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return value


@pytest.mark.parametrize(
    ("cleanup", "held"),
    [(["compact"], True), (["delete"], False), ([], False), (["compact,delete"], True)],
)
def test_records_are_held_back_by_the_topics_own_cleanup_policy_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cleanup: list[str], held: bool
) -> None:
    sources = disks(tmp_path, *(policy("t", one) for one in cleanup))
    bill = tmp_path / "bill"
    assert run(sources, "--report", str(bill)) == 0
    printed = capsys.readouterr().out
    words = "holds back 1 record of compacted topics: the true log has newer values of their keys"
    script = (bill / "restore.sh").read_text()
    page = (bill / "recovery.html").read_text()
    assert [words in text for text in (printed, script, page)] == [held] * 3
    assert f"restore.sh   writes {1 if held else 2} record{'' if held else 's'} again" in printed
    assert (bill / "restore" / "t-0.held.txt").exists() is held
    if held:
        assert f"cleanup.policy={cleanup[0]} in __cluster_metadata" in script
        assert f"cleanup.policy={cleanup[0]} in __cluster_metadata" in page


def test_without_a_setting_the_log_shows_whether_it_is_compacted(tmp_path: Path) -> None:
    sources = disks(tmp_path)
    (tmp_path / "b2" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    assert run(sources, "--report", str(tmp_path / "bill")) == 0
    script = (tmp_path / "bill" / "restore.sh").read_text()
    assert "__cluster_metadata has no setting, a log cleaner ran over its log" in script


def test_the_page_begins_with_what_is_lost_by_topic_and_no_table_has_many_columns(tmp_path: Path) -> None:
    sources = disks(tmp_path, policy("t", "compact"), topics=("t", "u"))
    assert run(sources, "--report", str(tmp_path / "bill")) == 0
    page = (tmp_path / "bill" / "recovery.html").read_text()
    titles = re.findall("<h[12]>(.*?)</h", page)
    assert titles[:4] == ["Recovery", "What is lost, by topic", "What restore.sh does", "How sure this is"]
    rows = re.findall("<tr>(.*?)</tr>", page.partition("</table>")[0], re.DOTALL)
    cells = [re.findall("<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows]
    assert cells[0][:3] == ["topic", "in no copy", "losing history"]
    assert cells[1:] == [["t", *"020021 10".replace(" ", "")], ["u", *"02002200"]]
    assert all(row.count("<th>") <= 9 for row in page.split("</tr>"))


def test_nothing_is_lost_is_said_with_every_copy_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in (1, 2):
        identify(tmp_path / f"b{node}", node)
        partition(tmp_path / f"b{node}", "t", SHARED)
        metadata_log(tmp_path / f"b{node}", topic("t", 1, [1, 2]))
    sources = [f"--source=b{node}={tmp_path / f'b{node}'}" for node in (1, 2)]
    lake = ("--lake", str(tmp_path / "lake"), "--report", str(tmp_path / "bill"))
    assert run(sources, *lake) == 0
    assert sorted(path.name for path in (tmp_path / "bill").iterdir()) == [
        *("MANIFEST.sha256", "lost_records.csv", "recovery.html", "restore.py", "restore.sh")
    ]
    assert "nothing is lost: the copies hold the whole true log" in capsys.readouterr().out
    assert run(sources[:1], *lake) == 0
    printed = capsys.readouterr().out
    assert "nothing is lost" not in printed
    assert "history: 1 likely; copies missing: node 2 of 1 partition" in printed
    last = printed.splitlines()[-1]
    assert last.startswith(
        "no loss was found in what was read; more may be lost: copies missing: node 2 of 1"
    )
    assert run(sources[:1], *lake, "--json") == 0
    assert found(capsys)["missing_copies"] == {"2": 1}


def test_a_segment_that_a_truncation_renamed_is_read_with_include_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A follower renames what its new leader does not have; no other file has these records."""
    sources = disks(tmp_path)
    one = tmp_path / "b1" / "t-0"
    put(one, 0, SHARED, TRUE)
    (one / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 2\n")
    (one / f"{2:020d}.log.deleted").write_bytes(LOST)
    lake = tmp_path / "lake"
    assert run(sources, "--lake", str(lake)) == 0
    printed = capsys.readouterr().out
    assert "1 .log.deleted file not read (--include-deleted reads them)" in printed
    assert "nothing is lost" not in printed
    assert run(sources, "--lake", str(lake), "--include-deleted") == 0
    rows = asked(lake, 'SELECT "offset", copy, why, value FROM lost_records ORDER BY "offset"')
    name = f"b1/t-0/{2:020d}.log.deleted"
    assert rows == [(2, name, "diverged", b"lost"), (3, name, "diverged", b"lost too")]
    state = asked(lake, "SELECT copy, state, role FROM replica_report WHERE state = 'deleted'")
    assert state == [(name, "deleted", "other")]
    assert asked(lake, 'SELECT value FROM healed_records WHERE "offset" = 2') == [(b"newer",)]
    assert "history: 1 certain" in capsys.readouterr().out


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_deleted_segment_fills_a_gap_unless_a_cleaner_may_have_replaced_it(
    tmp_path: Path, is_compacted: bool
) -> None:
    hurt = bytearray(batch(2, 2))
    hurt[-1] ^= 1
    for node in (1, 2):
        identify(tmp_path / f"b{node}", node)
        folder = partition(tmp_path / f"b{node}", "t", SHARED, bytes(hurt), batch(4, 1))
        metadata_log(tmp_path / f"b{node}", topic("t", 1, [1, 2]))
        if is_compacted:
            (tmp_path / f"b{node}" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    (folder / f"{0:020d}.log.deleted").write_bytes(SHARED + batch(2, 2))
    sources = [f"--source=b{node}={tmp_path / f'b{node}'}" for node in (1, 2)]
    assert run(sources, "--lake", str(tmp_path / "lake"), "--include-deleted") == 0
    offsets = asked(tmp_path / "lake", 'SELECT "offset" FROM healed_records ORDER BY ALL')
    assert [offset for (offset,) in offsets] == ([0, 1, 4] if is_compacted else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("metadata", [False, True])
def test_a_report_replaces_what_recover_wrote_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metadata: bool
) -> None:
    sources, bill = disks(tmp_path), tmp_path / "bill"
    options = ("--report", str(bill), *(("--metadata",) if metadata else ()))
    (bill / "restore").mkdir(parents=True)
    (bill / "restore" / "mine.txt").write_text("mine")
    assert run(sources, *options) == 2
    error = capsys.readouterr().err.strip()
    assert error.endswith(
        "'restore/mine.txt' in it was not written by recover, and is not replaced: name a new folder"
    )
    assert "\n" not in error
    assert [path.name for path in bill.rglob("*.*")] == ["mine.txt"]
    (bill / "restore" / "mine.txt").unlink()
    (bill / "restore").rmdir()
    assert run(sources, *options) == 0
    assert run(sources, *options) == 0, "an earlier report is replaced"
    script = bill / ("commands.sh" if metadata else "restore.sh")
    before = script.read_text()
    script.write_text(f"{before}# mine\n")
    assert run(sources, *options) == 2
    assert f"{script.name!r} in it has changed since recover wrote it" in capsys.readouterr().err
    assert script.read_text() == f"{before}# mine\n"


@pytest.mark.parametrize("kind", ["file", "link", "manifest"])
def test_a_folder_with_anything_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    sources, bill = disks(tmp_path), tmp_path / "bill"
    bill.mkdir()
    if kind == "link":
        (bill / "restore").symlink_to(tmp_path / "b1")
    else:
        (bill / ("MANIFEST.sha256" if kind == "manifest" else "notes.txt")).write_text("mine")
    assert run(sources, "--report", str(bill)) == 2
    assert "was not written by recover" in capsys.readouterr().err
    assert len(list(bill.iterdir())) == 1
