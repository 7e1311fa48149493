"""The bytes of segments, whoever reads them: files and landed chunks, by tasks and by Spark's own readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.udfs.storage.landed_source import LandedFiles, LandedSource
from tests.support import as_command
from tests.support.archive import archive
from tests.support.logs import batch, batches, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By Spark: files as content, as slices that tasks open, and in lines where only Spark opens them
READERS: dict[str, dict[str, Any]] = {
    "content": {"read": "binary"},
    "tasks": {"read": "binary", "max_content": 1000, "slice_bytes": 50_000},
    "lines": {"max_content": 20_000},
}


def make(logs: Path) -> Path:
    """Batches of every size, a torn tail, damage, zeros at both ends of a file, bytes that are no batch."""
    large = [batch(offset, 1, text="x" * 2000) for offset in range(200)]
    put(logs / "a b-0", 0, *large[:100])
    put(logs / "a b-0", 100, *large[100:], batch(999)[:40])
    put(logs / "a b-1", 0, *large[:50], b"garbage" * 300, *large[60:], b"\0" * 500)
    put(logs / "c-0", 0, b"\0" * 6, b"no batch\0\0\0\0")
    put(logs / "c-1", 0, *batches(0, 3), batch(9)[:-3] + b"\0\0\0")
    return logs


def chunks(lake: str) -> dict[str, bytes]:
    """The name of each segment's folder and file -> its landed bytes."""
    found: dict[str, bytes] = {}
    for row in sorted(rows(lake, "raw_segments"), key=lambda r: (r["segment"], r["chunk_position"])):
        name = "/".join(row["segment"].rsplit("/", 2)[1:])
        assert row["chunk_position"] == len(found.get(name, b""))
        found[name] = found.get(name, b"") + row["content"]
    return found


def decoded(lake: str) -> list[list[dict[str, Any]]]:
    """Rows of the tables without where the files are, and which run wrote them."""
    tables = ("records", "batches", "quarantine")
    own = ("segment", "run_id")
    return [
        sorted(
            ({k: v for k, v in row.items() if k not in own} for row in rows(lake, name)),
            key=lambda row: str(sorted(row.items(), key=str)),
        )
        for name in tables
    ]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_brings_every_byte(spark: SparkSession, tmp_path: Path, reader: str) -> None:
    logs = make(tmp_path / "a b#1")
    source = archive(logs, tmp_path / "logs.har") if reader == "lines" else str(logs)
    lakes = [str(tmp_path / name) for name in ("files", "raw", "read")]
    as_command.decode(None, Settings(lake=lakes[0], source=(str(logs),)))
    as_command.ingest(spark, Settings(lake=lakes[1], source=(source,), **READERS[reader]))
    assert chunks(lakes[1]) == {"/".join(p.parts[-2:]): p.read_bytes() for p in logs.rglob("*.log")}
    as_command.decode(None, Settings(lake=lakes[1], from_raw=True, slice_bytes=50_000))
    as_command.decode(spark, Settings(lake=lakes[2], source=(source,), **READERS[reader]))
    assert len(decoded(lakes[0])[0]) > 300
    assert decoded(lakes[1]) == decoded(lakes[0])
    assert decoded(lakes[2]) == decoded(lakes[0])


@pytest.mark.spark
def test_what_only_spark_reads_goes_on_where_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    large = [batch(offset, 1, text="x" * 2000) for offset in range(90)]
    for number, end in enumerate((40, 90)):
        put(logs / "a-0", 0, *large[:end])
        archive(logs, tmp_path / f"{number}.har")
        made = tmp_path / "logs.har"
        made.unlink(missing_ok=True)
        made.symlink_to(tmp_path / f"{number}.har")
        source = f"har://{made}"
        as_command.ingest(spark, Settings(lake=lake, source=(source,), max_content=20_000))
    assert [row["chunk_position"] for row in rows(lake, "raw_segments")].count(0) == 1
    assert chunks(lake) == {"a-0/00000000000000000000.log": b"".join(large)}


@pytest.mark.spark
def test_a_stretch_too_long_for_a_line_is_left_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    put(logs / "a-0", 0, batch(0, 1, text="x" * 1_500_000), batch(1))
    put(logs / "b-0", 0, *batches(0, 3))
    source = archive(logs, tmp_path / "logs.har")
    done = as_command.decode(spark, Settings(lake=lake, source=(source,), max_content=20_000))
    (warning,) = done.warnings
    assert "/a-0/00000000000000000000.log can't be read: " in warning
    assert "--max-content" in warning
    assert len(rows(lake, "records")) == 9
    again = as_command.decode(spark, Settings(lake=lake, source=(source,), max_content=2_000_000))
    assert (again.warnings, len(rows(lake, "records"))) == ([], 13)


@pytest.mark.spark
def test_a_file_that_the_heap_cannot_hold_is_refused_before_it_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = put(tmp_path / "logs" / "a-0", 0, batch(0))
    with path.open("ab") as file:
        file.truncate(3 << 30)
    settings = Settings(lake=str(tmp_path / "lake"), source=(str(path),), read="binary", max_content=4 << 30)
    with pytest.raises(UserError, match=r"needs a heap of 36g: set --driver-memory"):
        as_command.ingest(spark, settings)


# Rows of raw_segments that somebody changed


def _without_content(table: pa.Table, at: int) -> pa.Table:
    return _with_content(table, at, None)


def _cut(table: pa.Table, at: int) -> pa.Table:
    return _with_content(table, at, table.column("content")[at].as_py()[:-10])


def _other_bytes(table: pa.Table, at: int) -> pa.Table:
    return _with_content(table, at, table.column("content")[at].as_py()[:-1] + b"!")


def _with_content(table: pa.Table, at: int, content: bytes | None) -> pa.Table:
    values = table.column("content").to_pylist()
    values[at] = content
    return table.set_column(table.column_names.index("content"), "content", pa.array(values, pa.binary()))


def _gone(table: pa.Table, at: int) -> pa.Table:
    return table.take([i for i in range(len(table)) if i != at])


def _twice(table: pa.Table, at: int) -> pa.Table:
    return pa.concat_tables([table, table.slice(at, 1)])


@pytest.mark.parametrize(
    ("change", "why", "heals"),
    [
        (_without_content, "content of its chunk at byte 0 in raw_segments is null", False),
        (_cut, "content of its chunk at byte 0 in raw_segments has", False),
        (_other_bytes, "content of its chunk at byte 0 in raw_segments is not what was landed", False),
        (_gone, "raw_segments has no chunk with byte 0 of it", True),
        (_twice, "raw_segments has more than one chunk with byte 0 of it", True),
    ],
)
def test_a_landed_segment_that_somebody_changed_is_named_and_stops_no_other(
    lake: str, tmp_path: Path, change: Callable[[pa.Table, int], pa.Table], why: str, heals: bool
) -> None:
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, *batches(0, 3), batch(9)[:40])
    put(logs / "b-0", 0, *batches(0, 3))
    ingest, decode = Settings(lake=lake, source=(str(logs),)), Settings(lake=lake, from_raw=True)
    as_command.ingest(None, ingest)
    raw = DeltaTable(f"{lake}/raw_segments")
    table = pa.table(raw.to_pyarrow_table())
    places = zip(*(table.column(name).to_pylist() for name in ("topic", "chunk_position")), strict=True)
    write_deltalake(raw, change(table, [*places].index(("a", 0))), mode="overwrite")
    done = as_command.decode(None, decode)
    (warning,) = done.warnings
    assert f"/a-0/00000000000000000000.log can't be read: {why}" in warning
    assert {row["topic"] for row in rows(lake, "records")} == {"b"}
    if not heals:
        name = sql_literal(f"file://{logs}/a-0/{0:020d}.log")
        DeltaTable(f"{lake}/raw_segments").delete(f"segment = {name}")
    as_command.ingest(None, ingest)
    assert as_command.decode(None, decode).warnings == []
    assert len(rows(lake, "records")) == 18


def test_landed_bytes_are_read_from_the_files_that_other_writers_made_of_them(
    lake: str, tmp_path: Path
) -> None:
    """Compaction merges chunks into other row groups; a deletion leaves a file to be written again."""
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, *batches(0, 3))
    for end in (2, 5, 9):
        put(logs / "a-1", 0, *batches(0, end))
        put(logs / "a-1", 50, *batches(50, end))
        as_command.ingest(None, Settings(lake=lake, source=(str(logs),)))
    raw = DeltaTable(f"{lake}/raw_segments")
    raw.optimize.compact()
    done = as_command.decode(None, Settings(lake=lake, from_raw=True, slice_bytes=200))
    assert (done.warnings, done.records) == ([], 63)


def test_a_task_holds_few_chunks_of_a_large_segment(lake: str, tmp_path: Path) -> None:
    """One chunk a row group; a slice reads those that it needs, and ends where a chunk ends."""
    path = put(tmp_path / "logs" / "a-0", 0, *[batch(n, 1, text="x" * 1_000_000) for n in range(80)])
    as_command.ingest(None, Settings(lake=lake, source=(str(path),)))
    found = sorted(rows(lake, "raw_segments"), key=lambda row: row["chunk_position"])
    size = path.stat().st_size
    assert len(found) == -(-size // (16 << 20))
    uris = [str(file) for file in Path(lake, "raw_segments").rglob("*.parquet")]
    opened = LandedFiles()
    source = LandedSource(f"file://{path}", uris, size, opened)
    before = pa.total_allocated_bytes()
    view = np.empty(1 << 20, dtype=np.uint8)
    most = 0
    for position in range(0, size, 1 << 20):
        source.read_into(position, view)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 5 * (16 << 20)
    begins = [row["chunk_position"] for row in found]
    for position in range(1, size, 999_983):
        after = next((begin for begin in begins if begin >= position), None)
        assert source.cut_at(position) == ((position, False) if after is None else (after, True))
    source.close()
    opened.close()
    done = as_command.decode(None, Settings(lake=lake, from_raw=True, slice_bytes=20 << 20))
    assert (done.warnings, done.batches) == ([], 80)


def test_slices_of_landed_bytes_find_what_files_hold_around_damage(lake: str, tmp_path: Path) -> None:
    """After damage that no length leads over chunks end anywhere; and a batch is larger than a chunk."""
    made = [batch(n, 1, text="x" * 1_000_000) for n in range(60)]
    large = batch(60, 1, text="x" * 40_000_000)
    put(tmp_path / "logs" / "a-0", 0, *made[:20], large, *made[20:])
    put(tmp_path / "logs" / "a-1", 0, *made[:16], made[16][:-1] + b"?", *made[17:20], b"?" * 3000, *made[20:])
    of_files = str(tmp_path / "files")
    as_command.decode(None, Settings(lake=of_files, source=(str(tmp_path / "logs"),)))
    as_command.ingest(None, Settings(lake=lake, source=(str(tmp_path / "logs"),)))
    done = as_command.decode(None, Settings(lake=lake, from_raw=True, slice_bytes=17 << 20))
    assert (done.warnings, done.batches, done.damaged) == ([], 121, 2)
    assert decoded(lake) == decoded(of_files)


@pytest.mark.spark
def test_small_files_that_spark_brings_share_files_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    for number in range(24):
        put(logs / f"a-{number % 3}", number, *batches(number, 1 + number % 4))
    as_command.ingest(spark, Settings(lake=lake, source=(str(logs),), read="binary"))
    assert len(chunks(lake)) == 24
    assert len(DeltaTable(f"{lake}/raw_segments").file_uris()) <= 6  # one a partition and task
