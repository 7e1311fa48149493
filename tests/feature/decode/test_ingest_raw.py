"""Landing raw bytes: only what is new lands, and it decodes to the same tables as the files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.logs import batch, batches, contents, put, rows, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.decode.summary import Summary


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def ingest(spark: SparkSession, lake: str, source: Path, **settings: Any) -> Summary:
    return as_command.ingest(spark, Settings(lake=lake, source=(str(source),), **settings))


def decode_raw(spark: SparkSession, lake: str) -> Summary:
    return as_command.decode(spark, Settings(lake=lake, from_raw=True))


def landed(lake: str) -> dict[str, bytes]:
    """Segment -> its bytes, from chunks that must follow each other and bear the right checksum."""
    found: dict[str, bytes] = {}
    for row in sorted(rows(lake, "raw_segments"), key=lambda r: (r["segment"], r["chunk_position"])):
        held = found.get(row["segment"], b"")
        assert row["chunk_position"] == len(held)
        assert (row["chunk_bytes"], row["crc32c"]) == (len(row["content"]), crc32c.crc32c(row["content"]))
        found[row["segment"]] = held + row["content"]
    return found


def on_disk(logs: Path) -> dict[str, bytes]:
    return {f"file://{path}": path.read_bytes() for path in logs.rglob("*.log")}


def test_files_land_byte_for_byte_once(spark: SparkSession, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 3), batch(9)[:40])
    put(logs / "a-1", 5, b"no batch at all")
    summary = ingest(spark, lake, logs)
    assert (summary.segments, summary.chunks) == (2, len(rows(lake, "raw_segments")))
    assert landed(lake) == on_disk(logs)
    before = versions(lake)
    assert ingest(spark, lake, logs).segments == 0
    assert versions(lake) == before


def test_only_new_bytes_land(spark: SparkSession, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 3))
    put(logs / "b-0", 0, *batches(0, 3), batch(9)[:40])
    ingest(spark, lake, logs)
    first = {(r["segment"], r["chunk_position"]): r["modified"] for r in rows(lake, "raw_segments")}
    put(logs / "a-0", 0, *batches(0, 5))
    put(logs / "b-0", 0, *batches(0, 4))
    ingest(spark, lake, logs)
    assert landed(lake) == on_disk(logs)
    kept = {(r["segment"], r["chunk_position"]): r["modified"] for r in rows(lake, "raw_segments")}
    assert [key for key in first if kept.get(key) == first[key]] == [k for k in first if k[1] == 0]


def test_a_rewritten_file_replaces_its_chunks(spark: SparkSession, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 3))
    put(logs / "b-0", 0, *batches(0, 3))
    ingest(spark, lake, logs)
    put(logs / "a-0", 0, *batches(3, 2))
    assert ingest(spark, lake, logs).segments == 1
    assert landed(lake) == on_disk(logs)


def test_a_file_merged_into_the_one_before_loses_its_chunks(
    spark: SparkSession, lake: str, logs: Path
) -> None:
    first, second, third = batches(0, 2), batches(6, 2), batches(12, 2)
    put(logs / "a-0", 0, *first)
    merged = put(logs / "a-0", 6, *second)
    last = put(logs / "a-0", 12, *third)
    ingest(spark, lake, logs)
    kept = {f"file://{last}": last.read_bytes()}
    merged.unlink()
    last.unlink()
    put(logs / "a-0", 0, first[1], second[1])
    ingest(spark, lake, logs)
    assert landed(lake) == on_disk(logs) | kept


def test_what_the_broker_deleted_stays_landed(spark: SparkSession, lake: str, logs: Path) -> None:
    old = put(logs / "a-0", 0, *batches(0, 3))
    put(logs / "a-0", 9, *batches(9, 3))
    ingest(spark, lake, logs)
    before = landed(lake)
    old.unlink()
    ingest(spark, lake, logs)
    assert landed(lake) == before
    assert decode_raw(spark, lake).records == 18


def test_decoding_in_steps_from_raw_gives_the_tables_of_the_files(
    spark: SparkSession, lake_template: str, lake: str, logs: Path
) -> None:
    put(logs / "a-0", 0, *batches(0, 3), batch(9)[:40])
    put(logs / "b-0", 0, *batches(0, 3))
    put(logs / "c-0", 0, *batches(0, 3))
    ingest(spark, lake, logs)
    decode_raw(spark, lake)
    before = versions(lake)
    assert decode_raw(spark, lake).segments == 0
    assert versions(lake) == before
    put(logs / "a-0", 0, *batches(0, 5))
    put(logs / "b-0", 0, *batches(3, 2))
    ingest(spark, lake, logs)
    summary = decode_raw(spark, lake)
    assert (summary.segments, summary.unchanged) == (2, 1)
    from_files = str(logs.parent / "from files")
    shutil.copytree(lake_template, from_files)
    as_command.decode(spark, Settings(lake=from_files, source=(str(logs),)))
    assert contents(lake) == contents(from_files)


def test_a_mark_may_lie_across_chunks(spark: SparkSession, lake: str, logs: Path) -> None:
    lying = bytearray(batch(3))
    lying[11] += 10  # its length leads into the batch after it, where the chunk then ends
    put(logs / "a-0", 0, batch(0), bytes(lying), batch(6)[:-1] + b"x")
    ingest(spark, lake, logs)
    assert decode_raw(spark, lake).damaged > 0
    assert decode_raw(spark, lake).segments == 0


def test_files_and_raw_share_the_ledger(spark: SparkSession, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 3), batch(9)[:40])
    ingest(spark, lake, logs)
    as_command.decode(spark, Settings(lake=lake, source=(str(logs),)))
    assert decode_raw(spark, lake).segments == 0
    put(logs / "a-0", 0, *batches(0, 5))
    ingest(spark, lake, logs)
    assert decode_raw(spark, lake).batches == 2
    assert as_command.decode(spark, Settings(lake=lake, source=(str(logs),))).segments == 0
