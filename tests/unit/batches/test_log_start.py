"""Where a log begins for its consumers: below its log start, records on the disk are in no answer to them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_log_lake import connect, decode_folder, find, read_segment, scan
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.plan.listed import list_sources
from kafka_log_lake.udfs.batches.noted_start import LOG_START_FILE, log_start_of
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS
from tests.support.logs import batch, data, marker, put
from tests.unit.views.test_clusters_in_views import NOW, commit, noted

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
        (("a 1 12",), "3 30", 3, (30, EPOCHS, "likely")),  # and after that lies the first segment
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
    assert scan(tmp_path).logs[0].account.start == expected[0]
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


class Lake:
    """A lake of one log directory, read by DuckDB."""

    def __init__(self, root: Path) -> None:
        self.logs, self.address = root / "logs", str(root / "lake")

    def decode(self) -> None:
        assert decode_batches.main(["--source", str(self.logs), "--lake", self.address]) == 0

    def ask(self, query: str) -> list[tuple[object, ...]]:
        return connect(self.address).sql(query).fetchall()

    def offsets(self, view: str = "committed_records") -> list[object]:
        return [row[0] for row in self.ask(f'SELECT "offset" FROM {view} ORDER BY 1')]

    def rows(self) -> list[tuple[object, ...]]:
        names = "log_start_offset, log_start_witness, log_start_certainty, high_watermark"
        return self.ask(f"SELECT {names} FROM checkpoints ORDER BY read_at")


def test_the_lake_keeps_the_log_start_and_what_it_cuts_off_is_in_no_view_of_consumers(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log(lake.logs)
    lake.decode()
    assert lake.offsets() == [*range(40, 70)]
    columns = "log_start_offset, log_start_witness, log_start_certainty, committed_records, records"
    starts = f"SELECT {columns} FROM logs"
    assert lake.ask(starts) == [(40, "segments", "unknown", 30, 30)]

    checkpoint(lake.logs, "a 1 45")  # DeleteRecords: not a byte of a segment changes
    lake.decode()
    assert lake.rows() == [(45, "checkpoint", "certain", None)]
    assert lake.offsets() == lake.offsets("messages") == [*range(45, 70)]
    assert lake.offsets("records") == [*range(40, 70)]
    for is_committed, first in ((True, 45), (False, 40)):
        searched = find(lake=lake.address, committed=is_committed, on_unsearched=lambda one: None)
        assert [o for b in searched for o in b.column("offset").to_pylist()] == [*range(first, 70)]
    assert lake.ask(starts) == [(45, "checkpoint", "certain", 25, 30)]
    lake.decode()
    assert len(lake.rows()) == 1  # nothing is new

    checkpoint(lake.logs, "a 1 61")
    (lake.logs / "a-1" / f"{40:020d}.log").unlink()  # within minutes the broker deletes what lies below it
    lake.decode()
    assert lake.offsets() == [*range(61, 70)]
    assert lake.ask("SELECT committed_records, records, first_segment_offset FROM logs") == [(9, 30, 40)]
    # of ten keys the latest lies below the log start
    assert lake.ask('SELECT count(*), min("offset") FROM latest_by_key') == [(9, 61)]

    checkpoint(lake.logs)  # the log start is that of the first segment, as retention leaves it
    (lake.logs / "a-1" / f"{60:020d}.log").unlink()
    put(lake.logs / "a-1", 70, batch(70, 10, leader_epoch=3))
    lake.decode()
    assert lake.offsets() == [*range(61, 80)]  # what was deleted stays away, what retention deleted stays
    assert len(lake.rows()) == 2


def test_a_log_start_that_moved_back_cuts_nothing_any_more(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    folder = log(lake.logs)
    epochs(folder, "3 52")
    lake.decode()
    assert lake.rows() == [(52, "epochs", "likely", None)]
    assert lake.offsets() == [*range(52, 70)]
    epochs(folder, "3 40")
    lake.decode()
    assert lake.offsets() == [*range(40, 70)]
    epochs(folder, "x")  # tells nothing
    lake.decode()
    assert len(lake.rows()) == 2


def test_landed_bytes_have_the_log_start_of_their_folder(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log(lake.logs)
    checkpoint(lake.logs, "a 1 45")
    assert ingest_raw.main(["--source", str(lake.logs), "--lake", lake.address]) == 0
    assert decode_batches.main(["--from-raw", "--lake", lake.address]) == 0
    assert lake.offsets() == [*range(45, 70)]


def test_lakes_of_an_earlier_release_have_checkpoints_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log(lake.logs)
    lake.decode()
    row = {"topic": "a", "partition": 1, "partition_dir": f"file://{lake.logs}/a-1", "log_start_offset": 45}
    schema = pa.schema([*CHECKPOINTS.arrow_schema()][:-2])
    assert schema.names[-1] == "run_id"
    write_deltalake(f"{lake.address}/checkpoints", pa.Table.from_pylist([row], schema))
    found = lake.ask("SELECT log_start_offset, witness, certainty FROM log_starts")
    assert found == [(45, "checkpoint", "certain")]
    assert lake.offsets() == [*range(45, 70)]


def test_a_group_goes_on_at_the_log_start_and_lags_behind_from_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(lake.logs / "t-0", 0, batch(0, 10), batch(10, 10))
    put(lake.logs / "__consumer_offsets-3", 0, *noted((NOW, commit(4))))
    checkpoint(lake.logs, "t 0 7")
    lake.decode()
    question = (
        "SELECT committed_offset, end_offset, lag, log_start_offset FROM group_lag_at('g', TIMESTAMPTZ {})"
    )
    assert lake.ask(question.format("'2030-01-01 00:00:00Z'")) == [(4, 20, 13, 7)]
    seeks = 'SELECT "group", cause, committed_offset, records_lost, seek_to FROM group_seeks'
    assert lake.ask(seeks) == [("g", "before_the_start", 4, 3, 7)]
    ((note,),) = lake.ask("SELECT note FROM group_lag_at('h', TIMESTAMPTZ '2030-01-01 00:00:00Z')")
    assert str(note).startswith("no group of this name")
