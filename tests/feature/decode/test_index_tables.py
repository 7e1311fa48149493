"""``decode --with-indexes``: what is next to segments, in tables, and what the batches say against it."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.sql.database import one_database
from kafka_log_lake.udfs.format.index_tables import INDEX_TABLES
from kafka_log_lake.udfs.indexes.files import decode_broker_file
from kafka_log_lake.udfs.kernels.checksums import crc32c
from tests.support.corpus import ROOT
from tests.support.logs import batch, data, marker, put
from tests.support.segment_maker import Batch, Record, flip

NOW = 1_700_000_000_000  # ms
SEGMENTED, ABORTED = "v2-segments/segmented-0", "v2-txn-abort/tx-aborted-0"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions with all files that a broker left next to their segments."""
    root = tmp_path_factory.mktemp("logs")
    for name in (SEGMENTED, ABORTED):
        folder = ROOT / name
        target = root / folder.name
        shutil.copytree(folder, target)
        for log in target.glob("*.log"):  # the bundled ones lack indexes without entries
            for suffix in (".index", ".timeindex"):
                log.with_suffix(suffix).touch()
    return root


@pytest.fixture(scope="module")
def lake(logs: Path) -> str:
    path = str(logs.parent / "lake")
    decode(logs, path)
    return path


def decode(logs: Path, lake: str, *more: str) -> None:
    arguments = ["--source", str(logs), "--lake", lake, "--with-indexes", "--cores", "1", *more]
    assert decode_batches.main(arguments) == 0


def rows(lake: str, statement: str) -> list[dict[str, Any]]:
    with one_database(lake, statement) as database:
        found = database.sql(statement)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def versions(lake: str) -> dict[str, int]:
    return {table.name: DeltaTable(f"{lake}/{table.name}").version() for table in INDEX_TABLES}


def entries(logs: Path, suffix: str) -> Iterator[dict[str, Any]]:
    for path in sorted(logs.glob(f"*/*{suffix}")):
        for found in decode_broker_file(path):
            yield from ({"file": f"file://{path}", **row} for row in found.to_pylist())


@pytest.mark.parametrize(
    ("table", "suffix"),
    [
        ("offset_index", ".index"),
        ("time_index", ".timeindex"),
        ("aborted_transactions", ".txnindex"),
        ("producer_snapshots", ".snapshot"),
        ("leader_epochs", "leader-epoch-checkpoint"),
    ],
)
def test_tables_have_the_entries_of_the_files(logs: Path, lake: str, table: str, suffix: str) -> None:
    expected = list(entries(logs, suffix))
    assert expected
    columns = ", ".join(f'"{name}"' for name in expected[0])
    found = rows(lake, f"SELECT {columns} FROM {table}")
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_what_a_broker_left_is_right(lake: str) -> None:
    assert rows(lake, "SELECT * FROM index_report") == []


def test_a_second_run_and_another_decoding_double_nothing(logs: Path, lake: str) -> None:
    before, counts = versions(lake), {t: rows(lake, f"SELECT count(*) AS n FROM {t}") for t in versions(lake)}
    decode(logs, lake)
    decode(logs, lake, "--redecode", "tx-aborted")
    assert versions(lake) == before
    assert {t: rows(lake, f"SELECT count(*) AS n FROM {t}") for t in before} == counts


def test_the_report_names_what_is_wrong(logs: Path, tmp_path: Path) -> None:
    root, lake = tmp_path / "logs", str(tmp_path / "lake")
    shutil.copytree(logs, root)
    segmented, aborted = root / "segmented-0", root / "tx-aborted-0"
    first, second, third, *_ = sorted(segmented.glob("*.log"))
    # points at a byte inside a batch; at a batch after the offset; past the end of the segment
    size = second.stat().st_size
    first.with_suffix(".index").write_bytes(struct.pack(">ii", 1, 7))
    batches = next(decode_broker_file(second.with_suffix(".index"))).to_pylist()
    later = batches[-1]
    base = int(second.stem)
    second.with_suffix(".index").write_bytes(
        struct.pack(">iiii", 1, later["position"], later["offset"] - base, size + 1)
    )
    # a timestamp below one before it; an offset that the segment does not have
    first.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 5, 20))
    second.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 1 << 50, 1 << 30))
    third.with_suffix(".timeindex").unlink()
    third.with_suffix(".index").write_bytes(b"\0\0\1")
    # a transaction that was not aborted, and none of those that were
    (aborted / f"{0:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 53, 4, 5, 6))
    (aborted / "leader-epoch-checkpoint").write_bytes(b"0\n1\n5 0\n")
    decode(root, lake)
    report = rows(lake, "SELECT * FROM index_report")
    found = Counter((Path(row["file"]).name, row["problem"]) for row in report)
    assert found == {
        (first.with_suffix(".index").name, "points_nowhere"): 1,
        (second.with_suffix(".index").name, "disagrees"): 1,
        (second.with_suffix(".index").name, "points_nowhere"): 1,
        (first.with_suffix(".timeindex").name, "disagrees"): 1,
        (first.with_suffix(".timeindex").name, "missing"): 1,  # none for the segment's last timestamp
        (second.with_suffix(".timeindex").name, "points_nowhere"): 1,
        (third.with_suffix(".timeindex").name, "missing"): 1,
        (third.with_suffix(".index").name, "unreadable"): 1,
        (f"{0:020d}.txnindex", "disagrees"): 1,
        (f"{0:020d}.txnindex", "missing"): 4,
        ("leader-epoch-checkpoint", "missing"): 1,
    }
    # mended files take the place of what was there
    shutil.rmtree(root)
    shutil.copytree(logs, root)
    decode(root, lake)
    assert rows(lake, "SELECT * FROM index_report") == []


def test_landed_bytes_have_no_files_next_to_them(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert decode_batches.main(["--from-raw", "--lake", lake, "--with-indexes"]) == 2
    assert "--with-indexes is for files" in capsys.readouterr().err


def test_a_run_without_the_option_makes_no_table(logs: Path, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    arguments = ["--source", str(logs / "tx-aborted-0"), "--lake", lake, "--cores", "1", "--json"]
    assert decode_batches.main(arguments) == 0
    assert not (tmp_path / "lake" / "offset_index").exists()
    assert rows(lake, "SELECT * FROM index_report") == []


def test_entries_that_hide_records_and_lost_entries_are_named(logs: Path, tmp_path: Path) -> None:
    root, lake = tmp_path / "logs", str(tmp_path / "lake")
    shutil.copytree(logs, root)
    first, second, third, *_ = sorted((root / "segmented-0").glob("*.log"))
    end = int(second.stem)  # the first segment's last offset is before it
    # the last entry of an offset index is after the segment's last offset
    index = first.with_suffix(".index")
    offset, position = struct.unpack(">ii", index.read_bytes()[-8:])
    assert offset < end
    index.write_bytes(index.read_bytes()[:-8] + struct.pack(">ii", end + 3, position))
    # a time that no record of the segment has: a lookup for it ends here, whatever the next segments have
    times = second.with_suffix(".timeindex")
    stamp, offset = struct.unpack(">qi", times.read_bytes()[-12:])
    times.write_bytes(times.read_bytes()[:-12] + struct.pack(">qi", stamp + 5000, offset))
    # without its last entry a lookup passes over the segment
    lost = third.with_suffix(".timeindex")
    lost.write_bytes(lost.read_bytes()[:-12])
    (root / "segmented-0" / "leader-epoch-checkpoint").unlink()
    decode(root, lake)
    report = rows(lake, "SELECT * FROM index_report")
    found = Counter((Path(row["file"]).name, row["problem"]) for row in report)
    assert found == {
        (index.name, "points_nowhere"): 1,
        (times.name, "disagrees"): 1,
        (lost.name, "missing"): 1,
        ("leader-epoch-checkpoint", "missing"): 1,
    }


def test_an_epoch_that_begins_after_its_batches_disagrees(logs: Path, tmp_path: Path) -> None:
    root, lake = tmp_path / "logs", str(tmp_path / "lake")
    folder = root / "tx-aborted-0"
    shutil.copytree(logs / folder.name, folder)
    log, checkpoint = folder / f"{0:020d}.log", folder / "leader-epoch-checkpoint"
    data = bytearray(log.read_bytes())
    position, start = 0, -1
    while position < len(data):  # batches from offset 10 on are of epoch 2; the checksum does not cover it
        base, size, _ = struct.unpack_from(">qii", data, position)
        epoch = 2 if base >= 10 else 0
        if epoch and start < 0:
            start = base
        struct.pack_into(">i", data, position + 12, epoch)
        position += 12 + size
    log.write_bytes(data)
    checkpoint.write_text(f"0\n2\n0 0\n2 {start}\n")
    decode(root, lake)
    assert rows(lake, "SELECT * FROM index_report") == []
    checkpoint.write_text(f"0\n2\n0 0\n2 {start + 1}\n")
    decode(root, lake)
    report = rows(lake, "SELECT * FROM index_report")
    assert [(Path(row["file"]).name, row["entry"], row["problem"]) for row in report] == [
        (checkpoint.name, 1, "disagrees")
    ]


def test_an_entry_for_a_batch_whose_last_offset_is_below_its_first_is_right(tmp_path: Path) -> None:
    folder, lake = tmp_path / "logs" / "odd-0", str(tmp_path / "lake")
    folder.mkdir(parents=True)
    log = folder / f"{0:020d}.log"
    odd = Batch((Record(value=b"a"),), base_offset=5, last_offset_delta=-3, leader_epoch=-1)
    log.write_bytes(Batch((Record(value=b"a"),), leader_epoch=-1).encode() + odd.encode())
    log.with_suffix(".index").touch()
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", odd.base_timestamp, 5))
    decode(folder.parent, lake)
    assert rows(lake, "SELECT * FROM index_report") == []


def report_of(root: Path, lake: str) -> list[tuple[str, str]]:
    decode(root, lake)
    report = rows(lake, "SELECT file, problem FROM index_report ORDER BY ALL")
    return [(row["file"].removeprefix(f"file://{root}/"), row["problem"]) for row in report]


def test_files_of_a_live_broker_without_an_entry_yet_are_compared_too(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    folder = root / "connect.log-0"  # the file's name has .log, and so has the folder's
    log = put(folder, 0, data(0, 7), marker(1, 7, commit=False), batch(2))
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(bytes(120))  # preallocated
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n5 0\n")
    assert report_of(root, str(tmp_path / "lake")) == [
        (f"connect.log-0/{log.stem}.txnindex", "missing"),
        ("connect.log-0/leader-epoch-checkpoint", "missing"),
    ]
    later = put(folder, 5, batch(5))
    for suffix in (".index", ".timeindex"):
        later.with_suffix(suffix).touch()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert report_of(root, str(tmp_path / "lake")) == [
        (f"connect.log-0/{log.stem}.timeindex", "missing"),
        (f"connect.log-0/{log.stem}.txnindex", "missing"),
        (f"connect.log-0/{later.stem}.snapshot", "missing"),
    ]


def test_what_lies_in_damage_does_not_contradict_an_index(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    pieces = [batch(0), data(3, 7), marker(4, 7, commit=False), batch(5, base_timestamp=NOW + 5)]
    log = put(root / "a-0", 0, *pieces)
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 4, len(pieces[0] + pieces[1])))
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", NOW + 5, 7))
    log.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 3, 4, 5))
    (root / "a-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert report_of(root, str(tmp_path / "sound")) == []
    broken = [pieces[0], pieces[1], flip(pieces[2], -1), flip(pieces[3], -1)]
    log.write_bytes(b"".join(broken))
    assert report_of(root, str(tmp_path / "damaged")) == []
    put(
        root / "b-0", 0, batch(0), (1 << 40).to_bytes(8, "big") + batch(3)[8:], batch(6)
    )  # a wrong base offset
    for suffix in (".index", ".timeindex"):
        (root / "b-0" / log.with_suffix(suffix).name).touch()
    size = len(batch(0))
    (root / "b-0" / f"{log.stem}.index").write_bytes(struct.pack(">iiii", 5, size, 8, 2 * size))
    (root / "b-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 9\n")
    assert report_of(root, str(tmp_path / "misplaced")) == []


def test_indexes_that_are_right_contradict_no_damaged_log(tmp_path: Path) -> None:
    """In each folder a segment with sound indexes, in which one batch is damaged since, and a next one."""
    root, size = tmp_path / "logs", len(batch(0))

    def segments(name: str, *pieces: bytes, entry: tuple[int, int] = (5, size), stamp: int = NOW) -> None:
        put_with_indexes(root / name, 0, *pieces, stamp=stamp, last=2)
        (root / name / f"{0:020d}.index").write_bytes(struct.pack(">ii", *entry))
        put_with_indexes(root / name, 9, batch(9))
        (root / name / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    segments("garbage-0", batch(0), b"\xff" * size, batch(6))
    wrong_base = (1 << 40).to_bytes(8, "big") + batch(6)[8:]
    segments("base-0", batch(0), batch(3), wrong_base, entry=(8, 2 * size))
    segments("newest-0", b"\xff" * size, batch(3), batch(6), stamp=NOW + 9)
    segments("epoch-0", batch(0), batch(3, leader_epoch=8), batch(6))
    assert report_of(root, str(tmp_path / "lake")) == []


def test_offsets_past_64_bits_hide_no_other_entry(tmp_path: Path) -> None:
    root, base = tmp_path / "logs", 2**63 - 2
    log = put(root / "a-0", base, batch(base, 2))
    log.with_suffix(".index").write_bytes(struct.pack(">iiii", 1, 0, 2**31 - 1, 5))
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", NOW, 0) + struct.pack(">qi", NOW + 1, 2))
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):  # no broker gives such names
        (root / "a-0" / ("9" * 20 + suffix)).write_bytes(b"\1" * 34)
    (root / "a-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {base}\n")
    assert report_of(root, str(tmp_path / "lake")) == [
        (f"a-0/{log.stem}.index", "unreadable"),
        (f"a-0/{log.stem}.timeindex", "unreadable"),
    ]
    assert rows(str(tmp_path / "lake"), 'SELECT entry, "offset", error FROM offset_index ORDER BY entry') == [
        {"entry": 0, "offset": 2**63 - 1, "error": None},
        {
            "entry": 1,
            "offset": None,
            "error": f"offset: expected {2**63 - 1} or less, found {base + 2**31 - 1}",
        },
    ]


def put_with_indexes(folder: Path, base: int, *batches: bytes, stamp: int = NOW, last: int = 2) -> Path:
    log = put(folder, base, *batches)
    log.with_suffix(".index").touch()
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", stamp, last))
    if base:  # of no producer
        crc = int(crc32c(np.zeros(4, dtype=np.uint8), 0, 4, 0))
        log.with_suffix(".snapshot").write_bytes(struct.pack(">hIi", 1, crc, 0))
    return log


def test_a_missing_snapshot_of_a_segment_is_listed(tmp_path: Path) -> None:
    root, lake = tmp_path / "logs", str(tmp_path / "lake")
    for base in (0, 3, 6):
        put_with_indexes(root / "a-0", base, batch(base))
    (root / "a-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert report_of(root, lake) == []
    (root / "a-0" / "00000000000000000003.snapshot").unlink()
    assert report_of(root, lake) == [("a-0/00000000000000000003.snapshot", "missing")]


def test_no_entry_is_missing_of_what_retention_or_deleterecords_deleted(tmp_path: Path) -> None:
    root, lake = tmp_path / "logs", str(tmp_path / "lake")
    folder = root / "a-0"
    checkpoint = folder / "leader-epoch-checkpoint"
    first = put_with_indexes(folder, 0, data(0, 7, 3), marker(3, 7, commit=False))
    first.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 3, 4))
    put_with_indexes(folder, 4, batch(4, leader_epoch=1), batch(7, leader_epoch=2), last=5)
    checkpoint.write_text("0\n3\n0 0\n1 4\n2 7\n")
    assert report_of(root, lake) == []
    for file in folder.glob(f"{first.stem}.*"):  # as retention does; the rows of the segment stay
        file.unlink()
    checkpoint.write_text("0\n2\n1 4\n2 7\n")
    assert report_of(root, lake) == []
    for offset in (8, 10):  # as DeleteRecords up to this offset does; 10 is the end of the log
        checkpoint.write_text(f"0\n1\n2 {offset}\n")
        assert report_of(root, lake) == []
    checkpoint.write_text("0\n1\n3 4\n")
    assert report_of(root, lake) == [("a-0/leader-epoch-checkpoint", "missing")] * 2


def test_no_entry_is_missing_for_a_marker_that_outlives_its_transaction(tmp_path: Path) -> None:
    """Retention deleted the data, and the cleaner then wrote the marker's segment, and its index, anew."""
    root, lake = tmp_path / "logs", str(tmp_path / "lake")
    folder = root / "a-0"
    first = put_with_indexes(folder, 0, data(0, 7, 3))
    second = put_with_indexes(folder, 3, marker(3, 7, commit=False), batch(4), last=3)
    index = second.with_suffix(".txnindex")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert report_of(root, lake) == [("a-0/" + index.name, "missing")]
    for file in (*folder.glob(f"{first.stem}.*"), index):
        file.unlink(missing_ok=True)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 3\n")
    assert report_of(root, lake) == []


def test_an_entry_for_the_time_0_is_not_missing(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "a-0"
    put_with_indexes(folder, 0, *(batch(base, 1, base_timestamp=0) for base in (0, 1)), stamp=0, last=0)
    put_with_indexes(folder, 2, batch(2))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert report_of(tmp_path / "logs", str(tmp_path / "lake")) == []


def test_a_snapshot_that_a_broker_refuses_is_not_compared(logs: Path, tmp_path: Path) -> None:
    """The producers in a file with a wrong checksum say nothing; with a right one the same ones disagree."""
    found = {}
    for is_sound in (True, False):
        root, lake = tmp_path / f"logs-{is_sound}", str(tmp_path / f"lake-{is_sound}")
        shutil.copytree(logs / "tx-aborted-0", root / "tx-aborted-0")
        path = max((root / "tx-aborted-0").glob("*.snapshot"))
        entry = bytearray(path.read_bytes()[10:])
        struct.pack_into(">q", entry, 14, int(path.stem) + 7)  # the last offset of the first producer
        body = path.read_bytes()[6:10] + entry
        crc = int(crc32c(np.frombuffer(body, dtype=np.uint8), 0, len(body), 0)) ^ (not is_sound)
        path.write_bytes(struct.pack(">hI", 1, crc) + body)
        decode(root, lake)
        found[is_sound] = [row["problem"] for row in rows(lake, "SELECT problem FROM index_report")]
    assert found == {True: ["disagrees"], False: ["unreadable"]}
