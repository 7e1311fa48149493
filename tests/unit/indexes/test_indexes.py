"""The files next to segments, as rows: what a broker wrote, and files that are not what their name says."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.udfs.indexes.files import broker_file, decode_broker_file
from kafka_log_lake.udfs.kernels.checksums import crc32c
from tests.support.corpus import ROOT

ABORTED = ROOT / "v2-txn-abort" / "tx-aborted-0"
INDEX, TIME_INDEX = f"{100:020d}.index", f"{100:020d}.timeindex"
SNAPSHOT, TRANSACTIONS = f"{7:020d}.snapshot", f"{0:020d}.txnindex"
EPOCHS, OFFSETS = "leader-epoch-checkpoint", "recovery-point-offset-checkpoint"


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; a column ``error`` that is null in all of them is left out."""
    found = [row for batch in decode_broker_file(path) for row in batch.to_pylist()]
    if not any(row["error"] for row in found):
        for row in found:
            del row["error"]
    return found


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def snapshot(*producers: tuple[int, ...], version: int = 1) -> bytes:
    import numpy as np

    body = struct.pack(">i", len(producers)) + b"".join(struct.pack(">qhiqiqiq", *p) for p in producers)
    crc = crc32c(np.frombuffer(body, dtype=np.uint8), 0, len(body), 0)
    return struct.pack(">hI", version, crc) + body


def test_files_of_a_broker_as_kafkas_tool_prints_them() -> None:
    """The lines of ``_dump`` for these files."""
    assert rows(ABORTED / "00000000000000000000.timeindex") == [
        {"entry": 0, "timestamp_ms": 1795247482794, "offset": 23}
    ]
    found = rows(ABORTED / "00000000000000000000.txnindex")
    assert [
        (r["producer_id"], r["first_offset"], r["last_offset"], r["last_stable_offset"]) for r in found
    ] == [
        (53, 0, 3, 4),
        (53, 4, 9, 10),
        (53, 13, 16, 17),
        (53, 17, 20, 21),
    ]
    assert {row["version"] for row in found} == {0}
    (producer,) = rows(ABORTED / "00000000000000000024.snapshot")
    assert (producer["producer_id"], producer["producer_epoch"], producer["coordinator_epoch"]) == (53, 6, 0)
    assert (producer["current_txn_first_offset"], producer["timestamp_ms"]) == (-1, 1795247482794)


def test_offsets_count_from_the_name_and_zeros_are_no_entries(tmp_path: Path) -> None:
    index = put(tmp_path, INDEX, struct.pack(">iiii", 5, 4200, 9, 8300) + bytes(80))
    assert rows(index) == [
        {"entry": 0, "offset": 105, "position": 4200},
        {"entry": 1, "offset": 109, "position": 8300},
    ]
    times = put(tmp_path, TIME_INDEX, struct.pack(">qi", 1700000000000, 9) + bytes(24))
    assert rows(times) == [{"entry": 0, "timestamp_ms": 1700000000000, "offset": 109}]
    assert rows(put(tmp_path, INDEX, bytes(80))) == rows(put(tmp_path, INDEX, b"")) == []


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (INDEX, struct.pack(">iiii", 5, 4200, 5, 8300), "offset: expected more than 5 of the entry before"),
        (INDEX, struct.pack(">iiii", 5, 4200, 6, 4200), "position: expected more than 4200"),
        (INDEX, struct.pack(">iib", 5, 4200, 6), "ends inside an entry: expected 8 bytes, found 1"),
        (TIME_INDEX, struct.pack(">qiqi", 9, 1, 8, 2), "timestamp: expected more than 9"),
        (TRANSACTIONS, struct.pack(">hqqqq", 0, 1, 5, 4, 6), "last_offset: expected 5 or more"),
        (TRANSACTIONS, struct.pack(">hqqqq", 3, 1, 4, 5, 6), "version: expected 0, found 3"),
        (SNAPSHOT, b"\0", "it has 1 byte"),
        (SNAPSHOT, snapshot(version=9), "unknown file version 9"),
        (SNAPSHOT, snapshot()[:-1], "it has 9 bytes"),
        (SNAPSHOT, struct.pack(">hIi", 1, 0, 1 << 30), "counts 1,073,741,824 producers, and has bytes for 0"),
        (SNAPSHOT, snapshot((1,) * 8)[:-1] + b"\7", "CRC is no longer valid"),
        (EPOCHS, b"1\n0\n", "its version is '1', not 0"),
        (EPOCHS, b"0\n2\n0 0\n", "it has 1 entry, and says '2'"),
        (EPOCHS, b"0\n1\n\xff\n", "byte 4 is not UTF-8"),
        (EPOCHS, b"0\n1\n0 0 0\n", "line 3 is not an epoch and a start offset"),
        (EPOCHS, b"0\n1\n9999999999 0\n", "line 3 is not an epoch"),
        (EPOCHS, b"0\n2\n4 10\n5 10\n", "start_offset: expected more than 10 of the entry before, found 10"),
        (OFFSETS, b"0\n1\nt x 4\n", "line 3 is not a topic, a partition and an offset"),
        (f"{5:020d}-{1:010d}.checkpoint", b"no batches at all", "at byte 0"),
    ],
)
def test_what_is_wrong_is_in_the_last_row(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    found = rows(put(tmp_path, name, content))
    assert error in found[-1]["error"]
    assert not any(row["error"] for row in found[:-1])


def test_a_snapshot_that_the_broker_refuses_still_shows_its_producers(tmp_path: Path) -> None:
    wrong = bytearray(snapshot((53, 6, 9, 20, 3, 1700000000000, 0, 18), (54, 0, 0, 21, 0, 5, -1, -1)))
    wrong[3] ^= 1
    found = rows(put(tmp_path, SNAPSHOT, bytes(wrong)))
    assert [(row["producer_id"], row["current_txn_first_offset"]) for row in found[:2]] == [
        (53, 18),
        (54, -1),
    ]
    assert found[2]["error"].startswith("Snapshot is corrupt (CRC is no longer valid). Stored crc: ")


def test_epochs_and_offsets(tmp_path: Path) -> None:
    assert rows(put(tmp_path, EPOCHS, b"0\n2\n0 0\n2 20\n")) == [
        {"entry": 0, "leader_epoch": 0, "start_offset": 0},
        {"entry": 1, "leader_epoch": 2, "start_offset": 20},
    ]
    assert rows(put(tmp_path, OFFSETS, "0\n1\nbücher 3 4\n".encode())) == [
        {"entry": 0, "topic": "bücher", "partition": 3, "offset": 4}
    ]
    assert rows(put(tmp_path, EPOCHS, b"")) == []


def test_a_snapshot_of_the_metadata_log() -> None:
    path = ROOT / "v2-internal" / "__cluster_metadata-0" / "00000000000000000515-0000000002.checkpoint"
    found = rows(path)
    assert [row["offset"] for row in found] == list(range(205))
    assert found[0]["control_type"], found[-1]["control_type"] == ("SNAPSHOT_HEADER", "SNAPSHOT_FOOTER")
    assert found[1]["name"] == "FeatureLevelRecord"
    assert json.loads(found[1]["value"]) == {"name": "metadata.version", "featureLevel": 27}


def test_a_file_is_known_by_its_name(tmp_path: Path) -> None:
    assert broker_file(f"a/b/{INDEX}") == (".index", 100)
    assert broker_file("x/bootstrap.checkpoint") == (".checkpoint", -1)
    assert broker_file("00000000000000000000.log") is None
    with pytest.raises(ValueError, match="does not have the name of an index"):
        next(decode_broker_file(put(tmp_path, "notes.txt", b"")))
