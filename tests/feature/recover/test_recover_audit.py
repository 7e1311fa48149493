"""``recover`` of batches whose base offset or leader epoch is wrong, and of copies cleaned differently."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.recover import command as recover
from tests.support.answers import asked
from tests.support.drawn import first
from tests.support.logs import batch, batches, put
from tests.support.segment_maker import GZIP, Batch, Message, Record, wrap


def log(*records: tuple[int, bytes, bytes | None], hurt: bool = False, **values: Any) -> bytes:
    """A batch of (offset, key, value)."""
    base = records[0][0]
    made = tuple(Record(key, value, offset_delta=offset - base) for offset, key, value in records)
    found = bytearray(Batch(made, base_offset=base, **values).encode())
    found[-1] ^= hurt
    return bytes(found)


W, GONE, X, Y = (2, b"w", b"1"), (3, b"k", None), (4, b"x", b"1"), (5, b"y", b"1")
A, OLD = (0, b"a", b"1"), (1, b"k", b"old")
CLEANED: dict[str, tuple[Any, ...]] = {
    # the copy that leads has the older value, its tombstone is damaged, and the other copy has neither
    "tombstone": (
        ([log(A, OLD), log(W), log(GONE, hurt=True), log(X), log(Y)], 0),
        ([log(A, last_offset_delta=1), log(W), log(X)], 4),
        [A, W, X, Y],
        [],
    ),
    # the copy that leads has neither, and is damaged where the other copy has the older value
    "older value": (
        ([log(A, last_offset_delta=1, hurt=True), log(W), log(X), log(Y)], 4),
        ([log(A, OLD), log(W), log(GONE), log(X)], 0),
        [A, OLD, W, GONE, X, Y],
        [],
    ),
    # the other copy lacks the value of another key, as a record of a losing history replaced it; so it does
    # not say either that a cleaner removed the record that is damaged
    "losing side": (
        ([log(A, OLD), log(W), log(GONE, hurt=True), log(X), log(Y, leader_epoch=1)], 0),
        ([log(OLD), log(W), log(X), log((5, b"a", b"lost"))], 6),
        [A, OLD, W, X, Y],
        [(3, 3)],
    ),
    # records of a losing history replaced all of a batch that another copy has
    "losing side without the batch": (
        ([log(A, OLD, hurt=True), log(W), log((3, b"y", b"1"), leader_epoch=1)], 0),
        ([log(W), log((3, b"k", b"lost"), (4, b"a", b"lost")), log((5, b"x", b"lost"))], 5),
        ([log(A, OLD), log(W)], 0),
        [A, OLD, W, (3, b"y", b"1")],
        [],
    ),
}


@pytest.mark.parametrize("name", first(2, CLEANED))
def test_copies_that_were_cleaned_differently_bring_back_no_deleted_key(tmp_path: Path, name: str) -> None:
    *copies, expected, lost = CLEANED[name]
    lake, _ = recovered(tmp_path, copies)
    assert asked(lake, 'SELECT "offset", key, value FROM healed_records ORDER BY 1') == expected
    assert asked(lake, "SELECT first_offset, last_offset FROM lost_ranges") == lost


def test_a_gap_that_no_log_cleaner_left_is_filled_by_another_copy(tmp_path: Path) -> None:
    """A segment of the copy that leads is gone."""
    put(tmp_path / "b0" / "t-0", 5, log(Y, leader_epoch=1))
    lake, _ = recovered(tmp_path, [([log(A, OLD), log(W)], 0), ([log(A, OLD), log(W), log(GONE), log(X)], 2)])
    found = asked(lake, 'SELECT "offset" FROM healed_records ORDER BY 1')
    assert [offset for (offset,) in found] == [0, 1, 2, 3, 4, 5]


def moved(data: bytes, base: int) -> bytes:
    """A batch with another base offset: no checksum covers it."""
    return base.to_bytes(8, "big") + data[8:]


AFTER = {
    "cleaned part": ([log(A, last_offset_delta=1), log(W), log(GONE), moved(log(X), 9)], [0, 2, 3, 4]),
    "damaged batch": ([log(A, OLD), log(W, GONE, hurt=True), moved(log(X), 9)], [0, 1, 4]),
}


@pytest.mark.parametrize("name", AFTER)
def test_a_last_batch_follows_what_lies_before_it_where_nothing_was_cleaned(
    tmp_path: Path, name: str
) -> None:
    batches, expected = AFTER[name]
    lake, doubts = recovered(tmp_path, [(batches, 2)])
    found = asked(lake, 'SELECT "offset" FROM healed_records ORDER BY 1')
    assert [offset for (offset,) in found] == expected
    assert not [one for one in doubts if "nothing confirms" in one]


def wrapper(base: int, magic: int, outer: int | None = None) -> bytes:
    """Offsets base to base + 2 in one compressed message. outer: in its header; None: base + 2."""
    inner = [Message(magic=magic, offset=base + i, value=b"v%d" % (base + i)) for i in range(3)]
    return wrap(inner, codec=GZIP, magic=magic, outer_offset=outer).encode()


DELTA_POS, COUNT_POS = 23, 57  # of the last byte, of the first one
MOVED = {
    # every base offset of the only copy is wrong, two of them by the same number
    "all of a file": [[moved(batch(0), 1 << 40), moved(batch(3), 0), moved(batch(6), 3)]],
    # what lies before and after them leaves one place for the three
    "between two that fit": [
        [batch(0), *(moved(batch(base), base + 4) for base in (3, 6, 9)), *batches(12, 4)]
    ],
    # the first one of two that moved by the same number lies after the last one that did not
    "in one of two copies": [
        [batch(0), batch(3), moved(batch(6), 1 << 40), moved(batch(9), 3), moved(batch(12), 6), batch(15)],
        batches(0, 5),
    ],
    # the batches before it, one of them damaged, leave no room at the offset 9
    "after damage": [
        [
            *batches(0, 2),
            batch(6)[:COUNT_POS] + bytes(4) + batch(6)[COUNT_POS + 4 :],
            batch(9),
            moved(batch(12), 9),
        ],
        batches(0, 3),
    ],
    # what lies in a wrapper of magic 0 says where it belongs; no batch after it is lost
    "the last wrapper but one": [[wrapper(0, 0), wrapper(3, 0, 9), wrapper(6, 0)]],
    # 0 takes the offsets inside as they are; a smaller one than the last inside, or one below 0, is no offset
    "wrappers of magic 1": [[wrapper(0, 1, 1), wrapper(3, 1, -(1 << 62)), wrapper(6, 1, 0), wrapper(9, 1)]],
    # the last batch moved in both copies, in one of them after another one that did
    "the last in both copies": [
        [*batches(0, 2), moved(batch(6), 58)],
        [batch(0), moved(batch(3), 1 << 40), moved(batch(6), 1 << 30)],
    ],
    # the header of the damaged batch before says that the last one moved, not the one before it
    "the last after damage": [
        [batch(0), batch(3)[:-1] + b"\1", batch(6), moved(batch(9), 8)],
        batches(0, 2),
    ],
}


@pytest.mark.parametrize("name", first(3, MOVED))
def test_batches_that_damage_moved_go_back(tmp_path: Path, name: str) -> None:
    lake = recovered_as_they_are(tmp_path, MOVED[name])
    found = asked(lake, 'SELECT "offset", value FROM records ORDER BY 1')
    assert found == [(offset, b"v%d" % offset) for offset in range(3 * len(MOVED[name][0]))]


def test_damaged_bytes_after_what_another_copy_has_may_have_been_records(tmp_path: Path) -> None:
    damaged = [batch(0), b"\xff" * len(b"".join(batches(3, 2)))]
    for copies, found in (([damaged, batches(0, 2)], [(6, None)]), ([damaged, batches(0, 3)], [])):
        lake = recovered_as_they_are(tmp_path / str(len(found)), copies)
        rows = asked(lake, "SELECT first_offset, last_offset FROM lost_ranges")
        assert rows == found


LED = {
    # the file of the copy whose batch is right begins after it, that of the other copy does not
    "by the file of another copy": [
        ([batch(0), *batches(3, 2, leader_epoch=2)], "2 0"),
        (batches(0, 2, leader_epoch=2), "2 3"),
    ],
    # both have the same wrong epoch, which is in order, and both files have the right one
    "by the files of both copies": [
        ([batch(0, leader_epoch=1), batch(3, leader_epoch=2), batch(6, leader_epoch=2)], "2 0"),
        ([batch(0, leader_epoch=1), batch(3, leader_epoch=2)], "2 0"),
    ],
    # those before the file's first entry agree in a higher epoch than it
    "by a file that begins after them": [
        ([batch(0, leader_epoch=3), batch(3, leader_epoch=3), batch(6, leader_epoch=2)], "2 6"),
    ],
    # both have the same wrong epoch, which is out of order in one of them
    "by the order of another copy": [
        ([batch(0, leader_epoch=2), batch(3, leader_epoch=77)], "2 0"),
        ([batch(0, leader_epoch=2), batch(3, leader_epoch=77), batch(6, leader_epoch=2)], "2 0"),
    ],
}


def recovered_as_they_are(folder: Path, copies: Sequence[list[bytes]], epochs: Sequence[str] = ()) -> Path:
    """The lake of copies of t-0. epochs: the one entry of each copy's leader-epoch-checkpoint."""
    words = ["--lake", str(folder / "lake"), "--cores", "1"]
    for number, made in enumerate(copies):
        put(folder / f"b{number}" / "t-0", 0, *made)
        for entry in epochs[number : number + 1]:
            (folder / f"b{number}" / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n{entry}\n")
        words.append(f"--source=b{number}={folder / f'b{number}'}")
    assert recover.main(words) == 0
    return folder / "lake"


@pytest.mark.parametrize("name", first(2, LED))
def test_leader_epochs_that_damage_changed_are_corrected(tmp_path: Path, name: str) -> None:
    copies, epochs = zip(*LED[name], strict=True)
    lake = recovered_as_they_are(tmp_path, copies, epochs)
    rows = asked(lake, "SELECT base_offset, leader_epoch FROM batches ORDER BY 1")
    assert rows == [(base, 2) for base in (0, 3, 6)]
    known = asked(lake, "SELECT DISTINCT split_part(unnest(epochs), '@', 1) FROM replica_report")
    assert known == [("2",)]


def test_of_two_epochs_that_may_be_the_wrong_one_the_rarer_is(tmp_path: Path) -> None:
    """The second batch or the third has the wrong one: each has its true one on one side."""
    copy = [batch(at * 3, leader_epoch=epoch) for at, epoch in enumerate((0, 3, 0, 3, 3))]
    lake = recovered_as_they_are(tmp_path, [copy])
    rows = asked(lake, "SELECT leader_epoch FROM batches ORDER BY base_offset")
    assert [epoch for (epoch,) in rows] == [0, 3, 3, 3, 3]


def test_a_file_of_epochs_that_is_older_than_its_log_changes_no_batch(tmp_path: Path) -> None:
    copies = [[batch(0, leader_epoch=1), *batches(3, 3, leader_epoch=2)], [batch(0, leader_epoch=1)]]
    lake = recovered_as_they_are(tmp_path, copies, ["1 0", "1 0"])
    rows = asked(lake, "SELECT leader_epoch FROM batches ORDER BY base_offset")
    assert [epoch for (epoch,) in rows] == [1, 2, 2, 2]


def test_messages_of_older_formats_are_of_the_epoch_that_began_before_them(tmp_path: Path) -> None:
    """The topic's format was set back for a while."""
    log = [batch(0, leader_epoch=1), wrapper(3, 1), batch(6, leader_epoch=2), wrapper(9, 1)]
    lake = recovered_as_they_are(tmp_path, [log, log[:2]])
    found = asked(lake, 'SELECT "offset", value FROM records ORDER BY 1')
    assert found == [(offset, b"v%d" % offset) for offset in range(12)]
    assert asked(lake, "FROM lost_ranges") == asked(lake, "FROM lost_records") == []


def test_the_last_epoch_is_known_though_its_first_batch_is_damaged(tmp_path: Path) -> None:
    damaged = bytearray(batch(3, leader_epoch=2))
    damaged[DELTA_POS] ^= 1
    copies = [
        [batch(0, leader_epoch=1), bytes(damaged), *batches(6, 2, leader_epoch=2)],
        [batch(0, leader_epoch=1), *batches(3, 2, text="other", leader_epoch=1)],
    ]
    lake = recovered_as_they_are(tmp_path, copies)
    rows = asked(lake, "SELECT base_offset, leader_epoch FROM batches ORDER BY 1")
    assert rows == [(0, 1), (3, 1), (6, 2), (9, 2)]


OPEN = {
    "the log begins at offset 0 by leader-epoch-checkpoint, at 3 by other files": ("1 0", "2 6", 3),
    "the log begins at offset 3 by leader-epoch-checkpoint, at 0 by other files": ("1 3", "2 6", 0),
    "b0 without a whole leader-epoch-checkpoint": ("1 0", "2 -6", 0),
    "1 batch were corrected by leader-epoch-checkpoint alone": ("1 0", "1 0", 0),
}


@pytest.mark.parametrize("doubt", first(2, OPEN))
def test_what_files_next_to_segments_leave_open_is_a_doubt(tmp_path: Path, doubt: str) -> None:
    first, last, start = OPEN[doubt]
    disk = tmp_path / "b0"
    put(disk / "t-0", 0, batch(0, leader_epoch=1), batch(3, leader_epoch=1), batch(6, leader_epoch=2))
    lines = list(dict.fromkeys((first, last)))
    (disk / "t-0" / "leader-epoch-checkpoint").write_text("\n".join(("0", str(len(lines)), *lines, "")))
    (disk / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    said = io.StringIO()
    with redirect_stdout(said):
        lake = str(tmp_path / "lake")
        assert recover.main(["--lake", lake, "--cores", "1", "--json", f"--source=b0={disk}"]) == 0
    doubts = json.loads(said.getvalue().splitlines()[-1])["doubts"]
    assert [one for one in doubts if doubt in one], doubts


def test_which_of_two_topics_is_the_present_one_is_a_doubt_where_only_times_say_it(tmp_path: Path) -> None:
    for number, topic_id in enumerate(("AAAAAAAAAAAAAAAAAAAAAQ", "BAAAAAAAAAAAAAAAAAAAAQ")):
        put(tmp_path / f"b{number}" / "t-0", 0)
        (tmp_path / f"b{number}" / "t-0" / "partition.metadata").write_text(
            f"version: 0\ntopic_id: {topic_id}"
        )
    _, doubts = recovered(tmp_path, [([log(A)], 0), ([log(W)], 0)])
    assert [one for one in doubts if "more than one topic has had this name" in one], doubts


DOUBTED = {
    "epoch 77 begins at offset 900, which no log of it reaches": ("77 900", [(9, 899, 0, 891)]),
    "epoch 77 begins at offset 1, which its batches contradict": ("77 1", []),
}


@pytest.mark.parametrize("doubt", DOUBTED)
def test_a_highest_epoch_that_no_batch_confirms_is_a_doubt(tmp_path: Path, doubt: str) -> None:
    entry, lost = DOUBTED[doubt]
    first = batch(0, leader_epoch=1)
    copies = [[first, *batches(3, 2, leader_epoch=1)], [first, batch(3, text="other", leader_epoch=2)]]
    lake = recovered_as_they_are(tmp_path, copies, [entry, "2 3"])
    ((sure, why),) = asked(lake, "SELECT certainty, detail FROM divergence")
    assert sure == "likely"
    assert doubt in why
    columns = "first_offset, last_offset, certain_records, possible_records"
    assert asked(lake, f"SELECT {columns} FROM lost_ranges") == lost


def recovered(folder: Path, copies: list[tuple[list[bytes], int | None]]) -> tuple[Path, list[str]]:
    """(lake, doubts) of copies of t-0, each with the offset up to which it was cleaned; None: not noted."""
    words = ["--lake", str(folder / "lake"), "--cores", "1", "--json"]
    for number, (made, cleaned) in enumerate(copies):
        put(folder / f"b{number}" / "t-0", 0, *made)
        if cleaned is not None:
            (folder / f"b{number}" / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned}\n")
        words.append(f"--source=b{number}={folder / f'b{number}'}")
    said = io.StringIO()
    with redirect_stdout(said):
        assert recover.main(words) == 0
    return folder / "lake", json.loads(said.getvalue().splitlines()[-1])["doubts"]


DOUBTFUL: dict[str, list[tuple[list[bytes], int | None]]] = {
    # the one batch with the offset 3 has gaps around it, and the log is damaged
    "nothing confirms the base offset of 1 batch": [
        ([log(A, last_offset_delta=1), log(GONE), log(Y), log((6, b"z", b"1"), hurt=True)], 9)
    ],
    # the log cleaner left room for several offsets where the second batch lies, whose own is wrong
    "1 whole batch of b0: nothing says at which offsets": [
        ([log(A, OLD), log((1 << 50, b"x", b"1")), log((9, b"y", b"1"))], 9)
    ],
    # no log cleaner ran, nothing is damaged, and the offsets 2 and 3 are in no batch
    "nothing confirms the base offset of 1 batch next to damage or gaps, the first at offset 4": [
        ([log(A, OLD), log(X), log(Y)], 0)
    ],
    "nothing confirms the base offset of 1 batch next to damage or gaps, the first at offset 40": [
        ([wrapper(0, 1), wrapper(40, 1)], None)
    ],
    # each copy has another wrong offset of its last batch: one gives the other its own
    "nothing confirms the base offset of 1 batch next to damage or gaps, the first at offset 99": [
        ([wrapper(0, 1), moved(log(X), 0)], None),
        ([wrapper(0, 1), moved(log(X), 99)], None),
    ],
    # the log cleaner ran up to the offset 3 alone, and the offsets 3 and 4 are in no batch
    "nothing confirms the base offset of 1 batch next to damage or gaps, the first at offset 5": [
        ([log(A, last_offset_delta=1), log(Y), log((6, b"z", b"1"))], 3)
    ],
    # a record of a losing history replaced the older value, which is damaged in the copy that leads
    "records of offsets 0 to 1 may be gone": [
        ([log(A, OLD, hurt=True), log(W), log(Y, leader_epoch=1)], 0),
        ([log(A, last_offset_delta=1), log(W), log((5, b"k", b"lost"))], 6),
    ],
    # of two copies one has the older value without its tombstone, the other is damaged there
    "a deleted key may be back": [
        ([log(A, OLD), log(W), log(GONE, hurt=True), log(X), log(Y)], 0),
        ([log(A, last_offset_delta=1, hurt=True), log(W), log(X)], 4),
    ],
}


@pytest.mark.parametrize("doubt", first(3, DOUBTFUL))
def test_what_the_copies_do_not_decide_is_said(tmp_path: Path, doubt: str) -> None:
    _, doubts = recovered(tmp_path, DOUBTFUL[doubt])
    assert [one for one in doubts if doubt in one], doubts


@pytest.mark.parametrize("is_hurt", [True, False])
def test_the_next_file_alone_gives_no_sure_place_to_a_batch_after_damage(
    tmp_path: Path, is_hurt: bool
) -> None:
    """A segment may be missing before the next file: the offset that the batch stores would be right then."""
    last = b"\xff" * 90 + log(X) if is_hurt else moved(log(W), 1)
    put(tmp_path / "b0" / "t-0", 7 if is_hurt else 3, log((7, b"k", b"1")) if is_hurt else log(GONE))
    _, doubts = recovered(tmp_path, [([log(A, OLD), last], None)])
    found = [one for one in doubts if "nothing confirms the base offset of 1 batch" in one]
    assert len(found) == is_hurt, doubts


def test_which_of_two_batches_after_damage_is_wrong_is_a_doubt(tmp_path: Path) -> None:
    """No batch has the offset 5: the first belongs there, or the second does."""
    _, doubts = recovered(tmp_path, [([log(A, OLD), b"\xff" * 90, log(X), log((6, b"z", b"1"))], None)])
    assert [one for one in doubts if "nothing confirms the base offset of" in one], doubts
