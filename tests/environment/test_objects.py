"""Segments that are objects in a real S3 server: which requests it gets, and what changes meanwhile."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.slices import plan_read
from kafka_log_lake.pipelines.dataframes.source import KafkaLogSource, requested
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.udfs.spark.protocol import TableRead
from kafka_log_lake.udfs.spark.table_rows import ReadFailed, read_table
from kafka_log_lake.udfs.storage.byte_source import SourceChanged, SourceUnreadable
from kafka_log_lake.udfs.storage.object_source import BLOCK_BYTES, ObjectSource
from tests.support.logs import batch, put
from tests.support.object_store import Store, uri


@pytest.fixture(autouse=True)
def no_harm(store: Store) -> None:
    store.reset()


def test_a_large_segment_is_read_in_few_requests_and_ahead(store: Store) -> None:
    content = os.urandom(5 * BLOCK_BYTES // 2)
    (store.folder / "large.log").write_bytes(content)
    view, found = np.empty(2 << 20, dtype=np.uint8), bytearray()
    source = ObjectSource(uri("large.log"))
    try:
        while size := source.read_into(len(found), view):
            found += view[:size].tobytes()
    finally:
        source.close()
    assert bytes(found) == content
    assert dict(store.seen) == {"HEAD": 1, "GET": 3}


def test_an_object_that_was_written_again_is_not_taken_for_the_one_that_was_listed(store: Store) -> None:
    path = store.folder / "again.log"
    path.write_bytes(b"before")
    listed = os.stat(path).st_mtime_ns // 1000
    source = ObjectSource(uri("again.log"))
    source.check_unchanged(listed)
    path.write_bytes(b"behind")
    os.utime(path, ns=(0, (listed + 5_000_000) * 1000))
    with pytest.raises(SourceChanged, match="written again"):
        source.check_unchanged(listed)
    path.unlink()
    with pytest.raises(SourceChanged, match="gone"):
        source.check_unchanged(listed)
    source.close()


def test_an_error_of_a_store_that_says_nothing_is_reported_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: str) -> None:
        raise OSError

    monkeypatch.setattr("kafka_log_lake.udfs.storage.object_source.open_store", refuse)
    with pytest.raises(SourceUnreadable, match=r"it can't be opened: OSError$"):
        ObjectSource(uri("silent.log"))


@pytest.fixture
def large(store: Store) -> Iterator[Path]:
    """A segment of 4 MB, 400 batches of a record each, with an index as a broker makes it."""
    made = [batch(offset, 1, text="x" * 10_000) for offset in range(400)]
    path = put(store.folder / "large" / "t-0", 0, *made)
    entries = [(i, sum(map(len, made[:i]))) for i in range(4, 400, 4)]
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    yield path
    shutil.rmtree(store.folder / "large")


def planned() -> tuple[TableRead, list[pa.RecordBatch]]:
    """What the data source reads of ``large``, and its tasks."""
    given = {"path": uri("large"), "sliceBytes": "1MiB"}
    options, read = requested(given, StructType([StructField("offset", LongType())]))
    return read, plan_read(options)


def test_the_data_source_cuts_an_object_by_a_few_of_its_bytes(store: Store, large: Path) -> None:
    read, tasks = planned()
    assert len(tasks) == 4
    assert sum(size for path, size in store.sent.items() if path.endswith(".log")) < 1 << 20
    found = [offset for task in tasks for rows in read_table(read, task) for offset in rows[0].to_pylist()]
    assert sorted(found) == list(range(400))
    large.with_suffix(".index").unlink()
    store.reset()
    read, tasks = planned()
    assert len(tasks) == 1  # all headers would be most of it
    assert not [path for _, path in store.paths if path.endswith(".log")]
    assert sum(rows.num_rows for rows in read_table(read, tasks[0])) == 400


def test_the_data_source_shows_that_an_object_was_written_again(large: Path) -> None:
    large.with_suffix(".index").unlink()
    read, (task,) = planned()
    os.utime(large, (2_000_000_000, 2_000_000_000))
    with pytest.raises(ReadFailed, match=r"can't be read as it was planned: it was written again since"):
        list(read_table(read, task))


def test_a_stream_of_a_store_is_refused() -> None:
    source = KafkaLogSource({"path": "s3a://logs/kafka"})
    with pytest.raises(UserError, match=r"^s3a://logs/kafka can't be read as a stream, .* decode --watch$"):
        source.streamReader(StructType([StructField("offset", LongType())]))


def test_many_objects_are_listed_a_thousand_at_a_time(store: Store) -> None:
    made = 3_000
    for i in range(made // 100):
        folder = store.folder / "many" / f"t-{i}"
        folder.mkdir(parents=True)
        for j in range(100):
            (folder / f"{j:020d}.log").touch()
    assert list_segments(uri("many")).segments.num_rows == made
    assert store.seen["GET"] <= made // 1000 + 2
    assert list_segments(uri("many/t-{1,2}")).segments.num_rows == 200
    named = list_segments(uri("many/t-7", f"{5:020d}.log")).segments
    assert named.num_rows == 100
    assert pc.sum(named.column("wanted")).as_py() == 1
