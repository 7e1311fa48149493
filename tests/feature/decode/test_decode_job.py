"""The whole job on real Spark and real Delta tables: what it finds at a second look, and what it leaves."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.udfs.format.schema import RECORDS
from tests.support import as_command
from tests.support.logs import batch, batches, contents, put, rows, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.decode.summary import Summary


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "it's % logs [1]"


def decode(spark: SparkSession | None, lake: str, source: Path | None, **settings: Any) -> Summary:
    """In Spark, or in processes, as the command does. What a run has to do is planned alike in both."""
    if spark is None:
        return as_command.decode(None, Settings(lake=lake, source=(str(source),), **settings))
    where = {"from_raw": True} if source is None else {"source": str(source)}
    return decode_batches.run(spark, Settings(lake=lake, **where, **settings))


def fresh(template: str, source: Path, **settings: Any) -> dict[str, Any]:
    """What an empty lake holds after one undisturbed run over the source, in processes."""
    lake = str(source.parent / f"fresh-{len(os.listdir(source.parent))}")
    shutil.copytree(template, lake)
    decode(None, lake, source, **settings)
    return contents(lake)


def offsets(lake: str) -> list[int]:
    return sorted(row["offset"] for row in rows(lake, "records"))


def test_every_batch_and_record_is_in_the_tables(spark: SparkSession, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 3))
    put(logs / "__b-1", 7, batch(7))
    summary = decode(spark, lake, logs)
    assert (summary.segments, summary.batches, summary.records, summary.damaged) == (2, 4, 12, 0)
    assert {(r["topic"], r["partition"]) for r in rows(lake, "batches")} == {("a", 0), ("__b", 1)}
    assert offsets(lake) == sorted([*range(9), 7, 8, 9])
    (row,) = [r for r in rows(lake, "segments") if r["topic"] == "__b"]
    assert row["segment"] == f"file://{logs}/__b-1/00000000000000000007.log"
    assert row["partition_dir"] == f"file://{logs}/__b-1"
    assert (row["first_offset"], row["last_offset"], row["records"], row["tail"]) == (7, 9, 3, "none")


def test_a_second_run_commits_nothing(lake: str, logs: Path) -> None:
    path = put(logs / "a-0", 0, *batches(0, 3), batch(9)[:-1])
    put(logs / "a-0", 100)
    put(logs / "a-1", 0, *batches(0, 3), batch(9)[:-1])
    put(logs / "a-1", 100, bytes(200))
    decode(None, lake, logs)
    before = versions(lake)
    os.utime(path)
    summary = decode(None, lake, logs)
    assert versions(lake) == before
    assert summary.segments == 0


def test_a_segment_that_grew_goes_on_where_it_stopped(lake_template: str, lake: str, logs: Path) -> None:
    first, second = batches(0, 3), batches(9, 2)
    put(logs / "a-0", 0, *first, second[0][:40])
    decode(None, lake, logs)
    (row,) = rows(lake, "segments")
    assert (row["tail"], row["tail_bytes"], row["decoded_bytes"]) == ("torn", 40, len(b"".join(first)))
    put(logs / "a-0", 0, *first, *second)
    summary = decode(None, lake, logs)
    assert (summary.batches, summary.bytes) == (2, len(b"".join(second)))
    assert contents(lake) == fresh(lake_template, logs)


def test_a_torn_batch_becomes_damage_once_the_segment_has_a_successor(
    lake_template: str, lake: str, logs: Path
) -> None:
    put(logs / "a-0", 0, *batches(0, 3), batch(9)[:50])
    decode(None, lake, logs)
    assert rows(lake, "quarantine") == []
    put(logs / "a-0", 20, batch(20))
    decode(None, lake, logs)
    assert [r["reason"] for r in rows(lake, "quarantine")] == ["truncated"]
    assert contents(lake) == fresh(lake_template, logs)


def test_a_tail_that_goes_away_leaves_the_ledger(lake_template: str, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 3), bytes(100))
    decode(None, lake, logs)
    put(logs / "a-0", 0, *batches(0, 3))
    decode(None, lake, logs)
    assert contents(lake) == fresh(lake_template, logs)


def test_a_rewritten_segment_replaces_its_rows(
    spark: SparkSession, lake_template: str, lake: str, logs: Path
) -> None:
    written = batches(0, 4)
    put(logs / "a-0", 0, *written)
    put(logs / "a-1", 0, *written)
    decode(spark, lake, logs)
    put(logs / "a-0", 0, written[0], written[3], batch(12))
    put(logs / "a-2", 0, batch(0))
    summary = decode(spark, lake, logs)
    assert summary.segments == 2
    assert contents(lake) == fresh(lake_template, logs)


def test_a_segment_cut_short_replaces_its_rows(lake_template: str, lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 4))
    decode(None, lake, logs)
    put(logs / "a-0", 0, *batches(0, 2))
    decode(None, lake, logs)
    assert contents(lake) == fresh(lake_template, logs)


def test_a_file_without_bytes_has_a_row_and_ends_no_other(lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 2), batch(6)[:30])
    put(logs / "a-0", 100)
    assert decode(None, lake, logs).segments == 2
    assert [(r["tail"], r["length"] > 0) for r in rows(lake, "segments")] == [("torn", True), ("none", False)]
    before = versions(lake)
    assert decode(None, lake, logs).segments == 0
    assert versions(lake) == before


def test_a_segment_cut_to_nothing_loses_its_rows(
    spark: SparkSession, lake_template: str, lake: str, logs: Path
) -> None:
    put(logs / "a-0", 0, *batches(0, 2))
    decode(spark, lake, logs)
    put(logs / "a-0", 0)
    decode(spark, lake, logs)
    assert rows(lake, "records") == []
    assert contents(lake) == fresh(lake_template, logs)


def test_a_segment_merged_into_the_one_before_loses_its_rows(
    spark: SparkSession, lake: str, logs: Path
) -> None:
    first, second, third = batches(0, 2), batches(6, 2), batches(12, 2)
    put(logs / "a-0", 0, *first)
    merged = put(logs / "a-0", 6, *second)
    put(logs / "a-0", 12, *third)
    decode(spark, lake, logs)
    merged.unlink()
    put(logs / "a-0", 0, first[1], second[1])
    decode(spark, lake, logs)
    assert offsets(lake) == [*range(3, 6), *range(9, 18)]
    assert [r["file_base_offset"] for r in rows(lake, "segments")] == [0, 12]
    assert len(rows(lake, "batches")) == 4


def test_files_that_retention_deleted_keep_their_rows(lake: str, logs: Path) -> None:
    old = put(logs / "a-0", 0, *batches(0, 2))
    put(logs / "a-0", 6, *batches(6, 2))
    decode(None, lake, logs)
    before = contents(lake)
    old.unlink()
    decode(None, lake, logs)
    assert contents(lake) == before


def test_redecode_replaces_the_rows_of_those_segments_alone(lake: str, logs: Path) -> None:
    put(logs / "a-0", 0, *batches(0, 2))
    put(logs / "b-0", 0, *batches(0, 2))
    decode(None, lake, logs)
    before = contents(lake)
    summary = decode(None, lake, logs, redecode="/a-0/")
    assert (summary.segments, summary.unchanged) == (1, 1)
    assert contents(lake) == before


def test_a_change_between_the_marks_is_seen_by_its_content_alone(
    lake_template: str, lake: str, logs: Path
) -> None:
    first, _, last = batches(0, 3)
    put(logs / "a-0", 0, first, batch(3, text="x"), last)
    decode(None, lake, logs)
    put(logs / "a-0", 0, first, batch(3, text="y"), last)
    assert decode(None, lake, logs).segments == 0
    assert decode(None, lake, logs, verify_content=True).segments == 1
    assert contents(lake) == fresh(lake_template, logs)
    before = versions(lake)
    decode(None, lake, logs, verify_content=True)
    assert versions(lake) == before


def mixed_logs(logs: Path) -> None:
    """Codecs, a damaged batch between sound ones, tails, an empty segment, a second magic."""
    sound = batches(0, 4, codec=4)
    broken = bytearray(batch(12, codec=3))
    broken[-1] ^= 1
    put(logs / "a-0", 0, *sound, bytes(broken), *batches(15, 3, codec=1))
    put(logs / "a-0", 100, *batches(100, 3), batch(109)[:30])
    put(logs / "__t-1", 0, batch(0, flags=0x10, producer_id=5, producer_epoch=0, base_sequence=0), bytes(64))
    put(logs / "empty-0", 0)
    put(logs / "garbage-0", 0, b"no batch at all, " * 9)


@pytest.mark.parametrize("read", ["binary", "in parts", "raw"])
def test_every_read_gives_the_same_tables(
    spark: SparkSession, lake_template: str, lake: str, logs: Path, read: str
) -> None:
    mixed_logs(logs)
    if read == "raw":
        ingest_raw.run(spark, Settings(lake=lake, source=(str(logs),)))
        decode(spark, lake, None)
    else:
        decode(spark, lake, logs, read="binary", max_content=100 if read == "in parts" else 1 << 20)
    assert contents(lake) == fresh(lake_template, logs)
    before = versions(lake)
    decode(spark, lake, logs)
    decode(spark, lake, None if read == "raw" else logs)
    assert versions(lake) == before


@pytest.mark.parametrize("slice_bytes", [1, 50, 333])
def test_slices_give_the_same_rows_as_whole_segments(
    spark: SparkSession, lake_template: str, lake: str, logs: Path, slice_bytes: int
) -> None:
    mixed_logs(logs)
    decode(spark, lake, logs, slice_bytes=slice_bytes)
    assert contents(lake) == fresh(lake_template, logs)


def test_a_query_for_a_range_reads_only_the_files_that_hold_it(
    spark: SparkSession, lake: str, logs: Path
) -> None:
    hour = 3_600_000
    path = put(
        logs / "a-0", 0, *(batch(3 * i, base_timestamp=1_700_000_000_000 + i * hour) for i in range(16))
    )
    decode(spark, lake, logs, slice_bytes=path.stat().st_size // 4)
    records = spark.read.format("delta").load(f"{lake}/records")
    assert len(records.inputFiles()) == 4
    (seven,) = [row for row in rows(lake, "batches") if row["base_offset"] == 21]
    for condition in (
        "offset BETWEEN 21 AND 23",
        "timestamp BETWEEN '2023-11-15 05:00:00' AND '2023-11-15 05:30:00'",
        f"timestamp_ms = {1_700_000_000_000 + 7 * hour}",
        f"batch_position = {seven['position']}",
    ):
        found = records.where(condition)
        assert [row.offset for row in found.collect()] == [21, 22, 23], condition
        assert len(found.inputFiles()) == 1, condition
    found = spark.read.format("delta").load(f"{lake}/batches").where("base_offset = 21")
    assert (found.count(), len(found.inputFiles())) == (1, 1)


def test_values_that_hold_kafka_batches_are_not_taken_for_the_log(
    spark: SparkSession, lake: str, logs: Path
) -> None:
    inner = b"".join(batches(1000, 40, text="inner"))
    put(logs / "a-0", 0, batch(0), batch(3, text="x" + inner.decode("latin-1")), batch(6))
    decode(spark, lake, logs, slice_bytes=200)
    assert offsets(lake) == list(range(9))
    assert rows(lake, "quarantine") == []


def test_bounded_runs_follow_each_other_until_nothing_is_left(
    lake_template: str, lake: str, logs: Path
) -> None:
    mixed_logs(logs)
    summary = decode(None, lake, logs, max_files_per_run=2)
    assert summary.segments == 5
    assert DeltaTable(f"{lake}/segments").transaction_version("kafka-log-decode") == 3
    assert contents(lake) == fresh(lake_template, logs)


def test_copies_are_all_decoded_with_a_warning_or_only_the_furthest(
    lake_template: str, lake: str, logs: Path
) -> None:
    put(logs / "one" / "a-0", 0, *batches(0, 2))
    put(logs / "two" / "a-0", 0, *batches(0, 3))
    put(logs / "two" / "b-0", 0, *batches(0, 1))
    summary = decode(None, lake, logs)
    assert len(rows(lake, "segments")) == 3
    assert any("a-0 (2)" in w for w in summary.warnings)
    only = fresh(lake_template, logs, one_copy=True)
    assert {r["partition_dir"] for r in only["segments"]} == {
        f"file://{logs}/two/a-0",
        f"file://{logs}/two/b-0",
    }


def test_the_last_line_is_one_json_object(
    spark: SparkSession, lake: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed_logs(logs)
    assert decode_batches.main(["--source", str(logs), "--lake", lake, "--json", "--fail-on-damage"]) == 3
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["lake"] == lake
    assert (printed["segments"], printed["damaged"] > 0, printed["bytes"] > 0) == (5, True, True)
    assert {"run_id", "batches", "records", "seconds"} <= printed.keys()
    # A second run reports the same as the first: the damage is still there
    assert decode_batches.main(["--source", str(logs), "--lake", lake, "--json", "--fail-on-damage"]) == 3
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (again["segments"], again["damaged"], again["damaged_before"]) == (0, 0, printed["damaged"])
    assert decode_batches.main(["--source", str(logs), "--lake", lake, "--fail-on-damage"]) == 3
    shown = capsys.readouterr()
    assert "damaged ranges found by earlier runs" in shown.out
    sound = ["--source", str(logs), "--topics", "__t", "--lake", lake, "--fail-on-damage"]
    assert decode_batches.main(sound) == 0


def test_each_run_that_changes_the_lake_has_a_row(spark: SparkSession, lake: str, logs: Path) -> None:
    mixed_logs(logs)
    began = datetime.now(UTC)
    first = decode(spark, lake, logs)
    decode(spark, lake, logs)
    landed = ingest_raw.run(spark, Settings(source=(str(logs),), lake=lake))
    found = sorted(DeltaTable(f"{lake}/runs").to_pyarrow_table().to_pylist(), key=lambda row: row["began_at"])
    assert [(row["job"], row["run_id"]) for row in found] == [
        ("decode", first.run_id),
        ("ingest", landed.run_id),
    ]
    for name in ("segments", "batches", "records", "damaged", "bytes", "unchanged"):
        assert found[0][name] == getattr(first, name), name
    assert (found[1]["segments"], found[1]["bytes"]) == (5, landed.bytes)
    phases = dict(found[0]["phases"])
    assert {"listing", "planning", "starting Spark", "decoding"} <= phases.keys()
    assert 0 < sum(phases.values()) == pytest.approx(found[0]["seconds"])
    assert began <= found[0]["began_at"] <= datetime.now(UTC)


def test_the_summary_names_tables_and_queries(
    spark: SparkSession, lake: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed_logs(logs)
    assert decode_batches.main(["--source", str(logs), "--lake", lake]) == 0
    text = capsys.readouterr().out
    assert "decoded 5 segments" in text
    assert "tables are in " + lake in text
    assert text.count(f"kafka-log-lake query --lake {shlex.quote(lake)} ") == 3


def test_decode_segments_gives_records_and_writes_nothing(spark: SparkSession, lake: str, logs: Path) -> None:
    mixed_logs(logs)
    decode(spark, lake, logs)
    found = decode_batches.decode_segments(spark, str(logs))
    kept = rows(lake, "records")
    assert found.columns == [column.name for column in RECORDS.columns]
    assert found.count() == len(kept)
    assert {r.offset for r in found.where("topic = 'a'").collect()} == {
        r["offset"] for r in kept if r["topic"] == "a"
    }
    assert decode_batches.decode_segments(spark, str(logs), topics="__t").count() == 3


def test_a_second_job_on_the_same_lake_leaves_with_one_line(lake: str, logs: Path) -> None:
    from kafka_log_lake.pipelines.lake.intents import Intents

    put(logs / "a-0", 0, batch(0))
    with Intents(lake).lock(), pytest.raises(UserError, match="another run is writing"):
        decode(None, lake, logs)
    assert decode(None, lake, logs).segments == 1
