"""Where a log begins for its consumers: below its log start, records on the disk are in no answer to them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_log_lake import decode_folder
from pipelines.command.settings import Settings
from pipelines.plan.listed import list_sources
from tests.support.logs import batch, data, marker, put
from udfs import read_segment
from udfs.log_start import LOG_START_FILE, log_start_of

CHECKPOINT, EPOCHS, SEGMENTS = "checkpoint", "epochs", "segments"


def checkpoint(root: Path, *lines: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / LOG_START_FILE).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def epochs(folder: Path, *lines: str) -> None:
    (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def log(root: Path, base: int = 40, epoch: int = 3) -> Path:
    """a-1: two segments of batches of ten records."""
    put(root / "a-1", base, batch(base, 10, leader_epoch=epoch), batch(base + 10, 10, leader_epoch=epoch))
    put(root / "a-1", base + 20, batch(base + 20, 10, leader_epoch=epoch))
    return root / "a-1"


@pytest.mark.parametrize(
    ("noted", "first_epoch", "epoch", "expected"),
    [
        (("a 1 45",), None, 3, (45, CHECKPOINT, "certain")),
        (("a 1 45",), "3 45", 3, (45, CHECKPOINT, "certain")),
        (("a 11 45", "a 2 45", "b 1 45"), None, 3, (40, CHECKPOINT, "certain")),
        (("a 1 -1",), None, 3, (40, CHECKPOINT, "certain")),
        (("a 1 45",), "3 52", 3, (52, EPOCHS, "likely")),  # it moved after the checkpoint was written
        (("a 1 52",), "3 45", 3, (52, CHECKPOINT, "certain")),  # the epochs are written in the background
        (("a 1 0",), "0 0", 3, (0, CHECKPOINT, "certain")),  # the first segments are in remote storage
        ((), "0 0", 3, (0, EPOCHS, "likely")),  # the first segment is lost
        ((), "3 45", 3, (45, EPOCHS, "likely")),
        ((), "3 40", 3, (40, CHECKPOINT, "certain")),
        (None, "3 45", 3, (45, EPOCHS, "likely")),
        (None, "5 45", 3, (45, EPOCHS, "likely")),
        (None, "2 45", 3, (40, SEGMENTS, "unknown")),  # a batch of a later epoch lies before it
        (None, "3 45", -1, (40, SEGMENTS, "unknown")),  # written before there were epochs
        (None, "3 40", 3, (40, EPOCHS, "likely")),
        (None, "x", 3, (40, SEGMENTS, "unknown")),
        (None, None, 3, (40, SEGMENTS, "unknown")),
        (("a 1",), "3 45", 3, (45, EPOCHS, "likely")),  # a checkpoint that can't be read says nothing
    ],
)
def test_what_files_and_batches_show(
    tmp_path: Path,
    noted: tuple[str, ...] | None,
    first_epoch: str | None,
    epoch: int,
    expected: tuple[int, str, str],
) -> None:
    folder = log(tmp_path, epoch=epoch)
    if noted is not None:
        checkpoint(tmp_path, *noted)
    if first_epoch is not None:
        epochs(folder, first_epoch, "9 60")
    assert log_start_of(str(folder)) == expected
    listing = list_sources(Settings(source=(str(tmp_path),)))
    assert listing.log_starts() == {f"file://{folder}": expected}
    kept = [offset for offset in range(40, 70) if offset >= expected[0]]
    whole = pa.Table.from_batches(decode_folder(tmp_path, committed=True, columns=["offset"]))
    assert whole.column("offset").to_pylist() == kept
    first = read_segment(folder / f"{40:020d}.log", committed=True, columns=["offset"])
    assert first.column("offset").to_pylist() == [offset for offset in kept if offset < 60]
    assert pa.Table.from_batches(decode_folder(tmp_path)).num_rows == 30  # what lies on the disk


def test_a_transaction_across_the_log_start_counts_from_there_on(tmp_path: Path) -> None:
    put(
        tmp_path / "a-0",
        0,
        data(0, 1, 5),
        marker(5, 1),
        data(6, 2, 3),
        marker(9, 2, commit=False),
        batch(10, 1),
    )
    checkpoint(tmp_path, "a 0 3")
    found = pa.Table.from_batches(decode_folder(tmp_path, committed=True, columns=["offset"]))
    assert found.column("offset").to_pylist() == [3, 4, 10]


def test_a_moving_replica_has_the_log_start_of_its_partition(tmp_path: Path) -> None:
    log(tmp_path).rename(tmp_path / "a-1.0123456789abcdef-future")
    checkpoint(tmp_path, "a 1 45")
    found = log_start_of(str(tmp_path / "a-1.0123456789abcdef-future"))
    assert found is not None
    assert found.offset == 45


def test_a_pipe_in_place_of_a_checkpoint_says_nothing(tmp_path: Path) -> None:
    folder = log(tmp_path)
    os.mkfifo(folder / "leader-epoch-checkpoint")
    assert log_start_of(str(folder)) == (40, SEGMENTS, "unknown")
