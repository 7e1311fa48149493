"""What a broker left behind: passed over and said so, read with ``--include-deleted`` or by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.dump_log import command as dump_log
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.inspect_batch import command as inspect_batch
from kafka_log_lake.pipelines.listing import naming
from kafka_log_lake.pipelines.scan import command as scan
from tests.support.logs import batch, data, marker, put
from tests.unit.listing.test_listing import listed, listing_of

STRAY = "a-1.0123456789abcdef0123456789abcdef-stray"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A live log 0 to 5; a file of it that holds 3 to 8, truncated; a stray folder of another partition."""
    put(tmp_path / "a-0", 0, batch(0), batch(3))
    deleted(tmp_path / "a-0", 3, batch(3), batch(6))
    put(tmp_path / STRAY, 0, batch(0))
    return tmp_path


def deleted(folder: Path, base: int, *batches: bytes) -> Path:
    path = put(folder, base, *batches)
    return path.rename(f"{path}.deleted")


def found(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[tuple[str, int]], str]:
    """Exit code, end of the file's path and offset of each record, standard error."""
    code = find.main([*map(str, arguments), "--cores", "1", "--format", "json"])
    printed = capfd.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    return code, [(row["segment"].rpartition("/")[2], row["offset"]) for row in rows], printed.err


def test_each_is_a_log_of_its_own_and_is_read_if_requested(disk: Path) -> None:
    put(disk / "a-0", 3, batch(3))  # a live segment with the same name
    live = {"a-0/00000000000000000000.log", "a-0/00000000000000000003.log"}
    assert {row["segment"].removeprefix(f"file://{disk}/") for row in listed(disk)} == live
    rows = listed(disk, include_deleted=True)
    logs = {row["segment"].removeprefix(f"file://{disk}/"): row["partition_dir"] for row in rows}
    file = "a-0/00000000000000000003.log.deleted"
    assert logs == {
        **dict.fromkeys(live, f"file://{disk}/a-0"),
        file: f"file://{disk}/{file}",
        f"{STRAY}/00000000000000000000.log": f"file://{disk}/{STRAY}",
    }
    assert {(row["topic"], row["partition"]) for row in rows} == {("a", 0), ("a", 1)}
    passed = {(one.partition, one.reason, one.first_offset) for one in listing_of(disk).passed_over}
    assert passed == {(0, naming.TO_DELETE, 3), (1, naming.STRAY, 0)}
    assert not listing_of(disk, include_deleted=True).skipped
    assert not listing_of(disk, topics="b").passed_over


def test_what_is_named_is_read_and_nothing_next_to_it(disk: Path) -> None:
    file = disk / "a-0" / "00000000000000000003.log.deleted"
    for named in (file, f"{disk}/*/*.log.deleted"):
        assert [row["file_base_offset"] for row in listed(named, include_deleted=False)] == [3]
    assert [row["partition"] for row in listed(disk / STRAY, include_deleted=False)] == [1]
    found = listing_of(disk / "a-0" / "00000000000000000000.log", include_deleted=False)
    assert (found.segments.num_rows, found.passed_over) == (1, [])
    assert listing_of(file).skipped == {naming.TO_DELETE: 1}  # for a command that never reads it


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], 5),
        (["--include-deleted"], 4),
        (["--partition", "0", "--offset", "0:3"], 4),  # no file of these offsets was passed over
        (["--partition", "1"], 5),  # a source has it, though no live folder
    ],
)
def test_find_says_what_it_passed_over(
    disk: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], expected: int
) -> None:
    code, rows, said = found(capfd, disk, "--key", "none", *arguments)
    assert (code, rows) == (expected, [])
    assert ("passed over; --include-deleted" in said) == (expected == 5)


def test_find_gives_the_records_of_each_file(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, live, _ = found(capfd, disk, "--partition", "0")
    assert live == [("00000000000000000000.log", offset) for offset in range(6)]
    _, rows, _ = found(capfd, disk, "--partition", "0", "--include-deleted")
    own = [("00000000000000000003.log.deleted", offset) for offset in range(3, 9)]
    assert rows == live + own
    assert found(capfd, disk / "a-0" / own[0][0])[:2] == (0, own)
    assert len(found(capfd, disk / STRAY)[1]) == 3


def test_an_outcome_that_another_file_may_tell_is_not_known(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = deleted(tmp_path / "a-0", 0, data(0, 7), data(1, 8), marker(2, 8))
    find.main([str(path), "--format", "json", "--cores", "1"])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["outcome"] for row in rows] == [None, "committed", None]
    assert found(capfd, path, "--transaction", "open")[0] == 5


def test_scan_counts_their_bytes_or_reads_them(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    size = (disk / "a-0" / "00000000000000000003.log.deleted").stat().st_size
    scan.main([str(disk), "--json", "--cores", "1"])
    answer = json.loads(capfd.readouterr().out)
    assert {(one["reason"], one["bytes"]) for one in answer["passed_over"]} == {
        (naming.TO_DELETE, size),
        (naming.STRAY, size // 2),
    }
    assert answer["verdict"].startswith("incomplete: ")
    scan.main([str(disk), "--json", "--cores", "1", "--include-deleted"])
    answer = json.loads(capfd.readouterr().out)
    assert (answer["records"], answer["passed_over"]) == (6 + 6 + 3, [])


def test_dump_and_inspect_read_them(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = disk / "a-0" / "00000000000000000003.log.deleted"
    assert dump_log.main([str(file)]) == 0
    by_name = capfd.readouterr().out
    assert "baseOffset: 6 lastOffset: 8" in by_name
    assert dump_log.main([str(disk / "a-0"), "--include-deleted"]) == 0
    assert by_name in capfd.readouterr().out
    for arguments, code in (([], 2), (["--include-deleted"], 0)):
        assert inspect_batch.main([str(disk / "a-0"), "--offset", "7", *arguments]) == code
    assert inspect_batch.main([str(file), "--offset", "7"]) == 0
