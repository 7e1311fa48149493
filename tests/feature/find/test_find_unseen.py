"""``find`` exits with 4 only if all that any file on the disks names was searched; 5 says what was not."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.find import command as find
from tests.support.logs import batch, put

EPOCHS = "leader-epoch-checkpoint"
VISIBLE, START, FLUSHED = (
    f"{name}-offset-checkpoint" for name in ("replication", "log-start", "recovery-point")
)
Make = Callable[[Path], object]


def note(path: Path, *lines: str) -> None:
    """A checkpoint file with these entries."""
    path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def segments(disk: Path, *bases: int, size: int = 6) -> Path:
    """The log a-0 with segments of 6 offsets each, k0 to k2 twice."""
    for base in bases:
        put(disk / "a-0", base, batch(base), batch(base + 3))
    return disk / "a-0"


def noted(disk: Path, file: str, *lines: str) -> None:
    segments(disk, 0, 6)
    note(disk / file, *lines)


def begins(disk: Path, *epochs: str) -> None:
    note(segments(disk, 6, 12) / EPOCHS, *epochs)


def tiered(disk: Path) -> None:
    segments(disk, 6)
    note(disk / START, "a 0 0")


def zeroed(disk: Path, base: int) -> None:
    folder = segments(disk, 0, 6, 12)
    path = folder / f"{base:020d}.log"
    path.write_bytes(bytes(path.stat().st_size))


def without_folder(disk: Path, *lines: str) -> None:
    segments(disk, 0)
    note(disk / VISIBLE, "a 0 6", *lines)


def without_segment(disk: Path) -> None:
    segments(disk, 0)
    (disk / "b-1").mkdir()
    note(disk / "b-1" / EPOCHS, "0 0", "3 40")


def swapped(disk: Path) -> None:
    segments(disk, 0, 6)
    put(disk / "a-0", 0, batch(0), batch(9)).rename(disk / "a-0" / f"{0:020d}.log.swap")
    segments(disk, 0)


def indexed(disk: Path) -> None:
    """Entries for offset 9, which is there, and 15, which is not."""
    folder = segments(disk, 0, 6)
    size = len(batch(6))
    entries = [(3, size), (9, 5 * size)]
    (folder / f"{6:020d}.index").write_bytes(
        b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    )


def cleaned(disk: Path) -> None:
    put(disk / "a-0", 0, batch(0), batch(20, last_offset_delta=9))
    put(disk / "a-0", 40, batch(40))


CASES: list[tuple[Make, str, int, str]] = [
    (lambda d: segments(d, 0, 6), "", 4, "not found; 2 segments searched"),
    # before the first segment
    (lambda d: begins(d, "0 0"), "", 5, "a-0: offsets 0 to 5 could not be searched: offsets 0 to 5 are gone"),
    (lambda d: begins(d, "0 0"), "--offset 6:", 4, "not found"),
    (lambda d: begins(d, "0 0"), "--offset 2", 5, "offsets 0 to 5"),
    (lambda d: begins(d, "4 6"), "", 4, "not found"),
    (lambda d: begins(d, "4 6"), "--offset 2", 4, "not found; 0 segments searched; a-0 begins at offset 6"),
    (lambda d: segments(d, 6), "", 4, "not found"),
    (lambda d: segments(d, 6), "--offset 2", 5, "no file says whether they were deleted or are lost"),
    (tiered, "", 5, "in remote storage, if anywhere"),
    # after the last batch
    (lambda d: noted(d, VISIBLE, "a 0 15"), "", 5, "offsets 12 to 14 could not be searched"),
    (lambda d: noted(d, VISIBLE, "a 0 15"), "--offset 0:12", 4, "not found"),
    (lambda d: noted(d, VISIBLE, "a 0 12"), "", 4, "not found"),
    (lambda d: noted(d, VISIBLE, "a 0 15"), "--since 2100-01-01", 5, "offsets 12 to 14"),
    (lambda d: noted(d, FLUSHED, "a 0 15"), "", 5, "the checkpoint's recovery point is 15"),
    (lambda d: note(segments(d, 0) / EPOCHS, "0 0", "5 9"), "", 5, "offsets 6 to 8"),
    (lambda d: (segments(d, 0) / f"{9:020d}.snapshot").write_bytes(b""), "", 5, "a producer snapshot is of"),
    (indexed, "", 5, "the index of the last segment leads up to"),
    # zeros
    (lambda d: zeroed(d, 0), "", 5, "offsets 0 to 5"),
    (lambda d: zeroed(d, 6), "", 5, "offsets 6 to 11"),
    (lambda d: zeroed(d, 6), "--offset 12:", 4, "not found"),
    (lambda d: zeroed(d, 12), "", 5, "offsets 12 to the end"),
    (cleaned, "", 4, "not found"),
    # partitions and files that are not searched
    (lambda d: without_folder(d, "b 3 40"), "", 5, "b-3: offsets 0 to 39 could not be searched: no segment"),
    (lambda d: without_folder(d, "b 3 40"), "--topics a", 4, "not found"),
    (lambda d: without_folder(d, "b 3 40"), "--partition 3", 5, "b-3: offsets 0 to 39"),
    (lambda d: without_folder(d, "b 3 0"), "", 4, "not found"),
    (without_segment, "", 5, "b-1: offsets 0 to 39"),
    (lambda d: noted(d, VISIBLE, "a 0"), "", 5, "what a checkpoint file names could not be searched"),
    (lambda d: (segments(d, 0) / EPOCHS).write_text("x"), "", 5, "what a file next to its segments names"),
    (swapped, "", 5, "00000000000000000000.log.swap could not be searched: passed over; --include-swap"),
    (swapped, "--include-swap", 4, "not found"),
    # what no source has
    (lambda d: segments(d, 0), "--partition 7", 2, "--partition 7: no source has it; there are a-0"),
    (lambda d: segments(d, 0), "--topics b", 2, "no segments"),
]


@pytest.mark.parametrize(("make", "arguments", "expected", "said"), CASES)
def test_exit_code_and_reason(
    make: Make, arguments: str, expected: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    code = find.main([str(tmp_path), "--key", "none", "--cores", "1", *shlex.split(arguments)])
    printed = capfd.readouterr().err
    assert (code, said in printed) == (expected, True), printed


def test_offsets_of_a_neighbour_that_is_not_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    segments(tmp_path, 0, 6)
    file = str(tmp_path / "a-0" / f"{6:020d}.log")
    assert find.main([file, "--key", "none", "--cores", "1"]) == 4
    assert find.main([file, "--key", "none", "--offset", "2", "--cores", "1"]) == 5
    assert "is next to a file that was named" in capfd.readouterr().err


def test_more_witnesses_do_not_hide_a_match(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    noted(tmp_path, VISIBLE, "a 0 15")
    assert find.main([str(tmp_path), "--key", "k1", "--count", "--cores", "1"]) == 0
    printed = capfd.readouterr()
    assert (printed.out, "offsets 12 to 14" in printed.err) == ("4\n", True)


@pytest.mark.parametrize(
    ("tail", "arguments", "expected", "said"),
    [
        (
            batch(3)[:-3],
            "--key none",
            5,
            "offsets 3 to 5 could not be searched: the last batch is incomplete",
        ),
        (batch(3)[:40], "--key none", 5, "offsets 3 to the end could not be searched: the last batch is"),
        (batch(3)[:-3], "--value-contains v4", 5, "; the searched bytes are there, at byte 174 of 000"),
        (
            bytes(512),
            "--key none",
            5,
            "offsets 3 to the end could not be searched: the last segment ends in z",
        ),
        (bytes(512), "--key none --offset 0:3", 4, "not found; 1 segment searched"),
        (batch(3)[:-3], "--key none --offset 6:", 4, "not found; 1 segment searched"),
    ],
)
def test_a_tail_may_hold_what_is_not_found(
    tail: bytes,
    arguments: str,
    expected: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(tmp_path / "a-0", 0, batch(0), tail)
    assert find.main([str(tmp_path), "--cores", "1", *arguments.split()]) == expected
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
