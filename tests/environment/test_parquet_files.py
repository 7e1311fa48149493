"""The data files: their codecs, where they lie, and that the disk has them before a table names them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.logs import batch, batches, put, rows
from tests.support.segment_maker import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WORDS = ["offset", "leader", "epoch", "producer", "record", "segment", "broker", "topic"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two partitions of texts that compress."""
    folder = tmp_path / "logs"
    texts = [" ".join(WORDS[(i * k) % 8] for k in range(1, 40)) for i in range(64)]
    for partition in (0, 1):
        put(folder / f"a-{partition}", 0, *(batch(3 * i, text=text) for i, text in enumerate(texts)))
    return folder


def data_files(lake: Path, table: str = "records") -> list[str]:
    return sorted(uri.removeprefix("file://") for uri in DeltaTable(str(lake / table)).file_uris())


def codecs(lake: Path) -> set[str]:
    """The codec of each column of the data files of ``records``, by the names of the Parquet format."""
    requested = "SELECT DISTINCT compression FROM parquet_metadata($1)"
    return {codec for (codec,) in duckdb.execute(requested, [data_files(lake)]).fetchall()}


@pytest.mark.parametrize(
    ("codec", "name"),
    [("lz4", "LZ4_RAW"), ("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("gzip", "GZIP"), ("none", "UNCOMPRESSED")],
)
def test_every_reader_reads_every_codec(
    spark: SparkSession, logs: Path, tmp_path: Path, codec: str, name: str
) -> None:
    lake = tmp_path / "lake"
    settings = Settings(lake=str(lake), source=(str(logs),), parquet_compression=codec)
    as_command.decode(spark, settings)
    assert codecs(lake) == {name}
    columns = ["segment", "offset", "key", "value"]
    by_delta = DeltaTable(str(lake / "records")).to_pyarrow_table(columns=columns).to_pylist()
    by_spark = spark.read.format("delta").load(str(lake / "records")).select(columns).toArrow().to_pylist()
    requested = 'SELECT segment, "offset", key, value FROM read_parquet($1)'
    by_duckdb = sorted(duckdb.execute(requested, [data_files(lake)]).fetchall())
    assert len(by_duckdb) == 2 * 64 * 3
    assert sorted(tuple(row.values()) for row in by_delta) == by_duckdb
    assert sorted(tuple(map(row.get, columns)) for row in by_spark) == by_duckdb


@pytest.mark.parametrize(("codec", "fast", "small"), [("zstd", -7, 19), ("gzip", 1, 9)])
def test_a_higher_level_gives_smaller_files(
    spark: SparkSession, logs: Path, tmp_path: Path, codec: str, fast: int, small: int
) -> None:
    sizes = []
    for level in (fast, small):
        lake = tmp_path / f"lake{level}"
        settings = Settings(
            lake=str(lake),
            source=(str(logs),),
            parquet_compression=codec,
            parquet_compression_level=level,
        )
        as_command.decode(spark, settings)
        sizes.append(sum(os.path.getsize(path) for path in data_files(lake)))
    assert sizes[1] < sizes[0]


def test_the_folders_of_data_files_name_their_partition(spark: SparkSession, tmp_path: Path) -> None:
    lake, logs = tmp_path / "lake", tmp_path / "logs"
    for partition in range(5):
        put(logs / f"{'t' * 200}-{partition}", 0, *batches(0, 2))
    bases = range(0, 12, 4)
    for base in bases:  # three segments of three formats, which share a group
        old, older = Message(1, base, value=b"v1").encode(), Message(0, base + 3).encode()
        put(logs / "mixed-0", base, old, batch(base + 1, 2), older)
    as_command.decode(spark, Settings(lake=str(lake), source=(str(logs),)))
    for table in ("records", "batches"):
        files = data_files(lake, table)
        assert len(files) == 5 + 3  # one a partition and format
        folders = [Path(path).parent.relative_to(lake / table).parts for path in files]
        own = {("topic=mixed", "partition=0", f"magic={magic}") for magic in range(3)}
        assert {folder for folder in folders if folder[0] == "topic=mixed"} == own
        assert {folder[1] for folder in folders if folder[0] != "topic=mixed"} == {
            f"partition={partition}" for partition in range(5)
        }
    found = [
        (r["magic"], r["offset"], r["segment"]) for r in rows(str(lake), "records") if r["topic"] == "mixed"
    ]
    formats = ((1, 0), (2, 1), (2, 2), (0, 3))
    assert sorted(found) == sorted(
        (magic, base + k, f"file://{logs}/mixed-0/{base:020d}.log") for base in bases for magic, k in formats
    )


# What a process does that has this on its path: it tells each flush, with the size of the file then
SPY = """
import json, os
flush, told = os.fsync, os.environ["FLUSHED"]
def fsync(descriptor):
    flush(descriptor)
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    with open(told, "a") as out:
        out.write(json.dumps([path, os.fstat(descriptor).st_size]) + "\\n")
os.fsync = fsync
"""


def flushed(tmp_path: Path, job: str, *arguments: str) -> list[tuple[str, int]]:
    """Path and size of what a job and its workers flush to the disk, in order."""
    printed, spy = tmp_path / "flushed", tmp_path / "spy"
    spy.mkdir()
    (spy / "sitecustomize.py").write_text(SPY)
    found = {**os.environ, "PYTHONPATH": f"{spy}{os.pathsep}{ROOT}", "FLUSHED": str(printed)}
    command = [sys.executable, "-m", f"pipelines.{job}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=found, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [(path, size) for path, size in map(json.loads, printed.read_text().splitlines())]


def first(order: list[tuple[str, int]], text: str) -> int:
    return next(i for i, (path, _) in enumerate(order) if text in path)


def last(order: list[tuple[str, int]], wanted: Path) -> int:
    return max(i for i, (path, _) in enumerate(order) if path == str(wanted))


@pytest.mark.parametrize("job", ["decode_batches", "ingest_raw"])
def test_data_files_are_on_the_disk_before_the_intent_names_them(
    tmp_path: Path, logs: Path, job: str
) -> None:
    lake = tmp_path / "lake"
    order = flushed(tmp_path, job, "--source", str(logs), "--lake", str(lake))
    intent = first(order, ".json.tmp")
    for table in ("records", "batches") if job == "decode_batches" else ("raw_segments",):
        files = [Path(path) for path in data_files(lake, table)]
        assert len(files) == 2
        for path in files:
            written = order.index((str(path), path.stat().st_size))
            for folder in (path.parent, path.parent.parent):
                assert written < last(order[:intent], folder)


def test_commits_are_on_the_disk_before_the_ledger_and_the_end_rely_on_them(
    tmp_path: Path, logs: Path
) -> None:
    lake = tmp_path / "lake"
    put(logs / "a-1", 192, b"garbage" * 10)  # quarantine too
    order = flushed(tmp_path, "decode_batches", "--source", str(logs), "--lake", str(lake))
    entry = "_delta_log/00000000000000000001.json"
    ledger = last(order, lake / "segments" / entry)
    assert ledger < last(order, lake / "segments" / "_delta_log")
    for table in ("records", "batches", "quarantine"):
        files = [Path(path) for path in data_files(lake, table)]
        for path in [*files, lake / table / entry]:
            assert order.index((str(path), path.stat().st_size)) < ledger
            assert last(order, path.parent) > order.index((str(path), path.stat().st_size))
    for path in map(Path, data_files(lake, "segments")):
        assert (str(path), path.stat().st_size) in order
    for path in map(Path, data_files(lake, "records")):
        assert order.index((str(path), path.stat().st_size)) < first(order, ".json.tmp")


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_file_shows_by_its_indexes_where_a_key_and_an_offset_may_be(
    tmp_path: Path, is_rewritten: bool
) -> None:
    lake, logs = tmp_path / "lake", tmp_path / "logs"
    texts = ["x" * 4000 + str(i) for i in range(128)]
    put(logs / "a-0", 0, *(batch(3 * i, text=text) for i, text in enumerate(texts)))
    settings = Settings(lake=str(lake), source=(str(logs),))
    put(logs / "a-0", 3000, batch(3000))
    as_command.decode(None, settings)
    if is_rewritten:
        as_command.decode(None, dataclasses.replace(settings, redecode="3000"))
        paths = [path for path in data_files(lake) if "rewritten" in path]
    else:
        paths = data_files(lake)
    (path,) = paths
    row_group = pq.read_metadata(path).row_group(0)
    columns = {row_group.column(j).path_in_schema: row_group.column(j) for j in range(row_group.num_columns)}
    assert columns["offset"].has_column_index
    assert all(column.has_offset_index for column in columns.values())
    (key,) = duckdb.execute("SELECT any_value(key) FROM read_parquet($1)", [path]).fetchall()[0]
    excludes = "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe($1, 'key', $2)"
    assert duckdb.execute(excludes, [path, key]).fetchall() == [(False,)]
    assert duckdb.execute(excludes, [path, b"there is no such key"]).fetchall() == [(True,)]
